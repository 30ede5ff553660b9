// Goal: files that are compressed as a whole give the records of what they hold, are unpacked once
// and within bounds, and are never read half unpacked, too old, or when they were removed.
#include "server/source/staging.h"

#include <sys/file.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <zlib.h>
#include <zstd.h>

#include <chrono>
#include <climits>
#include <cstring>
#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "server/base/fd.h"
#include "server/base/key.h"
#include "server/base/log_limiter.h"
#include "server/source/seal.h"
#include "tests/source/column_testing.h"
#include "tests/source/small_datasets.h"
#include "tests/source/tar_text.h"

namespace feedwater::server {
namespace {

bool is_killed_when_it_truncates = false;               // what is being removed
std::function<void(int fd)> before_a_folder_is_locked;  // exclusively; called once
uint64_t blocks = 0, free_blocks = 0;  // what file systems have, of 4 KiB; 0: as it is

}  // namespace
}  // namespace feedwater::server

// These stand between the program and libc, as the library of tests/faults does.
extern "C" int ftruncate(int fd, off_t length) noexcept {
  const auto result = static_cast<int>(syscall(SYS_ftruncate, fd, length));
  char path[PATH_MAX] = {};
  if (feedwater::server::is_killed_when_it_truncates &&
      readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof(path) - 1) > 0 &&
      std::strstr(path, "/.gone-") != nullptr)
    kill(getpid(), SIGKILL);
  return result;
}

extern "C" int statvfs(const char* path, struct statvfs* info) noexcept {
  using feedwater::server::blocks;
  struct statfs real;
  if (syscall(SYS_statfs, path, &real) != 0) return -1;
  *info = {};
  info->f_bsize = info->f_frsize = blocks > 0 ? 4096 : real.f_frsize;
  info->f_blocks = blocks > 0 ? blocks : real.f_blocks;
  info->f_bavail = blocks > 0 ? feedwater::server::free_blocks : real.f_bavail;
  return 0;
}

extern "C" int flock(int fd, int operation) noexcept {
  struct stat info;
  auto& hook = feedwater::server::before_a_folder_is_locked;
  if (hook != nullptr && operation == (LOCK_EX | LOCK_NB) && fstat(fd, &info) == 0 &&
      S_ISDIR(info.st_mode))
    std::exchange(hook, nullptr)(fd);
  return static_cast<int>(syscall(SYS_flock, fd, operation));
}

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;

std::string Gzip(const std::string& bytes) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string Zstd(const std::string& bytes) {
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 3));
  return packed;
}

class StagingTest : public ColumnTest {
 protected:
  StagingTest() {
    opener_.state_dir = state_.path();
    UseLimit(64 << 20);
  }
  void UseLimit(int64_t bytes) { opener_.staging = StagingArea::Below(state_.path(), bytes); }
  // Of each dataset's folder.
  std::vector<std::filesystem::directory_entry> Staged() const {
    std::vector<std::filesystem::directory_entry> files;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(state_.path() + "/staged", error)) {
      const std::string name = entry.path().filename();
      const bool is_seal = absl::EndsWith(name, ".seal");
      if (entry.is_regular_file() && name != ".used" && name != ".held" && !is_seal)
        files.push_back(entry);
    }
    return files;
  }
  size_t StagedFiles() const { return Staged().size(); }
  int64_t StagedBytes() const {
    int64_t bytes = 0;
    for (const auto& file : Staged()) bytes += static_cast<int64_t>(file.file_size());
    return bytes;
  }
  // Of a dataset's folder.
  static std::string NameOf(absl::string_view dataset) {
    return Key("dataset").Add("name", dataset).Name();
  }
  static std::string Shard(int first) {
    std::string archive;
    for (int i = first; i < first + 3; ++i)
      archive += TarMemberText(absl::StrCat(i, ".bin"), absl::StrCat("record ", i));
    return archive + TarEnd();
  }
  static constexpr char kYaml[] = "{format: webdataset, root: root, path: d}";

  TempFolder state_;
};

TEST_F(StagingTest, EveryWayOfPackingGivesTheSameRecords) {
  folder_.Write("d/a.tar", Shard(0));
  folder_.Write("d/b.tgz", Gzip(Shard(3)));
  folder_.Write("d/c.tar.gz", Gzip(Shard(6)) + std::string(512, '\0'));
  folder_.Write("d/d.tar.zst", Zstd(Shard(9)));
  // As pigz and bgzip write: one member behind the other.
  const std::string parts = Shard(12);
  folder_.Write("d/e.tar.gz", Gzip(parts.substr(0, 700)) + Gzip(parts.substr(700)));
  const auto dataset = opener_.MustOpen(kYaml);
  ASSERT_EQ(dataset->size(), 15);
  for (int i = 0; i < 15; ++i) EXPECT_EQ(FieldOf(*dataset, i, "bin"), absl::StrCat("record ", i));
  EXPECT_EQ(StagedFiles(), 4u);
  EXPECT_NE(&dataset->RootOf(1), &dataset->root());
  EXPECT_EQ(&dataset->RootOf(0), &dataset->root());
}

TEST_F(StagingTest, AnMnistIsReadAsItIsDistributed) {
  folder_.Write(
      "raw/t10k-images-idx3-ubyte.gz",
      Gzip(BigEndian(0x803) + BigEndian(2) + BigEndian(2) + BigEndian(3) + "abcdefghijkl"));
  folder_.Write("raw/t10k-labels-idx1-ubyte.gz",
                Gzip(BigEndian(0x801) + BigEndian(2) + std::string("\7\2", 2)));
  const auto dataset =
      opener_.MustOpen("{format: mnist, root: root, path: raw, split: test, height: 2, width: 3}");
  EXPECT_EQ(FieldOf(*dataset, 1, "image"), "ghijkl");
  EXPECT_EQ(LabelOf(*dataset, 0), 7);
}

TEST_F(StagingTest, WhatIsThereIsUsedAgainUntilTheFileChanges) {
  folder_.Write("d/a.tgz", Gzip(Shard(0)));
  EXPECT_EQ(FieldOf(*opener_.MustOpen(kYaml), 0, "bin"), "record 0");
  EXPECT_EQ(opener_.builds, 1);
  opener_.MustOpen(kYaml);
  EXPECT_EQ(opener_.builds, 1) << "the saved index knows where the records lie";
  opener_.rebuild = true;
  opener_.MustOpen(kYaml);
  EXPECT_EQ(StagedFiles(), 1u) << "and a new one finds them unpacked";
  opener_.rebuild = false;
  folder_.Write("d/a.tgz", Gzip(Shard(5)));
  EXPECT_EQ(FieldOf(*opener_.MustOpen(kYaml), 0, "bin"), "record 5");
  std::filesystem::remove_all(state_.path() + "/staged");
  EXPECT_EQ(FieldOf(*opener_.MustOpen(kYaml), 0, "bin"), "record 5") << "removed meanwhile";
}

TEST_F(StagingTest, WhatIsNoLongerWhatWasUnpackedIsUnpackedAgain) {
  folder_.Write("d/a.tgz", Gzip(Shard(0)));
  const auto before = opener_.MustOpen(kYaml);
  const std::string file = Staged().at(0).path();
  const auto change = [&](const std::string& how) {
    if (how == "flipped" || how == "flipped, with its time of change") {
      struct stat info;
      ASSERT_EQ(stat(file.c_str(), &info), 0);
      std::fstream(file, std::ios::in | std::ios::out).seekp(512) << "REC";
      const timespec times[2] = {info.st_atim, info.st_mtim};
      if (how != "flipped") {
        ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
      }
    } else if (how == "cut") {
      std::filesystem::resize_file(file, 1000);
    } else if (how == "removed") {
      std::filesystem::remove(file);
    } else if (how == "a link") {
      std::filesystem::rename(file, state_ / "elsewhere");
      std::filesystem::create_symlink(state_ / "elsewhere", file);
    } else {
      std::filesystem::remove_all(state_.path() + "/staged");
    }
  };
  for (const bool rebuild : {false, true}) {
    opener_.rebuild = rebuild;
    for (const char* how : {"flipped", "flipped, with its time of change", "cut", "removed",
                            "a link", "removed with its folder"}) {
      SCOPED_TRACE(absl::StrCat(how, rebuild ? ", index made anew" : ""));
      const auto opened = opener_.MustOpen(kYaml);
      EXPECT_TRUE(opened->LookAgain().ok());
      change(how);
      EXPECT_TRUE(absl::IsFailedPrecondition(opened->LookAgain())) << opened->LookAgain();
      const auto again = opener_.MustOpen(kYaml);
      EXPECT_EQ(FieldOf(*again, 0, "bin"), "record 0");
      EXPECT_TRUE(again->LookAgain().ok()) << again->LookAgain();
      EXPECT_EQ(StagedFiles(), 1u);
    }
  }
}

TEST_F(StagingTest, OneWithoutASealIsUnpackedAgainAndASealOfNothingGoes) {
  folder_.Write("d/a.tgz", Gzip(Shard(0)));
  opener_.MustOpen(kYaml);
  const std::string file = Staged().at(0).path(), seal = SealPath(file);
  const std::string lonely = SealPath(file + "-gone");
  std::filesystem::copy(seal, lonely);
  std::filesystem::remove(seal);
  UseLimit(Staged().at(0).file_size());  // not counted yet, and no room but for it
  EXPECT_EQ(FieldOf(*opener_.MustOpen(kYaml), 0, "bin"), "record 0");
  EXPECT_TRUE(std::filesystem::exists(seal));
  EXPECT_FALSE(std::filesystem::exists(lonely));
  EXPECT_EQ(opener_.builds, 2);
}

// Of two that find a file damaged the second one must not remove what the first has made.
TEST_F(StagingTest, WhatIsDamagedIsMadeOnceByThoseWhoFindItSo) {
  folder_.Write("d/a.tgz", Gzip(Shard(0)));
  opener_.MustOpen(kYaml);
  const std::string file = Staged().at(0).path();
  std::filesystem::remove_all(opener_.state_dir + "/indexes");
  std::filesystem::resize_file(file, 100);
  std::vector<std::thread> openers;
  for (int user = 0; user < 6; ++user) {
    openers.emplace_back([&, user] {
      Opener opener(folder_.path());
      opener.state_dir = opener_.state_dir;
      opener.staging = StagingArea::Below(state_.path(), 64 << 20);
      opener.user = user;
      const auto opened = opener.MustOpen(kYaml);
      for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(opened->LookAgain().ok()) << opened->LookAgain();
        EXPECT_THAT(ReadFields(*opened, 0), ::testing::Contains("record 0"));
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
  }
  for (std::thread& opener : openers) opener.join();
}

// One write may last as long as its size at 20 MB/s, and the file's times move when it begins.
TEST_F(StagingTest, WhatIsMadeOfAFileThatMayBeBeingWrittenIsForThatOpeningAlone) {
  std::string noise(30 << 20, '\0');
  uint64_t state = 1;
  for (char& byte : noise)
    byte = static_cast<char>((state = state * 6364136223846793005u + 1) >> 56);
  const std::string packed = Zstd(noise);
  folder_.Write("numbers.bin.zst", packed);
  folder_.Write("plain.bin", noise);
  const auto written = std::chrono::steady_clock::now();
  const auto indexes = [&] {
    std::error_code error;
    return std::distance(std::filesystem::directory_iterator(opener_.state_dir + "/indexes", error),
                         {});
  };
  const std::string zst = "{format: raw, root: root, path: numbers.bin.zst, record_bytes: 1048576}";
  const std::string plain = "{format: raw, root: root, path: plain.bin, record_bytes: 1048576}";
  const auto first = opener_.MustOpen(zst), first_plain = opener_.MustOpen(plain);
  if (std::chrono::steady_clock::now() - written > std::chrono::milliseconds(1400))
    GTEST_SKIP() << "this machine is too busy to see a file of 30 MB in its first 1.5 s";
  EXPECT_EQ(indexes(), 0);
  std::this_thread::sleep_until(written + std::chrono::milliseconds(1800));
  EXPECT_TRUE(absl::IsFailedPrecondition(first->LookAgain()));
  EXPECT_TRUE(absl::IsFailedPrecondition(first_plain->LookAgain()));
  EXPECT_TRUE(first->LookAgain(Reach::kAnywhere, Dataset::Look::kGoesOn).ok());
  const auto second = opener_.MustOpen(zst), second_plain = opener_.MustOpen(plain);
  EXPECT_EQ(indexes(), 2);
  EXPECT_NE(second->ObjectPath(0), first->ObjectPath(0));
  EXPECT_EQ(second->digest(), first->digest());
  EXPECT_TRUE(second->LookAgain().ok());
  EXPECT_TRUE(second_plain->LookAgain().ok());
}

TEST_F(StagingTest, WhatIsTheSameWithOtherTimesIsUsedAgain) {
  folder_.Write("d/a.tgz", Gzip(Shard(0)));
  const auto opened = opener_.MustOpen(kYaml);
  const std::string file = Staged().at(0).path();
  struct stat before, after;
  ASSERT_EQ(stat(file.c_str(), &before), 0);
  EXPECT_EQ(opened->IndexedAs(0)->changed_ns,
            before.st_ctim.tv_sec * 1'000'000'000 + before.st_ctim.tv_nsec);
  ASSERT_EQ(chmod(file.c_str(), 0640), 0);  // as somebody does who sets modes of a whole folder
  EXPECT_FALSE(opened->LookAgain().ok());
  const auto again = opener_.MustOpen(kYaml);
  EXPECT_TRUE(again->LookAgain().ok());
  EXPECT_EQ(FieldOf(*again, 0, "bin"), "record 0");
  ASSERT_EQ(stat(file.c_str(), &after), 0);
  EXPECT_EQ(after.st_ino, before.st_ino) << "its content was read, and no more";
  EXPECT_EQ(opener_.builds, 1);
}

TEST_F(StagingTest, AFileThatIsDamagedCutOrNoneIsRefusedAndLeavesNothing) {
  const std::string good = Gzip(Shard(0)), zstd = Zstd(Shard(0));
  for (const std::string& bad :
       {good.substr(0, good.size() / 2), good.substr(0, 12), std::string("no gzip at all"),
        std::string(), good + "rubbish behind it", good.substr(0, 40) + "x" + good.substr(41)}) {
    folder_.Write("d/a.tgz", bad);
    ExpectRefused(kYaml, {"'d/a.tgz'", "cannot be unpacked"});
  }
  folder_.Write("d/a.tgz", good);
  folder_.Write("d/b.tar.zst", zstd.substr(0, zstd.size() - 3));
  ExpectRefused(kYaml, {"'d/b.tar.zst'", "cannot be unpacked"});
  EXPECT_EQ(StagedFiles(), 1u) << "the whole one";
}

TEST_F(StagingTest, WithoutRoomAFileIsRefusedWithTheCure) {
  folder_.Write("d/a.tgz", Gzip(std::string(8 << 20, '\0')));  // a small file that becomes large
  UseLimit(1 << 20);
  ExpectRefused(kYaml, {"stage.disk = 1.0 MiB"}, absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(StagedFiles(), 0u);
  opener_.staging = nullptr;
  ExpectRefused(kYaml, {"'d/a.tgz'", "stage: {disk: SIZE}"}, absl::StatusCode::kFailedPrecondition);
}

TEST_F(StagingTest, SomeOfTheFileSystemStaysFree) {
  folder_.Write("d/a.tgz", Gzip(Shard(0)));
  const auto expect = [&](uint64_t size, uint64_t free, bool has_room) {
    std::filesystem::remove_all(state_.path() + "/staged");
    blocks = size / 4096, free_blocks = free / 4096;
    UseLimit(1 << 20);
    const auto dataset = opener_.Open(kYaml);
    blocks = 0;
    EXPECT_EQ(dataset.ok(), has_room)
        << size << " bytes, " << free << " free: " << dataset.status();
    if (!has_room) {
      EXPECT_THAT(dataset.status().ToString(), HasSubstr("no room for unpacked files"));
    }
  };
  constexpr uint64_t kMiB = 1 << 20, kGiB = 1 << 30;
  expect(2000 * kMiB, 99 * kMiB, false);  // a twentieth
  expect(2000 * kMiB, 102 * kMiB, true);
  expect(20000 * kGiB, kGiB - kMiB, false);  // 1 GiB
  expect(20000 * kGiB, kGiB + 2 * kMiB, true);
}

TEST_F(StagingTest, TheOldestFolderThatNobodyHoldsMakesRoom) {
  const auto write = [&](const std::string& name) {
    folder_.Write(name + "/a.tgz",
                  Gzip(TarMemberText("x.bin", RandomBytes(400 << 10, name[0])) + TarEnd()));
  };
  const auto yaml = [](const std::string& name) {
    return absl::StrCat("{format: webdataset, root: root, path: ", name, "}");
  };
  for (const char* name : {"a", "b", "c"}) write(name);
  UseLimit(1 << 20);
  auto held = opener_.MustOpen(yaml("a"));
  opener_.MustOpen(yaml("b"));
  EXPECT_EQ(StagedFiles(), 2u);
  opener_.MustOpen(yaml("c"));
  EXPECT_EQ(StagedFiles(), 2u) << "b has gone, since a is held";
  EXPECT_EQ(FieldOf(*held, 0, "bin"), RandomBytes(400 << 10, 'a'));
  auto also_held = opener_.MustOpen(yaml("c"));
  ExpectRefused(yaml("b"), {"in use"}, absl::StatusCode::kResourceExhausted);
  held.reset();
  EXPECT_EQ(FieldOf(*opener_.MustOpen(yaml("b")), 0, "bin"), RandomBytes(400 << 10, 'b'));
}

// Each opening may remove what the one before unpacked.
TEST_F(StagingTest, RemovingForWantOfRoomDoesNotFillTheLog) {
  for (const char* name : {"a", "b"}) {
    folder_.Write(absl::StrCat(name, "/a.tgz"),
                  Gzip(TarMemberText("x.bin", RandomBytes(400 << 10, name[0])) + TarEnd()));
  }
  UseLimit(600 << 10);  // room for one
  for (int i = 0; i < LogLimiter::kLines; ++i) {
    for (const char* name : {"a", "b"})
      opener_.MustOpen(absl::StrCat("{format: webdataset, root: root, path: ", name, "}"));
  }
  EXPECT_EQ(StagedFiles(), 1u);
  EXPECT_FALSE(ClientLog().Admits("unpacked datasets removed", LogLimiter::kNoSource));
}

TEST_F(StagingTest, FilesThatNobodyReadsMakeRoomInAFolderThatIsHeld) {
  const auto bytes = [](int version) { return RandomBytes(400 << 10, version); };
  const auto write = [&](int version) {
    folder_.Write("d/a.tgz", Gzip(TarMemberText("x.bin", bytes(version)) + TarEnd()));
  };
  UseLimit(1 << 20);  // room for two
  for (int version = 0; version < 5; ++version) {
    write(version);
    EXPECT_EQ(FieldOf(*opener_.MustOpen(kYaml), 0, "bin"), bytes(version));
  }
  EXPECT_EQ(StagedFiles(), 2u);
  const auto held = opener_.MustOpen(kYaml);  // from its saved index
  write(5);
  const auto also_held = opener_.MustOpen(kYaml);
  write(6);
  ExpectRefused(kYaml, {"in use"}, absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(FieldOf(*held, 0, "bin"), bytes(4));
  EXPECT_EQ(FieldOf(*also_held, 0, "bin"), bytes(5));
}

TEST_F(StagingTest, OfFilesThatNobodyReadsThoseWithANewerVersionGoFirst) {
  const auto write = [&](const std::string& name, int seed) {
    folder_.Write(name, Gzip(TarMemberText("x.bin", RandomBytes(300 << 10, seed)) + TarEnd()));
  };
  const auto inode_of = [&](const std::string& end) {
    uint64_t inode = 0;
    for (const auto& file : Staged()) {
      struct stat info;
      if (absl::EndsWith(file.path().string(), end) && stat(file.path().c_str(), &info) == 0)
        inode = info.st_ino;
    }
    return inode;
  };
  UseLimit(800 << 10);  // room for two
  write("d/b.tgz", 1);
  opener_.MustOpen(kYaml);
  const uint64_t oldest = inode_of("b.tar");
  write("d/a.tgz", 2);
  opener_.MustOpen(kYaml);
  write("d/a.tgz", 3);
  EXPECT_EQ(opener_.MustOpen(kYaml)->size(), 2);
  EXPECT_EQ(inode_of("b.tar"), oldest);
  EXPECT_EQ(StagedFiles(), 2u);
}

TEST_F(StagingTest, WhatAKilledProcessHadBegunToUnpackMakesRoom) {
  folder_.Write("d/a.tgz", Gzip(TarMemberText("x.bin", RandomBytes(400 << 10, 1)) + TarEnd()));
  opener_.MustOpen(kYaml);
  const auto file = Staged().at(0).path();
  const auto left = file.parent_path() / absl::StrCat(".", NameOf("other"), "-b.tar.new");
  std::filesystem::copy(file, left);
  UseLimit(1 << 20);
  folder_.Write("d/a.tgz", Gzip(TarMemberText("x.bin", RandomBytes(400 << 10, 2)) + TarEnd()));
  const auto held = opener_.MustOpen(kYaml);
  EXPECT_FALSE(std::filesystem::exists(left));
  std::filesystem::copy(file.parent_path() / Staged().at(0).path().filename(), left);
  const Fd writer(open(left.c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_EQ(flock(writer.get(), LOCK_EX), 0);
  folder_.Write("d/a.tgz", Gzip(TarMemberText("x.bin", RandomBytes(400 << 10, 3)) + TarEnd()));
  ExpectRefused(kYaml, {"in use"}, absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(std::filesystem::exists(left)) << "somebody writes it";
}

// The state folder may be one where others keep files: none of theirs counts, is cut or goes, here
// or under its other name.
TEST_F(StagingTest, FilesOfOthersStayAndDoNotCount) {
  const std::filesystem::path staged = state_.path() + "/staged";
  const std::string large(2 << 20, 'x');
  const auto write = [&](const std::filesystem::path& file) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << large;
  };
  const std::filesystem::path files[] = {
      staged / "my_results" / "run1.npz",       staged / "my_results" / ".notes.new",
      staged / NameOf("theirs") / "model.bin",  staged / ".gone-with-the-wind" / "film.mkv",
      staged / NameOf("theirs") / ".x.seal",    staged / ".gone-" / "film.mkv",
      staged / NameOf("ours") / "theirs" / "x", staged / "loose.npz"};
  for (const auto& file : files) write(file);
  std::filesystem::create_hard_link(files[0], state_ / "kept");
  std::filesystem::create_directories(staged / NameOf("link"));
  std::filesystem::create_symlink(files[0], staged / NameOf("link") / (NameOf("a") + "-a.tar"));
  // Ours: without what holds it, as after a kill or from before there was that; and with something
  // of theirs in it.
  const auto old = staged / NameOf("old") / (NameOf("a") + "-a.tar");
  const auto mixed = staged / NameOf("ours") / (NameOf("b") + "-b.tar");
  for (const auto& file : {old, mixed}) write(file);
  std::ofstream(staged / NameOf("ours") / ".held") << "";

  UseLimit(1 << 20);
  folder_.Write("d/a.tgz", Gzip(TarMemberText("x.bin", RandomBytes(700 << 10, 1)) + TarEnd()));
  EXPECT_EQ(FieldOf(*opener_.MustOpen(kYaml), 0, "bin"), RandomBytes(700 << 10, 1));
  for (const auto& file : files) {
    ASSERT_TRUE(std::filesystem::exists(file)) << file;
    EXPECT_EQ(std::filesystem::file_size(file), large.size()) << file;
  }
  EXPECT_EQ(std::filesystem::file_size(state_ / "kept"), large.size());
  EXPECT_FALSE(std::filesystem::exists(old.parent_path()));
  EXPECT_FALSE(std::filesystem::exists(mixed));
}

// A child process is killed when it has cut short the file that makes room.
TEST_F(StagingTest, AKillWhileAFileIsRemovedLeavesNoneThatSeemsWhole) {
  const auto write = [&](int version) {
    folder_.Write("d/a.tgz",
                  Gzip(TarMemberText("x.bin", RandomBytes(100 << 10, version)) + TarEnd()));
  };
  write(0);
  opener_.MustOpen(kYaml);
  write(1);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    is_killed_when_it_truncates = true;
    UseLimit(150 << 10);  // room for one
    (void)opener_.Open(kYaml);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  for (const auto& file : Staged()) {
    const std::string name = file.path().filename();
    EXPECT_TRUE(name[0] == '.' || file.file_size() > 0) << name;
  }
  UseLimit(150 << 10);
  EXPECT_EQ(FieldOf(*opener_.MustOpen(kYaml), 0, "bin"), RandomBytes(100 << 10, 1));
  EXPECT_EQ(StagedFiles(), 1u);
}

// A child process is killed when it has cut short the first file of a folder that makes room.
TEST_F(StagingTest, AKillWhileAFolderIsRemovedLeavesNoFileThatSeemsWhole) {
  folder_.Write("d/a.tgz", Gzip(Shard(0)));
  folder_.Write("d/b.tgz", Gzip(Shard(3)));
  folder_.Write("large/a.tgz", Gzip(TarMemberText("x.bin", RandomBytes(100 << 10, 1)) + TarEnd()));
  ASSERT_EQ(opener_.MustOpen(kYaml)->size(), 6);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    is_killed_when_it_truncates = true;
    UseLimit(104 << 10);  // room for one of them
    (void)opener_.Open("{format: webdataset, root: root, path: large}");
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  const auto dataset = opener_.MustOpen(kYaml);
  ASSERT_EQ(dataset->size(), 6);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(FieldOf(*dataset, i, "bin"), absl::StrCat("record ", i));
  for (const auto& entry : std::filesystem::directory_iterator(state_.path() + "/staged"))
    EXPECT_THAT(entry.path().filename().string(), Not(::testing::StartsWith(".gone")));
}

// Between opening and locking a folder, another process removes it, makes it again and holds it.
TEST_F(StagingTest, AFolderThatWasMadeAgainMeanwhileIsNotRemoved) {
  const std::string bytes = RandomBytes(100 << 10, 1);
  folder_.Write("d/a.tgz", Gzip(TarMemberText("x.bin", bytes) + TarEnd()));
  folder_.Write("e/a.tgz", Gzip(TarMemberText("x.bin", bytes) + TarEnd()));
  opener_.MustOpen(kYaml);
  Fd held;
  before_a_folder_is_locked = [&](int fd) {
    const auto folder = std::filesystem::read_symlink(absl::StrCat("/proc/self/fd/", fd));
    const auto copy = std::filesystem::path(state_.path()) / "copy";
    std::filesystem::copy(folder, copy);
    std::filesystem::remove_all(folder);
    std::filesystem::rename(copy, folder);
    held = Fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_EQ(syscall(SYS_flock, held.get(), LOCK_SH), 0);
  };
  UseLimit(150 << 10);  // room for one of them
  const absl::Status refused = opener_.Open("{format: webdataset, root: root, path: e}").status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  ASSERT_TRUE(held);
  const auto dataset = opener_.MustOpen(kYaml);
  EXPECT_EQ(FieldOf(*dataset, 0, "bin"), bytes);
  EXPECT_EQ(opener_.builds, 1) << "of d: its file was there still";
}

// The path leads to another file than the one that it was looked up as, as when a link is turned
// between the two; what is unpacked of it would be taken for the other one's when it is turned
// back.
TEST_F(StagingTest, AFileIsOnlyUnpackedUnderTheNameOfItself) {
  folder_.Write("old.tgz", Gzip(Shard(0)));
  folder_.Write("new.tgz", Gzip(Shard(3)));
  std::filesystem::create_symlink("new.tgz", folder_ / "link.tgz");
  const auto root = *folder_.AsRoot()->Find("root");
  const auto area = StagingArea::Below(state_.path(), 64 << 20);
  const auto folder = area->Open(NameOf("dataset"));
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto go_on = [] { return absl::OkStatus(); };
  const auto expect_refused = [&](const struct stat& info,
                                  const std::function<absl::Status()>& go) {
    const absl::Status status = (*folder)->Unpack(*root, "link.tgz", info, go).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("'link.tgz' of root 'root'"));
    EXPECT_EQ(StagedFiles(), 0u);
  };
  const struct stat now = *root->Stat("link.tgz");
  expect_refused(*root->Stat("old.tgz"), go_on);
  struct stat elsewhere = now;
  ++elsewhere.st_dev;
  expect_refused(elsewhere, go_on);
  expect_refused(now, [&] {  // written to while it is read
    folder_.Write("new.tgz", Gzip(Shard(5)));
    return absl::OkStatus();
  });
  EXPECT_TRUE((*folder)->Unpack(*root, "link.tgz", *root->Stat("link.tgz"), go_on).ok());
}

// As a daemon and a command line that use the same folder, each of which has counted what was
// there.
TEST_F(StagingTest, ProcessesThatShareTheFolderStayWithinTheLimitTogether) {
  const auto yaml = [](const std::string& name) {
    return absl::StrCat("{format: webdataset, root: root, path: ", name, "}");
  };
  for (const std::string name : {"a", "b", "c", "d"}) {
    folder_.Write(name + "/a.tgz",
                  Gzip(TarMemberText("x.bin", RandomBytes(300 << 10, name[0])) + TarEnd()));
  }
  UseLimit(1 << 20);
  const auto mine = opener_.staging, others = StagingArea::Below(state_.path(), 1 << 20);
  std::vector<std::shared_ptr<const Dataset>> held;
  held.push_back(opener_.MustOpen(yaml("a")));
  opener_.staging = others;
  held.push_back(opener_.MustOpen(yaml("b")));
  opener_.staging = mine;
  held.push_back(opener_.MustOpen(yaml("c")));
  opener_.staging = others;
  ExpectRefused(yaml("d"), {"stage.disk = 1.0 MiB", "in use"},
                absl::StatusCode::kResourceExhausted);
  held.pop_back();
  opener_.MustOpen(yaml("d"));
  EXPECT_LE(StagedBytes(), 1 << 20);
}

TEST_F(StagingTest, TwoThatUnpackAtOnceStayWithinTheLimitTogether) {
  folder_.Write("a.tgz", Gzip(RandomBytes(3 << 20, 1)));
  folder_.Write("b.tgz", Gzip(RandomBytes(3 << 20, 2)));
  const auto root = *folder_.AsRoot()->Find("root");
  const auto one = StagingArea::Below(state_.path(), 4 << 20);
  const auto other = StagingArea::Below(state_.path(), 4 << 20);
  const auto one_folder = *one->Open(NameOf("a")), other_folder = *other->Open(NameOf("b"));
  const auto go_on = [] { return absl::OkStatus(); };
  int asked = 0;
  const auto one_file = one_folder->Unpack(*root, "a.tgz", *root->Stat("a.tgz"), [&] {
    if (++asked == 3) {  // it has written some of it
      EXPECT_GT(StagedBytes(), 0);
      const auto file = other_folder->Unpack(*root, "b.tgz", *root->Stat("b.tgz"), go_on);
      EXPECT_TRUE(file.ok()) << file.status();
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(absl::IsResourceExhausted(one_file.status())) << one_file.status();
  EXPECT_EQ(StagedBytes(), 3 << 20) << "of the other one";
}

TEST_F(StagingTest, WhatWasTakenForAFileThatWasGivenUpIsCountedAgain) {
  folder_.Write("a.tgz", Gzip(RandomBytes(3 << 20, 1)));
  folder_.Write("b.tgz", Gzip(RandomBytes(3 << 20, 2)));
  const auto root = *folder_.AsRoot()->Find("root");
  const auto area = StagingArea::Below(state_.path(), 4 << 20);
  int asked = 0;
  const auto given_up =
      (*area->Open(NameOf("a")))->Unpack(*root, "a.tgz", *root->Stat("a.tgz"), [&] {
        return ++asked < 3 ? absl::OkStatus() : absl::CancelledError("nobody waits");
      });
  EXPECT_TRUE(absl::IsCancelled(given_up.status())) << given_up.status();
  EXPECT_EQ(StagedBytes(), 0);
  const auto go_on = [] { return absl::OkStatus(); };
  const auto file = (*area->Open(NameOf("b")))->Unpack(*root, "b.tgz", *root->Stat("b.tgz"), go_on);
  EXPECT_TRUE(file.ok()) << file.status();
}

TEST_F(StagingTest, FilesAndClassesOfUnpackedRecordsAreFound) {
  folder_.Write("d/a.tgz",
                Gzip(TarMemberText("0.path", "p.png") + TarMemberText("0.kind", "cat") + TarEnd()));
  folder_.Write("d/p.png", "picture");
  const auto dataset = opener_.MustOpen(
      "{format: webdataset, root: root, path: d, fields: {photo: {from: path, file: true}, label: "
      "{from: kind, classes: auto}}}");
  EXPECT_EQ(FieldOf(*dataset, 0, "photo"), "picture");
  EXPECT_THAT(dataset->classes(), ::testing::ElementsAre("cat"));
}

}  // namespace
}  // namespace feedwater::server
