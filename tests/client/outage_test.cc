// What a person is told while a daemon is away.
#include "client/cpp/outage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

namespace feedwater {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class Told {
 public:
  Outage::Notice notice() {
    return [this](absl::string_view text) {
      const std::lock_guard<std::mutex> lock(mu_);
      texts_.emplace_back(text);
      came_.notify_all();
    };
  }
  void Await(size_t count) {
    std::unique_lock<std::mutex> lock(mu_);
    came_.wait(lock, [&] { return texts_.size() >= count; });
  }
  std::vector<std::string> texts() {
    const std::lock_guard<std::mutex> lock(mu_);
    return texts_;
  }

 private:
  std::mutex mu_;
  std::condition_variable came_;
  std::vector<std::string> texts_;
};

TEST(Outage, OneThatLastsIsToldOnceWithPlaceReasonAndPatienceAndSoIsItsEnd) {
  Told told;
  {
    Outage outage(told.notice(), "/run/feedwater/0", "it hung up", 60);
    told.Await(1);
    outage.IsOver();
    outage.IsOver();
  }
  EXPECT_THAT(told.texts(),
              ElementsAre(AllOf(HasSubstr("/run/feedwater/0"), HasSubstr("it hung up"),
                                HasSubstr("up to 60 s (reconnect_timeout_s)")),
                          AllOf(HasSubstr("/run/feedwater/0"), HasSubstr("serves again after"))));
}

TEST(Outage, OneThatNeverEndsIsToldOnceAndItsErrorSaysTheRest) {
  Told told;
  {
    Outage outage(told.notice(), "/run/x", "gone", 1e10);
    told.Await(1);
  }
  EXPECT_THAT(told.texts(), ElementsAre(HasSubstr("waiting without end")));
}

TEST(Outage, ShortOnesAndShortPatienceAreNobodysBusiness) {
  Told told;
  {
    Outage outage(told.notice(), "/run/x", "gone", 60);
    outage.IsOver();
  }
  { Outage outage(told.notice(), "/run/x", "gone", 0.5); }
  EXPECT_THAT(told.texts(), ElementsAre());
}

TEST(Outage, AnyNumberOfSecondsIsATime) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(SecondsToNs(2.5), 2'500'000'000);
  EXPECT_EQ(SecondsToNs(0), 0);
  EXPECT_EQ(SecondsToNs(-kInfinity), 0);
  EXPECT_EQ(SecondsToNs(std::numeric_limits<double>::quiet_NaN()), 0);
  EXPECT_EQ(SecondsToNs(1e300), SecondsToNs(kInfinity));
  EXPECT_EQ(SecondsToNs(kInfinity), 1'000'000'000'000'000'000);
}

// Nobody accepts connections, as where the daemon is stopped: the kernel does.
TEST(Silence, ADaemonThatDoesNotAnswerIsToldOnce) {
  const std::string address = testing::TempDir() + "/silent" + std::to_string(getpid());
  std::filesystem::create_directory(address);
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  (address + "/control.sock").copy(name.sun_path, sizeof(name.sun_path) - 1);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  Told told;
  Silence silence(told.notice(), address);
  silence.Look();
  silence.Look();
  silence.End();
  silence.End();
  EXPECT_THAT(told.texts(), ElementsAre(AllOf(HasSubstr(address), HasSubstr("no answer")),
                                        AllOf(HasSubstr(address), HasSubstr("continues"))));
  close(listener);
  silence.Look();  // nobody there: that is not silence
  EXPECT_EQ(told.texts().size(), 2u);
  std::filesystem::remove_all(address);
}

}  // namespace
}  // namespace feedwater
