// Calls of ops: what goes to a process, what may come back, and what becomes of a call whose
// process ends.
#include "tests/provider/played_process.h"

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;

class CallsTest : public ProvidersTest {};

absl::StatusOr<int64_t> CallWith(OpCaller& caller, const std::string& name, int64_t number,
                                 const std::atomic<bool>* gone = nullptr,
                                 CallTurn* turn = nullptr) {
  const Tensor input{{DType::kInt64, Layout::kPlain, {}}, reinterpret_cast<std::byte*>(&number)};
  OpCall call;
  call.turn = turn;
  call.name = &name;
  call.record = 5;
  call.inputs = absl::MakeConstSpan(&input, 1);
  call.outputs = absl::MakeConstSpan(&input.spec, 1);
  call.gone = gone;
  int64_t made = 0;
  FW_RETURN_IF_ERROR(caller.Call(call, [&](absl::Span<const Tensor> outputs) {
    made = *outputs[0].as<int64_t>();
    return absl::OkStatus();
  }));
  return made;
}

bool PlusOne(PlayedProcess& self, uint32_t window, wire::Entry* entry) {
  int64_t number = 0;
  std::memcpy(&number, self.Window(window) + entry->input_offset + sizeof(wire::TensorHead),
              sizeof(number));
  self.GiveNumber(window, entry, number + 1, SharedWindows::kEntriesBytes + 512);
  return true;
}

TEST_F(CallsTest, AnOpTakesAndGives) {
  PlayedProcess one(providers_.get(), OpOf("add"), PlusOne),
      two(providers_.get(), OpOf("add"), PlusOne);
  const auto caller = *providers_->OpsOf(kUser, {"add"});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 200; ++i) {
        const auto made = CallWith(*caller, "add", 1000 * t + i);
        ASSERT_TRUE(made.ok()) << made.status();
        ASSERT_EQ(*made, 1000 * t + i + 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(providers_->List(kUser)[0].counts.made, 800u);
}

// For whoever opens a stream again, or on another host: no digest of the pipeline has contents.
TEST_F(CallsTest, OpsAreWhatTheirProgramSaysThatTheyAre) {
  Offer add = OpOf("add"), half = OpOf("half");
  add.source.contents = "a1";
  half.source.contents = "b1";
  half.source.version = "7";
  auto first = std::make_unique<PlayedProcess>(providers_.get(), add, PlusOne);
  PlayedProcess other(providers_.get(), half, PlusOne);
  const auto caller = *providers_->OpsOf(kUser, {"half", "add", "half"});
  EXPECT_EQ(caller->Identity(), "op add: pickle a1, op half: version 7");
  first = nullptr;
  ASSERT_TRUE(Eventually([&] { return providers_->List(kUser)[0].counts.processes == 0; }));
  add.source.contents = "a2";
  PlayedProcess edited(providers_.get(), add, PlusOne);
  ASSERT_TRUE(edited.entered().ok());
  EXPECT_EQ((*providers_->OpsOf(kUser, {"add"}))->Identity(), "op add: pickle a2");
  EXPECT_EQ(caller->Identity(), "op add: pickle a1, op half: version 7") << "a job keeps its ops";
  EXPECT_FALSE(caller->AreCurrent());
}

TEST_F(CallsTest, AnOpWhoseOutputLiesOverItsInputOrIsAnotherTypeIsRefused) {
  std::atomic<int> turn{0};
  PlayedProcess process(providers_.get(), OpOf("add"),
                        [&](PlayedProcess& self, uint32_t window, wire::Entry* entry) {
                          PlusOne(self, window, entry);
                          if (turn++ % 2 == 0) {
                            entry->offset = entry->input_offset;
                          } else {
                            (self.Window(window) + entry->offset)[0] = std::byte{10};
                          }
                          return true;
                        });
  const auto caller = *providers_->OpsOf(kUser, {"add"});
  EXPECT_THAT(std::string(CallWith(*caller, "add", 1).status().message()),
              HasSubstr("outside its window"));
  EXPECT_THAT(std::string(CallWith(*caller, "add", 1).status().message()),
              HasSubstr("output 0 is int64[], and float32[] came"));
}

TEST_F(CallsTest, AnOpsProcessThatEndsIsReplacedOnceForASample) {
  std::atomic<int> calls{0};
  const auto die = [&](PlayedProcess&, uint32_t, wire::Entry*) {
    ++calls;
    return false;
  };
  PlayedProcess one(providers_.get(), OpOf("add"), die), two(providers_.get(), OpOf("add"), die),
      three(providers_.get(), OpOf("add"), die);
  const auto caller = *providers_->OpsOf(kUser, {"add"});
  const absl::Status status = CallWith(*caller, "add", 1).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_EQ(calls, 2);
}

TEST_F(CallsTest, AProgramThatEndsWithASampleMakesNoBadSample) {
  const auto die = [](PlayedProcess&, uint32_t, wire::Entry*) { return false; };
  PlayedProcess one(providers_.get(), OpOf("add"), die), two(providers_.get(), OpOf("add"), die);
  const auto caller = *providers_->OpsOf(kUser, {"add"});
  EXPECT_TRUE(IsNotServed(CallWith(*caller, "add", 1).status()));
}

TEST_F(CallsTest, ACallThatNobodyWaitsForEndsAtOnce) {
  std::atomic<bool> gone{false}, goes_on{false};
  PlayedProcess process(providers_.get(), OpOf("add"),
                        [&](PlayedProcess& self, uint32_t window, wire::Entry* entry) {
                          while (!goes_on)
                            std::this_thread::sleep_for(std::chrono::milliseconds(1));
                          return PlusOne(self, window, entry);
                        });
  const auto caller = *providers_->OpsOf(kUser, {"add"});
  auto call = std::async(std::launch::async, [&] { return CallWith(*caller, "add", 1, &gone); });
  ASSERT_TRUE(Eventually([&] { return process.asked() == 1; }));
  gone = true;
  EXPECT_TRUE(absl::IsCancelled(call.get().status()));
  goes_on = true;
  EXPECT_EQ(*CallWith(*caller, "add", 4), 5);  // its window is used again
}

TEST_F(CallsTest, ASourceIsNoOp) {
  PlayedProcess process(providers_.get(), SourceOf(10), TenTimes);
  EXPECT_THAT(std::string(providers_->OpsOf(kUser, {"mine"}).status().message()),
              HasSubstr("'mine' is served as source, not as op"));
  EXPECT_THAT(std::string(providers_->OpsOf(kUser, {"other"}).status().message()),
              HasSubstr("serves the op 'other' (served now: none)"));
}

// A job would otherwise give batches of two functions under one digest.
TEST_F(CallsTest, AJobsOpIsTheOneThatItWasOpenedWith) {
  Offer first = OpOf("add"), second = OpOf("add");
  first.source.version = "1";
  second.source.version = "2";
  auto process = std::make_unique<PlayedProcess>(providers_.get(), first, PlusOne);
  const auto caller = *providers_->OpsOf(kUser, {"add"});
  EXPECT_EQ(*CallWith(*caller, "add", 1), 2);
  EXPECT_TRUE(caller->AreCurrent());
  process.reset();
  ASSERT_TRUE(Eventually([&] { return providers_->List(kUser)[0].counts.processes == 0; }));
  PlayedProcess other(providers_.get(), second, PlusOne);
  ASSERT_TRUE(other.entered().ok()) << other.entered().status();
  EXPECT_FALSE(caller->AreCurrent());
  EXPECT_TRUE(absl::IsUnavailable(CallWith(*caller, "add", 1).status()));
  EXPECT_NE((*providers_->OpsOf(kUser, {"add"}))->Versions(), caller->Versions());
}

// Whoever waits for a larger window keeps the others from a process: until it leaves.
TEST_F(CallsTest, ALargeCallThatIsGivenUpLeavesTheProcessToOthers) {
  std::atomic<bool> gone{false}, goes_on{false};
  PlayedProcess process(providers_.get(), OpOf("add"),
                        [&](PlayedProcess& self, uint32_t window, wire::Entry* entry) {
                          while (!goes_on)
                            std::this_thread::sleep_for(std::chrono::milliseconds(1));
                          return PlusOne(self, window, entry);
                        });
  const auto caller = *providers_->OpsOf(kUser, {"add"});
  auto first = std::async(std::launch::async, [&] { return CallWith(*caller, "add", 1); });
  ASSERT_TRUE(Eventually([&] { return process.asked() == 1; }));
  auto large = std::async(std::launch::async, [&] {
    std::vector<uint8_t> bytes(8 << 20);
    const Tensor input{{DType::kUInt8, Layout::kPlain, {8 << 20}},
                       reinterpret_cast<std::byte*>(bytes.data())};
    const std::string name = "add";
    OpCall call;
    call.name = &name;
    call.inputs = absl::MakeConstSpan(&input, 1);
    call.outputs = absl::MakeConstSpan(&input.spec, 1);
    call.gone = &gone;
    return caller->Call(call, [](absl::Span<const Tensor>) { return absl::OkStatus(); });
  });
  ASSERT_TRUE(Eventually([&] { return providers_->List(kUser)[0].counts.waiting == 1; }));
  gone = true;
  EXPECT_TRUE(absl::IsCancelled(large.get()));
  goes_on = true;
  EXPECT_EQ(*first.get(), 2);
  EXPECT_EQ(*CallWith(*caller, "add", 4), 5);
}

// Whose calls leave their worker at once while others have work.
class GivingWay final : public CallTurn {
 public:
  bool IsOver(int64_t) override { return others_wait; }
  SuspendedCalls& calls() override { return calls_; }
  std::atomic<bool> others_wait{true};

 private:
  SuspendedCalls calls_;
};

// A program that answers when it is told to.
class SuspendedCallTest : public CallsTest {
 protected:
  PlayedProcess::Make Waiting() {
    return [this](PlayedProcess& self, uint32_t window, wire::Entry* entry) {
      EXPECT_TRUE(Eventually([&] { return goes_on_.load(); }));
      return !ends_ && PlusOne(self, window, entry);
    };
  }
  absl::StatusOr<int64_t> Call(int64_t number) {
    return CallWith(*caller_, "add", number, nullptr, &turn_);
  }

  std::atomic<bool> goes_on_{false}, ends_{false};
  std::shared_ptr<OpCaller> caller_;
  GivingWay turn_;
};

TEST_F(SuspendedCallTest, IsFoundByTheSameCallAndAskedOnce) {
  PlayedProcess process(providers_.get(), OpOf("add"), Waiting());
  caller_ = *providers_->OpsOf(kUser, {"add"});
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(absl::IsAborted(Call(1).status()));
    EXPECT_FALSE(turn_.calls().IsReady());
  }
  goes_on_ = true;
  EXPECT_TRUE(Eventually([&] { return turn_.calls().IsReady(); }));
  EXPECT_EQ(*Call(1), 2);
  EXPECT_EQ(*Call(1), 2) << "kept, for a sample that is made again";
  EXPECT_EQ(process.asked(), 1);
}

TEST_F(SuspendedCallTest, GivesItsWindowBackWhereNobodyComesForIt) {
  for (const bool is_answered : {false, true}) {
    goes_on_ = is_answered;
    PlayedProcess process(providers_.get(), OpOf("add"), Waiting());
    caller_ = *providers_->OpsOf(kUser, {"add"});
    for (int i = 0; i < 20; ++i) {
      turn_.others_wait = true;
      const auto made = Call(i);
      EXPECT_TRUE(made.ok() || absl::IsAborted(made.status())) << made.status();
      if (is_answered && !made.ok()) {
        EXPECT_TRUE(Eventually([&] { return turn_.calls().IsReady(); }));
      }
      turn_.calls().Clear();
      if (!is_answered) break;
    }
    goes_on_ = true;
    turn_.others_wait = false;
    EXPECT_EQ(*Call(40), 41);
  }
}

TEST_F(SuspendedCallTest, IsAskedOfAnotherProcessWhereItsOwnEnds) {
  PlayedProcess process(providers_.get(), OpOf("add"), Waiting());
  caller_ = *providers_->OpsOf(kUser, {"add"});
  EXPECT_TRUE(absl::IsAborted(Call(1).status()));
  PlayedProcess other(providers_.get(), OpOf("add"), PlusOne);
  ends_ = goes_on_ = true;
  EXPECT_TRUE(Eventually([&] { return turn_.calls().IsReady(); }));
  turn_.others_wait = false;
  EXPECT_EQ(*Call(1), 2);
  EXPECT_EQ(other.asked(), 1);
}

// The op before it may have given something else when the sample was made again.
TEST_F(SuspendedCallTest, OfAnotherInputIsAskedAnew) {
  PlayedProcess process(providers_.get(), OpOf("add"), Waiting());
  caller_ = *providers_->OpsOf(kUser, {"add"});
  EXPECT_TRUE(absl::IsAborted(Call(1).status()));
  goes_on_ = true;
  EXPECT_TRUE(Eventually([&] { return turn_.calls().IsReady(); }));
  turn_.others_wait = false;
  EXPECT_EQ(*Call(5), 6);
  EXPECT_EQ(process.asked(), 2);
}

// Else a row of n slow ops would take 2^n calls.
TEST_F(SuspendedCallTest, LeavesWhatOthersOfItsSampleMadeToTheNextTime) {
  PlayedProcess slow(providers_.get(), OpOf("slow"), Waiting());
  PlayedProcess add(providers_.get(), OpOf("add"), PlusOne);
  caller_ = *providers_->OpsOf(kUser, {"add", "slow"});
  const auto make = [&]() -> absl::StatusOr<int64_t> {
    turn_.others_wait = false;
    FW_ASSIGN_OR_RETURN(const int64_t first, Call(1));
    turn_.others_wait = true;
    return CallWith(*caller_, "slow", first, nullptr, &turn_);
  };
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(absl::IsAborted(make().status()));
  EXPECT_EQ(add.asked(), 2);
  goes_on_ = true;
  EXPECT_TRUE(Eventually([&] { return turn_.calls().IsReady(); }));
  EXPECT_EQ(*make(), 3);
  EXPECT_EQ(*make(), 3) << "as where an op behind it was suspended";
  EXPECT_EQ(add.asked(), 2);
  EXPECT_EQ(slow.asked(), 1);
}

// All windows of the process are taken.
TEST_F(SuspendedCallTest, MayNotHaveBeenAskedYet) {
  PlayedProcess process(providers_.get(), OpOf("add"), Waiting());
  caller_ = *providers_->OpsOf(kUser, {"add"});
  std::vector<GivingWay> others(8);
  for (GivingWay& other : others)
    EXPECT_TRUE(absl::IsAborted(CallWith(*caller_, "add", 7, nullptr, &other).status()));
  EXPECT_TRUE(absl::IsAborted(Call(1).status()));
  EXPECT_FALSE(turn_.calls().IsReady());
  goes_on_ = true;
  for (GivingWay& other : others) other.calls().Clear();
  EXPECT_TRUE(Eventually([&] { return turn_.calls().IsReady(); }));
  turn_.others_wait = false;
  EXPECT_EQ(*Call(1), 2);
}

TEST_F(CallsTest, WhatNoPayloadCanHoldIsRefusedBeforeItIsWritten) {
  PlayedProcess process(providers_.get(), OpOf("add"), PlusOne);
  const auto caller = *providers_->OpsOf(kUser, {"add"});
  uint8_t byte = 0;
  const Tensor input{{DType::kUInt8, Layout::kPlain, {1, 1, 1, 1, 1, 1, 1, 1}},
                     reinterpret_cast<std::byte*>(&byte)};
  const std::vector<Tensor> many(wire::kMaxTensors + 1, {{}, input.data});
  const std::string name = "add";
  for (const absl::Span<const Tensor> inputs :
       {absl::MakeConstSpan(&input, 1), absl::MakeConstSpan(many)}) {
    OpCall call;
    call.name = &name;
    call.inputs = inputs;
    const absl::Status status =
        caller->Call(call, [](absl::Span<const Tensor>) { return absl::OkStatus(); });
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  // Nobody looks at its bytes.
  const Tensor large{{DType::kUInt8, Layout::kPlain, {300 << 20}}, input.data};
  OpCall call;
  call.name = &name;
  call.inputs = absl::MakeConstSpan(&large, 1);
  call.outputs = absl::MakeConstSpan(&large.spec, 1);
  const absl::Status status =
      caller->Call(call, [](absl::Span<const Tensor>) { return absl::OkStatus(); });
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("takes 300.0 MiB and makes 300.0 MiB; together it may be 512.0 MiB"));
  EXPECT_EQ(process.asked(), 0);
}

// A process that never has enough would be asked for ever.
TEST_F(CallsTest, AnOpThatAlwaysWantsMoreRoomIsRefusedInTheEnd) {
  PlayedProcess process(providers_.get(), OpOf("add"),
                        [](PlayedProcess& self, uint32_t, wire::Entry* entry) {
                          entry->code = static_cast<uint32_t>(wire::EntryCode::kTooLarge);
                          entry->bytes = 1;
                          return self.regions() < 100;
                        });
  const auto caller = *providers_->OpsOf(kUser, {"add"});
  const absl::Status status = CallWith(*caller, "add", 1).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("says that it is too large for a window of"));
  EXPECT_EQ(process.regions(), 2);
}

TEST_F(CallsTest, AnOpThatWantsALittleMoreEachTimeGetsMuchMore) {
  PlayedProcess process(providers_.get(), OpOf("add"),
                        [](PlayedProcess& self, uint32_t, wire::Entry* entry) {
                          entry->code = static_cast<uint32_t>(wire::EntryCode::kTooLarge);
                          entry->bytes = self.data_bytes();
                          return self.regions() < 100;
                        });
  const auto caller = *providers_->OpsOf(kUser, {"add"});
  const absl::Status status = CallWith(*caller, "add", 1).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_LE(process.regions(), 40);
}

// What waits behind a call that ends the process is not at fault.
TEST_F(CallsTest, ACallThatTheProcessHadNotReachedIsMadeByAnother) {
  const auto make = [](PlayedProcess& self, uint32_t window, wire::Entry* entry) {
    int64_t number = 0;
    std::memcpy(&number, self.Window(window) + entry->input_offset + sizeof(wire::TensorHead),
                sizeof(number));
    if (number == 666) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return false;
    }
    return PlusOne(self, window, entry);
  };
  std::vector<std::unique_ptr<PlayedProcess>> processes;
  for (int i = 0; i < 3; ++i)
    processes.push_back(std::make_unique<PlayedProcess>(providers_.get(), OpOf("add"), make));
  const auto caller = *providers_->OpsOf(kUser, {"add"});
  auto poison = std::async(std::launch::async, [&] { return CallWith(*caller, "add", 666); });
  std::vector<std::future<absl::StatusOr<int64_t>>> good;
  for (int64_t i = 0; i < 6; ++i)
    good.push_back(std::async(std::launch::async, [&, i] { return CallWith(*caller, "add", i); }));
  EXPECT_TRUE(absl::IsDataLoss(poison.get().status()));
  for (int64_t i = 0; i < 6; ++i) {
    const auto made = good[i].get();
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(*made, i + 1);
  }
}

}  // namespace
}  // namespace feedwater::server
