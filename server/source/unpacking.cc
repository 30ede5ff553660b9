#include "server/source/unpacking.h"

#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/storage/fault.h"

namespace feedwater::server {
namespace {

constexpr size_t kBuffer = 1 << 20;

// Takes compressed bytes, gives what they unpack to.
class Unpacker {
 public:
  virtual ~Unpacker() = default;
  // Unpacks from `in`, which it moves on, into `out`; how many bytes it wrote. DataLoss: damaged.
  virtual absl::StatusOr<size_t> Run(absl::string_view* in, char* out, size_t room) = 0;
  // Whether the bytes so far end where they may end.
  virtual bool is_whole() const = 0;
};

// Of one member behind the other, as gzip and pigz write them.
class Gunzip final : public Unpacker {
 public:
  Gunzip() {
    constexpr int kGzipOnly = 16;
    is_ready_ = inflateInit2(&stream_, kGzipOnly + MAX_WBITS) == Z_OK;
  }
  ~Gunzip() override { inflateEnd(&stream_); }
  absl::StatusOr<size_t> Run(absl::string_view* in, char* out, size_t room) override {
    if (!is_ready_) return absl::ResourceExhaustedError("no memory for zlib");
    if (is_whole_) {
      // Zeros behind the last member fill a block, as tapes had them.
      in->remove_prefix(std::min(in->find_first_not_of('\0'), in->size()));
      if (in->empty()) return 0;
      inflateReset(&stream_);
      is_whole_ = false;
    }
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in->data()));
    stream_.avail_in = static_cast<uInt>(in->size());
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(room);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    in->remove_prefix(in->size() - stream_.avail_in);
    if (result == Z_STREAM_END) {
      is_whole_ = true;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      return absl::DataLossError(stream_.msg != nullptr ? stream_.msg : "no gzip data");
    }
    return room - stream_.avail_out;
  }
  bool is_whole() const override { return is_whole_; }

 private:
  z_stream stream_ = {};
  bool is_ready_ = false, is_whole_ = false;
};

class Unzstd final : public Unpacker {
 public:
  Unzstd() : stream_(ZSTD_createDCtx()) {
    constexpr int kMaxWindow = 27;  // 128 MiB, as zstd's own tool
    if (stream_ != nullptr) ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, kMaxWindow);
  }
  ~Unzstd() override { ZSTD_freeDCtx(stream_); }
  absl::StatusOr<size_t> Run(absl::string_view* in, char* out, size_t room) override {
    if (stream_ == nullptr) return absl::ResourceExhaustedError("no memory for zstd");
    ZSTD_inBuffer from{in->data(), in->size(), 0};
    ZSTD_outBuffer to{out, room, 0};
    const size_t result = ZSTD_decompressStream(stream_, &to, &from);
    if (ZSTD_isError(result) != 0) return absl::DataLossError(ZSTD_getErrorName(result));
    in->remove_prefix(from.pos);
    is_whole_ = result == 0;
    return to.pos;
  }
  bool is_whole() const override { return is_whole_; }

 private:
  ZSTD_DCtx* const stream_;
  bool is_whole_ = false;
};

std::unique_ptr<Unpacker> UnpackerOf(absl::string_view path) {
  if (absl::EndsWith(path, ".zst") || absl::EndsWith(path, ".zstd"))
    return std::make_unique<Unzstd>();
  return std::make_unique<Gunzip>();
}

}  // namespace

bool IsPackedName(absl::string_view name, std::string* unpacked) {
  for (const absl::string_view end : {".gz", ".zst", ".zstd"}) {
    if (!absl::EndsWith(name, end) || name.size() == end.size()) continue;
    *unpacked = std::string(absl::StripSuffix(name, end));
    return true;
  }
  if (!absl::EndsWith(name, ".tgz")) return false;
  *unpacked = absl::StrCat(absl::StripSuffix(name, ".tgz"), ".tar");
  return true;
}

absl::Status UnpackFile(int file, absl::string_view name, const std::string& what,
                        const std::function<absl::Status(absl::string_view bytes)>& append,
                        const std::function<absl::Status()>& goes_on) {
  const std::unique_ptr<Unpacker> unpacker = UnpackerOf(name);
  const auto damaged = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(what, " cannot be unpacked: ", why));
  };
  std::vector<char> in(kBuffer), out(kBuffer);
  bool has_any = false;
  while (true) {
    FW_RETURN_IF_ERROR(goes_on());
    const ssize_t got = read(file, in.data(), in.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return StorageError(errno, what);
    if (got == 0) break;
    has_any = true;
    absl::string_view packed(in.data(), static_cast<size_t>(got));
    bool is_full = true;  // what is left in the unpacker comes, too
    while (!packed.empty() || is_full) {
      if (packed.empty() && unpacker->is_whole()) break;
      absl::StatusOr<size_t> bytes = unpacker->Run(&packed, out.data(), out.size());
      if (absl::IsDataLoss(bytes.status())) return damaged(bytes.status().message());
      FW_RETURN_IF_ERROR(bytes.status());
      is_full = *bytes == out.size();
      if (*bytes == 0) {
        if (packed.empty()) break;
        continue;
      }
      FW_RETURN_IF_ERROR(append({out.data(), *bytes}));
    }
  }
  if (!has_any || !unpacker->is_whole()) return damaged("it is cut off");
  return absl::OkStatus();
}

}  // namespace feedwater::server
