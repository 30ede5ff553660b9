// The folders below which datasets may be read, and nowhere else. A root is opened once as a directory handle; every path is
// resolved from that handle with openat2(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS), so "..", absolute paths and symbolic links
// that lead out are refused by the kernel. Symbolic links that stay inside are followed. Thread-safe after Create.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "server/base/status.h"

namespace feedwater::server {

// An open file descriptor, closed on destruction.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();
  int get() const { return fd_; }
  int release() { int fd = fd_; fd_ = -1; return fd; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// A folder below a root that a dataset lives in.
class Root {
 public:
  Root(std::string name, std::string path, Fd directory);
  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }  // for messages

  // Opens a regular file for reading (never blocks on a FIFO, refuses anything that is not a regular file).
  // NotFound, PermissionDenied (leads outside the root, or not readable), InvalidArgument (not a regular file).
  absl::StatusOr<Fd> OpenFile(absl::string_view relative_path, bool direct_io) const;
  absl::StatusOr<Fd> OpenFolder(absl::string_view relative_path) const;  // "" is the root itself

 private:
  std::string name_, path_;
  Fd directory_;
};

class Roots {
 public:
  // name -> absolute path. Every path must be a folder that can be opened.
  static absl::StatusOr<std::shared_ptr<const Roots>> Create(const std::map<std::string, std::string>& roots);
  // NotFound "unknown root 'x', did you mean ..." when it is not declared.
  absl::StatusOr<std::shared_ptr<const Root>> Find(absl::string_view name) const;

 private:
  std::map<std::string, std::shared_ptr<const Root>> roots_;
};

}  // namespace feedwater::server
