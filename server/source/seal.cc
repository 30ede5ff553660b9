#include "server/source/seal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/base/atomic_file.h"
#include "server/base/fd.h"
#include "server/source/digest.h"
#include "server/storage/fault.h"
#include "server/storage/stat_now.h"

namespace feedwater::server {
namespace {

constexpr char kBegin[] = "feedwater seal 1";  // with a version
constexpr size_t kLongest = 256;               // of a seal
constexpr size_t kBuffer = 1 << 20;
constexpr int kTries = 3;  // of a file that changes while it is read

// "feedwater seal 1 DIGEST STAMP".
std::string Text(absl::string_view digest, const struct stat& info) {
  return absl::StrCat(kBegin, " ", digest, " ", info.st_size, " ", info.st_ino, " ",
                      info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, " ", info.st_ctim.tv_sec, ".",
                      info.st_ctim.tv_nsec, "\n");
}

// Up to `limit` bytes from where the descriptor stands. NotFound: the disk has lost them.
absl::StatusOr<size_t> ReadSome(int fd, char* to, size_t limit, const std::string& what) {
  size_t done = 0;
  while (done < limit) {
    const ssize_t got = read(fd, to + done, limit - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      const absl::Status failed = StorageError(error, what);
      const bool is_lost = error == EIO || error == EUCLEAN || error == EBADMSG;
      return is_lost ? absl::NotFoundError(failed.message()) : failed;
    }
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

absl::StatusOr<Fd> OpenIfThere(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd) return fd;
  if (errno == ENOENT) return absl::NotFoundError(absl::StrCat(path, " is not there"));
  if (errno == ELOOP) return absl::NotFoundError(absl::StrCat(path, " is a link"));
  return StorageError(errno, path);
}

absl::StatusOr<std::string> DigestOf(int fd, const std::string& what,
                                     const std::function<absl::Status()>& goes_on) {
  Digest digest;
  std::vector<char> buffer(kBuffer);
  while (true) {
    FW_RETURN_IF_ERROR(goes_on());
    FW_ASSIGN_OR_RETURN(const size_t got, ReadSome(fd, buffer.data(), buffer.size(), what));
    if (got == 0) return digest.Hex();
    digest.AddPart({buffer.data(), got});
  }
}

// What stands at the path, where it is this file still.
std::optional<struct stat> StillAt(const std::string& path, const struct stat& file) {
  struct stat there;
  const bool is_it = lstat(path.c_str(), &there) == 0 && there.st_dev == file.st_dev &&
                     there.st_ino == file.st_ino && there.st_size == file.st_size;
  return is_it ? std::make_optional(there) : std::nullopt;
}

}  // namespace

std::string SealPath(const std::string& file) {
  const size_t name = file.rfind('/') + 1;
  return absl::StrCat(file.substr(0, name), ".", file.substr(name), ".seal");
}

absl::Status SealUnnamed(const std::string& file, absl::string_view digest) {
  return WriteFileAtomically(SealPath(file), {Text(digest, {})});
}

void SealNamed(const std::string& file, absl::string_view digest, const struct stat& unnamed) {
  const std::optional<struct stat> named = StillAt(file, unnamed);
  if (named.has_value()) WriteFileAtomically(SealPath(file), {Text(digest, *named)}).IgnoreError();
}

absl::StatusOr<struct stat> ProveSealed(const std::string& file, bool reads_all,
                                        const std::function<absl::Status()>& goes_on) {
  for (int tries = 0; tries < kTries; ++tries) {
    FW_ASSIGN_OR_RETURN(const Fd fd, OpenIfThere(file));
    struct stat info;
    if (StatNow(fd.get(), &info) != 0) return StorageError(errno, file);
    FW_ASSIGN_OR_RETURN(const Fd seal, OpenIfThere(SealPath(file)));
    std::string text(kLongest, '\0');
    FW_ASSIGN_OR_RETURN(const size_t length,
                        ReadSome(seal.get(), text.data(), text.size(), SealPath(file)));
    text.resize(length);
    absl::string_view rest = text;
    if (!S_ISREG(info.st_mode) || !absl::ConsumePrefix(&rest, absl::StrCat(kBegin, " ")))
      return absl::NotFoundError(absl::StrCat(file, " has no seal"));
    const absl::string_view digest = rest.substr(0, rest.find(' '));
    if (!reads_all && text == Text(digest, info)) return info;
    FW_ASSIGN_OR_RETURN(const std::string found, DigestOf(fd.get(), file, goes_on));
    struct stat after;
    if (StatNow(fd.get(), &after) != 0) return StorageError(errno, file);
    if (Text(digest, after) != Text(digest, info) || !StillAt(file, info).has_value()) continue;
    if (found != digest)
      return absl::NotFoundError(absl::StrCat(file, " is not what was unpacked"));
    // Without it the next proof reads the content again.
    WriteFileAtomically(SealPath(file), {Text(digest, info)}).IgnoreError();
    return info;
  }
  return absl::UnavailableError(absl::StrCat(file, " changes each time that it is proven"));
}

}  // namespace feedwater::server
