// Goal: a saved file is the old one or the new one, whatever happens on the way: system calls that
// fail, full disks, other writers, and the end of the process at any moment.
#include "server/base/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <thread>

#include "server/base/fd.h"
#include "tests/storage/system_calls.h"
#include "tests/storage/temp_folder.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

size_t FilesIn(const TempFolder& folder) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()));
}

TEST(AtomicFile, TheFileIsItsPartsAndNothingIsLeftBeside) {
  const TempFolder folder;
  ASSERT_TRUE(WriteFileAtomically(folder / "file", {"one ", "", "two"}).ok());
  EXPECT_EQ(Content(folder / "file"), "one two");
  struct stat info;
  ASSERT_EQ(stat((folder / "file").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_TRUE(WriteFileAtomically(folder / "file", {"3"}).ok());
  EXPECT_EQ(Content(folder / "file"), "3");
  EXPECT_EQ(FilesIn(folder), 1u);
}

TEST(AtomicFile, AShorterFileOverwritesWhatACrashLeft) {
  const TempFolder folder;
  folder.Write(".file.new", "the longer beginning of an unfinished file");
  ASSERT_TRUE(WriteFileAtomically(folder / "file", {"short"}).ok());
  EXPECT_EQ(Content(folder / "file"), "short");
  EXPECT_EQ(FilesIn(folder), 1u);
}

TEST(AtomicFile, ACallThatFailsLeavesTheOldFileAndNamesIt) {
  for (const int call : {SYS_fsync, SYS_rename, SYS_write, SYS_ftruncate, SYS_flock}) {
    const TempFolder folder;
    folder.Write("file", "old");
    WithoutSystemCall(call, call == SYS_flock ? EWOULDBLOCK : EIO, [&] {
      const absl::Status status = WriteFileAtomically(folder / "file", {"new"});
      return !status.ok() &&
             std::string(status.message()).find(folder / "file") != std::string::npos;
    });
    EXPECT_EQ(Content(folder / "file"), "old") << call;
  }
}

TEST(AtomicFile, WithoutLocksFilesAreSavedAllTheSame) {
  const TempFolder folder;  // some network file systems have none
  WithoutSystemCall(SYS_flock, ENOLCK,
                    [&] { return WriteFileAtomically(folder / "file", {"new"}).ok(); });
  EXPECT_EQ(Content(folder / "file"), "new");
}

TEST(AtomicFile, AFullDiskLeavesTheOldFileAndNoPartOfTheNewOne) {
  const TempFolder folder;
  folder.Write("file", "old");
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(WriteFileAtomically(folder / "file", {std::string(4000, 'x')}).ok() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Content(folder / "file"), "old");
  EXPECT_EQ(FilesIn(folder), 1u);
}

TEST(AtomicFile, AFileThatAnotherProcessIsSavingIsLeftToIt) {
  const TempFolder folder;
  folder.Write("file", "old");
  const Fd other(open((folder / ".file.new").c_str(), O_WRONLY | O_CREAT, 0600));
  ASSERT_EQ(flock(other.get(), LOCK_EX), 0);
  EXPECT_TRUE(absl::IsAborted(WriteFileAtomically(folder / "file", {"new"})));
  EXPECT_EQ(Content(folder / "file"), "old");
  EXPECT_TRUE(fs::exists(folder / ".file.new"));
}

TEST(AtomicFile, WhatIsNoRegularFileIsNotWrittenInto) {
  const TempFolder folder;
  folder.Write("elsewhere", "mine");
  fs::create_symlink("elsewhere", folder / ".file.new");
  EXPECT_FALSE(WriteFileAtomically(folder / "file", {"new"}).ok());
  EXPECT_EQ(Content(folder / "elsewhere"), "mine");
  fs::remove(folder / ".file.new");
  ASSERT_EQ(mkfifo((folder / ".file.new").c_str(), 0600), 0);
  EXPECT_FALSE(WriteFileAtomically(folder / "file", {"new"}).ok());
  EXPECT_FALSE(WriteFileAtomically(folder / "no/such/folder", {"new"}).ok());
}

TEST(AtomicFile, ManyWritersLeaveOneWholeFile) {
  const TempFolder folder;
  std::vector<std::thread> writers;
  for (char c = 'a'; c < 'e'; ++c) {
    writers.emplace_back([&folder, c] {
      const std::string content(100'000 + c, c);
      for (int i = 0; i < 50; ++i) WriteFileAtomically(folder / "file", {content}).IgnoreError();
    });
  }
  for (int i = 0; i < 200; ++i) {
    const std::string seen = Content(folder / "file");
    if (seen.empty()) continue;
    ASSERT_EQ(seen, std::string(100'000 + seen[0], seen[0]));
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(FilesIn(folder), 1u);
}

TEST(AtomicFile, AKillAtAnyMomentLeavesAWholeFile) {
  const TempFolder folder;
  const auto of = [](int i) { return std::string(50'000, static_cast<char>('a' + i % 26)); };
  ASSERT_TRUE(WriteFileAtomically(folder / "file", {of(0)}).ok());
  for (int round = 0; round < 50; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (int i = round;; ++i) WriteFileAtomically(folder / "file", {of(i)}).IgnoreError();
    }
    usleep(static_cast<useconds_t>(200 + 97 * round));
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    const std::string seen = Content(folder / "file");
    ASSERT_EQ(seen.size(), 50'000u);
    ASSERT_EQ(seen, std::string(50'000, seen[0])) << "round " << round;
    ASSERT_LE(FilesIn(folder), 2u);
  }
  ASSERT_TRUE(WriteFileAtomically(folder / "file", {"end"}).ok());
  EXPECT_EQ(FilesIn(folder), 1u);
}

}  // namespace
}  // namespace feedwater::server
