// Slow things made once: under concurrent calls, cancellation, errors and exceptions.
#include "server/service/shared_loads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <stdexcept>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/testing/eventually.h"

namespace feedwater::server {
namespace {

using Loads = SharedLoads<int>;

constexpr uid_t kUser = 1001, kOther = 1002;

TEST(SharedLoads, EightCallersAtOnceShareOneLoad) {
  Loads loads("numbers", 16);
  std::atomic<int> made{0}, waiting{0};
  auto make = [&](const Cancelled&) -> Loads::Result {
    ++made;
    while (waiting < 8) std::this_thread::yield();
    return std::make_shared<const int>(7);
  };
  std::vector<std::shared_ptr<const int>> got(8);
  std::vector<std::thread> threads;
  for (auto& value : got) {
    threads.emplace_back([&] {
      ++waiting;
      value = *loads.Get(kUser, "key", make, nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
  for (const auto& value : got) EXPECT_EQ(value, got[0]);
}

TEST(SharedLoads, WhatIsHeldIsSharedAndWhatIsNotIsMadeAnew) {
  Loads loads("numbers", 16);
  int made = 0;
  auto make = [&](const Cancelled&) -> Loads::Result {
    return std::make_shared<const int>(++made);
  };
  auto first = *loads.Get(kUser, "key", make, nullptr);
  EXPECT_EQ(*loads.Get(kUser, "key", make, nullptr), first);
  EXPECT_EQ(**loads.Get(kUser, "other", make, nullptr), 2);
  first.reset();
  EXPECT_EQ(**loads.Get(kUser, "key", make, nullptr), 3);
}

TEST(SharedLoads, WhatIsOutOfDateIsMadeAnew) {
  Loads loads("numbers", 16);
  int made = 0, looks = 0;
  bool is_good = true;
  auto make = [&](const Cancelled&) -> Loads::Result {
    return std::make_shared<const int>(++made);
  };
  auto still_good = [&](const int&) { return ++looks, is_good; };
  auto first = *loads.Get(kUser, "key", make, nullptr, still_good);
  EXPECT_EQ(looks, 0) << "it was made for this caller";
  EXPECT_EQ(*loads.Get(kUser, "key", make, nullptr, still_good), first);
  EXPECT_EQ(looks, 1);
  is_good = false;
  auto second = *loads.Get(kUser, "key", make, nullptr, still_good);
  EXPECT_NE(second, first);
  is_good = true;
  EXPECT_EQ(*loads.Get(kUser, "key", make, nullptr, still_good), second);
  EXPECT_EQ(made, 2);
}

// What is out of date is let go of by the thread that has made the new thing, and may take long to
// free.
TEST(SharedLoads, AThreadThatTakesLongToEndHoldsUpNoOtherUser) {
  Loads loads("numbers", 16);
  absl::Notification may_be_freed, is_being_freed;
  auto first = *loads.Get(
      kUser, "key",
      [&](const Cancelled&) -> Loads::Result {
        return std::shared_ptr<const int>(new int(1), [&](const int* number) {
          is_being_freed.Notify();
          may_be_freed.WaitForNotification();
          delete number;
        });
      },
      nullptr);
  const auto make = [](const Cancelled&) -> Loads::Result {
    return std::make_shared<const int>(2);
  };
  const auto second = *loads.Get(kUser, "key", make, nullptr, [&](const int&) {
    first.reset();  // the thread has the last one
    return false;
  });
  EXPECT_EQ(*second, 2);
  is_being_freed.WaitForNotification();
  std::atomic<bool> done{false};
  std::thread other([&] {
    EXPECT_EQ(**loads.Get(kOther, "other", make, nullptr), 2);
    done = true;
  });
  EXPECT_TRUE(testing::Eventually([&] { return done.load(); }));
  may_be_freed.Notify();
  other.join();
  loads.Tidy();
}

// A caller who asks while a thing is being made may have changed what it is made of just before.
TEST(SharedLoads, WhoAsksLaterIsGivenWhatWasLookedAtLater) {
  Loads loads("numbers", 16);
  absl::Notification began, go_on;
  std::atomic<int> made{0}, looks{0};
  auto make = [&](const Cancelled&) -> Loads::Result {
    if (++made == 1) {
      began.Notify();
      go_on.WaitForNotification();
    }
    return std::make_shared<const int>(made);
  };
  auto still_good = [&](const int&) { return ++looks, false; };
  std::shared_ptr<const int> early, late;
  std::thread first([&] { early = *loads.Get(kUser, "key", make, nullptr, still_good); });
  began.WaitForNotification();
  std::thread second([&] { late = *loads.Get(kUser, "key", make, nullptr, still_good); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // or it comes after: no matter
  go_on.Notify();
  first.join();
  second.join();
  EXPECT_EQ(*early, 1);
  EXPECT_EQ(*late, 2);
}

TEST(SharedLoads, AnErrorOrExceptionIsGivenOutAndNotRemembered) {
  Loads loads("numbers", 16);
  EXPECT_TRUE(absl::IsNotFound(
      loads
          .Get(
              kUser, "k",
              [](const Cancelled&) -> Loads::Result { return absl::NotFoundError("x"); }, nullptr)
          .status()));
  absl::Status thrown =
      loads
          .Get(
              kUser, "k",
              [](const Cancelled&) -> Loads::Result { throw std::runtime_error("bang"); }, nullptr)
          .status();
  EXPECT_TRUE(absl::IsInternal(thrown)) << thrown;
  EXPECT_TRUE(
      loads
          .Get(
              kUser, "k",
              [](const Cancelled&) -> Loads::Result { return std::make_shared<const int>(1); },
              nullptr)
          .ok());
}

TEST(SharedLoads, ACancelledCallerLeavesAndTheOthersGetTheThing) {
  Loads loads("numbers", 16);
  absl::Notification go;
  auto make = [&](const Cancelled&) -> Loads::Result {
    go.WaitForNotification();
    return std::make_shared<const int>(7);
  };
  std::thread patient(
      [&] { EXPECT_TRUE(loads.Get(kUser, "key", make, [] { return false; }).ok()); });
  EXPECT_TRUE(absl::IsCancelled(loads.Get(kUser, "key", make, [] { return true; }).status()));
  go.Notify();
  patient.join();
}

TEST(SharedLoads, WhatNobodyWaitsForIsGivenUpAndMadeAnewForTheNext) {
  Loads loads("numbers", 1);
  std::atomic<bool> begun{false};
  absl::Notification told, go;
  const auto endless = [&](const Cancelled& given_up) -> Loads::Result {
    begun = true;
    while (!given_up()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    told.Notify();
    go.WaitForNotification();
    return absl::CancelledError("given up");
  };
  const auto left = loads.Get(kUser, "key", endless, [&] { return begun.load(); });
  EXPECT_TRUE(absl::IsCancelled(left.status()));
  told.WaitForNotification();
  // Whoever comes now does not get what becomes of it.
  const auto quick = [](const Cancelled&) -> Loads::Result {
    return std::make_shared<const int>(7);
  };
  std::thread next([&] {
    const auto got = loads.Get(kUser, "key", quick, nullptr);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(**got, 7);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // or it comes after: no matter
  go.Notify();
  next.join();
}

TEST(SharedLoads, WhoComesBackInTimeGetsWhatWasGoingOn) {
  Loads loads("numbers", 1, absl::Seconds(60));
  absl::Notification go;
  std::atomic<int> made{0};
  const auto make = [&](const Cancelled& given_up) -> Loads::Result {
    ++made;
    go.WaitForNotification();
    EXPECT_FALSE(given_up());
    return std::make_shared<const int>(7);
  };
  EXPECT_TRUE(absl::IsCancelled(loads.Get(kUser, "key", make, [] { return true; }).status()));
  go.Notify();
  EXPECT_TRUE(loads.Get(kUser, "key", make, nullptr).ok());
  EXPECT_EQ(made, 1);
}

TEST(SharedLoads, TheirEndGivesUpWhatIsGoingOn) {
  std::atomic<int> begun{0}, ended{0};
  {
    Loads loads("numbers", 1, absl::Seconds(3600));
    const auto endless = [&](const Cancelled& given_up) -> Loads::Result {
      for (++begun; !given_up();) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++ended;
      return absl::CancelledError("given up");
    };
    const auto left = loads.Get(kUser, "key", endless, [&] { return begun > 0; });
    EXPECT_TRUE(absl::IsCancelled(left.status()));
  }
  EXPECT_EQ(ended, 1);
}

TEST(SharedLoads, TheUserIsChargedWithTheCpuTime) {
  std::map<uid_t, std::atomic<int64_t>> charged;
  charged[kUser] = charged[kOther] = 0;
  Loads loads("numbers", 4, absl::ZeroDuration(),
              [&](uid_t user, int64_t cpu_ns) { charged.at(user) += cpu_ns; });
  constexpr int64_t kBusyNs = 20'000'000;
  const auto busy = [](const Cancelled&) -> Loads::Result {
    for (const int64_t until = ThreadCpuNs() + kBusyNs; ThreadCpuNs() < until;) {
    }
    return std::make_shared<const int>(7);
  };
  ASSERT_TRUE(loads.Get(kUser, "key", busy, nullptr).ok());
  EXPECT_GE(charged.at(kUser), kBusyNs);
  EXPECT_EQ(charged.at(kOther), 0);
}

TEST(SharedLoads, AUserWithTooManyWaitsAndNobodyElseDoes) {
  Loads loads("numbers", 1);
  absl::Notification started, go;
  auto slow = [&](const Cancelled&) -> Loads::Result {
    started.Notify();
    go.WaitForNotification();
    return std::make_shared<const int>(7);
  };
  std::thread first([&] { EXPECT_TRUE(loads.Get(kUser, "a", slow, nullptr).ok()); });
  started.WaitForNotification();
  auto quick = [](const Cancelled&) -> Loads::Result { return std::make_shared<const int>(1); };
  EXPECT_TRUE(loads.Get(kOther, "b", quick, nullptr).ok());
  int looks = 0;
  EXPECT_TRUE(
      absl::IsCancelled(loads.Get(kUser, "c", quick, [&] { return ++looks > 2; }).status()));
  std::thread second([&] { EXPECT_TRUE(loads.Get(kUser, "d", quick, nullptr).ok()); });
  go.Notify();
  first.join();
  second.join();
}

TEST(SharedLoads, NobodyWaitsForTheFlightOfAnotherUser) {
  Loads loads("numbers", 1);
  absl::Notification started, go;
  const auto hangs = [&](const Cancelled&) -> Loads::Result {
    started.Notify();
    go.WaitForNotification();
    return std::make_shared<const int>(7);
  };
  std::thread first([&] { EXPECT_TRUE(loads.Get(kUser, "key", hangs, nullptr).ok()); });
  started.WaitForNotification();
  int looks = 0;
  const auto impatient = [&] { return ++looks > 20; };
  const auto quick = [](const Cancelled&) -> Loads::Result {
    return std::make_shared<const int>(1);
  };
  const auto got = loads.Get(kOther, "key", quick, impatient);
  EXPECT_TRUE(got.ok()) << got.status();
  if (got.ok()) {
    EXPECT_EQ(**got, 1);
  }
  go.Notify();
  first.join();
}

// A pipeline's flight opens its dataset; a user's other datasets may stand still for ever.
TEST(SharedLoads, ANestedFlightWithoutAPlaceHoldsUpNoOtherUser) {
  Loads inner("datasets", 1), outer("pipelines", 1);
  absl::Notification started, go, nested;
  const auto hangs = [&](const Cancelled&) -> Loads::Result {
    started.Notify();
    go.WaitForNotification();
    return std::make_shared<const int>(7);
  };
  std::thread first([&] { EXPECT_TRUE(inner.Get(kUser, "hangs", hangs, nullptr).ok()); });
  started.WaitForNotification();
  const auto open = [&](uid_t user, const Cancelled& given_up) {
    if (user == kUser) nested.Notify();
    const auto quick = [](const Cancelled&) -> Loads::Result {
      return std::make_shared<const int>(1);
    };
    return inner.Get(user, "good", quick, given_up);
  };
  const auto of = [&](uid_t user) {
    return [&open, user](const Cancelled& given_up) { return open(user, given_up); };
  };
  std::thread second([&] { EXPECT_TRUE(outer.Get(kUser, "key", of(kUser), nullptr).ok()); });
  nested.WaitForNotification();
  int looks = 0;
  const auto impatient = [&] { return ++looks > 20; };
  const auto got = outer.Get(kOther, "key", of(kOther), impatient);
  EXPECT_TRUE(got.ok()) << got.status();
  go.Notify();
  first.join();
  second.join();
}

TEST(SharedLoads, TidyForgetsWhatNobodyHolds) {
  Loads loads("numbers", 1);
  int made = 0;
  auto make = [&](const Cancelled&) -> Loads::Result {
    return std::make_shared<const int>(++made);
  };
  const auto held = *loads.Get(kUser, "held", make, nullptr);
  ASSERT_TRUE(loads.Get(kUser, "dropped", make, nullptr).ok());
  loads.Tidy();
  EXPECT_EQ(*loads.Get(kUser, "held", make, nullptr), held);
  EXPECT_EQ(made, 2);
}

}  // namespace
}  // namespace feedwater::server
