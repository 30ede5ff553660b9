// One dataset's folder of unpacked files: holding, proving and making them.
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/atomic_file.h"
#include "server/base/clock.h"
#include "server/base/key.h"
#include "server/base/log_limiter.h"
#include "server/source/digest.h"
#include "server/source/seal.h"
#include "server/source/staged_locks.h"
#include "server/source/staging.h"
#include "server/source/unpacking.h"
#include "server/storage/engine.h"
#include "server/storage/fault.h"
#include "server/storage/stat_now.h"

namespace feedwater::server {
namespace {

constexpr char kVersion[] = "3";
constexpr int kMostMade = 3;                     // times that a file is unpacked for one opening
constexpr std::chrono::milliseconds kPause(50);  // while another process unpacks a file
constexpr std::chrono::milliseconds kShortPause(1);  // while it removes one
constexpr size_t kShownName = 100;                   // of a file's own name

// What an unpacked file is named after: the file that it is made from.
std::string MadeFrom(const Root& root, const std::string& path, const struct stat& info,
                     absl::string_view form) {
  return Key("staged")
      .Add("version", kVersion)
      .Add("form", form)
      .Add("root", root.path())
      .Add("path", path)
      .Add("device", static_cast<int64_t>(info.st_dev))
      .Add("inode", static_cast<int64_t>(info.st_ino))
      .Add("bytes", static_cast<int64_t>(info.st_size))
      .Add("modified", Nanoseconds(info.st_mtim))
      .Add("changed", Nanoseconds(info.st_ctim))
      .Name();
}

}  // namespace

StagedFolder::StagedFolder(StagingArea* staging, std::string path, std::shared_ptr<const Root> root,
                           Fd lock, Fd held, bool reads_all)
    : staging_(staging),
      path_(std::move(path)),
      root_(std::move(root)),
      lock_(std::move(lock)),
      held_(std::move(held)),
      reads_all_(reads_all) {}

absl::Status StagedFolder::Hold(absl::string_view name,
                                const std::function<absl::Status()>& goes_on) const {
  while (!LockByte(held_.get(), name, F_RDLCK)) {
    // A kernel or file system without such locks: nobody can lock it to remove it, either.
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return absl::OkStatus();
    if (errno != EAGAIN && errno != EACCES && errno != EINTR)
      return StorageError(errno, absl::StrCat(path_, "/", kHeld));
    FW_RETURN_IF_ERROR(goes_on());  // it is just being removed
    std::this_thread::sleep_for(kShortPause);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> StagedFolder::Prove(const std::string& name,
                                            const std::function<absl::Status()>& goes_on) const {
  FW_ASSIGN_OR_RETURN(const struct stat info,
                      ProveSealed(absl::StrCat(path_, "/", name), reads_all_, goes_on));
  MutexLock lock(&mu_);
  proven_[name] = {FileStamp(info), Nanoseconds(info.st_ctim)};
  return info.st_size;
}

absl::Status StagedFolder::LookAgain(const std::string& name, Reach reach) const {
  uint64_t proven = 0;
  {
    MutexLock lock(&mu_);
    const auto found = proven_.find(name);
    if (found != proven_.end()) proven = found->second.stamp;
  }
  const absl::StatusOr<struct stat> info = root_->Stat(name, reach);
  if (absl::IsNotFound(info.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, "/", name, ", which was unpacked, has gone"));
  }
  if (IsElsewhere(info.status()) || IsTransient(info.status())) return info.status();
  if (info.ok() && FileStamp(*info) == proven) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path_, "/", name, ", which was unpacked, has changed"));
}

int64_t StagedFolder::ChangedNs(const std::string& name) const {
  MutexLock lock(&mu_);
  const auto found = proven_.find(name);
  return found != proven_.end() ? found->second.changed_ns : 0;
}

absl::StatusOr<StagedFolder::File> StagedFolder::Unpack(
    const Root& from, const std::string& path, const struct stat& info,
    const std::function<absl::Status()>& goes_on) const {
  std::string unpacked;
  if (!IsPackedName(path, &unpacked))
    return absl::InternalError(absl::StrCat(path, " is not compressed"));
  return Make(
      from, path, info, "unpacked",
      [&](int packed, const Append& append) {
        return UnpackFile(packed, path, from.Describe(path), append, goes_on);
      },
      goes_on);
}

absl::StatusOr<StagedFolder::File> StagedFolder::Make(
    const Root& from, const std::string& path, const struct stat& info, absl::string_view into,
    const WriteRecords& write, const std::function<absl::Status()>& goes_on) const {
  std::string unpacked = path;
  IsPackedName(path, &unpacked);
  // What is made of a file that may be written to meanwhile is for this opening alone.
  const bool is_settled = &from == root_.get() || UnsettledUntilNs(info) == 0;
  const std::string form = is_settled
                               ? std::string(into)
                               : absl::StrCat(into, " while written, at ", ClockNs(CLOCK_REALTIME));
  const std::string made_from = MadeFrom(from, path, info, form);
  // The file's own name behind it is for people, in messages.
  File file;
  unpacked = unpacked.substr(unpacked.rfind('/') + 1);
  if (unpacked.size() > kShownName) unpacked.erase(0, unpacked.size() - kShownName);
  file.name = absl::StrCat(made_from, "-", unpacked);
  const std::string target = absl::StrCat(path_, "/", file.name);
  FW_RETURN_IF_ERROR(Hold(file.name, goes_on));
  for (int made = 0;;) {
    const absl::StatusOr<int64_t> proven = Prove(file.name, goes_on);
    if (proven.ok()) {
      file.bytes = *proven;
      return file;
    }
    if (!absl::IsNotFound(proven.status())) return proven.status();
    if (made == kMostMade) {
      return absl::DataLossError(
          absl::StrCat(target,
                       " does not hold what was just unpacked to it; cure: a state_dir on "
                       "another disk"));
    }
    absl::Status written;
    std::string digest;
    struct stat unnamed = {};
    const absl::Status saved = WriteFileAtomically(target, [&](int fd) {
      // Another one may have finished it before this one had the lock.
      if (Prove(file.name, goes_on).ok()) return written = absl::AlreadyExistsError("it is there");
      MakeWay(file.name);
      written = Write(from, path, made_from, form, target, fd, write, goes_on, &digest);
      if (fstat(fd, &unnamed) != 0) unnamed = {};
      return written;
    });
    if (absl::IsAlreadyExists(written)) continue;
    FW_RETURN_IF_ERROR(written);
    if (absl::IsAborted(saved)) {  // somebody else is unpacking it
      FW_RETURN_IF_ERROR(goes_on());
      std::this_thread::sleep_for(kPause);
      continue;
    }
    FW_RETURN_IF_ERROR(saved);
    SealNamed(target, digest, unnamed);
    ++made;
  }
}

void StagedFolder::MakeWay(const std::string& name) const {
  const std::string path = absl::StrCat(path_, "/", name);
  if (access(path.c_str(), F_OK) != 0) return;
  if (ClientLog().Admits("unpacked files that changed", LogLimiter::kNoSource))
    spdlog::warn("{} is not what was unpacked: unpacking it again", path);
  // Where somebody else reads it the new one takes its place in the end.
  if (!LockByte(held_.get(), name, F_WRLCK)) return;
  unlink(path.c_str());
  LockByte(held_.get(), name, F_RDLCK);
}

absl::Status StagedFolder::Write(const Root& from, const std::string& path,
                                 const std::string& made_from, absl::string_view form,
                                 const std::string& target, int to, const WriteRecords& write,
                                 const std::function<absl::Status()>& goes_on,
                                 std::string* digest) const {
  const std::string what = from.Describe(path);
  FW_ASSIGN_OR_RETURN(const Fd file, from.OpenFile(path, /*direct_io=*/false));
  // The path may lead to another file by now, and that one may be written to.
  const auto prove = [&]() -> absl::Status {
    struct stat info;
    if (StatNow(file.get(), &info) != 0) return StorageError(errno, what);
    if (MadeFrom(from, path, info, form) == made_from) return absl::OkStatus();
    return FileChangedError(
        absl::StrCat(what,
                     " has changed while it was unpacked; cure: open a new loader, which "
                     "takes it as it is then"));
  };
  FW_RETURN_IF_ERROR(prove());
  Digest content;
  const absl::Status written = write(file.get(), [&](absl::string_view bytes) -> absl::Status {
    FW_RETURN_IF_ERROR(Annotate(staging_->Take(static_cast<int64_t>(bytes.size()), to, goes_on),
                                absl::StrCat("unpacking ", what)));
    FW_RETURN_IF_ERROR(
        Annotate(WriteAll(to, bytes), absl::StrCat("unpacking ", what, " to ", path_)));
    content.AddPart(bytes);
    return goes_on();
  });
  // What looks damaged may be another file.
  if (written.ok() || absl::IsInvalidArgument(written) || absl::IsDataLoss(written))
    FW_RETURN_IF_ERROR(prove());
  FW_RETURN_IF_ERROR(written);
  *digest = content.Hex();
  absl::Status sealed = SealUnnamed(target, *digest);
  while (absl::IsAborted(sealed)) {
    FW_RETURN_IF_ERROR(goes_on());
    std::this_thread::sleep_for(kPause);
    sealed = SealUnnamed(target, *digest);
  }
  return sealed;
}

}  // namespace feedwater::server
