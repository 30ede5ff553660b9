#include "server/source/class_scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/mutex.h"
#include "server/base/thread.h"
#include "server/storage/engine.h"
#include "server/storage/fault.h"

namespace feedwater::server {
namespace {

constexpr int kScanThreads = 8;
constexpr size_t kMaxFolders = 1'000'000;  // links can make more folders than there are
constexpr size_t kMaxDepth = 100;
constexpr size_t kHeapBytes = 32;  // a name's allocation, beside the name

bool IsImage(absl::string_view name) {
  for (const char* extension : kImageExtensions) {
    if (absl::EndsWithIgnoreCase(name, extension)) return true;
  }
  return false;
}

// A folder and those above it, to find links that lead back up.
struct Ancestor {
  dev_t device;
  ino_t inode;
  std::shared_ptr<const Ancestor> parent;
};

// Paths of one kind: how many, and the first few by name, which do not depend on who found them
// when.
class Counted {
 public:
  void Add(std::string path) {
    ++count_;
    first_.push_back(std::move(path));
    Cut();
  }
  void Add(const Counted& other) {
    count_ += other.count_;
    first_.insert(first_.end(), other.first_.begin(), other.first_.end());
    Cut();
  }
  int64_t count() const { return count_; }
  // "2 hidden files or folders (cat/.a, cat/.b)", or nothing.
  void Describe(const char* one, const char* many, std::vector<std::string>* parts) const {
    if (count_ == 0) return;
    std::vector<std::string> names;
    for (const std::string& path : first_) names.push_back(Printable(path));
    parts->push_back(absl::StrCat(count_, " ", count_ == 1 ? one : many, " (",
                                  absl::StrJoin(names, ", "),
                                  count_ > static_cast<int64_t>(kNamed) ? ", ..." : "", ")"));
  }

 private:
  static constexpr size_t kNamed = 3;
  void Cut() {
    std::sort(first_.begin(), first_.end());
    if (first_.size() > kNamed) first_.resize(kNamed);
  }

  int64_t count_ = 0;
  std::vector<std::string> first_;
};

// What people may miss among the records, and what they may not expect there.
struct Notes {
  Counted hidden, not_images, not_regular, loops, beside_classes;  // left out
  Counted dangling, empty;                                         // kept
  void Add(const Notes& other) {
    hidden.Add(other.hidden);
    not_images.Add(other.not_images);
    not_regular.Add(other.not_regular);
    loops.Add(other.loops);
    beside_classes.Add(other.beside_classes);
    dangling.Add(other.dangling);
    empty.Add(other.empty);
  }
  std::string Describe() const {
    std::vector<std::string> out, kept;
    not_images.Describe("file without an image's extension", "files without an image's extension",
                        &out);
    hidden.Describe("hidden file or folder", "hidden files or folders", &out);
    beside_classes.Describe("file beside the class folders", "files beside the class folders",
                            &out);
    not_regular.Describe("image that is not a regular file", "images that are not regular files",
                         &out);
    loops.Describe("link to a folder above it", "links to a folder above them", &out);
    // torchvision keeps these, too; each is a bad sample when its turn comes.
    empty.Describe("empty image", "empty images", &kept);
    dangling.Describe("link to an image that does not exist", "links to images that do not exist",
                      &kept);
    std::string text;
    if (!out.empty()) text = absl::StrCat("left out: ", absl::StrJoin(out, ", "));
    if (!kept.empty()) {
      absl::StrAppend(&text, text.empty() ? "" : "; ",
                      "kept, but bad: ", absl::StrJoin(kept, ", "));
    }
    return text;
  }
};

struct Task {
  std::string path;
  size_t class_number = 0;
  size_t depth = 0;
  bool through_link = false;
  std::shared_ptr<const Ancestor> parent;
};

// Lists folders with several threads. With classes, the first level gives them, and its files are
// left out.
class Scan {
 public:
  Scan(const DatasetLocation& location, bool has_classes, IndexBuilder* builder)
      : location_(location), has_classes_(has_classes), builder_(builder) {}

  absl::Status Run();

  std::vector<std::string> classes;
  std::vector<ScannedFolder> folders;  // sorted
  Notes notes;

 private:
  struct Listing {
    ScannedFolder folder;
    std::vector<std::pair<std::string, bool>> subfolders;  // name, whether through a link
    Notes notes;
    std::shared_ptr<const Ancestor> self;
    bool is_loop = false;
  };

  absl::StatusOr<Listing> List(const Task& task);
  absl::Status Classify(const Task& task, int folder, const dirent& entry, Listing* listing);
  absl::Status RunClasses();
  void Work();
  void Finish(const Task& task, absl::StatusOr<Listing> listing) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Stop(absl::Status error, std::string path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const DatasetLocation& location_;
  const bool has_classes_;
  IndexBuilder* const builder_;
  std::atomic<int64_t> found_{0};
  std::atomic<bool> stopped_{false};  // by an error, which is in error_

  Mutex mu_;
  CondVar changed_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mu_);
  size_t unfinished_ ABSL_GUARDED_BY(mu_) = 0;  // tasks waiting or being worked on
  size_t started_ ABSL_GUARDED_BY(mu_) = 0;
  // The error of the first folder in path order among those met, so that messages do not depend on
  // timing too much.
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  std::string error_path_ ABSL_GUARDED_BY(mu_);
};

absl::Status Scan::Classify(const Task& task, int folder, const dirent& entry, Listing* listing) {
  const absl::string_view name = entry.d_name;
  if (name == "." || name == "..") return absl::OkStatus();
  const std::string path = DatasetLocation::JoinPath(task.path, name);
  if (name[0] == '.') {
    listing->notes.hidden.Add(path);
    return absl::OkStatus();
  }
  unsigned char type = entry.d_type;
  struct stat info = {};
  if (type == DT_UNKNOWN) {
    if (fstatat(folder, entry.d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return errno == ENOENT ? absl::OkStatus() : StorageError(errno, location_.Below(task.path));
    }
    type = IFTODT(info.st_mode);
  }
  const bool is_link = type == DT_LNK;
  const bool is_top = has_classes_ && task.depth == 0;
  if (is_link) {
    absl::StatusOr<struct stat> target = location_.root->Stat(location_.Below(path));
    if (absl::IsNotFound(
            target.status())) {  // torchvision keeps it too; reading it is an error of that sample
      if (is_top || !IsImage(name)) listing->folder.absent.emplace_back(name);
      if (is_top) {
        listing->notes.beside_classes.Add(path);
      } else if (IsImage(name)) {
        listing->notes.dangling.Add(path);
        listing->folder.files.push_back({std::string(name), 0});
      } else {
        listing->notes.not_images.Add(path);
      }
      return absl::OkStatus();
    }
    if (!target.ok()) return target.status();
    info = *target;
    type = IFTODT(info.st_mode);
  }
  if (type == DT_DIR) {
    listing->subfolders.emplace_back(name, is_link);
  } else if (is_top) {
    listing->notes.beside_classes.Add(path);
  } else if (!IsImage(name)) {
    listing->notes.not_images.Add(path);
  } else if (type != DT_REG) {
    listing->notes.not_regular.Add(path);
  } else {
    if (!is_link && fstatat(folder, entry.d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT)
        return absl::OkStatus();  // removed meanwhile, which the folder's stamp will show
      return StorageError(errno, location_.root->Describe(location_.Below(path)));
    }
    if (info.st_size == 0) listing->notes.empty.Add(path);
    listing->folder.files.push_back({std::string(name), static_cast<uint64_t>(info.st_size)});
  }
  return absl::OkStatus();
}

absl::StatusOr<Scan::Listing> Scan::List(const Task& task) {
  Listing listing;
  const std::string full = location_.Below(task.path);
  FW_ASSIGN_OR_RETURN(Fd fd, location_.root->OpenFolder(full));
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return StorageError(errno, location_.root->Describe(full));
  if (task.through_link) {
    for (const Ancestor* above = task.parent.get(); above != nullptr; above = above->parent.get()) {
      if (above->device == info.st_dev && above->inode == info.st_ino) {
        listing.is_loop = true;
        return listing;
      }
    }
  }
  listing.self = std::make_shared<const Ancestor>(Ancestor{info.st_dev, info.st_ino, task.parent});
  listing.folder.class_number = task.class_number;
  listing.folder.path = task.path;
  listing.folder.stamp = MakeStamp(full, info);
  AwaitClockTick(info);
  std::unique_ptr<DIR, int (*)(DIR*)> folder(fdopendir(fd.get()), closedir);
  if (folder == nullptr) return StorageError(errno, location_.root->Describe(full));
  const int handle = fd.release();
  while (!stopped_.load(std::memory_order_relaxed)) {
    errno = 0;  // tells the end from an error
    const dirent* entry = readdir(folder.get());
    if (entry == nullptr) break;
    // The first level is listed by the thread that tells how far the work is.
    if (has_classes_ && task.depth == 0) FW_RETURN_IF_ERROR(builder_->Progress(0, 0));
    const size_t files = listing.folder.files.size(), folders = listing.subfolders.size();
    const size_t absent = listing.folder.absent.size();
    FW_RETURN_IF_ERROR(Classify(task, handle, *entry, &listing));
    const size_t name = strlen(entry->d_name) + kHeapBytes;
    size_t bytes = 0;
    if (listing.folder.files.size() > files) bytes = sizeof(ScannedFile) + name;
    if (listing.subfolders.size() > folders)  // as a name, a task, and a folder with its stamp
      bytes = sizeof(Task) + sizeof(ScannedFolder) + name + 3 * (name + full.size());
    if (listing.folder.absent.size() > absent)  // as a name, and in its stamp
      bytes = name + 3 * (sizeof(Stamp) + name + full.size());
    if (bytes > 0) FW_RETURN_IF_ERROR(builder_->Take(static_cast<int64_t>(bytes)));
  }
  if (stopped_.load(std::memory_order_relaxed)) return listing;  // nobody wants it
  if (errno != 0)
    return StorageError(errno, absl::StrCat("listing ", location_.root->Describe(full)));
  std::sort(listing.folder.files.begin(), listing.folder.files.end(),
            [](const ScannedFile& a, const ScannedFile& b) { return a.name < b.name; });
  found_.fetch_add(static_cast<int64_t>(listing.folder.files.size()), std::memory_order_relaxed);
  return listing;
}

void Scan::Finish(const Task& task, absl::StatusOr<Listing> listing) {
  absl::Status status = listing.status();
  if (status.ok() && listing->is_loop) {
    notes.loops.Add(task.path);
  } else if (status.ok()) {
    if (task.depth + 1 > kMaxDepth && !listing->subfolders.empty()) {
      status = absl::InvalidArgumentError(
          absl::StrCat(location_.root->Describe(location_.Below(task.path)), " lies more than ",
                       kMaxDepth, " folders deep"));
    } else if (started_ + listing->subfolders.size() > kMaxFolders) {
      status = absl::ResourceExhaustedError(
          absl::StrCat(location_.Describe(), " has more than ", kMaxFolders, " folders"));
    }
  }
  if (!status.ok()) {
    if (error_.ok() || task.path < error_path_) Stop(status, task.path);
  } else if (!listing->is_loop) {
    for (const auto& [name, through_link] : listing->subfolders) {
      tasks_.push_back({DatasetLocation::JoinPath(task.path, name), task.class_number,
                        task.depth + 1, through_link, listing->self});
      ++unfinished_;
      ++started_;
    }
    notes.Add(listing->notes);
    folders.push_back(std::move(listing->folder));
  }
  --unfinished_;
  changed_.SignalAll();
}

void Scan::Work() {
  mu_.Lock();
  while (unfinished_ > 0 && error_.ok()) {
    if (tasks_.empty()) {
      changed_.Wait(&mu_);
      continue;
    }
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    mu_.Unlock();
    absl::StatusOr<Listing> listing = List(task);
    mu_.Lock();
    Finish(task, std::move(listing));
  }
  mu_.Unlock();
}

// The first level: its folders are the classes.
absl::Status Scan::RunClasses() {
  absl::StatusOr<Listing> top = List(Task{});
  if (!top.ok()) return top.status();
  notes.Add(top->notes);
  std::sort(top->subfolders.begin(), top->subfolders.end());
  if (top->subfolders.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        location_.Describe(), " has no class folders",
        top->notes.beside_classes.count() > 0
            ? absl::StrCat(", only ", top->notes.beside_classes.count(), " files")
            : "",
        "; image_folder reads one folder per class, such as ", location_.Below("cat/1.jpg")));
  }
  MutexLock lock(&mu_);
  folders.push_back(std::move(top->folder));
  for (const auto& [name, through_link] : top->subfolders) {
    tasks_.push_back({name, classes.size(), 1, through_link, top->self});
    classes.push_back(name);
  }
  unfinished_ = started_ = tasks_.size();
  return absl::OkStatus();
}

void Scan::Stop(absl::Status error, std::string path) {
  error_ = std::move(error);
  error_path_ = std::move(path);
  stopped_.store(true, std::memory_order_relaxed);
  changed_.SignalAll();
}

absl::Status Scan::Run() {
  if (has_classes_) {
    FW_RETURN_IF_ERROR(RunClasses());
  } else {
    MutexLock lock(&mu_);
    tasks_.emplace_back();
    unfinished_ = started_ = 1;
  }
  std::vector<std::thread> threads;
  try {
    while (threads.size() < kScanThreads) {
      threads.emplace_back([this] {
        StepBack();  // they mostly wait; where they do not, workers come first
        Work();
      });
    }
  } catch (const std::system_error&) {  // no more threads to be had; fewer do as well
  }
  if (threads.empty()) Work();
  mu_.Lock();
  while (unfinished_ > 0 && error_.ok()) {
    changed_.WaitWithTimeout(&mu_, absl::Milliseconds(100));
    mu_.Unlock();
    const absl::Status wanted = builder_->Progress(found_.load(std::memory_order_relaxed), 0);
    mu_.Lock();
    if (!wanted.ok()) Stop(wanted, "");
  }
  mu_.Unlock();
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(&mu_);
  FW_RETURN_IF_ERROR(error_);
  std::sort(folders.begin(), folders.end(), [](const ScannedFolder& a, const ScannedFolder& b) {
    return std::tie(a.class_number, a.path) < std::tie(b.class_number, b.path);
  });
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ScannedClasses> ScanClasses(const DatasetLocation& location, IndexBuilder* builder) {
  Scan scan(location, /*has_classes=*/true, builder);
  FW_RETURN_IF_ERROR(scan.Run());
  return ScannedClasses{std::move(scan.classes), std::move(scan.folders), scan.notes.Describe()};
}

absl::StatusOr<ScannedClasses> ScanImages(const DatasetLocation& location, IndexBuilder* builder) {
  Scan scan(location, /*has_classes=*/false, builder);
  FW_RETURN_IF_ERROR(scan.Run());
  return ScannedClasses{{}, std::move(scan.folders), scan.notes.Describe()};
}

}  // namespace feedwater::server
