// The folders below which datasets may be read, and nowhere else. A root is opened once as a
// directory handle; every path is resolved from that handle with openat2(RESOLVE_BENEATH |
// RESOLVE_NO_MAGICLINKS), so "..", absolute paths and symbolic links that lead out are refused by
// the kernel. Symbolic links that stay inside are followed. Where all folders are declared, as in a
// private daemon, a root bounds nothing: a link may lead anywhere then, and only ".." and absolute
// paths of datasets are refused. Where a root's own path leads to another folder later (a link that
// is turned, another mount), that is another Root. Thread-safe.
//
// Storage behind a root may not answer at all (NFS, FUSE). So those who start a daemon or reload
// its configuration wait for it a few seconds only; who wants to read there waits as long as they
// want.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/fd.h"
#include "server/base/mutex.h"
#include "server/base/status.h"
#include "server/storage/storage_kind.h"

namespace feedwater::server {

// How far opening a file may go. kLocal: it ends as soon as a local device answers; a path that
// leads to another file system is not opened (IsElsewhere).
enum class Reach { kAnywhere, kLocal };
bool IsElsewhere(const absl::Status& status);

// A folder below a root that a dataset lives in.
class Root : public std::enable_shared_from_this<Root> {
 public:
  Root(std::string name, std::string path, Fd directory);
  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }  // for messages
  uint64_t id() const { return id_; }  // differs for every Root ever made in this process
  // What its own file system lies on; others may be mounted below it.
  const Storage& storage() const { return storage_; }
  // Whether a file that takes another one's place in this folder gets a new change time by that.
  bool ShowsMoves(const struct stat& folder) const {
    return shows_moves_ && folder.st_dev == device_;
  }

  // Opens a regular file for reading (never blocks on a FIFO, refuses anything that is not a
  // regular file). NotFound, PermissionDenied (leads outside the root, or not readable),
  // InvalidArgument (not a regular file), ResourceExhausted (no file descriptor is free). Where the
  // file system refuses O_DIRECT the file is opened without it.
  absl::StatusOr<Fd> OpenFile(absl::string_view relative_path, bool direct_io,
                              Reach reach = Reach::kAnywhere) const;
  absl::StatusOr<Fd> OpenFolder(absl::string_view relative_path) const;  // "" is the root itself
  // What the path is now, links followed; needs no right to read it. Same errors.
  absl::StatusOr<struct stat> Stat(absl::string_view relative_path,
                                   Reach reach = Reach::kAnywhere) const;
  // The same folder as a root that gives `opened` each file and folder that it opens, with its path
  // below the root, and fails with what that answers. ResourceExhausted.
  using Opened = std::function<absl::Status(absl::string_view path, const struct stat& info)>;
  absl::StatusOr<std::shared_ptr<const Root>> Watched(Opened opened) const;
  // Whether path() leads here still. May wait for storage.
  absl::StatusOr<bool> IsInPlace() const;
  // "'train/1.jpg' of root 'photos' (/data/photos)", as every message names a path.
  std::string Describe(absl::string_view relative_path) const;

 private:
  absl::StatusOr<Fd> Resolve(absl::string_view relative_path, int flags,
                             Reach reach = Reach::kAnywhere) const;
  absl::Status Tell(absl::string_view relative_path, const Fd& fd) const;

  std::string name_, path_;
  Fd directory_;
  bool follows_links_;  // wherever they lead: its name is a path, so all folders are declared
  bool is_local_;       // its own file system; others may be mounted below it
  bool shows_moves_;    // likewise
  uint64_t device_;     // likewise
  Storage storage_;
  uint64_t id_;
  Opened opened_;  // null: nobody is told
};

class Roots {
 public:
  // name -> absolute path of a folder that can be opened; one whose storage has not answered within
  // `patience` is taken as good, and logged. With a patience of 0 none is opened before FindNow
  // asks for it. An error is of the root with the name `wrong`, if that is given. {"/", "/"}
  // declares all folders: an absolute path is the name of that folder, then.
  static absl::StatusOr<std::shared_ptr<const Roots>> Create(
      const std::map<std::string, std::string>& roots, std::string* wrong = nullptr,
      absl::Duration patience = absl::Seconds(3));
  // NotFound "unknown root 'x', did you mean ..." when it is not declared.
  absl::Status CheckDeclared(absl::string_view name) const ABSL_LOCKS_EXCLUDED(mu_);
  // Unavailable where its storage has not answered yet; where that answered with an error, this.
  absl::StatusOr<std::shared_ptr<const Root>> Find(absl::string_view name) const
      ABSL_LOCKS_EXCLUDED(mu_);
  // The root as its path leads now: made anew when that is another folder by now, or when it could
  // not be opened before. May wait for storage.
  absl::StatusOr<std::shared_ptr<const Root>> FindNow(absl::string_view name) const
      ABSL_LOCKS_EXCLUDED(mu_);
  // "root 'photos' (/mnt/photos)" of each whose storage has not answered yet.
  std::vector<std::string> Silent() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Opening;
  struct Declared {
    std::string path;
    std::shared_ptr<const Root> root;  // null: it has not been opened yet
    std::shared_ptr<Opening> opening;  // the first one; null when it is over
    absl::Status error;                // what that came to, while the root is null
  };

  // Takes what the first opening has come to, when it has ended. Null: there is no such root.
  Declared* Look(absl::string_view name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Unknown(absl::string_view name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  mutable std::map<std::string, Declared, std::less<>> roots_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
