// The headers of a tar archive: ustar, pax and GNU long names, as tar(5) of libarchive and POSIX.1
// describe them. Written here because records are found once and then read at their offsets, which
// libraries that stream an archive do not tell. Reads headers alone; any bytes are safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/base/status.h"

namespace feedwater::server {

inline constexpr int64_t kTarBlock = 512;

struct TarMember {
  enum class Kind { kFile, kFolder, kLink, kOther };  // kOther: devices and the like
  std::string name;
  Kind kind = Kind::kFile;
  int64_t begin = 0;  // of its first header, a multiple of kTarBlock
  int64_t data = 0;   // of its bytes
  int64_t bytes = 0;
};

class TarReader {
 public:
  // Puts [offset, offset + bytes) at `to`. REQUIRES: within the archive.
  using ReadAt = std::function<absl::Status(int64_t offset, char* to, size_t bytes)>;
  TarReader(ReadAt read, int64_t archive_bytes)
      : read_(std::move(read)), archive_bytes_(archive_bytes) {}

  // The next member; nothing behind the last one. DataLoss that names the offset: a wrong checksum,
  // a number that is none, a member that ends behind the archive, sparse files, archives of several
  // volumes.
  absl::StatusOr<std::optional<TarMember>> Next();
  // Where the last member ended, and behind the last one the end of all members.
  int64_t position() const { return position_; }

 private:
  absl::Status ReadHeader(char* block);
  absl::StatusOr<std::string> ReadText(int64_t offset, int64_t bytes, int64_t most);
  absl::Status Pax(absl::string_view records, bool is_global);
  absl::Status Error(int64_t offset, absl::string_view what) const;

  const ReadAt read_;
  const int64_t archive_bytes_;
  int64_t position_ = 0;
  // What pax and GNU headers say of the member that follows.
  std::optional<std::string> name_;
  std::optional<int64_t> bytes_;
};

// A member's key and extension as webdataset splits its name: "a/b.seg.png" is "a/b" and "seg.png",
// the latter in lower case. False: it has no extension, or is hidden, or is named like __this__.
bool SplitMemberName(absl::string_view name, absl::string_view* key, std::string* extension);

}  // namespace feedwater::server
