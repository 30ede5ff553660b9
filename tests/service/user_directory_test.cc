// Who may connect, where the user database is slow, and whose a number of a user namespace is.
#include "server/service/user_directory.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "absl/synchronization/notification.h"
#include "server/service/access.h"
#include "server/service/subordinate_users.h"
#include "tests/testing/eventually.h"

namespace feedwater::server {
namespace {

using ::feedwater::testing::Eventually;

// The answer, once it is there.
absl::Status Check(AccessControl* access, const PeerIdentity& peer) {
  absl::Status answer = absl::DeadlineExceededError("no answer");
  EXPECT_TRUE(Eventually([&] {
    const auto now = access->Check(peer);
    if (now) answer = *now;
    return now.has_value();
  }));
  return answer;
}

TEST(Access, OnlyTheDaemonsUserRootAndThoseNamedMayConnect) {
  AccessControl access;
  const PeerIdentity stranger{4242, 4243, 1};
  EXPECT_TRUE(Check(&access, {geteuid(), 1, 1}).ok());
  EXPECT_TRUE(Check(&access, {0, 0, 1}).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Check(&access, stranger)));
  access.Replace({{4242}, {}});
  EXPECT_TRUE(Check(&access, stranger).ok());
  access.Replace({{}, {4243}});
  EXPECT_TRUE(Check(&access, stranger).ok());
  access.Replace({{}, {4244}});
  EXPECT_TRUE(absl::IsPermissionDenied(Check(&access, stranger)));
}

TEST(Access, WhileAListTakesAnothersPlaceOnlyThoseOnBothMayConnect) {
  AccessControl access([](uid_t) { return std::set<gid_t>{7}; });
  const PeerIdentity leaves{4242, 1, 1}, comes{4343, 1, 1}, stays{4444, 4, 1};
  access.Replace({{leaves.uid}, {stays.gid}});
  access.Narrow({{comes.uid, stays.uid}, {}});
  EXPECT_TRUE(absl::IsPermissionDenied(Check(&access, leaves)));
  EXPECT_TRUE(absl::IsPermissionDenied(Check(&access, comes)));
  EXPECT_TRUE(Check(&access, stays).ok());
  access.Narrow({{comes.uid, stays.uid}, {7}});
  EXPECT_TRUE(Check(&access, leaves).ok()) << "by a group, which is looked up";
  EXPECT_TRUE(absl::IsPermissionDenied(Check(&access, comes)));
  access.Replace({{comes.uid, stays.uid}, {}});
  EXPECT_TRUE(absl::IsPermissionDenied(Check(&access, leaves)));
  EXPECT_TRUE(Check(&access, comes).ok());
  EXPECT_TRUE(Check(&access, stays).ok());
}

TEST(Access, ASupplementaryGroupLetsItsMembersIn) {
  // Any user of this machine that is a member of a group which is not the user's own.
  setgrent();
  while (const group* entry = getgrent()) {
    if (entry->gr_mem == nullptr || entry->gr_mem[0] == nullptr) continue;
    const gid_t gid = entry->gr_gid;
    auto uid = FindUser(entry->gr_mem[0]);
    if (!uid.ok() || *uid == 0) continue;
    endgrent();
    AccessControl access;
    access.Replace({{}, {gid}});
    EXPECT_TRUE(Check(&access, {*uid, 65534, 1}).ok()) << "user " << *uid << ", group " << gid;
    return;
  }
  endgrent();
  GTEST_SKIP() << "no group of this machine has a member";
}

TEST(Access, OneUserWhomTheDatabaseDoesNotTellOfKeepsNobodyElseWaiting) {
  absl::Notification answer;
  AccessControl access([&](uid_t uid) -> std::set<gid_t> {
    if (uid == 100) answer.WaitForNotification();
    return {7};
  });
  access.Replace({{300}, {7}});
  EXPECT_FALSE(access.Check({100, 1, 1}).has_value());
  EXPECT_TRUE(Check(&access, {200, 1, 1}).ok()) << "another look-up";
  EXPECT_TRUE(access.Check({300, 1, 1})->ok()) << "no look-up at all";
  EXPECT_FALSE(access.Check({100, 1, 1}).has_value());
  answer.Notify();
  EXPECT_TRUE(Check(&access, {100, 1, 1}).ok());
}

TEST(UserDirectory, TellsItsListenerAndLooksUpOnce) {
  std::atomic<int> looked_up = 0, told = 0;
  UserDirectory directory([&](uid_t) {
    ++looked_up;
    return std::set<gid_t>{1, 2};
  });
  directory.Listen([&] { ++told; });
  for (int i = 0; i < 1000; ++i) directory.Groups(100);
  EXPECT_TRUE(Eventually([&] { return told == 1; }));
  EXPECT_EQ(directory.Groups(100), (std::set<gid_t>{1, 2}));
  EXPECT_EQ(looked_up, 1);
  directory.Forget();
  EXPECT_EQ(directory.Groups(100), std::nullopt);
  EXPECT_TRUE(Eventually([&] { return told == 2; }));
}

TEST(UserDirectory, TakesAFewThreadsHoweverManyAreAskedFor) {
  auto answer = std::make_shared<absl::Notification>();
  auto running = std::make_shared<std::atomic<int>>(0);
  UserDirectory directory([=](uid_t) -> std::set<gid_t> {
    ++*running;
    answer->WaitForNotification();
    return {};
  });
  for (uid_t uid = 1; uid <= 10'000; ++uid)
    EXPECT_EQ(directory.Groups(uid), std::nullopt) << "no room is not the same as no groups";
  EXPECT_TRUE(Eventually([&] { return *running == UserDirectory::kThreads; }));
  answer->Notify();
}

// Numbers from 100,000 on are all one person's.
uid_t OnePersonOfMany(uid_t uid) { return uid < 100'000 ? uid : 100'000; }

TEST(UserDirectory, OnePersonsManyNumbersDoNotKeepOthersWaiting) {
  auto answer = std::make_shared<absl::Notification>();
  UserDirectory directory(
      [=](uid_t uid) -> std::set<gid_t> {
        if (uid >= 100'000) answer->WaitForNotification();
        return {uid};
      },
      OnePersonOfMany);
  for (uid_t uid = 100'000; uid < 101'000; ++uid) EXPECT_EQ(directory.Groups(uid), std::nullopt);
  for (uid_t uid = 1; uid <= 100; ++uid)
    EXPECT_TRUE(Eventually([&] { return directory.Groups(uid).has_value(); })) << uid;
  answer->Notify();
  for (uid_t uid = 100'000; uid < 100'010; ++uid)
    EXPECT_TRUE(Eventually([&] { return directory.Groups(uid).has_value(); })) << uid;
}

TEST(UserDirectory, OnePersonsManyNumbersDoNotDriveOutOthers) {
  std::atomic<int> others{0};
  UserDirectory directory(
      [&](uid_t uid) -> std::set<gid_t> {
        others += uid < 100'000;
        return {uid};
      },
      OnePersonOfMany);
  EXPECT_TRUE(Eventually([&] { return directory.Groups(1).has_value(); }));
  for (uid_t uid = 100'000; uid < 100'000 + 3 * UserDirectory::kMaxKeptOfAccount; ++uid)
    ASSERT_TRUE(Eventually([&] { return directory.Groups(uid).has_value(); })) << uid;
  EXPECT_TRUE(directory.Groups(1).has_value());
  EXPECT_EQ(others, 1) << "what was known of user 1 was forgotten";
}

TEST(UserDirectory, EndsWhileTheDatabaseStandsStillAndNotWhileItsListenerRuns) {
  auto answer = std::make_shared<absl::Notification>();
  auto begun = std::make_shared<std::atomic<bool>>(false);
  auto ended = std::make_shared<std::atomic<bool>>(false);
  {
    UserDirectory directory([=](uid_t) -> std::set<gid_t> {
      *begun = true;
      answer->WaitForNotification();
      *ended = true;
      return {};
    });
    directory.Groups(1);
    EXPECT_TRUE(Eventually([&] { return begun->load(); }));
  }
  EXPECT_FALSE(*ended);
  answer->Notify();
  EXPECT_TRUE(Eventually([&] { return ended->load(); }));

  std::atomic<bool> listening = false, listened = false;
  {
    UserDirectory directory([](uid_t) { return std::set<gid_t>(); });
    directory.Listen([&] {
      listening = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      listened = true;
    });
    directory.Groups(1);
    EXPECT_TRUE(Eventually([&] { return listening.load(); }));
  }
  EXPECT_TRUE(listened);
}

class SubordinateUsersTest : public ::testing::Test {
 protected:
  SubordinateUsersTest() {
    char folder[] = "/tmp/feedwater-subuid-XXXXXX";
    folder_ = mkdtemp(folder);
  }
  ~SubordinateUsersTest() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& text) {
    std::ofstream(path()) << text;
    // A change of the same moment must be seen, too.
    std::filesystem::last_write_time(
        path(), std::filesystem::last_write_time(path()) + std::chrono::seconds(++writes_));
  }
  std::string path() const { return folder_ + "/subuid"; }

  std::string folder_;
  int writes_ = 0;
};

TEST_F(SubordinateUsersTest, ANumberOfARangeIsItsOwners) {
  Write("root:100000:65536\n4711:200000:10\n\nnobody-of-this-name:300000:10\nrubbish\n4712:x:y\n");
  SubordinateUsers users(path());
  EXPECT_EQ(users.OwnerOf(200'000), 200'000u) << "not read yet";
  users.Refresh();
  users.AwaitNames();
  EXPECT_EQ(users.OwnerOf(100'000), 0u);
  EXPECT_EQ(users.OwnerOf(99'999), 99'999u);
  EXPECT_EQ(users.OwnerOf(165'535), 0u);
  EXPECT_EQ(users.OwnerOf(165'536), 165'536u);
  EXPECT_EQ(users.OwnerOf(200'009), 4711u);
  EXPECT_EQ(users.OwnerOf(200'010), 200'010u);
  EXPECT_EQ(users.OwnerOf(300'000), 300'000u) << "of a user that does not exist";
  EXPECT_EQ(users.OwnerOf(0), 0u);
}

TEST_F(SubordinateUsersTest, ANumberOfSeveralRangesIsTheInnermostsOwners) {
  Write("5:100000:5\n1:100000:1000\n2:100100:100\n3:100150:10\n4:100900:200\n6:100000:2\n");
  SubordinateUsers users(path());
  users.Refresh();
  const std::map<uid_t, uid_t> owners = {
      {100'000, 6}, {100'002, 5}, {100'005, 1}, {100'099, 1}, {100'100, 2},     {100'149, 2},
      {100'150, 3}, {100'159, 3}, {100'160, 2}, {100'199, 2}, {100'200, 1},     {100'899, 1},
      {100'900, 4}, {100'999, 4}, {101'000, 4}, {101'099, 4}, {99'999, 99'999}, {101'100, 101'100}};
  for (const auto& [number, owner] : owners) EXPECT_EQ(users.OwnerOf(number), owner) << number;
}

TEST_F(SubordinateUsersTest, NumbersOfOneOwnerAreOneUserWhileTheDatabaseIsSilent) {
  Write("alice:100000:65536\nbob:200000:10\nalice:300000:10\n");
  absl::Notification answer;
  SubordinateUsers users(path(), [&](const std::string& name) -> absl::StatusOr<uid_t> {
    answer.WaitForNotification();
    if (name == "bob") return absl::NotFoundError("not yet");
    return 4711;
  });
  users.Refresh();  // does not wait
  for (const uid_t number : {100'000, 100'005, 165'535, 300'000, 300'009})
    EXPECT_EQ(users.OwnerOf(number), 100'000u) << number;
  EXPECT_EQ(users.OwnerOf(200'009), 200'000u);
  answer.Notify();
  EXPECT_TRUE(Eventually([&] { return users.OwnerOf(300'009) == 4711; }));
  EXPECT_EQ(users.OwnerOf(100'005), 4711u);
  EXPECT_EQ(users.OwnerOf(200'009), 200'000u) << "nobody knows bob";
  Write("alice:100000:65536\n");
  users.Refresh();
  EXPECT_EQ(users.OwnerOf(100'005), 4711u) << "known from before";
}

TEST_F(SubordinateUsersTest, TheFileIsReadAgainWhenItHasChanged) {
  SubordinateUsers users(path());
  users.Refresh();
  EXPECT_EQ(users.OwnerOf(100'000), 100'000u) << "there is no file";
  Write("4711:100000:65536\n");
  users.Refresh();
  EXPECT_EQ(users.OwnerOf(100'000), 4711u);
  Write("4712:100000:65536\n");
  users.Refresh();
  EXPECT_EQ(users.OwnerOf(100'000), 4712u);
}

}  // namespace
}  // namespace feedwater::server
