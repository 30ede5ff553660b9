// Goal: nothing outside a declared root can be read, whatever the name, and every refusal says
// which path and root.
#include "server/storage/roots.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdarg>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "tests/storage/temp_folder.h"
#include "tests/testing/eventually.h"

namespace feedwater::server {
namespace {

// A path whose storage does not answer until it is told to.
std::string silent_path;
absl::Notification* answers = nullptr;

}  // namespace
}  // namespace feedwater::server

// Stands between the program and libc, as the library of tests/faults does.
extern "C" int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  using namespace feedwater::server;
  if (answers != nullptr && silent_path == path) answers->WaitForNotification();
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

namespace feedwater::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RootsTest : public ::testing::Test {
 protected:
  RootsTest() : root_(*folder_.AsRoot("photos")->Find("photos")) {
    folder_.Write("a/b.jpg", "bytes");
    outside_.Write("secret", "secret");
  }
  absl::Status Open(const std::string& path) { return root_->OpenFile(path, false).status(); }

  TempFolder folder_, outside_;
  std::shared_ptr<const Root> root_;
};

TEST_F(RootsTest, AFileBelowTheRootIsReadAndLeftBlocking) {
  auto fd = root_->OpenFile("a/b.jpg", false);
  ASSERT_TRUE(fd.ok()) << fd.status();
  char bytes[8];
  EXPECT_EQ(read(fd->get(), bytes, sizeof(bytes)), 5);
  EXPECT_EQ(fcntl(fd->get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_EQ(fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_TRUE(root_->OpenFolder("").ok());
  EXPECT_TRUE(root_->OpenFolder("a").ok());
  EXPECT_EQ(root_->Stat("a/b.jpg")->st_size, 5);
}

TEST_F(RootsTest, PathsThatLeadOutAreRefusedWithPathAndRoot) {
  ASSERT_EQ(symlink(outside_.path().c_str(), (folder_ / "out").c_str()), 0);
  ASSERT_EQ(symlink("out", (folder_ / "chain").c_str()), 0);
  ASSERT_EQ(symlink("../../../../../etc", (folder_ / "a/up").c_str()), 0);
  ASSERT_EQ(symlink("/proc/self/root", (folder_ / "magic").c_str()), 0);
  const std::string absolute = outside_ / "secret";
  for (const std::string& path :
       {std::string("../x"), std::string("a/../../x"), std::string(".."),
        std::string("a/b/../../.."), absolute, std::string("/etc/passwd"),
        std::string("//etc/passwd"), std::string("out/secret"), std::string("chain/secret"),
        std::string("a/up/passwd"), std::string("magic/etc/passwd")}) {
    absl::Status status = Open(path);
    EXPECT_FALSE(status.ok()) << path;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("root 'photos' (" + folder_.path() + ")"), HasSubstr(path)));
  }
  EXPECT_EQ(Open("out/secret").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(Open("out/secret").message()), HasSubstr("leads outside the root"));
  EXPECT_EQ(root_->Stat("out/secret").status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(root_->OpenFolder("out").status().code(), absl::StatusCode::kPermissionDenied);
}

// Where all folders are declared, what a link leads to could be read under its own path, too.
TEST_F(RootsTest, ARootGivenByItsPathFollowsLinksAndNotPathsThatLeadOut) {
  const auto roots = Roots::Create({{"/", "/"}});
  ASSERT_TRUE(roots.ok()) << roots.status();
  const auto root = *(*roots)->Find(folder_.path());
  ASSERT_EQ(symlink(outside_.path().c_str(), (folder_ / "out").c_str()), 0);
  ASSERT_EQ(symlink((outside_ / "secret").c_str(), (folder_ / "a/link.jpg").c_str()), 0);
  ASSERT_EQ(symlink("/proc/self/root", (folder_ / "magic").c_str()), 0);
  for (const char* path : {"out/secret", "a/link.jpg", "./a//link.jpg", "a/../out/secret"}) {
    EXPECT_TRUE(root->OpenFile(path, false).ok()) << path;
    EXPECT_EQ(root->Stat(path)->st_size, 6) << path;
  }
  EXPECT_TRUE(root->OpenFolder("out").ok());
  for (const std::string& path : {std::string(".."), std::string("../x"), std::string("a/../../x"),
                                  outside_ / "secret", std::string("//etc/passwd")}) {
    EXPECT_EQ(root->OpenFile(path, false).status().code(), absl::StatusCode::kPermissionDenied)
        << path;
  }
  EXPECT_FALSE(root->OpenFile("magic/etc/passwd", false).ok());
}

TEST_F(RootsTest, MagicLinksOfProcAreRefused) {
  auto roots = Roots::Create({{"proc", "/proc"}});
  ASSERT_TRUE(roots.ok()) << roots.status();
  auto proc = *(*roots)->Find("proc");
  for (const char* path : {"self/root/etc/passwd", "self/cwd/x", "self/fd/0", "self/exe"}) {
    EXPECT_FALSE(proc->OpenFile(path, false).ok()) << path;
  }
}

TEST_F(RootsTest, LinksThatStayInsideAreFollowedAndLoopsEnd) {
  ASSERT_EQ(symlink("a/b.jpg", (folder_ / "link.jpg").c_str()), 0);
  ASSERT_EQ(symlink("../a", (folder_ / "a/again").c_str()), 0);
  ASSERT_EQ(symlink("loop", (folder_ / "loop").c_str()), 0);
  EXPECT_TRUE(Open("link.jpg").ok());
  EXPECT_TRUE(Open("a/again/again/b.jpg").ok());
  EXPECT_FALSE(Open("loop").ok());
}

TEST_F(RootsTest, OddNamesAreRefused) {
  EXPECT_EQ(Open("").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Open(std::string("a\0b", 3)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Open(std::string(4096, 'x')).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Open(std::string(300, 'x')).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_LT(Open(std::string(1 << 20, 'x')).message().size(), 1000u);
  EXPECT_EQ(Open("missing.jpg").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Open("a/b.jpg/c").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Open("new\nline").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Open("new\nline").message().find('\n'), absl::string_view::npos);
}

TEST_F(RootsTest, OnlyRegularFilesAreOpened) {
  ASSERT_EQ(mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", folder_.path().c_str());
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  for (const char* path : {"fifo", "socket", "a", "."}) {  // a FIFO without a writer must not block
    EXPECT_EQ(Open(path).code(), absl::StatusCode::kInvalidArgument) << path << Open(path);
  }
  close(listener);
  auto dev = Roots::Create({{"dev", "/dev"}});
  ASSERT_TRUE(dev.ok());
  EXPECT_EQ((*(*dev)->Find("dev"))->OpenFile("null", false).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(RootsTest, RootsMustBeAbsoluteFoldersThatExist) {
  EXPECT_EQ(Roots::Create({{"x", "relative"}}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Roots::Create({{"x", ""}}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Roots::Create({{"", "/"}}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Roots::Create({{"x", folder_ / "missing"}}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Roots::Create({{"x", folder_ / "a/b.jpg"}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(RootsTest, AnUnknownRootNamesTheNearestOne) {
  absl::Status status = folder_.AsRoot("photos")->Find("photo").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("did you mean 'photos'?"));
}

TEST_F(RootsTest, ARootIsTheFolderThatItsPathLeadsToWhenItIsAskedFor) {
  folder_.Write("v1/name", "one");
  folder_.Write("v2/name", "second");
  ASSERT_EQ(symlink("v1", (folder_ / "current").c_str()), 0);
  auto roots = Roots::Create({{"data", folder_ / "current"}});
  ASSERT_TRUE(roots.ok()) << roots.status();
  const auto first = *(*roots)->FindNow("data");
  EXPECT_EQ(first, *(*roots)->Find("data"));
  ASSERT_EQ(symlink("v2", (folder_ / "next").c_str()), 0);
  ASSERT_EQ(rename((folder_ / "next").c_str(), (folder_ / "current").c_str()), 0);
  EXPECT_FALSE(*first->IsInPlace());
  const auto second = *(*roots)->FindNow("data");
  EXPECT_TRUE(*second->IsInPlace());
  EXPECT_NE(second->id(), first->id());
  EXPECT_EQ(second->Stat("name")->st_size, 6);
  EXPECT_EQ(first->Stat("name")->st_size, 3) << "who has it goes on with it";
  EXPECT_EQ(*(*roots)->FindNow("data"), second);
  EXPECT_EQ(*(*roots)->Find("data"), second);

  std::filesystem::remove(folder_ / "current");
  const absl::Status gone = (*roots)->FindNow("data").status();
  EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound) << gone;
  EXPECT_THAT(std::string(gone.message()), HasSubstr("root 'data'"));
  EXPECT_EQ((*roots)->FindNow("date").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RootsTest, WhatMayHangIsNotOpenedWhereThatMustNotBe) {
  EXPECT_TRUE(root_->OpenFile("a/b.jpg", false, Reach::kLocal).ok());
  EXPECT_FALSE(IsElsewhere(root_->OpenFile("missing", false, Reach::kLocal).status()));
  // /proc stands for a network or a program; it is a mount of its own below /.
  auto made = Roots::Create({{"proc", "/proc"}, {"all", "/"}});
  ASSERT_TRUE(made.ok()) << made.status();
  const auto proc = *(*made)->Find("proc"), all = *(*made)->Find("all");
  EXPECT_TRUE(proc->OpenFile("version", false).ok());
  EXPECT_TRUE(IsElsewhere(proc->OpenFile("version", false, Reach::kLocal).status()));
  EXPECT_TRUE(all->OpenFile("proc/version", false).ok());
  EXPECT_TRUE(IsElsewhere(all->OpenFile("proc/version", false, Reach::kLocal).status()));
}

// Its storage is silent first, then says that the folder is not there; later it is.
TEST(Roots, OneThatHasAnsweredWithAnErrorIsSilentNoMoreAndCanRecover) {
  const TempFolder folder;
  absl::Notification answer;
  silent_path = folder / "late";
  answers = &answer;
  const auto created = Roots::Create({{"late", silent_path}}, nullptr, absl::Nanoseconds(1));
  ASSERT_TRUE(created.ok()) << created.status();
  const Roots& roots = **created;
  EXPECT_THAT(roots.Silent(), ::testing::ElementsAre("root 'late' (" + silent_path + ")"));
  EXPECT_THAT(std::string(roots.Find("late").status().message()), HasSubstr("not answered yet"));
  answer.Notify();
  ASSERT_TRUE(feedwater::testing::Eventually([&] { return roots.Silent().empty(); }));
  const absl::Status found = roots.Find("late").status(), now = roots.FindNow("late").status();
  EXPECT_EQ(found.code(), absl::StatusCode::kNotFound) << found;
  EXPECT_THAT(std::string(found.message()), HasSubstr("does not exist"));
  EXPECT_EQ(now, found);
  std::filesystem::create_directory(silent_path);
  ASSERT_TRUE(roots.FindNow("late").ok());
  EXPECT_TRUE(roots.Find("late").ok());
  answers = nullptr;
}

TEST_F(RootsTest, AnAbsolutePathIsARootOnlyWhereEveryFolderIsDeclared) {
  const auto declared = folder_.AsRoot("photos");
  for (const absl::Status& refused :
       {declared->CheckDeclared(folder_.path()), declared->FindNow(folder_.path()).status(),
        declared->Find("/").status()}) {
    EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("roots:"), HasSubstr("private")));
  }
  EXPECT_FALSE(Roots::Create({{"/", folder_.path()}}).ok());
  EXPECT_FALSE(Roots::Create({{"/photos", folder_.path()}}).ok());

  const auto every = *Roots::Create({{"/", "/"}});
  EXPECT_TRUE(every->CheckDeclared(folder_.path()).ok());
  const auto root = every->FindNow(folder_.path());
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_TRUE((*root)->OpenFile("a/b.jpg", false).ok());
  // Below it, it is a root like any other.
  EXPECT_TRUE(absl::IsPermissionDenied((*root)->OpenFile("../x", false).status()));
  EXPECT_TRUE(absl::IsPermissionDenied((*root)->OpenFile(outside_ / "secret", false).status()));
  EXPECT_TRUE(absl::IsNotFound(every->FindNow(folder_ / "nowhere").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(every->FindNow(folder_ / "a/b.jpg").status()));
  const absl::Status name = every->FindNow("photos").status();
  EXPECT_TRUE(absl::IsNotFound(name)) << name;
  EXPECT_THAT(std::string(name.message()), HasSubstr("absolute path"));
}

TEST(Roots, ARelativeRootIsToldWithThePathThatItMeans) {
  const TempFolder folder;
  const auto created = Roots::Create({{"/", "/"}});
  ASSERT_TRUE(created.ok()) << created.status();
  const auto told = [&](const std::string& name) {
    return std::string((*created)->FindNow(name).status().message());
  };
  const std::string path = std::filesystem::canonical(std::string(folder.path())).string();
  EXPECT_THAT(told(std::filesystem::relative(path).string()), HasSubstr("root: " + path));
  EXPECT_THAT(told("./no/such/../folder"),
              HasSubstr("root: " + std::filesystem::current_path().string() + "/no/folder"));
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::current_path("/");  // as a daemon
  EXPECT_THAT(told("data"), HasSubstr("such as root: /data"));
  std::filesystem::current_path(here);
  const char* const before = std::getenv("HOME");
  const std::string home = before == nullptr ? "" : before;
  setenv("HOME", path.c_str(), 1);
  EXPECT_THAT(told("~"), HasSubstr("root: " + path));
  setenv("HOME", home.c_str(), 1);
}

}  // namespace
}  // namespace feedwater::server
