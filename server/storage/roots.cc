#include "server/storage/roots.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/base/escape.h"
#include "server/base/thread.h"
#include "server/base/yaml.h"
#include "server/storage/fault.h"
#include "server/storage/mounts.h"
#include "server/storage/stat_now.h"
#include "spdlog/spdlog.h"

namespace feedwater::server {
namespace {

constexpr size_t kMessagePathLength = 300;  // longer paths are shortened in messages
constexpr int kResolveAttempts = 32;        // a rename during ".." makes the kernel say EAGAIN

constexpr char kEveryFolder[] = "/";  // its name and its path

constexpr char kElsewhereUrl[] = "feedwater/elsewhere";

absl::Status ElsewhereError() {
  absl::Status status = absl::UnavailableError("lies on storage that may hang");
  status.SetPayload(kElsewhereUrl, absl::Cord());
  return status;
}

// `bounds` is RESOLVE_BENEATH, or 0 where links may lead out.
int Open(int directory, const char* path, int flags, uint64_t bounds,
         Reach reach = Reach::kAnywhere) {
  open_how how = {};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
  how.resolve = bounds | RESOLVE_NO_MAGICLINKS;
  if (reach == Reach::kLocal) how.resolve |= RESOLVE_NO_XDEV;
  for (int attempt = 0;; ++attempt) {
    int fd = static_cast<int>(syscall(SYS_openat2, directory, path, &how, sizeof(how)));
    if (fd >= 0) return fd;
    if (errno == EINTR) continue;
    if (errno == EAGAIN && attempt < kResolveAttempts) continue;
    return -errno;
  }
}

std::string PrintablePath(absl::string_view path) {
  if (path.size() <= kMessagePathLength) return Escaped(path);
  return absl::StrCat(Escaped(path.substr(0, kMessagePathLength)), "...");
}

bool IsPath(absl::string_view name) { return !name.empty() && name[0] == '/'; }

// Whether a path leads out of its folder by its own text; what its links do is not looked at.
bool LeadsOut(absl::string_view path) {
  if (IsPath(path)) return true;
  int depth = 0;
  for (const absl::string_view part : absl::StrSplit(path, '/', absl::SkipEmpty())) {
    if (part == ".") continue;
    depth += part == ".." ? -1 : 1;
    if (depth < 0) return true;
  }
  return false;
}

// What declares a root of this name.
absl::string_view DeclaredName(absl::string_view name) {
  return IsPath(name) ? absl::string_view(kEveryFolder) : name;
}

// The folder that a relative path, or one below the home folder, names in this process, by its
// text: storage is not asked, which might not answer. "" where it cannot be told, as in a daemon,
// whose folder of work is "/". Where roots have names, a word is a misspelt one.
std::string MeantFolder(absl::string_view name, bool may_be_word) {
  namespace fs = std::filesystem;
  const char* const home = std::getenv("HOME");
  std::error_code error;
  fs::path path = std::string(name);
  if (name == "~" || absl::StartsWith(name, "~/")) {
    if (home == nullptr || !IsPath(home)) return "";
    path = absl::StrCat(home, name.substr(1));
  } else if (!may_be_word && !absl::StrContains(name, '/')) {
    return "";
  } else {
    const fs::path here = fs::current_path(error);
    if (error || here == "/") return "";
    path = here / path;
  }
  return path.lexically_normal().string();
}

std::string DescribeRoot(absl::string_view name, absl::string_view path) {
  if (name == path) return absl::StrCat("root '", PrintablePath(path), "'");
  return absl::StrCat("root '", Printable(name), "' (", PrintablePath(path), ")");
}

// What went wrong while opening, in words that say what to do.
absl::Status OpenError(int error, const std::string& what) {
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(absl::StrCat(what, " does not exist"));
    case ENOTDIR:
      return absl::NotFoundError(
          absl::StrCat(what, " does not exist: a part of the path is not a folder"));
    case EXDEV:
      return absl::PermissionDeniedError(absl::StrCat(
          what,
          " leads outside the root, or through an absolute link; cure: make the link a "
          "relative one where its target is below the root (ln -sfnr TARGET LINK), or "
          "replace it by the files or by a bind mount, or declare a root that holds "
          "both, and make the link relative"));
    case ELOOP:
      return absl::PermissionDeniedError(
          absl::StrCat(what, " has too many symbolic links, or one into /proc"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(absl::StrCat(what, " may not be read by uid ", geteuid(),
                                                      "; cure: give that user read access"));
    case ENAMETOOLONG:
      return absl::InvalidArgumentError(absl::StrCat(what, " is too long a path"));
    case ENXIO:
    case ENODEV:
      return absl::InvalidArgumentError(absl::StrCat(what, " is not a regular file"));
    case EMFILE:
    case ENFILE:
      return StorageStatus(error, absl::StrCat(what, ": no file descriptor is free (errno ", error,
                                               "); cure: raise LimitNOFILE"));
    case ENOSYS:
      return absl::UnimplementedError(
          absl::StrCat(what,
                       ": the system call openat2 is missing; it needs Linux 5.6, and a container "
                       "runtime whose seccomp profile knows it"));
    default:
      return StorageError(error, what);
  }
}

// Why nothing was opened. That nothing is there is told, too, as a state that is all zero.
absl::Status Told(const Root::Opened& opened, absl::string_view path, const absl::Status& status) {
  if (opened != nullptr && absl::IsNotFound(status)) FW_RETURN_IF_ERROR(opened(path, {}));
  return status;
}

}  // namespace

Root::Root(std::string name, std::string path, Fd directory)
    : name_(std::move(name)),
      path_(std::move(path)),
      directory_(std::move(directory)),
      follows_links_(IsPath(name_)) {
  const std::shared_ptr<const MountFacts> mount = FactsOfMount(directory_.get());
  is_local_ = mount->is_local;
  shows_moves_ = mount->shows_moves;
  device_ = mount->device;
  storage_ = mount->storage;
  static std::atomic<uint64_t> next_id{1};
  id_ = next_id.fetch_add(1, std::memory_order_relaxed);
}

std::string Root::Describe(absl::string_view relative_path) const {
  return absl::StrCat("'", PrintablePath(relative_path), "' of ", DescribeRoot(name_, path_));
}

bool IsElsewhere(const absl::Status& status) {
  return !status.ok() && status.GetPayload(kElsewhereUrl).has_value();
}

absl::StatusOr<Fd> Root::Resolve(absl::string_view relative_path, int flags, Reach reach) const {
  if (relative_path.size() >= PATH_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(relative_path), " is longer than ", PATH_MAX - 1, " bytes"));
  }
  if (relative_path.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(relative_path), " holds a NUL byte"));
  }
  if (reach == Reach::kLocal && !is_local_) return ElsewhereError();
  if (follows_links_ && LeadsOut(relative_path)) return OpenError(EXDEV, Describe(relative_path));
  const int fd = Open(directory_.get(), std::string(relative_path).c_str(), flags,
                      follows_links_ ? 0 : RESOLVE_BENEATH, reach);
  if (fd == -EXDEV && reach == Reach::kLocal) return ElsewhereError();
  if (fd < 0) return OpenError(-fd, Describe(relative_path));
  return Fd(fd);
}

absl::StatusOr<Fd> Root::OpenFile(absl::string_view relative_path, bool direct_io,
                                  Reach reach) const {
  if (relative_path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("an empty path names no file of root '", name_, "' (", path_, ")"));
  }
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  constexpr int kFlags = O_RDONLY | O_NONBLOCK | O_NOCTTY;
  absl::StatusOr<Fd> fd = Resolve(relative_path, kFlags | (direct_io ? O_DIRECT : 0), reach);
  if (direct_io && absl::IsInvalidArgument(fd.status())) {  // EINVAL: no O_DIRECT here
    direct_io = false;
    fd = Resolve(relative_path, kFlags, reach);
  }
  if (!fd.ok()) return Told(opened_, relative_path, fd.status());
  struct stat info;
  if (fstat(fd->get(), &info) != 0) return StorageError(errno, Describe(relative_path));
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(relative_path), " is ",
                     S_ISDIR(info.st_mode) ? "a folder, not a file" : "not a regular file"));
  }
  // io_uring answers EAGAIN for O_NONBLOCK files of file systems without asynchronous reads.
  if (fcntl(fd->get(), F_SETFL, direct_io ? O_DIRECT : 0) != 0) {
    return StorageError(errno, Describe(relative_path));
  }
  FW_RETURN_IF_ERROR(Tell(relative_path, *fd));
  return fd;
}

absl::StatusOr<Fd> Root::OpenFolder(absl::string_view relative_path) const {
  absl::StatusOr<Fd> fd =
      Resolve(relative_path.empty() ? "." : relative_path, O_RDONLY | O_DIRECTORY);
  if (!fd.ok()) return Told(opened_, relative_path, fd.status());
  FW_RETURN_IF_ERROR(Tell(relative_path, *fd));
  return fd;
}

absl::Status Root::Tell(absl::string_view relative_path, const Fd& fd) const {
  if (opened_ == nullptr) return absl::OkStatus();
  struct stat info;
  if (StatNow(fd.get(), &info) != 0) return StorageError(errno, Describe(relative_path));
  return opened_(relative_path, info);
}

absl::StatusOr<std::shared_ptr<const Root>> Root::Watched(Opened opened) const {
  Fd directory(fcntl(directory_.get(), F_DUPFD_CLOEXEC, 0));
  if (!directory) return OpenError(errno, DescribeRoot(name_, path_));
  auto watched = std::make_shared<Root>(name_, path_, std::move(directory));
  watched->opened_ = std::move(opened);
  return watched;
}

absl::StatusOr<struct stat> Root::Stat(absl::string_view relative_path, Reach reach) const {
  FW_ASSIGN_OR_RETURN(Fd fd, Resolve(relative_path.empty() ? "." : relative_path, O_PATH, reach));
  struct stat info;
  if (StatNow(fd.get(), &info) != 0) return StorageError(errno, Describe(relative_path));
  return info;
}

absl::StatusOr<bool> Root::IsInPlace() const {
  struct stat here, there;
  if (fstat(directory_.get(), &here) != 0) return false;  // its file system ended
  if (stat(path_.c_str(), &there) != 0) return OpenError(errno, DescribeRoot(name_, path_));
  return here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

namespace {

absl::StatusOr<std::shared_ptr<const Root>> OpenRoot(const std::string& name,
                                                     const std::string& path) {
  const std::string what = DescribeRoot(name, path);
  Fd directory(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory) {
    return errno == ENOTDIR ? absl::InvalidArgumentError(absl::StrCat(what, " is not a folder"))
                            : OpenError(errno, what);
  }
  // Fails here, at start, where openat2 is missing or filtered.
  const int self = Open(directory.get(), ".", O_PATH | O_DIRECTORY, RESOLVE_BENEATH);
  if (self < 0) return OpenError(-self, what);
  close(self);
  return std::make_shared<const Root>(name, path, std::move(directory));
}

}  // namespace

// One opening of a root, on a thread that nobody need wait for. While one does not end, whoever
// opens the same root again shares it: a daemon that is reloaded many times has one such thread.
class Roots::Opening {
 public:
  using Result = absl::StatusOr<std::shared_ptr<const Root>>;

  static absl::StatusOr<std::shared_ptr<Opening>> Start(const std::string& name,
                                                        const std::string& path) {
    static Mutex mu;
    static auto* under_way = new std::map<std::pair<std::string, std::string>,
                                          std::shared_ptr<Opening>>;  // for threads left behind
    MutexLock lock(&mu);
    std::shared_ptr<Opening>& opening = (*under_way)[{name, path}];
    if (opening != nullptr) return opening;
    auto started = std::make_shared<Opening>();
    absl::StatusOr<std::thread> thread = StartThread("opening a root", [started, name, path] {
      pthread_setname_np(pthread_self(), "fw-root");
      Result result = OpenRoot(name, path);
      {
        MutexLock lock(&mu);
        under_way->erase({name, path});
      }
      MutexLock lock(&started->mu_);
      started->result_ = std::move(result);
      started->ended_.SignalAll();
    });
    if (!thread.ok()) {
      under_way->erase({name, path});
      return thread.status();
    }
    thread->detach();
    return opening = std::move(started);
  }

  // None: it has not ended by then.
  std::optional<Result> WaitUntil(absl::Time until) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    while (!result_.has_value() && absl::Now() < until)
      ended_.WaitWithTimeout(&mu_, until - absl::Now());
    return result_;
  }

 private:
  Mutex mu_;
  CondVar ended_;
  std::optional<Result> result_ ABSL_GUARDED_BY(mu_);
};

absl::StatusOr<std::shared_ptr<const Roots>> Roots::Create(
    const std::map<std::string, std::string>& roots, std::string* wrong, absl::Duration patience) {
  auto result = std::make_shared<Roots>();
  MutexLock lock(&result->mu_);
  std::string ignored;
  std::string& at = wrong != nullptr ? *wrong : ignored;
  for (const auto& [name, path] : roots) {
    at = name;
    const std::string what = DescribeRoot(name, path);
    if (name.empty()) return absl::InvalidArgumentError(absl::StrCat(what, " has no name"));
    if (IsPath(name) && (name != kEveryFolder || path != kEveryFolder)) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " has a name that begins with '/'; cure: choose a word"));
    }
    if (path.empty() || path[0] != '/' || path.find('\0') != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(what, " must be an absolute path"));
    }
    std::shared_ptr<Opening> opening;
    if (patience > absl::ZeroDuration()) {
      FW_ASSIGN_OR_RETURN(opening, Opening::Start(name, path));
    }
    result->roots_.emplace(name, Declared{path, nullptr, std::move(opening), absl::OkStatus()});
  }
  const absl::Time until = absl::Now() + patience;  // of all of them
  for (auto& [name, declared] : result->roots_) {
    if (declared.opening == nullptr) continue;
    at = name;
    std::optional<Opening::Result> opened = declared.opening->WaitUntil(until);
    if (!opened.has_value()) {
      spdlog::warn("{}: its storage has not answered for {}; only reads below it wait",
                   DescribeRoot(name, declared.path), absl::FormatDuration(patience));
      continue;
    }
    FW_ASSIGN_OR_RETURN(declared.root, *std::move(opened));
    declared.opening.reset();
  }
  return result;
}

Roots::Declared* Roots::Look(absl::string_view name) const {
  const auto found = roots_.find(name);
  if (found == roots_.end()) return nullptr;
  Declared& declared = found->second;
  if (declared.root != nullptr || declared.opening == nullptr) return &declared;
  const std::optional<Opening::Result> opened = declared.opening->WaitUntil(absl::InfinitePast());
  if (!opened.has_value()) return &declared;
  declared.opening.reset();
  if (!opened->ok()) {
    declared.error = opened->status();
    spdlog::warn("its storage answers now: {}; each loader that reads there tries again",
                 std::string(declared.error.message()));
    return &declared;
  }
  declared.root = **opened;
  spdlog::info("{}: its storage answers now", DescribeRoot(name, declared.path));
  return &declared;
}

absl::StatusOr<std::shared_ptr<const Root>> Roots::FindNow(absl::string_view name) const {
  std::shared_ptr<const Root> known;
  std::string path;
  {
    MutexLock lock(&mu_);
    const Declared* declared = Look(DeclaredName(name));
    if (declared == nullptr) return Unknown(name);
    known = declared->root;
    path = declared->path;
  }
  // Not kept, however many there are: whoever reads there has it.
  if (IsPath(name)) return OpenRoot(std::string(name), std::string(name));
  if (known != nullptr) {
    FW_ASSIGN_OR_RETURN(const bool is_in_place, known->IsInPlace());
    if (is_in_place) return known;
  }
  FW_ASSIGN_OR_RETURN(std::shared_ptr<const Root> now, OpenRoot(std::string(name), path));
  spdlog::info("{} {}", DescribeRoot(name, path),
               known != nullptr ? "leads to another folder now" : "is open now");
  MutexLock lock(&mu_);
  Declared* declared = Look(name);
  declared->opening.reset();
  declared->error = absl::OkStatus();
  declared->root = now;
  return now;
}

absl::StatusOr<std::shared_ptr<const Root>> Roots::Find(absl::string_view name) const {
  if (IsPath(name)) return FindNow(name);
  MutexLock lock(&mu_);
  const Declared* declared = Look(name);
  if (declared == nullptr) return Unknown(name);
  if (declared->root != nullptr) return declared->root;
  FW_RETURN_IF_ERROR(declared->error);
  return absl::UnavailableError(
      absl::StrCat(DescribeRoot(name, declared->path), ": its storage has not answered yet"));
}

absl::Status Roots::CheckDeclared(absl::string_view name) const {
  MutexLock lock(&mu_);
  return roots_.find(DeclaredName(name)) != roots_.end() ? absl::OkStatus() : Unknown(name);
}

std::vector<std::string> Roots::Silent() const {
  MutexLock lock(&mu_);
  std::vector<std::string> silent;
  for (const auto& [name, declared] : roots_) {
    if (Look(name)->opening != nullptr) silent.push_back(DescribeRoot(name, declared.path));
  }
  return silent;
}

absl::Status Roots::Unknown(absl::string_view name) const {
  if (IsPath(name)) {
    return absl::PermissionDeniedError(absl::StrCat(
        "root '", PrintablePath(name),
        "' is an absolute path, and this daemon reads below its declared roots only; cure: declare "
        "the folder under roots: in feedwater.yaml and give the root's name, or let the loader "
        "start a daemon of its own: Loader(..., daemon=\"private\")"));
  }
  std::vector<std::string> known;
  for (const auto& [known_name, declared] : roots_) {
    if (!IsPath(known_name)) known.push_back(known_name);
  }
  if (roots_.count(kEveryFolder) > 0) {
    const std::string path = MeantFolder(name, /*may_be_word=*/known.empty());
    if (known.empty() || !path.empty()) {
      return absl::NotFoundError(absl::StrCat(
          "unknown root '", Printable(name), "'",
          known.empty() ? ": this daemon has no named roots" : "",
          "; cure: give the folder's absolute path, ",
          path.empty() ? "such as root: /data" : absl::StrCat("root: ", PrintablePath(path))));
    }
  }
  return absl::NotFoundError(absl::StrCat(
      "unknown root '", Printable(name), "'", known.empty() ? "" : Suggest(name, known),
      "; cure: declare it under roots: in feedwater.yaml, which a running daemon reads again at "
      "SIGHUP (systemctl reload)"));
}

}  // namespace feedwater::server
