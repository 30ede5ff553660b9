// What a person is told while a daemon is away.
#include "client/cpp/outage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
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

}  // namespace
}  // namespace feedwater
