#include "server/graph/op_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/base/key.h"
#include "server/base/units.h"
#include "server/storage/engine.h"
#include "server/storage/fault.h"
#include "server/storage/mounts.h"

namespace feedwater::server {
namespace {

constexpr int kReadAttempts = 3;  // of a file that is being written

bool IsSame(const struct stat& a, const struct stat& b) {
  return a.st_size == b.st_size && FileStamp(a) == FileStamp(b);
}

absl::StatusOr<std::string> ReadAll(int fd, size_t size, const std::string& what) {
  std::string bytes(size, '\0');
  for (size_t at = 0; at < size;) {
    const ssize_t got = pread(fd, bytes.data() + at, size - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return StorageError(errno, what);
    if (got == 0) {
      bytes.resize(at);
      return bytes;
    }
    at += static_cast<size_t>(got);
  }
  return bytes;
}

absl::Status ReadPath(const YamlNode& node, OpFile* file) {
  std::string path;
  FW_RETURN_IF_ERROR(ParamType<std::string>::Read(node, &path));
  if (path.empty() || path.back() == '/' || path.find('\0') != std::string::npos)
    return node.Error(absl::StrCat("must be a file's path, not '", Printable(path), "'"));
  file->path = path;
  return absl::OkStatus();
}

// SHA-256's first half, as a Key's name: nobody must be able to make a second file with the digest
// of one that others use.
std::string DigestOf(absl::string_view bytes) {
  const std::array<uint8_t, 32> digest = Sha256(bytes);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size() / 2));
}

}  // namespace

FileContent::FileContent(std::string bytes, uint64_t stamp, MemoryReservation reservation)
    : bytes_(std::move(bytes)),
      digest_(DigestOf(bytes_)),
      stamp_(stamp),
      reservation_(std::move(reservation)) {}

absl::Status FileContent::OtherUse(const std::string& as) const {
  return absl::InvalidArgumentError(absl::StrCat(
      "an op before reads it with ", made_as_, ", and this one with ", as,
      ": one file is read in one way; cure: the same for both, or a copy of the file"));
}

std::string OpFile::Describe() const {
  return absl::StrCat("'", Printable(path), "'",
                      root.empty() ? "" : absl::StrCat(" of root '", Printable(root), "'"));
}

// A name may look like a number, as any word may.
#define FW_NAME_JSON R"({"type":["string","number","boolean"],"minLength":1})"
const char* const ParamType<OpFile>::kName = "file";
const char* const ParamType<OpFile>::kJson =
    R"({"anyOf":[)" FW_NAME_JSON
    R"(,{"type":"object","required":["path"],"additionalProperties":false,"properties":{"root":)" FW_NAME_JSON
    R"(,"path":)" FW_NAME_JSON R"(}}]})";

absl::Status ParamType<OpFile>::Read(const YamlNode& node, OpFile* value) {
  OpFile file;
  if (node.is_scalar()) {
    FW_RETURN_IF_ERROR(ReadPath(node, &file));
    // An absolute path is a file below the root that is its folder.
    if (const size_t slash = file.path.rfind('/'); file.path[0] == '/') {
      file.root = slash == 0 ? "/" : file.path.substr(0, slash);
      file.path.erase(0, slash + 1);
    }
    *value = std::move(file);
    return absl::OkStatus();
  }
  const YamlNode* const path = node.is_map() ? node.Find("path") : nullptr;
  const YamlNode* const root = node.is_map() ? node.Find("root") : nullptr;
  if (path == nullptr || node.entries.size() != (root == nullptr ? 1 : 2)) {
    return node.Error(absl::StrCat(
        "must be the path of a file below the dataset's root, or {root: ROOT, path: PATH} with a "
        "declared root, not ",
        node.is_map() ? "another map" : node.Found()));
  }
  FW_RETURN_IF_ERROR(ReadPath(*path, &file));
  if (file.path[0] == '/')
    return path->Error("must be a path below the root, which does not begin with '/'");
  if (root != nullptr) FW_RETURN_IF_ERROR(ParamType<std::string>::Read(*root, &file.root));
  if (root != nullptr && file.root.empty()) return root->Error("must have a root's name, not ''");
  *value = std::move(file);
  return absl::OkStatus();
}

// What it holds, wherever it lies; of one that was not read, where that would be.
std::string ParamType<OpFile>::Text(const OpFile& value) {
  if (value.content != nullptr) return absl::StrCat("content:", value.content->digest());
  return value.path.empty() ? "" : ParamType<std::string>::Text(value.path);
}

absl::Status ParamType<OpFile>::Check(const OpFile& /*value*/, const Constraint& /*rule*/) {
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const FileContent>> RootFiles::Read(const std::string& root,
                                                                   const std::string& path) {
  FW_ASSIGN_OR_RETURN(const std::shared_ptr<const Root> below, roots_.FindNow(root));
  const std::string what = below->Describe(path);
  for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
    FW_ASSIGN_OR_RETURN(const Fd fd, below->OpenFile(path, /*direct_io=*/false));
    struct stat before {
    }, after{};
    if (fstat(fd.get(), &before) != 0) return StorageError(errno, what);
    AwaitClockTick(before);
    if (before.st_size > kMostOpFileBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " has ", FormatBytes(before.st_size), ", more than the ",
                       FormatBytes(kMostOpFileBytes), " that an op's file may have"));
    }
    MemoryReservation reservation;
    if (budget_ != nullptr) {
      FW_ASSIGN_OR_RETURN(reservation,
                          budget_->Reserve("files of ops", OpFileMemory(before.st_size)));
    }
    FW_ASSIGN_OR_RETURN(std::string bytes,
                        ReadAll(fd.get(), static_cast<size_t>(before.st_size), what));
    if (fstat(fd.get(), &after) != 0) return StorageError(errno, what);
    if (!IsSame(before, after) || static_cast<off_t>(bytes.size()) != before.st_size) continue;
    // Where a change may not show, the file is not taken as current.
    const uint64_t stamp = WouldShowChanges(before, IsLocalMount(fd.get())) ? FileStamp(before) : 0;
    return std::make_shared<const FileContent>(std::move(bytes), stamp, std::move(reservation));
  }
  return absl::UnavailableError(
      absl::StrCat(what, " was written while it was read; try again when it is finished"));
}

absl::StatusOr<std::shared_ptr<const FileContent>> DeclaredFiles::Read(
    const std::string& root, const std::string& /*path*/) {
  FW_RETURN_IF_ERROR(roots_.CheckDeclared(root));
  return nullptr;
}

absl::StatusOr<std::shared_ptr<const FileContent>> FilesOnce::Read(const std::string& root,
                                                                   const std::string& path) {
  const auto [found, is_new] = read_.try_emplace({root, path});
  if (!is_new) return found->second;
  absl::StatusOr<std::shared_ptr<const FileContent>> content = reader_.Read(root, path);
  if (content.ok()) {
    found->second = *content;
  } else {
    read_.erase(found);
  }
  return content;
}

absl::StatusOr<std::shared_ptr<const FileContent>> GivenFiles::Read(const std::string& root,
                                                                    const std::string& path) {
  for (const OpFile& file : files_) {
    if (file.root == root && file.path == path && file.content != nullptr) return file.content;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("'", Printable(path), "' of root '", Printable(root), "' was not handed on"));
}

bool AreCurrent(const std::vector<OpFile>& files, const Roots& roots) {
  return std::all_of(files.begin(), files.end(), [&](const OpFile& file) {
    if (file.content == nullptr) return false;
    const auto root = roots.FindNow(file.root);
    if (!root.ok()) return false;
    const absl::StatusOr<struct stat> info = (*root)->Stat(file.path);
    return info.ok() && FileStamp(*info) == file.content->stamp();
  });
}

int64_t OpFileMemory(const std::vector<OpFile>& files) {
  int64_t bytes = 0;
  for (const OpFile& file : files) {
    if (file.content != nullptr)
      bytes += OpFileMemory(static_cast<int64_t>(file.content->bytes().size()));
  }
  return bytes;
}

}  // namespace feedwater::server
