#include "server/source/format.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_split.h"
#include "server/base/clock.h"
#include "server/source/digest.h"
#include "server/storage/engine.h"
#include "server/storage/fault.h"
#include "server/storage/stat_now.h"

namespace feedwater::server {
namespace {

constexpr IndexTag kStampPaths = MakeIndexTag("STPA");
constexpr IndexTag kStamps = MakeIndexTag("STMP");  // inode, bytes, modified, changed of each path
constexpr IndexTag kStampKinds =
    MakeIndexTag("STKI");  // how many are of empty folders, the last ones
constexpr size_t kStampNumbers = 4;
constexpr char kIdentityVersion[] = "4:";  // of what identities are made of
constexpr size_t kStampsPerLook = 256;     // looked at before it is asked whether anybody waits

constexpr int64_t kProgressIntervalNs = 100'000'000;
constexpr int64_t kLeastReservation = 4096;
constexpr size_t kBytesOfASlot = 2 * sizeof(size_t) + 1;  // of those opened
constexpr int64_t kBytesOfAnOpening = 4 * kBytesOfASlot;  // while a table grows there are two
constexpr size_t kSeveral = 0;                            // no state's hash

size_t HashOfState(const Stamp& stamp) {
  return absl::HashOf(stamp.device, stamp.inode, stamp.bytes, stamp.modified_ns, stamp.changed_ns) |
         1;
}

}  // namespace

std::string DatasetLocation::Describe() const {
  return path.empty() ? absl::StrCat("root '", root->name(), "' (", root->path(), ")")
                      : root->Describe(path);
}

Stamp MakeStamp(std::string path, const struct stat& info) {
  return {std::move(path),
          info.st_ino,
          S_ISDIR(info.st_mode) ? 0 : static_cast<uint64_t>(info.st_size),
          static_cast<uint64_t>(Nanoseconds(info.st_mtim)),
          static_cast<uint64_t>(Nanoseconds(info.st_ctim)),
          info.st_dev};
}

StampDevices::StampDevices(const std::vector<Stamp>& stamps,
                           const std::vector<Stamp>& empty_folders) {
  size_t number = 0;
  for (const auto* kind : {&stamps, &empty_folders}) {
    for (const Stamp& stamp : *kind) Set(number++, stamp.device);
  }
}

void StampDevices::Set(size_t stamp, uint64_t device) {
  if (!common_.has_value()) common_ = device;
  if (device != *common_) others_[stamp] = device;
}

uint64_t StampDevices::Of(size_t stamp) const {
  const auto found = others_.find(stamp);
  return found != others_.end() ? found->second : common_.value_or(0);
}

absl::StatusOr<Stamp> StampNow(const Root& root, const std::string& path,
                               int64_t* unsettled_until_ns) {
  const absl::StatusOr<struct stat> info = root.Stat(path);
  if (absl::IsNotFound(info.status())) return Stamp{path};
  if (!info.ok()) return info.status();
  AwaitClockTick(*info);
  *unsettled_until_ns = std::max(*unsettled_until_ns, UnsettledUntilNs(*info));
  return MakeStamp(path, *info);
}

void AddStamps(const std::vector<Stamp>& stamps, const std::vector<Stamp>& empty_folders,
               IndexWriter* columns) {
  TextList paths;
  std::vector<uint64_t> numbers;
  for (const auto* kind : {&stamps, &empty_folders}) {
    for (const Stamp& stamp : *kind) {
      paths.Add(stamp.path);
      numbers.insert(numbers.end(),
                     {stamp.inode, stamp.bytes, stamp.modified_ns, stamp.changed_ns});
    }
  }
  columns->Add(kStampPaths, paths);
  columns->Add(kStamps, numbers);
  columns->Add(kStampKinds, std::vector<uint64_t>{empty_folders.size()});
}

absl::StatusOr<int64_t> CountStamps(const Index& index) {
  FW_ASSIGN_OR_RETURN(const TextColumn paths, index.Texts(kStampPaths));
  return static_cast<int64_t>(paths.size());
}

namespace {

// Calls `look` with each saved stamp, until it gives an error or anything but "", and gives that.
template <typename Look>
absl::StatusOr<std::string> FirstOf(const Index& index, const Look& look) {
  FW_ASSIGN_OR_RETURN(TextColumn paths, index.Texts(kStampPaths));
  FW_ASSIGN_OR_RETURN(NumberColumn numbers, index.Numbers(kStamps));
  if (numbers.size() / kStampNumbers != paths.size() || numbers.size() % kStampNumbers != 0) {
    return absl::DataLossError("an index whose stamps do not fit together");
  }
  for (size_t i = 0; i < paths.size(); ++i) {
    const size_t n = i * kStampNumbers;
    FW_ASSIGN_OR_RETURN(std::string found,
                        look(i, Stamp{std::string(paths[i]), numbers[n], numbers[n + 1],
                                      numbers[n + 2], numbers[n + 3]}));
    if (!found.empty()) return found;
  }
  return std::string();
}

}  // namespace

absl::StatusOr<std::string> FindChange(const Index& index, const Root& root,
                                       const FindingChange& how) {
  // One that cannot be looked at does not hide that another one has changed.
  absl::Status not_told;
  absl::StatusOr<std::string> change =
      FirstOf(index, [&](size_t i, const Stamp& saved) -> absl::StatusOr<std::string> {
        if (i % kStampsPerLook == 0 && how.given_up != nullptr && how.given_up())
          return absl::CancelledError("nobody waits for the dataset any more");
        const absl::StatusOr<struct stat> info = root.Stat(saved.path, how.reach);
        if (IsElsewhere(info.status()) || IsTransient(info.status())) return info.status();
        if (!info.ok() && !absl::IsNotFound(info.status())) {
          not_told.Update(info.status());
          return std::string();
        }
        const Stamp now = info.ok() ? MakeStamp(saved.path, *info) : Stamp{saved.path};
        if (how.found != nullptr) how.found->Set(i, now.device);
        Stamp then = saved;
        then.device = how.devices != nullptr ? how.devices->Of(i) : now.device;
        if (now == then) return std::string();
        if (how.look == Dataset::Look::kGoesOn && info.ok() && S_ISDIR(info->st_mode) &&
            now.inode == then.inode && now.device == then.device && root.ShowsMoves(*info)) {
          return std::string();
        }
        return info.ok() ? absl::StrCat(root.Describe(saved.path), " has changed")
                         : std::string(info.status().message());
      });
  if (change.ok() && change->empty() && !not_told.ok()) return not_told;
  return change;
}

absl::Status IndexedDataset::LookAgain(Reach reach, Look look) const {
  if (out_of_date_.load(std::memory_order_relaxed))
    return absl::FailedPreconditionError("a file was found to be another one than was indexed");
  if (look == Look::kIsCurrent && parts_.unsettled_until_ns != 0 &&
      ClockNs(CLOCK_REALTIME) > parts_.unsettled_until_ns) {
    return absl::FailedPreconditionError("a file was perhaps being written when it was indexed");
  }
  FW_ASSIGN_OR_RETURN(const std::string change,
                      FindChange(*parts_.index, root(),
                                 {.reach = reach, .look = look, .devices = &parts_.devices}));
  if (!change.empty()) return absl::FailedPreconditionError(change);
  for (uint32_t object = 0; parts_.staged != nullptr && object < objects(); ++object) {
    if (IsStaged(object)) FW_RETURN_IF_ERROR(parts_.staged->LookAgain(ObjectPath(object), reach));
  }
  return absl::OkStatus();
}

bool IndexedDataset::IsStaged(uint32_t object) const {
  return parts_.staged != nullptr && &RootOf(object) == parts_.staged->root().get();
}

Dependencies IndexedDataset::dependencies(int64_t as_of_ns) const {
  const absl::StatusOr<NumberColumn> kinds = parts_.index->Numbers(kStampKinds);
  const absl::StatusOr<TextColumn> paths = parts_.index->Texts(kStampPaths);
  if (!kinds.ok() || kinds->size() != 1 || !paths.ok() || (*kinds)[0] > paths->size()) return {};
  const size_t with_records = paths->size() - static_cast<size_t>((*kinds)[0]);
  const int64_t now_ns = ClockNs(CLOCK_REALTIME);
  Dependencies all;
  Digest identity;
  std::string newest_file;
  const auto unread =
      FirstOf(*parts_.index, [&](size_t i, const Stamp& saved) -> absl::StatusOr<std::string> {
        if (i >= with_records) return std::string();
        identity.Add(saved.path);
        identity.Add(parts_.devices.Of(i));
        identity.Add(saved.inode);
        identity.Add(saved.bytes);
        if (saved.bytes == 0) return std::string();  // a folder, or nothing
        identity.Add(saved.changed_ns);
        const auto changed_ns = static_cast<int64_t>(saved.changed_ns);
        if (changed_ns > as_of_ns) all.later_ns.push_back(changed_ns);
        if (changed_ns <= now_ns && changed_ns > all.newest_file_ns) {
          all.newest_file_ns = changed_ns;
          newest_file = saved.path;
        }
        return std::string();
      });
  if (!unread.ok()) return {};
  absl::c_sort(all.later_ns);
  all.identity = absl::StrCat(kIdentityVersion, identity.Hex());
  if (!newest_file.empty()) all.newest_file = root().Describe(newest_file);
  return all;
}

std::optional<Stamp> IndexedDataset::StampOf(absl::string_view path) const {
  const absl::StatusOr<TextColumn> paths = parts_.index->Texts(kStampPaths);
  const absl::StatusOr<NumberColumn> numbers = parts_.index->Numbers(kStamps);
  if (!paths.ok() || !numbers.ok() || numbers->size() != paths->size() * kStampNumbers)
    return std::nullopt;
  absl::call_once(stamps_sorted_, [&] {
    stamp_of_path_.reserve(paths->size());
    for (size_t i = 0; i < paths->size(); ++i)
      stamp_of_path_.emplace_back(absl::HashOf((*paths)[i]), i);
    absl::c_sort(stamp_of_path_);
  });
  const std::pair<size_t, size_t> first{absl::HashOf(path), 0};
  for (auto at = absl::c_lower_bound(stamp_of_path_, first);
       at != stamp_of_path_.end() && at->first == first.first; ++at) {
    if ((*paths)[at->second] != path) continue;
    const size_t n = at->second * kStampNumbers;
    return Stamp{std::string(path), (*numbers)[n],     (*numbers)[n + 1],
                 (*numbers)[n + 2], (*numbers)[n + 3], parts_.devices.Of(at->second)};
  }
  return std::nullopt;
}

std::optional<Dataset::IndexedFile> IndexedDataset::IndexedAs(uint32_t object) const {
  if (IsStaged(object)) {
    const int64_t changed_ns = parts_.staged->ChangedNs(ObjectPath(object));
    if (changed_ns == 0) return std::nullopt;
    return IndexedFile{std::nullopt, std::nullopt, changed_ns};
  }
  const std::optional<Stamp> saved = StampOf(ObjectPath(object));
  if (!saved.has_value() || saved->bytes == 0) return std::nullopt;
  return IndexedFile{saved->inode, static_cast<int64_t>(saved->modified_ns),
                     static_cast<int64_t>(saved->changed_ns)};
}

// Files may come to it and go: those that the index names are looked at themselves.
absl::Status IndexedDataset::LookAtFolderOf(uint32_t object, Reach reach) const {
  if (IsStaged(object)) return absl::OkStatus();
  const std::string path = ObjectPath(object);
  const size_t slash = path.rfind('/');
  const std::optional<Stamp> saved =
      StampOf(absl::string_view(path).substr(0, slash == path.npos ? 0 : slash));
  if (!saved.has_value()) return absl::OkStatus();
  const absl::StatusOr<struct stat> now = root().Stat(saved->path, reach);
  if (absl::IsNotFound(now.status())) return absl::FailedPreconditionError(now.status().message());
  FW_RETURN_IF_ERROR(now.status());
  if (now->st_ino == saved->inode && now->st_dev == saved->device) {
    // A link that is turned gives its file no new time, but the folder one. Where files do not show
    // that they were moved any change of the folder counts (LookAgain).
    if (MakeStamp(saved->path, *now) == *saved || !root().ShowsMoves(*now)) return absl::OkStatus();
    FW_ASSIGN_OR_RETURN(const Fd folder, root().OpenFolder(saved->path));
    struct stat entry;
    const std::string name = path.substr(slash == path.npos ? 0 : slash + 1);
    if (fstatat(folder.get(), name.c_str(), &entry, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISLNK(entry.st_mode))
      return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(root().Describe(path), " is a link in a folder that has changed"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(root().Describe(saved->path), " has changed: another folder stands there"));
}

void IndexedDataset::MarkOutOfDate(uint32_t /*object*/) const {
  if (out_of_date_.exchange(true) || parts_.saved_as.empty()) return;
  unlink(parts_.saved_as.c_str());
}

absl::StatusOr<std::string> NormalizePath(absl::string_view what, const std::string& path,
                                          const YamlNode& node) {
  if (!path.empty() && path[0] == '/') {
    const absl::string_view to = what == "path" ? "root" : "dataset's path";
    return node.Error(absl::StrCat("'", what, "' is relative to the ", to, "; '", Printable(path),
                                   "' begins with '/'"));
  }
  if (path.find('\0') != std::string::npos)
    return node.Error(absl::StrCat("'", what, "' holds a NUL byte"));
  std::string normal;
  for (absl::string_view part : absl::StrSplit(path, '/', absl::SkipEmpty())) {
    if (part == ".") continue;
    if (part == "..") {
      return node.Error(absl::StrCat("'", what, "' may not hold '..': '", Printable(path), "'"));
    }
    normal = DatasetLocation::JoinPath(normal, part);
  }
  return normal;
}

absl::StatusOr<struct stat> IndexBuilder::DependOn(const Root& root, const std::string& path) {
  absl::StatusOr<struct stat> info = root.Stat(path);
  if (absl::IsNotFound(info.status())) stamps.push_back(Stamp{path});
  if (!info.ok()) return info;
  stamps.push_back(MakeStamp(path, *info));
  AwaitClockTick(*info);
  unsettled_until_ns = std::max(unsettled_until_ns, UnsettledUntilNs(*info));
  return info;
}

absl::StatusOr<DatasetLocation> IndexBuilder::Watch(const DatasetLocation& location) {
  DatasetLocation watched = location;
  FW_ASSIGN_OR_RETURN(
      watched.root, location.root->Watched([this](absl::string_view path, const struct stat& info) {
        return SawOpened(MakeStamp(std::string(path), info));
      }));
  return watched;
}

absl::Status IndexBuilder::SawOpened(const Stamp& opened) {
  FW_RETURN_IF_ERROR(Take(kBytesOfAnOpening));
  const size_t what = HashOfState(opened);
  MutexLock lock(&mu_);
  size_t& before = opened_.try_emplace(absl::HashOf(opened.path), what).first->second;
  if (before != what) before = kSeveral;
  return absl::OkStatus();
}

std::optional<std::string> IndexBuilder::FindUnproven() const {
  MutexLock lock(&mu_);
  for (const auto* kind : {&stamps, &empty_folders}) {
    for (const Stamp& stamp : *kind) {
      const auto opened = opened_.find(absl::HashOf(stamp.path));
      if (opened != opened_.end() && opened->second != HashOfState(stamp)) return stamp.path;
    }
  }
  return std::nullopt;
}

absl::Status IndexBuilder::OpenStaged(const std::string& file, absl::string_view why,
                                      absl::string_view cure) {
  if (staged_ != nullptr) return absl::OkStatus();
  if (staging_ == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(file, " ", why, "; cure: ", cure,
                     ", or let the daemon unpack it, below its state_dir (stage: {disk: SIZE} in "
                     "feedwater.yaml)"));
  }
  FW_ASSIGN_OR_RETURN(staged_, staging_->Open(staged_as_, rebuilds_));
  return absl::OkStatus();
}

absl::StatusOr<StagedFolder::File> IndexBuilder::Unpack(const Root& root, const std::string& path) {
  FW_RETURN_IF_ERROR(OpenStaged(root.Describe(path),
                                "is compressed as a whole and cannot be read in any order",
                                "unpack it"));
  FW_ASSIGN_OR_RETURN(const struct stat info, DependOn(root, path));
  return staged_->Unpack(root, path, info, [this] { return Progress(0, 0); });
}

absl::StatusOr<StagedFolder::File> IndexBuilder::Stage(const Root& root, const std::string& path,
                                                       absl::string_view form,
                                                       absl::string_view why,
                                                       absl::string_view cure,
                                                       const StagedFolder::WriteRecords& write) {
  FW_RETURN_IF_ERROR(OpenStaged(root.Describe(path), why, cure));
  FW_ASSIGN_OR_RETURN(const struct stat info, root.Stat(path));
  // What was learned of the file so far is of the one that the index depends on. What is unpacked
  // already is nobody else's.
  const bool is_unpacked = &root == staged_->root().get();
  if (!is_unpacked && !absl::c_linear_search(stamps, MakeStamp(path, info))) {
    return FileChangedError(absl::StrCat(
        root.Describe(path), " has changed while it was indexed; cure: open a new loader"));
  }
  return staged_->Make(root, path, info, form, write, [this] { return Progress(0, 0); });
}

absl::Status IndexBuilder::Progress(int64_t done, int64_t total) {
  const int64_t now = MonotonicNs();
  const bool last = total > 0 && done == total;
  if (!last && now - last_progress_ns_ < kProgressIntervalNs) return absl::OkStatus();
  last_progress_ns_ = now;
  if (given_up_ != nullptr && given_up_())
    return absl::CancelledError("nobody waits for the dataset's index any more");
  if (progress_ != nullptr) progress_(done, total);
  return absl::OkStatus();
}

absl::Status IndexBuilder::Take(int64_t bytes) {
  if (budget_ == nullptr) return absl::OkStatus();
  const int64_t taken = taken_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (taken <= reserved_.load(std::memory_order_relaxed)) return absl::OkStatus();
  MutexLock lock(&mu_);
  const int64_t missing = taken - reserved_.load(std::memory_order_relaxed);
  if (missing <= 0) return absl::OkStatus();
  int64_t step = std::max({missing, taken / 8, kLeastReservation});
  auto more = budget_->Reserve("indexes", step);
  if (!more.ok()) more = budget_->Reserve("indexes", step = missing);
  if (!more.ok()) return more.status();
  reservations_.push_back(*std::move(more));
  reserved_.fetch_add(step, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status IndexBuilder::TakeOwnAlone() {
  // Stamps are here, in a list of texts, and in a column; so is a column, while it is added.
  size_t bytes = 2 * columns.bytes();
  for (const auto* kind : {&stamps, &empty_folders}) {
    for (const Stamp& stamp : *kind) bytes += 3 * (sizeof(Stamp) + stamp.path.size());
  }
  for (const std::string& name : classes) bytes += 3 * (sizeof(std::string) + name.size());
  int64_t own = 0;
  {
    MutexLock lock(&mu_);
    own = static_cast<int64_t>(bytes + opened_.capacity() * kBytesOfASlot);
    while (!reservations_.empty() && reserved_ - reservations_.back().bytes() >= own) {
      reserved_ -= reservations_.back().bytes();
      reservations_.pop_back();
    }
    if (reserved_ > own) {
      MemoryReservation& last = reservations_.back();
      const int64_t others = reserved_ - last.bytes();
      last.ShrinkTo(own - others);
      reserved_ = own;
    }
    taken_ = 0;
  }
  return Take(own);
}

int64_t IndexedDataset::memory_bytes() const {
  int64_t bytes = parts_.index->bytes();
  if (const absl::StatusOr<TextColumn> paths = parts_.index->Texts(kStampPaths); paths.ok())
    bytes += static_cast<int64_t>(paths->size() * sizeof(stamp_of_path_[0]));
  for (const std::string& name : parts_.classes)
    bytes += static_cast<int64_t>(sizeof(std::string) + name.size() + 1);  // as reserved
  return bytes + static_cast<int64_t>(shard_starts_.size() * sizeof(int64_t));
}

void IndexedDataset::Prepare(Record* out, size_t inline_values) const {
  out->inline_values.resize(inline_values);
  out->fields.resize(parts_.fields.size());
  for (size_t i = 0; i < parts_.fields.size(); ++i) {
    out->fields[i].spec = parts_.fields[i].spec;
    out->fields[i].data = nullptr;
  }
}

absl::StatusOr<std::vector<std::string>> ListFolder(const Root& root, const std::string& path,
                                                    IndexBuilder* builder) {
  constexpr int64_t kBytesOfAName = 64;      // beside the name itself
  constexpr int64_t kTakenAtOnce = 1 << 18;  // some thousands of names
  FW_ASSIGN_OR_RETURN(Fd fd, root.OpenFolder(path));
  std::unique_ptr<DIR, int (*)(DIR*)> folder(fdopendir(fd.get()), closedir);
  if (folder == nullptr) return StorageError(errno, root.Describe(path));
  fd.release();
  std::vector<std::string> names;
  int64_t bytes = 0;  // not counted yet
  const auto count = [&]() -> absl::Status {
    if (builder == nullptr) return absl::OkStatus();
    FW_RETURN_IF_ERROR(builder->Take(std::exchange(bytes, 0)));
    return builder->Progress(0, 0);
  };
  while (true) {
    errno = 0;  // tells the end from an error
    const dirent* entry = readdir(folder.get());
    if (entry == nullptr) break;
    const absl::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    names.emplace_back(name);
    bytes += kBytesOfAName + static_cast<int64_t>(name.size());
    if (bytes >= kTakenAtOnce) FW_RETURN_IF_ERROR(count());
  }
  if (errno != 0) return StorageError(errno, absl::StrCat("listing ", root.Describe(path)));
  FW_RETURN_IF_ERROR(count());
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::string> ReadRange(const Root& root, const std::string& path, int64_t begin,
                                      size_t length) {
  FW_ASSIGN_OR_RETURN(Fd fd, root.OpenFile(path, /*direct_io=*/false));
  std::string head(length, '\0');
  size_t done = 0;
  while (done < length) {
    ssize_t got = pread(fd.get(), head.data() + done, length - done,
                        static_cast<off_t>(begin) + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return StorageError(errno, root.Describe(path));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  head.resize(done);
  return head;
}

}  // namespace feedwater::server
