// What files are for a job: one that is refused stays refused, whoever asks and however, and the
// folders are looked at before the last file is taken, whatever threads do.
#include "server/pipeline/job_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "server/source/dataset.h"
#include "server/storage/stat_now.h"
#include "tests/source/dataset_reader.h"
#include "tests/source/small_datasets.h"
#include "tests/testing/test_runtime.h"

namespace feedwater::server {
namespace {

using ::feedwater::testing::AttachRank;
using ::feedwater::testing::LoadPipeline;
using ::feedwater::testing::TestJob;
using ::feedwater::testing::TestRank;
using ::feedwater::testing::TestRuntimeOptions;
using ::feedwater::testing::WorkingEngines;
using ::testing::HasSubstr;

constexpr int kFiles = 5, kPerFile = 40;
const auto kTick = std::chrono::milliseconds(50);         // of file times
const auto kLookPause = std::chrono::milliseconds(1100);  // between two looks

// CIFAR-10 in five files, and another one beside it that was made before and takes its place.
class ExchangedFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* folder : {"cifar", "other"}) {
      for (int file = 0; file < kFiles; ++file) {
        std::string records;
        for (int i = 0; i < kPerFile; ++i) records += CifarRecord(file, folder[0] * 1000 + i);
        folder_.Write(absl::StrCat(folder, "/data_batch_", file + 1, ".bin"), records);
      }
    }
    dataset_ = OpenNow();
    ASSERT_NE(dataset_, nullptr);
  }
  // The dataset as a daemon finds it that is started now.
  std::shared_ptr<const Dataset> OpenNow() {
    std::this_thread::sleep_for(kTick);
    DatasetOptions options;
    options.roots = folder_.AsRoot();
    const auto now = OpenDataset(ParseNode("{format: cifar10, root: root, path: cifar}"), options);
    EXPECT_TRUE(now.ok()) << now.status();
    return now.value_or(nullptr);
  }
  std::shared_ptr<const Dataset> OpenImages(const std::string& path) const {
    DatasetOptions options;
    options.roots = folder_.AsRoot();
    const auto images = OpenDataset(
        ParseNode(absl::StrCat("{format: image_folder, root: root, path: ", path, "}")), options);
    EXPECT_TRUE(images.ok()) << images.status();
    return images.value_or(nullptr);
  }
  void Exchange() const {
    std::filesystem::rename(folder_ / "cifar", folder_ / "old");
    std::filesystem::rename(folder_ / "other", folder_ / "cifar");
  }
  std::shared_ptr<JobFiles> MakeJob() const { return JobFiles::Create(dataset_, files_, nullptr); }

  TempFolder folder_;
  std::shared_ptr<FileCache> files_ = std::make_shared<FileCache>(100, false);
  std::shared_ptr<const Dataset> dataset_;
};

TEST_F(ExchangedFolder, IsRefusedAsOftenAsItIsAskedFor) {
  const auto job = MakeJob();
  EXPECT_TRUE(job->Open(0, Reach::kAnywhere, 0).ok());
  EXPECT_TRUE(job->Open(1, Reach::kAnywhere, 0).ok());
  Exchange();
  std::this_thread::sleep_for(kLookPause);
  for (int i = 0; i < 3; ++i) {
    const absl::Status refused = job->Open(2, Reach::kAnywhere, 0).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("has changed"));
    EXPECT_TRUE(absl::IsFailedPrecondition(
        job->StampOf({{2, 0, 3073}, {3, 0, 3073}}, Reach::kAnywhere).status()));
  }
  EXPECT_TRUE(job->Open(1, Reach::kAnywhere, 0).ok()) << "it is open, and as it was";
}

TEST_F(ExchangedFolder, IsSeenAtTheLastFileAtTheLatest) {
  const auto job = MakeJob();
  for (uint32_t file = 0; file + 1 < kFiles; ++file)
    EXPECT_TRUE(job->Open(file, Reach::kAnywhere, 0).ok());
  Exchange();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(absl::IsFailedPrecondition(job->Open(kFiles - 1, Reach::kAnywhere, 0).status()));
  }
}

// Of so many files the index has no change times, and those of the other class are as old.
TEST_F(ExchangedFolder, IsSeenAtOnceWhereClassesTakeEachOthersPlace) {
  for (const char* name : {"cat", "dog"}) {
    for (int file = 0; file < 1100; ++file)
      folder_.Write(absl::StrCat("images/", name, "/", file, ".ppm"), name);
  }
  std::this_thread::sleep_for(kTick);
  const std::shared_ptr<const Dataset> images = OpenImages("images");
  ASSERT_NE(images, nullptr);
  const auto job = JobFiles::Create(images, files_, nullptr);
  EXPECT_TRUE(job->Open(1, Reach::kAnywhere, 0).ok());
  std::filesystem::rename(folder_ / "images/cat", folder_ / "kept");
  std::filesystem::rename(folder_ / "images/dog", folder_ / "images/cat");
  std::filesystem::rename(folder_ / "kept", folder_ / "images/dog");
  for (const uint32_t file : {2u, 1500u}) {
    const absl::Status refused = job->Open(file, Reach::kAnywhere, 0).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("has changed"));
  }
  EXPECT_TRUE(job->Open(1, Reach::kAnywhere, 0).ok()) << "it is open, and as it was";
}

// Snapshots and clones of a file system have the same inodes and times; so have two that are
// filled alike.
TEST_F(ExchangedFolder, IsSeenAtOnceWhereItIsAnotherFileSystemWithTheSameInodes) {
  if (unshare(CLONE_NEWNS) != 0 || mount("", "/", "", MS_REC | MS_PRIVATE, nullptr) != 0)
    GTEST_SKIP() << "needs root to mount file systems";
  for (const char* copy : {"a", "b"}) {
    std::filesystem::create_directory(folder_ / copy);
    if (mount("", (folder_ / copy).c_str(), "tmpfs", 0, nullptr) != 0)
      GTEST_SKIP() << "no tmpfs can be mounted";
    for (int file = 0; file < 2100; ++file)
      folder_.Write(absl::StrCat(copy, "/images/cat/", file, ".ppm"), copy);
  }
  std::filesystem::create_directory_symlink("a", folder_ / "cur");
  std::this_thread::sleep_for(kTick);
  const std::shared_ptr<const Dataset> images = OpenImages("cur/images");
  ASSERT_NE(images, nullptr);
  const auto job = JobFiles::Create(images, files_, nullptr);
  EXPECT_TRUE(job->Open(1, Reach::kAnywhere, 0).ok());
  std::filesystem::remove(folder_ / "cur");
  std::filesystem::create_directory_symlink("b", folder_ / "cur");
  struct stat a, b;
  ASSERT_EQ(stat((folder_ / "a/images/cat").c_str(), &a), 0);
  ASSERT_EQ(stat((folder_ / "b/images/cat").c_str(), &b), 0);
  EXPECT_EQ(a.st_ino, b.st_ino) << "or this is no test";
  EXPECT_TRUE(absl::IsFailedPrecondition(job->Open(2, Reach::kAnywhere, 0).status()));
  for (const char* copy : {"a", "b"}) umount2((folder_ / copy).c_str(), MNT_DETACH);
}

// A trainer's checkpoint, a folder's thumbnails: no record's file is another one for that.
TEST_F(ExchangedFolder, MayGetOtherFilesWhileAJobRuns) {
  struct stat info;
  ASSERT_EQ(stat((folder_ / "cifar").c_str(), &info), 0);
  if (!dataset_->root().ShowsMoves(info)) GTEST_SKIP() << "not of this file system";
  const auto job = MakeJob();
  EXPECT_TRUE(job->Open(0, Reach::kAnywhere, 0).ok());
  folder_.Write("cifar/checkpoint.pt", "of no interest");
  std::this_thread::sleep_for(kLookPause);
  for (uint32_t file = 1; file < kFiles; ++file) {
    const auto opened = job->Open(file, Reach::kAnywhere, 0);
    EXPECT_TRUE(opened.ok()) << opened.status();
  }
}

TEST_F(ExchangedFolder, MayNotGetOlderFilesInPlaceOfItsOwn) {
  for (int file = 0; file < 2100; ++file) {
    folder_.Write(absl::StrCat("images/cat/", file, ".ppm"), "cat");
    folder_.Write(absl::StrCat("older/", file, ".ppm"), "old");
  }
  std::this_thread::sleep_for(kTick);
  const std::shared_ptr<const Dataset> images = OpenImages("images");
  ASSERT_NE(images, nullptr);
  const auto job = JobFiles::Create(images, files_, nullptr);
  EXPECT_TRUE(job->Open(1, Reach::kAnywhere, 0).ok());
  std::this_thread::sleep_for(kTick);
  for (uint32_t file = 2; file < 4; ++file) {
    const std::string path = images->ObjectPath(file);
    const auto other = folder_ / ("older" + path.substr(path.rfind('/')));
    if (file == 2) std::filesystem::rename(other, folder_ / path);
    if (file == 3) std::filesystem::remove(folder_ / path);
    if (file == 3) std::filesystem::create_hard_link(other, folder_ / path);
    EXPECT_TRUE(absl::IsFailedPrecondition(job->Open(file, Reach::kAnywhere, 0).status())) << path;
  }
}

// What it leads to is as old and as large as what it led to, and it has no stamp.
TEST_F(ExchangedFolder, MayNotHaveALinkTurned) {
  for (const char* name : {"a", "b"}) folder_.Write(absl::StrCat("store/", name, ".ppm"), name);
  for (int file = 0; file < 2100; ++file)
    folder_.Write(absl::StrCat("images/cat/", file, ".ppm"), "cat");
  std::filesystem::create_symlink("../../store/a.ppm", folder_ / "images/cat/link.ppm");
  std::this_thread::sleep_for(kTick);
  const std::shared_ptr<const Dataset> images = OpenImages("images");
  ASSERT_NE(images, nullptr);
  uint32_t link = 0;
  while (images->ObjectPath(link) != "images/cat/link.ppm") ++link;
  const auto job = JobFiles::Create(images, files_, nullptr);
  EXPECT_TRUE(job->Open(link == 0 ? 1 : 0, Reach::kAnywhere, 0).ok());
  std::this_thread::sleep_for(kTick);
  std::filesystem::remove(folder_ / "images/cat/link.ppm");
  std::filesystem::create_symlink("../../store/b.ppm", folder_ / "images/cat/link.ppm");
  EXPECT_TRUE(absl::IsFailedPrecondition(job->Open(link, Reach::kAnywhere, 0).status()));
}

// Records that follow one another are read at once: the error of the one read is that of each.
TEST_F(ExchangedFolder, IsSeenAtOnceInAShardBehindALinkThatIsTurned) {
  for (int file = 1; file <= kFiles; ++file) {  // times of their own
    const std::string name = absl::StrCat("other/data_batch_", file, ".bin");
    folder_.Write(name, std::string(std::filesystem::file_size(folder_ / name), 'x'));
  }
  std::filesystem::create_directory_symlink("cifar", folder_ / "cur");
  std::this_thread::sleep_for(kTick);
  DatasetOptions options;
  options.roots = folder_.AsRoot();
  const auto linked = OpenDataset(ParseNode("{format: cifar10, root: root, path: cur}"), options);
  ASSERT_TRUE(linked.ok()) << linked.status();
  const auto job = JobFiles::Create(*linked, files_, nullptr);
  EXPECT_TRUE(job->Open(0, Reach::kAnywhere, 0).ok());
  std::filesystem::remove(folder_ / "cur");
  std::filesystem::create_directory_symlink("other", folder_ / "cur");
  EXPECT_TRUE(absl::IsFailedPrecondition(job->Open(1, Reach::kAnywhere, 0).status()));
}

TEST_F(ExchangedFolder, EndsAJobThatReadsItsRecordsInStoredOrder) {
  const auto pipeline = LoadPipeline(
      "version: 1\ndataset: {format: cifar10, root: root, path: cifar}\n"
      "sampler: {shuffle: none}\noutputs: [image, label, sample_id]\n",
      dataset_);
  auto runtime = Runtime::Create(TestRuntimeOptions(1));
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  TestRank rank = AttachRank(**runtime, TestJob(pipeline, kPerFile), 0, 2);
  int slots[2];
  for (int& slot : slots) {  // while it has both, no further file is looked at
    const auto event = rank.slots->Next();
    ASSERT_TRUE(event.has_value());
    ASSERT_GE(event->slot, 0) << event->failure.status;
    slot = event->slot;
  }
  Exchange();
  std::this_thread::sleep_for(kLookPause);
  for (int slot : slots) rank.slots->Release(slot);
  const auto event = rank.slots->Next();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->slot, -1);
  EXPECT_TRUE(absl::IsFailedPrecondition(event->failure.status)) << event->failure.status;
  EXPECT_EQ(event->failure.record, -1) << "nothing is wrong with the record";
}

TEST_F(ExchangedFolder, IsNoMatterOfTimesInTheFuture) {
  const auto later = std::filesystem::file_time_type::clock::now() + std::chrono::hours(1000);
  for (int file = 1; file <= kFiles; ++file)
    std::filesystem::last_write_time(folder_ / absl::StrCat("cifar/data_batch_", file, ".bin"),
                                     later);
  dataset_ = OpenNow();
  const auto job = MakeJob();
  const auto file = job->Open(0, Reach::kAnywhere, 0);
  EXPECT_TRUE(file.ok()) << file.status();
  const auto last = static_cast<uint32_t>(kFiles - 1);
  EXPECT_TRUE(job->StampOf({{last, 0, 3073}}, Reach::kAnywhere).ok());
  std::this_thread::sleep_for(kTick);
  std::filesystem::last_write_time(folder_ / "cifar/data_batch_2.bin", later);
  EXPECT_TRUE(absl::IsFailedPrecondition(job->Open(1, Reach::kAnywhere, 0).status()))
      << "it was touched after the job was opened";
}

// A rank that lost its daemon: its new job is as old as its first one.
class ReturningRank : public ExchangedFolder {
 protected:
  void SetUp() override {
    ExchangedFolder::SetUp();
    mark_ = MakeJob()->mark();
    std::this_thread::sleep_for(kTick);
  }
  std::shared_ptr<JobFiles> NewJob() { return JobFiles::Create(OpenNow(), files_, nullptr); }

  FilesMark mark_;
};

TEST_F(ReturningRank, GoesOnWithTheSameFiles) {
  const auto job = NewJob();
  EXPECT_TRUE(job->KeepSince(mark_).ok());
  EXPECT_EQ(job->mark().as_of_ns, mark_.as_of_ns);
  EXPECT_TRUE(job->Open(0, Reach::kAnywhere, 0).ok());
}

TEST_F(ReturningRank, IsRefusedAFileThatChangedMeanwhile) {
  std::ofstream(folder_ / "cifar/data_batch_2.bin", std::ios::in | std::ios::binary) << "other";
  std::this_thread::sleep_for(kTick);
  const auto job = MakeJob();  // the index is the old one: nobody has seen it
  EXPECT_TRUE(job->KeepSince(mark_).ok());
  EXPECT_TRUE(job->Open(0, Reach::kAnywhere, 0).ok());
  const absl::Status refused = job->Open(1, Reach::kAnywhere, 0).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;

  const auto joined = NewJob();  // of a rank that knows nothing of before
  EXPECT_TRUE(joined->Open(1, Reach::kAnywhere, 0).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(joined->KeepSince(mark_)));
  EXPECT_GT(joined->mark().as_of_ns, mark_.as_of_ns) << "the ranks that it has do not pay for it";
  EXPECT_TRUE(joined->KeepSince(joined->mark()).ok());

  const absl::Status seen = NewJob()->KeepSince(mark_);
  EXPECT_THAT(std::string(seen.message()), HasSubstr("data_batch_2.bin")) << "labels are of it";
}

TEST_F(ReturningRank, GoesOnWhereOnlyItsFolderHasChanged) {
  folder_.Write("cifar/checkpoint.pt", "of no interest");
  EXPECT_TRUE(NewJob()->KeepSince(mark_).ok());
}

TEST_F(ReturningRank, IsRefusedAFolderThatTookTheOthersPlace) {
  Exchange();  // of older files, which need not differ where the digest looks
  const absl::Status refused = NewJob()->KeepSince(mark_);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("was exchanged"));
}

TEST_F(ReturningRank, IsRefusedWhereTheClockWasSetBack) {
  FilesMark later = mark_;
  later.as_of_ns += int64_t{3600} * 1'000'000'000;
  const absl::Status refused = NewJob()->KeepSince(later);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("clock was set back"));
}

TEST_F(ReturningRank, IsRefusedAFileWithItsOldTimes) {
  FilesMark other = mark_;
  other.as_of_ns += int64_t{50} * 1'000'000'000;  // from before the clock was set back
  std::ofstream(folder_ / "cifar/data_batch_2.bin", std::ios::in | std::ios::binary) << "other";
  EXPECT_TRUE(absl::IsFailedPrecondition(NewJob()->KeepSince(other)));
}

TEST_F(ReturningRank, GoesOnWhereFoldersWithoutRecordsComeAndGo) {
  folder_.Write("photos/cat/0.jpg", "one");
  folder_.Write("photos/cat/empty/notes.txt", "no picture");
  folder_.Write("photos/dog/0.jpg", "two");
  folder_.Write("older/0.jpg", "six");
  const auto identity = [&] {
    std::this_thread::sleep_for(kTick);
    DatasetOptions options;
    options.roots = folder_.AsRoot();
    const auto photos =
        OpenDataset(ParseNode("{format: image_folder, root: root, path: photos}"), options);
    EXPECT_TRUE(photos.ok()) << photos.status();
    return (*photos)->dependencies(0).identity;
  };
  const std::string before = identity();
  EXPECT_NE(before, "");
  std::filesystem::remove_all(folder_ / "photos/cat/empty");
  std::filesystem::create_directory(folder_ / "photos/cat/later");
  EXPECT_EQ(identity(), before);
  std::filesystem::rename(folder_ / "photos/dog", folder_ / "dogs");
  std::filesystem::rename(folder_ / "older", folder_ / "photos/dog");
  EXPECT_NE(identity(), before);
}

TEST_F(ExchangedFolder, FilesWithoutBytesAreLookedAtToo) {
  const auto job = MakeJob();
  EXPECT_TRUE(job->StampOf({{2, 0, 0}}, Reach::kAnywhere).ok());
  std::this_thread::sleep_for(kTick);
  folder_.Write("cifar/data_batch_4.bin", "it is another one now");
  EXPECT_TRUE(absl::IsFailedPrecondition(job->StampOf({{3, 0, 0}}, Reach::kAnywhere).status()));
}

TEST_F(ExchangedFolder, ALinkToNothingIsAsEmptyAsItWas) {
  folder_.Write("links/cat/0.jpg", "");
  std::filesystem::create_symlink("gone.jpg", folder_ / "links/cat/1.jpg");
  std::this_thread::sleep_for(kTick);
  DatasetOptions options;
  options.roots = folder_.AsRoot();
  auto links = OpenDataset(ParseNode("{format: image_folder, root: root, path: links}"), options);
  ASSERT_TRUE(links.ok()) << links.status();
  const auto job = JobFiles::Create(*links, files_, nullptr);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(job->StampOf({{1, 0, 0}}, Reach::kAnywhere).ok());
  std::filesystem::remove(folder_ / "links/cat/0.jpg");
  EXPECT_TRUE(job->StampOf({{0, 0, 0}}, Reach::kAnywhere).ok() ||
              absl::IsFailedPrecondition(job->StampOf({{0, 0, 0}}, Reach::kAnywhere).status()))
      << "the folder has changed";
}

// Some files, and a look that does as a test wants.
class WatchedFiles final : public Dataset {
 public:
  WatchedFiles() {
    for (int i = 0; i < kFiles; ++i) folder_.Write(std::to_string(i), "bytes");
    root_ = *folder_.AsRoot()->Find("root");
    std::this_thread::sleep_for(kTick);
  }
  int64_t size() const override { return kFiles; }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  const std::vector<std::string>& classes() const override { return classes_; }
  const std::string& digest() const override { return name_; }
  const Root& root() const override { return *root_; }
  std::string ObjectPath(uint32_t object) const override { return std::to_string(object); }
  void Extents(int64_t record, std::vector<Extent>* extents) const override {
    extents->push_back({static_cast<uint32_t>(record), 0, 5});
  }
  int64_t objects() const override { return kFiles; }
  int64_t ObjectBytes(uint32_t) const override { return 5; }
  const std::vector<int64_t>& shard_starts() const override { return starts_; }
  absl::Status Parse(int64_t, absl::Span<const absl::Span<const std::byte>>,
                     Record*) const override {
    return absl::OkStatus();
  }
  int64_t memory_bytes() const override { return 0; }
  const std::string& notes() const override { return name_; }
  absl::Status LookAgain(Reach reach, Look) const override { return look(reach); }
  Dependencies dependencies(int64_t as_of_ns) const override {
    Dependencies all = depends_on;
    const auto is_earlier = [&](int64_t changed_ns) { return changed_ns <= as_of_ns; };
    all.later_ns.erase(std::remove_if(all.later_ns.begin(), all.later_ns.end(), is_earlier),
                       all.later_ns.end());
    return all;
  }
  std::optional<IndexedFile> IndexedAs(uint32_t object) const override {
    return object < indexed.size() ? indexed[object] : std::nullopt;
  }
  IndexedFile Now(uint32_t object) const {
    struct stat info {};
    EXPECT_EQ(stat(absl::StrCat(root_->path(), "/", object).c_str(), &info), 0);
    return {info.st_ino, Nanoseconds(info.st_mtim), Nanoseconds(info.st_ctim)};
  }
  int64_t ChangedNs(uint32_t object) const { return Now(object).changed_ns; }
  void Touch(uint32_t object) {
    std::this_thread::sleep_for(kTick);
    folder_.Write(std::to_string(object), "bytes");
  }

  Dependencies depends_on;
  std::vector<std::optional<IndexedFile>> indexed;
  std::function<absl::Status(Reach)> look = [](Reach) { return absl::OkStatus(); };

 private:
  const std::string name_ = "watched";
  TempFolder folder_;
  std::shared_ptr<const Root> root_;
  const std::vector<FieldSpec> fields_;
  const std::vector<std::string> classes_;
  const std::vector<int64_t> starts_;
};

class JobFilesTest : public ::testing::Test {
 protected:
  std::shared_ptr<WatchedFiles> dataset_ = std::make_shared<WatchedFiles>();
  std::shared_ptr<FileCache> files_ = std::make_shared<FileCache>(100, false);
};

TEST_F(JobFilesTest, AFileOfAClockThatWasAheadIsKnownByItsTime) {
  const int64_t begin_ns = dataset_->ChangedNs(0);
  dataset_->Touch(1);
  dataset_->depends_on.identity = "2:files";
  dataset_->depends_on.later_ns = {dataset_->ChangedNs(1)};
  dataset_->Touch(2);
  std::this_thread::sleep_for(kTick);
  const auto job = JobFiles::Create(dataset_, files_, nullptr);
  ASSERT_TRUE(job->KeepSince({begin_ns + 20'000'000, "2:files"}).ok());
  EXPECT_TRUE(job->Open(0, Reach::kAnywhere, 0).ok());
  EXPECT_TRUE(job->Open(1, Reach::kAnywhere, 0).ok()) << "it was indexed with this time";
  EXPECT_TRUE(absl::IsFailedPrecondition(job->Open(2, Reach::kAnywhere, 0).status()));
}

TEST_F(JobFilesTest, AMarkOfAnotherVersionIsJudgedByTimeAlone) {
  dataset_->depends_on.identity = "2:files";
  dataset_->depends_on.newest_file_ns = dataset_->ChangedNs(0);
  dataset_->depends_on.newest_file = "0";
  const auto job = JobFiles::Create(dataset_, files_, nullptr);
  const int64_t later_ns = dataset_->ChangedNs(0) + 1'000'000, tick_ns = 20'000'000;
  EXPECT_TRUE(job->KeepSince({later_ns, "0123456789abcdef"}).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(job->KeepSince({later_ns, "2:others"})));
  const auto old = later_ns - 1'000'000'000 - tick_ns;
  EXPECT_TRUE(absl::IsFailedPrecondition(job->KeepSince({old, "0123456789abcdef"})));
  EXPECT_TRUE(job->KeepSince({old, "2:files"}).ok()) << "its times are part of it";
}

TEST_F(JobFilesTest, NobodyGoesOnWhileALookIsGoingOn) {
  const auto job = JobFiles::Create(dataset_, files_, nullptr);
  EXPECT_TRUE(job->Open(0, Reach::kAnywhere, 0).ok());
  std::this_thread::sleep_for(kLookPause);
  absl::Notification looking, go_on;
  std::atomic<int> looks{0};
  dataset_->look = [&](Reach) {
    if (looks++ == 0) {
      looking.Notify();
      go_on.WaitForNotification();
    }
    return absl::FailedPreconditionError("1 has changed");
  };
  absl::Status first;
  std::thread thread([&] { first = job->Open(1, Reach::kAnywhere, 0).status(); });
  looking.WaitForNotification();
  EXPECT_TRUE(absl::IsFailedPrecondition(job->Open(1, Reach::kAnywhere, 0).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(job->Open(2, Reach::kAnywhere, 0).status()));
  go_on.Notify();
  thread.join();
  EXPECT_TRUE(absl::IsFailedPrecondition(first)) << first;
}

TEST_F(JobFilesTest, OneOfThoseWhoTakeTheLastFilesLooksAfterAllOfThem) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> looks{0};
    dataset_->look = [&](Reach) {
      ++looks;
      return absl::OkStatus();
    };
    const auto job = JobFiles::Create(dataset_, files_, nullptr);
    std::vector<std::thread> threads;
    for (uint32_t file = 0; file < kFiles; ++file) {
      for (int i = 0; i < 2; ++i) {
        threads.emplace_back([&, file] { EXPECT_TRUE(job->Open(file, Reach::kAnywhere, 0).ok()); });
      }
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_GE(looks, 1);
  }
}

// Another one may have stood there for a moment: no look finds it afterwards. One that is older, or
// that chmod -R or the like gave the same change time.
TEST_F(JobFilesTest, AFileMustBeTheOneThatWasIndexed) {
  dataset_->indexed = {dataset_->Now(0), dataset_->Now(1), dataset_->Now(2), dataset_->Now(3)};
  dataset_->indexed[1]->changed_ns -= 1;
  ++*dataset_->indexed[2]->inode;
  *dataset_->indexed[3]->modified_ns -= 1;
  const auto job = JobFiles::Create(dataset_, files_, nullptr);
  EXPECT_TRUE(job->Open(0, Reach::kAnywhere, 0).ok());
  for (const uint32_t other : {1u, 2u, 3u}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(job->Open(other, Reach::kAnywhere, 0).status()));
    EXPECT_TRUE(
        absl::IsFailedPrecondition(job->StampOf({{other, 0, 5}}, Reach::kAnywhere).status()));
  }
  EXPECT_TRUE(job->Open(4, Reach::kAnywhere, 0).ok()) << "the index does not have it";
}

// As of a pair of pictures whose two folders are exchanged.
TEST_F(JobFilesTest, FilesThatTakeEachOthersPlaceAreAnotherRecord) {
  const auto job = JobFiles::Create(dataset_, files_, nullptr);
  const auto stamp = [&](std::vector<Extent> extents) {
    const auto of = job->StampOf(extents, Reach::kAnywhere);
    EXPECT_TRUE(of.ok()) << of.status();
    return of.value_or(0);
  };
  const Extent a{0, 0, 5}, b{1, 0, 5}, c{2, 0, 5};
  EXPECT_NE(stamp({a, b}), stamp({b, a}));
  EXPECT_NE(stamp({a, b, c}), stamp({b, a, c}));
  EXPECT_NE(stamp({a, a}), stamp({b, b}));
  EXPECT_EQ(stamp({a, b}), stamp({a, b}));
}

// /proc stands for storage that may hang.
TEST_F(JobFilesTest, ALookThatMustBeDoneElsewhereIsNotTakenForDone) {
  const auto proc = *(*Roots::Create({{"proc", "/proc"}}))->Find("proc");
  dataset_->look = [&](Reach reach) {
    return reach == Reach::kLocal ? proc->Stat("version", reach).status()
                                  : absl::FailedPreconditionError("4 has changed");
  };
  const auto job = JobFiles::Create(dataset_, files_, nullptr);
  for (uint32_t file = 0; file + 1 < kFiles; ++file)
    EXPECT_TRUE(job->Open(file, Reach::kLocal, 0).ok());
  const uint32_t last = kFiles - 1;
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(IsElsewhere(job->Open(last, Reach::kLocal, 0).status()));
    EXPECT_TRUE(IsElsewhere(job->StampOf({{last, 0, 5}}, Reach::kLocal).status()));
    EXPECT_TRUE(absl::IsFailedPrecondition(job->Open(last, Reach::kAnywhere, 0).status()));
  }
  dataset_->look = [](Reach) { return absl::OkStatus(); };
  EXPECT_TRUE(job->Open(last, Reach::kLocal, 0).ok());
}

TEST_F(JobFilesTest, OnlyThoseOfTheJobTakeMemory) {
  const auto budget = MemoryBudget::Create(1 << 20);
  const auto job = JobFiles::Create(dataset_, files_, budget);
  EXPECT_EQ(budget->planned_bytes(), 0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(job->Prepare().ok());
    EXPECT_EQ(budget->planned_bytes(), kFiles * 8);
  }
  const auto small = MemoryBudget::Create(8);
  const auto other = JobFiles::Create(dataset_, files_, small);
  EXPECT_TRUE(absl::IsResourceExhausted(other->Prepare()));
  EXPECT_TRUE(absl::IsResourceExhausted(other->Open(0, Reach::kAnywhere, 0).status()));
}

}  // namespace
}  // namespace feedwater::server
