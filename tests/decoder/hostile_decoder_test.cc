// A decoder that is somebody else's by now: whatever it answers costs its record and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "server/base/sanitized.h"
#include "tests/codec/seek_index_map.h"
#include "tests/decoder/isolated_maker_fixture.h"

namespace feedwater::server {
namespace {

using namespace decoder_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

using HostileMakerTest = IsolatedMakerTest;

const std::string kSmall = PipelineText("  - decode\n  - resize: {size: [4, 4]}\n", "[image]");

TEST_F(HostileMakerTest, ADecoderThatReadsNothingHoldsNobody) {
  TestRecord record = RecordOf(Files()[0], 5);
  ASSERT_NO_FATAL_FAILURE(Make(kHostileDecoder, kSmall, record, "deaf"));
  TestBatch batch(*plan_, 1);
  absl::Status status;
  for (int64_t id = 0; id < 5000 && status.ok(); ++id)
    status = maker_->Run(InputOf(record, id), 0, batch.memory);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("without reading"));
}

TEST_F(HostileMakerTest, TimeInWhichADecoderKeepsAWorkerWithoutWorkingCountsAndBeats) {
  TestRecord record = RecordOf(Files()[0], 5);
  ASSERT_NO_FATAL_FAILURE(Make(kHostileDecoder, kSmall, record, "doze"));
  ASSERT_TRUE(maker_->Start().ok());
  maker_->TakeCost();
  WorkClock clock;
  maker_->UseClock(&clock, nullptr);
  TestBatch batch(*plan_, 1);
  ASSERT_TRUE(maker_->Run(InputOf(record, 1), 0, batch.memory).ok());
  const MakingCost cost = maker_->TakeCost();
  EXPECT_GE(cost.held_ns, 200'000'000);
  EXPECT_LT(cost.cpu_ns, 250'000'000);
  EXPECT_GT(clock.beats(), 0u);
  EXPECT_EQ(maker_->TakeCost().held_ns, 0);
}

TEST_F(HostileMakerTest, ADecoderThatFillsItsMemoryEnds) {
  TestRecord record = RecordOf(Files()[0], 5);
  hostile_ms_ = 10'000;  // what it writes takes a slow machine longer than a sample may
  ASSERT_NO_FATAL_FAILURE(Make(kHostileDecoder, kSmall, record, "hoard"));
  TestBatch batch(*plan_, 1);
  EXPECT_TRUE(maker_->Run(InputOf(record, 1), 0, batch.memory).ok());
  EXPECT_EQ(host_->running, 0);
  EXPECT_EQ(host_->deaths, 1u);
}

struct Hostile {
  const char* how;
  absl::StatusCode code;
  const char* message;
};

class HostileDecoder : public IsolatedMakerTest, public ::testing::WithParamInterface<Hostile> {};

TEST_P(HostileDecoder, CostsItsRecordAndNothingElse) {
  if (kSanitized && std::string(GetParam().how) == "segv") GTEST_SKIP() << "ASan takes the signal";
  const std::string yaml = PipelineText(
      "  - decode: {in: data, out: image}\n  - resize: {size: [4, 4]}\n  - "
      "random_horizontal_flip: {}\n",
      "[image, sample_id, position]");
  TestRecord record = RecordOf(Files()[0], 5);
  ASSERT_NO_FATAL_FAILURE(Make(kHostileDecoder, yaml, record, GetParam().how));
  for (int64_t id = 1; id < 3; ++id) {
    TestBatch batch(*plan_, 1);
    int kept = 0;
    const absl::Status status = maker_->RunKeeping(InputOf(record, id), 0, batch.memory, 1 << 20,
                                                   [&kept](const Record& record) {
                                                     ++kept;
                                                     for (const Tensor& field : record.fields)
                                                       EXPECT_LE(field.bytes(), 1u << 20);
                                                   });
    EXPECT_TRUE(batch.GuardsHold());
    if (std::string(GetParam().how) != "scribble") {  // of which any answer may be read
      EXPECT_EQ(status.code(), GetParam().code) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
      if (status.ok()) {
        EXPECT_EQ(kept, 0) << "it is not what the plan keeps";
      }
    }
    if (!status.ok()) continue;
    int64_t told[2];
    std::memcpy(&told[0], batch.Output(1, 0).data(), sizeof(told[0]));
    std::memcpy(&told[1], batch.Output(2, 0).data(), sizeof(told[1]));
    EXPECT_EQ(told[0], id) << "record numbers are never the decoder's";
    EXPECT_EQ(told[1], id * 3);
  }
}

TEST_P(HostileDecoder, GivesNoSeekIndexThatIsNotItsImages) {
  const std::string how = GetParam().how;
  if (kSanitized && how == "segv") GTEST_SKIP() << "ASan takes the signal";
  const std::string yaml = PipelineText("  - decode\n  - resize: {size: [4, 4]}\n", "[image]");
  TestRecord record = RecordOf(Files()[0], 5);
  ASSERT_NO_FATAL_FAILURE(Make(kHostileDecoder, yaml, record, how));
  testing::SeekIndexMap indexes;
  maker_->UseSeekIndexes(&indexes);
  const absl::Status status = maker_->MakeSeekIndexes(*record.record());
  if (how == "scribble") {  // any answer may be read
    EXPECT_LE(indexes.puts, 1);
  } else {
    const bool machine = GetParam().code == absl::StatusCode::kResourceExhausted ||
                         GetParam().code == absl::StatusCode::kUnavailable;
    EXPECT_EQ(status.code(), machine ? GetParam().code : absl::StatusCode::kOk) << status;
    EXPECT_EQ(indexes.puts, how == "indexes_of_one" ? 1 : 0);
  }
  // What was kept is no index at all, and does no harm either.
  here_.Use(plan_.get(), nullptr);
  TestBatch plain(*plan_, 1), with(*plan_, 1);
  ASSERT_TRUE(here_.Run(InputOf(record, 1), 0, plain.memory).ok());
  here_.Use(plan_.get(), &indexes);
  ASSERT_TRUE(here_.Run(InputOf(record, 1), 0, with.memory).ok());
  EXPECT_EQ(with.Sample(0), plain.Sample(0));
}

INSTANTIATE_TEST_SUITE_P(
    Decoder, HostileDecoder,
    ::testing::Values(
        Hostile{"start", absl::StatusCode::kResourceExhausted, "ended with status 1 at its start"},
        Hostile{"stranger", absl::StatusCode::kUnavailable, "not of this daemon's version"},
        Hostile{"segv", absl::StatusCode::kDataLoss, "died of SIGSEGV on this record"},
        Hostile{"kill", absl::StatusCode::kResourceExhausted, "killed again and again"},
        Hostile{"exit", absl::StatusCode::kDataLoss, "ended with status 7 on this record"},
        Hostile{"spin", absl::StatusCode::kDataLoss, "had not answered after"},
        Hostile{"sleep", absl::StatusCode::kResourceExhausted, "hang (2 times on one"},
        Hostile{"kill_start", absl::StatusCode::kResourceExhausted,
                "killed again and again (SIGKILL, 5 times at their start): too little memory"},
        Hostile{"close", absl::StatusCode::kDataLoss, "closed its socket"},
        Hostile{"sequence", absl::StatusCode::kDataLoss, "answered what it was not asked"},
        Hostile{"long", absl::StatusCode::kDataLoss, "answered what it was not asked"},
        Hostile{"code", absl::StatusCode::kDataLoss, ""},
        Hostile{"machine", absl::StatusCode::kDataLoss, ""},
        Hostile{"message", absl::StatusCode::kDataLoss, "a message longer than its place"},
        Hostile{"text", absl::StatusCode::kInvalidArgument, "a\\x0ab\\x1b[2J"},
        Hostile{"fields", absl::StatusCode::kDataLoss, "too many fields"},
        Hostile{"indexes", absl::StatusCode::kDataLoss, "too many fields"},
        Hostile{"outside", absl::StatusCode::kDataLoss, "lies outside"},
        Hostile{"overflow", absl::StatusCode::kDataLoss, "not that of its shape"},
        Hostile{"shape", absl::StatusCode::kDataLoss, "not that of its shape"},
        Hostile{"type", absl::StatusCode::kDataLoss, "unknown type"},
        Hostile{"axes", absl::StatusCode::kDataLoss, "too many axes"},
        Hostile{"other_shape", absl::StatusCode::kOk, ""},
        Hostile{"index_of_nothing", absl::StatusCode::kOk, ""},
        Hostile{"indexes_of_one", absl::StatusCode::kOk, ""},
        Hostile{"scribble", absl::StatusCode::kOk, ""}),
    [](const auto& info) { return std::string(info.param.how); });

}  // namespace
}  // namespace feedwater::server
