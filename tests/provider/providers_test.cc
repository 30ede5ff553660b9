// Who serves what, and the records of sources.
#include <algorithm>
#include <future>

#include "tests/provider/played_process.h"

namespace feedwater::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(ProvidersTest, RecordsComeFromWhicheverProcessIsFree) {
  PlayedProcess one(providers_.get(), SourceOf(1000), TenTimes);
  PlayedProcess two(providers_.get(), SourceOf(1000), TenTimes);
  EXPECT_EQ(*one.entered(), 1);
  EXPECT_EQ(*two.entered(), 2);
  const auto giver = Giver();
  std::vector<std::shared_ptr<Taker>> takers;
  for (int64_t i = 0; i < 500; ++i) takers.push_back(Ask(*giver, i));
  giver->Flush();
  for (int64_t i = 0; i < 500; ++i) EXPECT_EQ(takers[i]->Number(), 10 * i);
  EXPECT_GT(one.asked(), 0);
  EXPECT_GT(two.asked(), 0);
  EXPECT_EQ(one.asked() + two.asked(), 500);
}

// Saved states, and ranks on other hosts, where the user may have another number.
TEST_F(ProvidersTest, ADatasetsDigestIsTheSameForEveryUserAndItsContentsAreNot) {
  const auto dataset = [&](uint32_t user, int64_t workers, const std::string& version) {
    OfferedSource source = SourceOf(1000).source;
    source.user = user;
    source.workers = workers;
    source.version = version;
    source.contents = "abc";
    Offer offer;
    offer.source = source;
    return *GivenDataset({source, std::make_shared<Provided>(offer, WindowMemory{},
                                                             std::make_shared<WindowMaker>())},
                         nullptr);
  };
  const auto one = dataset(1, 0, ""), two = dataset(2, 0, "");
  EXPECT_EQ(one->digest(), two->digest());
  EXPECT_NE(one->contents(), two->contents());
  EXPECT_EQ(one->giver()->identity(), "pickle abc");
  EXPECT_EQ(dataset(1, 0, "3")->giver()->identity(), "version 3");
  EXPECT_EQ(ContentsIn(*one, 3), one->contents());
  const auto stream = dataset(1, 4, "");
  EXPECT_EQ(OfAnyEpoch(ContentsIn(*stream, 9)), OfAnyEpoch(ContentsIn(*stream, 10)));
  EXPECT_LT(ContentsIn(*stream, 9), ContentsIn(*stream, 10));
  EXPECT_EQ(ContentsIn(*stream, ~uint64_t{0}).size(), 32u);
}

TEST_F(ProvidersTest, WhatTheProgramSaysOfARecordIsSaidOfIt) {
  PlayedProcess process(providers_.get(), SourceOf(10),
                        [](PlayedProcess& self, uint32_t window, wire::Entry* entry) {
                          PlayedProcess::Fail(self.Window(window), entry, "ValueError: boom");
                          return true;
                        });
  const auto giver = Giver();
  const auto taker = Ask(*giver, 3);
  giver->Flush();
  const absl::Status status = taker->Get().first;
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("ValueError: boom"));
}

TEST_F(ProvidersTest, ARecordThatEndsItsProcessIsTriedOnceMoreAndThenBad) {
  const auto make = [](PlayedProcess& self, uint32_t window, wire::Entry* entry) {
    if (entry->record != 7) return TenTimes(self, window, entry);
    std::strcpy(reinterpret_cast<char*>(self.words()), "Fatal Python error: boom");
    return false;
  };
  PlayedProcess one(providers_.get(), SourceOf(100), make),
      two(providers_.get(), SourceOf(100), make), three(providers_.get(), SourceOf(100), make);
  const auto giver = Giver();
  std::vector<std::shared_ptr<Taker>> takers;
  for (int64_t i = 0; i < 100; ++i) takers.push_back(Ask(*giver, i));
  giver->Flush();
  for (int64_t i = 0; i < 100; ++i) {
    if (i == 7) continue;
    EXPECT_EQ(takers[i]->Number(), 10 * i);
  }
  const absl::Status status = takers[7]->Get().first;
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("twice"), HasSubstr("boom")));
  EXPECT_EQ(Counter("providers_died"), 2u);
}

TEST_F(ProvidersTest, AnAnswerToWhatWasNotAskedEndsTheConnection) {
  PlayedProcess process(providers_.get(), SourceOf(10), TenTimes);
  wire::Answer answer{};
  answer.header = wire::MakeHeader<wire::Answer>(wire::Type::kAnswer);
  answer.serial = 1;
  answer.entries = 1;
  process.Send(answer);
  EXPECT_TRUE(Eventually([&] {
    const auto sources = providers_->List(kUser);
    return sources.empty() || sources[0].counts.processes == 0;
  }));
}

TEST_F(ProvidersTest, WithoutAnyProcessWhatIsAskedFailsAfterAWhile) {
  std::shared_ptr<RecordGiver> giver;
  {
    PlayedProcess process(providers_.get(), SourceOf(10), TenTimes);
    giver = Giver();
  }
  const auto taker = Ask(*giver, 1);
  giver->Flush();
  const absl::Status status = taker->Get().first;
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("no process serves source 'mine'"));
}

TEST_F(ProvidersTest, AProcessThatComesInTimeTakesOver) {
  std::shared_ptr<RecordGiver> giver;
  {
    PlayedProcess process(providers_.get(), SourceOf(10), TenTimes);
    giver = Giver();
  }
  const auto taker = Ask(*giver, 2);
  giver->Flush();
  PlayedProcess process(providers_.get(), SourceOf(10), TenTimes);
  EXPECT_EQ(taker->Number(), 20);
  EXPECT_TRUE(giver->LookAgain().ok());
}

TEST_F(ProvidersTest, AnotherOfferIsRefusedWhileOthersServeAndReplacesThemAfterwards) {
  std::shared_ptr<RecordGiver> giver;
  {
    PlayedProcess first(providers_.get(), SourceOf(10), TenTimes);
    giver = Giver();
    PlayedProcess other(providers_.get(), SourceOf(11), TenTimes);
    EXPECT_TRUE(absl::IsAlreadyExists(other.entered().status())) << other.entered().status();
    EXPECT_THAT(std::string(other.entered().status().message()),
                HasSubstr("the number of records is 10 there and 11 here"));
  }
  ASSERT_TRUE(Eventually([&] { return providers_->List(kUser)[0].counts.processes == 0; }));
  PlayedProcess other(providers_.get(), SourceOf(11), TenTimes);
  EXPECT_TRUE(other.entered().ok()) << other.entered().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(giver->LookAgain()));
  const auto taker = Ask(*giver, 1);
  giver->Flush();
  EXPECT_FALSE(taker->Get().first.ok());
}

TEST_F(ProvidersTest, ASourceIsSupersededOnlyWhileNoProcessServesItAndThenNoneComesIn) {
  PlayedProcess first(providers_.get(), SourceOf(10), TenTimes);
  const auto giver = Giver();
  Provided& provided = dynamic_cast<Provided&>(*giver);
  EXPECT_FALSE(provided.SupersedeIfEmpty());
  EXPECT_TRUE(giver->LookAgain().ok());
  first.End();
  ASSERT_TRUE(Eventually([&] { return provided.processes() == 0; }));
  EXPECT_TRUE(provided.SupersedeIfEmpty());
  PlayedProcess again(providers_.get(), SourceOf(10), TenTimes);
  EXPECT_TRUE(IsNotServed(again.entered().status())) << again.entered().status();
}

// Both would be told that they serve it, and one of them never be asked. The second one comes while
// the first one's windows are made, and its offer takes long to keep.
TEST_F(ProvidersTest, OfTwoThatBeginToServeOneNameOneIsRefused) {
  const auto providers = *Providers::Create({shares_, 1 << 20});
  for (int round = 0; round < 100; ++round) {
    Offer offer = SourceOf(11, absl::StrCat("mine", round));
    offer.source.classes.resize(200'000);
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const Fd socket(ends[0]);
    Accepted connection;
    connection.socket = Fd(ends[1]);
    connection.peer = {kUser, kUser, getpid()};
    const auto is_begun = [&providers, name = offer.source.name] {
      const auto served = providers->List(kUser);
      return std::any_of(served.begin(), served.end(),
                         [&](const auto& one) { return one.name == name; });
    };
    auto second = std::async(std::launch::async, [&] {
      while (!is_begun()) {
      }
      return providers->Enter(std::move(connection), std::move(offer)).status();
    });
    PlayedProcess one(providers.get(), SourceOf(10, absl::StrCat("mine", round)), TenTimes);
    const absl::Status first = one.entered().status(), other = second.get();
    EXPECT_NE(first.ok(), other.ok()) << "round " << round << ": " << first << "; " << other;
  }
}

// Two ranks, each with its own part of the data, would get one another's.
TEST_F(ProvidersTest, AnotherDatasetOfTheSameFormIsRefusedUnlessAVersionAnswersForIt) {
  Offer one = SourceOf(10), other = SourceOf(10);
  one.source.contents = "a";
  other.source.contents = "b";
  PlayedProcess first(providers_.get(), one, TenTimes);
  PlayedProcess second(providers_.get(), other, TenTimes);
  EXPECT_THAT(std::string(second.entered().status().message()),
              HasSubstr("another dataset of the same kind is served there"));
  one.source.name = other.source.name = "same";
  one.source.version = other.source.version = "1";
  PlayedProcess third(providers_.get(), one, TenTimes), fourth(providers_.get(), other, TenTimes);
  EXPECT_TRUE(fourth.entered().ok()) << fourth.entered().status();
}

TEST_F(ProvidersTest, AUserHasSoManyProcessesAndSeesItsOwnAlone) {
  std::vector<std::unique_ptr<PlayedProcess>> processes;
  for (int i = 0; i < 4; ++i)
    processes.push_back(std::make_unique<PlayedProcess>(providers_.get(), SourceOf(10), TenTimes));
  PlayedProcess more(providers_.get(), SourceOf(10), TenTimes);
  EXPECT_THAT(std::string(more.entered().status().message()),
              HasSubstr("limits.providers_per_uid = 4"));
  EXPECT_TRUE(absl::IsUnavailable(providers_->Find(kUser + 1, "mine").status()));
  EXPECT_TRUE(providers_->List(kUser + 1).empty());
  processes.pop_back();
  EXPECT_TRUE(Eventually([&] { return providers_->List(kUser)[0].counts.processes == 3; }));
  // Its place is free a moment later.
  EXPECT_TRUE(Eventually([&] {
    PlayedProcess again(providers_.get(), SourceOf(10), TenTimes);
    return again.entered().ok();
  }));
}

}  // namespace
}  // namespace feedwater::server
