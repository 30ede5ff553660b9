// Files that cannot be read in any order, because they are compressed as a whole or in large parts,
// unpacked once below state_dir/staged. Each dataset has a folder there; whoever reads from it
// holds it and the files that it reads, with locks that the kernel drops when the process ends.
// Where room is short, files that nobody reads go first from folders that are held: they are of
// earlier versions of the dataset, or for other fields. Then go the folders that were unused for
// longest. What is held never goes. Whatever else lies there is somebody else's: it is neither
// counted nor touched.
//
// An unpacked file is named after what it was made from: path, device, inode, size and times, and
// what was made of it; what is read for it is proven to be that file. It appears whole or not at
// all, so that after a crash those that were finished are used again. A seal proves that it is
// still what was written (seal.h); one that is not is unpacked again. What is dropped is renamed
// first, and so is never found half removed.
//
// Thread-safe; several processes may share the folder, and count what is in it together: in a file
// that is locked while it is changed.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "server/base/fd.h"
#include "server/base/mutex.h"
#include "server/base/status.h"
#include "server/storage/roots.h"

namespace feedwater::server {

class StagingArea;

// One dataset's folder, held with the files that were asked for. The StagingArea outlives it.
class StagedFolder {
 public:
  const std::shared_ptr<const Root>& root() const { return root_; }

  // Holds a file below root(), which need not be there: what is there afterwards stays.
  absl::Status Hold(absl::string_view name, const std::function<absl::Status()>& goes_on) const;

  // Proves that a held file is what was unpacked, and gives its size. NotFound: it is not, or is
  // not there.
  absl::StatusOr<int64_t> Prove(const std::string& name,
                                const std::function<absl::Status()>& goes_on) const
      ABSL_LOCKS_EXCLUDED(mu_);
  // Whether a file is still what was proven; FailedPrecondition says what it is not. Looks only.
  absl::Status LookAgain(const std::string& name, Reach reach) const ABSL_LOCKS_EXCLUDED(mu_);
  // The change time of a file that was proven, in nanoseconds; 0: it was not.
  int64_t ChangedNs(const std::string& name) const ABSL_LOCKS_EXCLUDED(mu_);

  struct File {
    std::string name;  // below root()
    int64_t bytes = 0;
  };
  // Unpacks the file at `path` of `from`, which `info` describes, unless it is there already.
  // `goes_on` is asked now and then. InvalidArgument: damaged, or not compressed;
  // FailedPrecondition: the path leads to another file, or it has changed; ResourceExhausted:
  // stage.disk or the disk has no room.
  absl::StatusOr<File> Unpack(const Root& from, const std::string& path, const struct stat& info,
                              const std::function<absl::Status()>& goes_on) const;

  // The same for a file that a format unpacks by itself. `into` says what it becomes, with a
  // version; `write` appends that, from the open file `from`, and is not called where it is there
  // already.
  using Append = std::function<absl::Status(absl::string_view bytes)>;
  using WriteRecords = std::function<absl::Status(int from, const Append& append)>;
  absl::StatusOr<File> Make(const Root& from, const std::string& path, const struct stat& info,
                            absl::string_view into, const WriteRecords& write,
                            const std::function<absl::Status()>& goes_on) const;

 private:
  friend class StagingArea;
  struct Proven {
    uint64_t stamp;
    int64_t changed_ns;
  };
  StagedFolder(StagingArea* staging, std::string path, std::shared_ptr<const Root> root, Fd lock,
               Fd held, bool reads_all);
  // Writes and seals `target`, whose descriptor is `to`.
  absl::Status Write(const Root& from, const std::string& path, const std::string& made_from,
                     absl::string_view form, const std::string& target, int to,
                     const WriteRecords& write, const std::function<absl::Status()>& goes_on,
                     std::string* digest) const;
  // Removes what stands there and is not what was unpacked, unless somebody else reads it.
  void MakeWay(const std::string& name) const;

  StagingArea* const staging_;
  const std::string path_;
  const std::shared_ptr<const Root> root_;
  const Fd lock_;
  const Fd held_;  // the file whose bytes are locked for those that are held
  const bool reads_all_;
  mutable Mutex mu_;
  mutable absl::flat_hash_map<std::string, Proven> proven_ ABSL_GUARDED_BY(mu_);  // by name
};

class StagingArea {
 public:
  // `folder` need not be there. `limit_bytes`: of all unpacked files together.
  StagingArea(std::string folder, int64_t limit_bytes)
      : folder_(std::move(folder)), limit_bytes_(limit_bytes) {}

  // Null where `state_dir` is "" or `limit_bytes` is 0.
  static std::shared_ptr<StagingArea> Below(const std::string& state_dir, int64_t limit_bytes) {
    if (state_dir.empty() || limit_bytes <= 0) return nullptr;
    return std::make_shared<StagingArea>(state_dir + "/staged", limit_bytes);
  }
  // `dataset`: a name that no other dataset has, fit for a file. `reads_all`: files that are there
  // are proven by their content.
  absl::StatusOr<std::shared_ptr<const StagedFolder>> Open(const std::string& dataset,
                                                           bool reads_all = false);
  int64_t limit_bytes() const { return limit_bytes_; }
  const std::string& folder() const { return folder_; }

 private:
  friend class StagedFolder;
  // Counts `more` bytes that are about to be written to the end of the file, and makes room for
  // them.
  absl::Status Take(int64_t more, int fd, const std::function<absl::Status()>& goes_on);
  int64_t FreeBytes() const;
  // The bytes of all unpacked files; drops those that nobody reads, then the oldest folders that
  // nobody holds, until there are `at_most`.
  int64_t DropOldest(int64_t at_most) const;
  // Removes a folder; false: somebody holds it.
  bool Drop(const std::string& path) const;
  // Removes so many bytes, or all, of files that nobody reads from a folder that somebody holds.
  // Returns how many.
  int64_t DropUnread(const std::string& path, int64_t wanted) const;
  // Renames what is at `path`, which `folder` holds, so that nobody finds it there any more; the
  // new name, or "".
  std::string SetAside(const std::string& path, const std::string& folder) const;
  // Of what a killed process has left off to remove.
  void FinishRemovals() const;

  const std::string folder_;
  const int64_t limit_bytes_;
  std::atomic<bool> has_counted_{false};  // else the count may be from before a crash
};

}  // namespace feedwater::server
