#include "server/source/contents.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "server/source/digest.h"
#include "server/storage/fault.h"

namespace feedwater::server {
namespace {

constexpr size_t kBuffer = 256 << 10;

struct Piece {
  uint32_t object;
  int64_t offset, length;
};

// Of all files; nothing where it overflows.
std::optional<int64_t> TotalBytes(const Dataset& dataset) {
  const auto objects = static_cast<uint32_t>(dataset.objects());
  int64_t total = 0;
  for (uint32_t i = 0; i < objects; ++i) {
    if (__builtin_add_overflow(total, dataset.ObjectBytes(i), &total)) return std::nullopt;
  }
  return total;
}

bool IsSmall(int64_t bytes, int64_t objects) {
  return bytes <= kWholeBytes && objects <= kWholeFiles;
}

// Which bytes are looked at, in the order of the files.
std::vector<Piece> ChoosePieces(const Dataset& dataset) {
  const auto objects = static_cast<uint32_t>(dataset.objects());
  const std::optional<int64_t> sum = TotalBytes(dataset);
  if (!sum) return {};
  const int64_t total = *sum;
  std::vector<Piece> pieces;
  if (IsSmall(total, objects)) {
    for (uint32_t i = 0; i < objects; ++i) pieces.push_back({i, 0, dataset.ObjectBytes(i)});
    return pieces;
  }
  int64_t before = 0;  // bytes of the files before object i
  int64_t next = 0;
  for (uint32_t i = 0; i < objects && next < kPieces; ++i) {
    const int64_t bytes = dataset.ObjectBytes(i);
    while (next < kPieces) {
      const auto at = static_cast<int64_t>(static_cast<__int128>(total) * next / kPieces);
      if (at >= before + bytes) break;
      const int64_t offset = at - before;
      pieces.push_back({i, offset, std::min(kPieceBytes, bytes - offset)});
      ++next;
    }
    before += bytes;
  }
  return pieces;
}

// Adds the file's bytes there, fewer where it is shorter.
absl::Status AddBytes(int fd, const Piece& piece, const std::string& what,
                      std::vector<char>* buffer, Digest* digest) {
  buffer->resize(kBuffer);
  for (int64_t done = 0; done < piece.length;) {
    const size_t length = std::min(buffer->size(), static_cast<size_t>(piece.length - done));
    const ssize_t got = pread(fd, buffer->data(), length, static_cast<off_t>(piece.offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return StorageError(errno, what);
    if (got == 0) break;
    digest->AddPart({buffer->data(), static_cast<size_t>(got)});
    done += got;
  }
  return absl::OkStatus();
}

// Whether the file is one that samples cannot be read from either.
bool IsOfTheFile(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsPermissionDenied(status) ||
         absl::IsInvalidArgument(status);
}

}  // namespace

bool IsReadWhole(const Dataset& dataset) {
  const std::optional<int64_t> total = TotalBytes(dataset);
  return total && IsSmall(*total, dataset.objects());
}

absl::StatusOr<Contents> ReadContents(const Dataset& dataset) {
  Digest digest;
  Contents contents;
  std::vector<char> buffer;
  Fd fd;
  std::string path;
  int64_t open_object = -1;
  for (const Piece& piece : ChoosePieces(dataset)) {
    digest.Add(uint64_t{piece.object});
    digest.Add(static_cast<uint64_t>(piece.offset));
    if (piece.object != open_object) {
      open_object = piece.object;
      path = dataset.ObjectPath(piece.object);
      if (path.empty()) {  // of a record that names no file
        fd = Fd();
        digest.Add("no file");
        continue;
      }
      // What lies elsewhere was made of the dataset's own files, which the format has stamped.
      if (&dataset.RootOf(piece.object) == &dataset.root()) {
        FW_ASSIGN_OR_RETURN(Stamp stamp,
                            StampNow(dataset.root(), path, &contents.unsettled_until_ns));
        contents.stamps.push_back(std::move(stamp));
      }
      absl::StatusOr<Fd> opened = dataset.RootOf(piece.object).OpenFile(path, /*direct_io=*/false);
      if (!opened.ok() && !IsOfTheFile(opened.status())) return opened.status();
      fd = opened.ok() ? *std::move(opened) : Fd();
    }
    if (!fd) {
      digest.Add("cannot be read");
      continue;
    }
    FW_RETURN_IF_ERROR(
        AddBytes(fd.get(), piece, dataset.RootOf(piece.object).Describe(path), &buffer, &digest));
  }
  contents.digest = digest.Hex();
  return contents;
}

}  // namespace feedwater::server
