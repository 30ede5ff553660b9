#include "server/source/zip.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/source/format.h"

namespace feedwater::server {
namespace {

constexpr uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50,
                   kEntry = 0x02014b50, kLocal = 0x04034b50;
constexpr int64_t kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56, kEntryBytes = 46,
                  kLocalBytes = 30, kMaxComment = 65535;
constexpr uint64_t kMaxMembers = 10'000, kMaxDirectory = 4 << 20;

template <typename T>
T At(const std::string& bytes, size_t at) {  // REQUIRES: it lies within
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

struct Directory {
  uint64_t members = 0, bytes = 0, begin = 0;
};

class ZipLister {
 public:
  ZipLister(const Root& root, const std::string& path, int64_t file_bytes)
      : root_(root), path_(path), file_bytes_(file_bytes) {}

  absl::StatusOr<std::vector<ZipMember>> List() {
    FW_ASSIGN_OR_RETURN(const Directory directory, FindDirectory());
    FW_ASSIGN_OR_RETURN(const std::string bytes, Read(directory.begin, directory.bytes));
    std::vector<ZipMember> members;
    size_t at = 0;
    for (uint64_t i = 0; i < directory.members; ++i) {
      if (bytes.size() - at < static_cast<size_t>(kEntryBytes) || At<uint32_t>(bytes, at) != kEntry)
        return Damaged("its directory is cut off");
      const size_t name = At<uint16_t>(bytes, at + 28), extra = At<uint16_t>(bytes, at + 30),
                   comment = At<uint16_t>(bytes, at + 32);
      if (bytes.size() - at - static_cast<size_t>(kEntryBytes) < name + extra + comment)
        return Damaged("its directory is cut off");
      if ((At<uint16_t>(bytes, at + 8) & 1) != 0) return Damaged("it is encrypted");
      ZipMember member;
      member.name = bytes.substr(at + kEntryBytes, name);
      member.is_compressed = At<uint16_t>(bytes, at + 10) != 0;
      uint64_t stored = At<uint32_t>(bytes, at + 20), local = At<uint32_t>(bytes, at + 42);
      Widen(bytes.substr(at + kEntryBytes + name, extra), At<uint32_t>(bytes, at + 24), &stored,
            &local);
      FW_RETURN_IF_ERROR(Locate(stored, local, &member));
      members.push_back(std::move(member));
      at += static_cast<size_t>(kEntryBytes) + name + extra + comment;
    }
    return members;
  }

 private:
  absl::Status Damaged(absl::string_view why) const {
    return absl::InvalidArgumentError(
        absl::StrCat(root_.Describe(path_), " is no usable zip archive: ", why));
  }

  absl::StatusOr<std::string> Read(uint64_t begin, uint64_t bytes) const {
    const auto size = static_cast<uint64_t>(file_bytes_);
    if (begin > size || bytes > size - begin) return Damaged("it is cut off");
    FW_ASSIGN_OR_RETURN(std::string read,
                        ReadRange(root_, path_, static_cast<int64_t>(begin), bytes));
    if (read.size() != bytes) return Damaged("it is cut off");
    return read;
  }

  absl::StatusOr<Directory> FindDirectory() const {
    const int64_t tail_bytes = std::min(file_bytes_, kEndBytes + kMaxComment + kLocatorBytes);
    FW_ASSIGN_OR_RETURN(
        const std::string tail,
        Read(static_cast<uint64_t>(file_bytes_ - tail_bytes), static_cast<uint64_t>(tail_bytes)));
    for (int64_t at = tail_bytes - kEndBytes; at >= 0; --at) {
      const auto i = static_cast<size_t>(at);
      if (At<uint32_t>(tail, i) != kEnd) continue;
      if (At<uint16_t>(tail, i + 20) > tail_bytes - at - kEndBytes) continue;
      Directory directory{At<uint16_t>(tail, i + 10), At<uint32_t>(tail, i + 12),
                          At<uint32_t>(tail, i + 16)};
      if (at >= kLocatorBytes && At<uint32_t>(tail, i - kLocatorBytes) == kLocator64) {
        FW_ASSIGN_OR_RETURN(const std::string end64,
                            Read(At<uint64_t>(tail, i - kLocatorBytes + 8), kEnd64Bytes));
        if (At<uint32_t>(end64, 0) != kEnd64) return Damaged("its ZIP64 end is missing");
        directory = {At<uint64_t>(end64, 32), At<uint64_t>(end64, 40), At<uint64_t>(end64, 48)};
      }
      if (directory.members > kMaxMembers || directory.bytes > kMaxDirectory)
        return Damaged("it has too many members");
      return directory;
    }
    return Damaged("its end is missing");
  }

  // Numbers of more than 32 bits stand in an extra field, those alone that need it.
  static void Widen(const std::string& extra, uint64_t plain, uint64_t* stored, uint64_t* local) {
    for (size_t at = 0; at + 4 <= extra.size();) {
      const size_t id = At<uint16_t>(extra, at), bytes = At<uint16_t>(extra, at + 2);
      size_t field = at + 4;
      at = field + bytes;
      if (id != 1 || at > extra.size()) continue;
      const auto take = [&](bool is_wide, uint64_t* number) {
        if (!is_wide || field + 8 > at) return;
        *number = At<uint64_t>(extra, field);
        field += 8;
      };
      uint64_t unused = 0;
      take(plain == UINT32_MAX, &unused);
      take(*stored == UINT32_MAX, stored);
      take(*local == UINT32_MAX, local);
    }
  }

  // Where the member's bytes begin: behind its own header, whose lengths are others.
  absl::Status Locate(uint64_t stored, uint64_t local, ZipMember* member) const {
    FW_ASSIGN_OR_RETURN(const std::string header, Read(local, kLocalBytes));
    if (At<uint32_t>(header, 0) != kLocal) return Damaged("a member's header is missing");
    const uint64_t begin =
        local + kLocalBytes + At<uint16_t>(header, 26) + At<uint16_t>(header, 28);
    const auto size = static_cast<uint64_t>(file_bytes_);
    if (begin > size || stored > size - begin) return Damaged("a member is cut off");
    member->begin = static_cast<int64_t>(begin);
    member->bytes = static_cast<int64_t>(stored);
    return absl::OkStatus();
  }

  const Root& root_;
  const std::string& path_;
  const int64_t file_bytes_;
};

}  // namespace

absl::StatusOr<std::vector<ZipMember>> ListZip(const Root& root, const std::string& path,
                                               int64_t file_bytes) {
  return ZipLister(root, path, file_bytes).List();
}

}  // namespace feedwater::server
