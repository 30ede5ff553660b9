// What an order is made of: the words of a pipeline file, and sizes that are refused before an
// order is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "server/base/yaml.h"
#include "tests/sampler/order_testing.h"

namespace feedwater::server {
namespace {

using order_testing::Config;
using order_testing::Spec;
using ::testing::HasSubstr;

TEST(MakeOrderConfig, RefusesWhatCannotBeOrdered) {
  const auto refusal = [](const SamplerSpec& spec, int64_t records, int64_t batch_size,
                          int64_t world_size, std::vector<int64_t> starts = {}) {
    const absl::Status status =
        MakeOrderConfig(spec, records, batch_size, world_size, std::move(starts)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const SamplerSpec good;
  EXPECT_THAT(refusal(good, 0, 1, 1), HasSubstr("no records"));
  EXPECT_THAT(refusal(good, -1, 1, 1), HasSubstr("no records"));
  EXPECT_THAT(refusal(good, INT64_MAX, 1, 1), HasSubstr("too many records"));
  EXPECT_THAT(refusal(good, 1, 0, 1), HasSubstr("batch_size is 0; it must be 1 to 1048576"));
  EXPECT_THAT(refusal(good, 1, 1, 0), HasSubstr("world_size is 0; it must be 1 to 1048576"));
  EXPECT_THAT(refusal(good, 1, kMaxBatchSize + 1, 1), HasSubstr("batch_size is 1048577"));
  EXPECT_THAT(refusal(good, 1, 1, kMaxWorldSize + 1), HasSubstr("world_size is 1048577"));
  EXPECT_THAT(refusal(good, 1, INT64_MAX, INT64_MAX), HasSubstr("batch_size is 922"));
  EXPECT_THAT(refusal(good, 10, 1, 1, {1, 5}), HasSubstr("shard starts"));
  EXPECT_THAT(refusal(good, 10, 1, 1, {0, 5, 4}), HasSubstr("shard starts"));
  EXPECT_THAT(refusal(good, 10, 1, 1, {0, 11}), HasSubstr("shard starts"));
  SamplerSpec bad;
  bad.shuffle = "ful";
  EXPECT_THAT(refusal(bad, 1, 1, 1), HasSubstr("unknown shuffle 'ful', did you mean 'full'?"));
  bad = {};
  bad.last = "keep";
  EXPECT_THAT(refusal(bad, 1, 1, 1), HasSubstr("unknown last 'keep'. Known: drop, pad, partial"));
  bad = {};
  bad.shard = "x";
  EXPECT_THAT(refusal(bad, 1, 1, 1), HasSubstr("unknown shard"));
  bad = {};
  bad.block_records = 0;
  EXPECT_THAT(refusal(bad, 1, 1, 1), HasSubstr("block_records"));
}

TEST(MakeOrderConfig, ABatchLargerThanTheDatasetIsNoError) {
  EXPECT_EQ(StepsPerEpoch(*Config(Spec("full", "drop", "batch"), 10, 1'000'000, 1000)), 0);
  EXPECT_EQ(StepsPerEpoch(*Config(Spec("full", "pad", "batch"), 10, 1'000'000, 1000)), 1);
  EXPECT_EQ(
      StepsPerEpoch(*Config(Spec("full", "partial", "batch"), kMaxBatchSize, 1, kMaxWorldSize)), 1);
}

TEST(OrderConfig, SaysWhichRanksStepsAndStartsItHas) {
  const auto config = Config(Spec("none", "drop", "batch"), 100, 8, 4);
  const auto refusal = [](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_TRUE(CheckRank(*config, 0).ok() && CheckRank(*config, 3).ok());
  EXPECT_THAT(refusal(CheckRank(*config, 4)), HasSubstr("rank 4 is not in [0, 4)"));
  EXPECT_THAT(refusal(CheckRank(*config, -1)), HasSubstr("rank -1 is not in"));
  EXPECT_TRUE(CheckStart(*config, 0, 0).ok() && CheckStart(*config, INT64_MAX, 100).ok());
  EXPECT_THAT(refusal(CheckStart(*config, 0, 101)), HasSubstr("position 101 is not in [0, 100]"));
  EXPECT_THAT(refusal(CheckStart(*config, 0, -1)), HasSubstr("position -1 is not in"));
  EXPECT_THAT(refusal(CheckStart(*config, ~uint64_t{0}, 0)), HasSubstr("is larger than 2^63 - 1"));
  EXPECT_TRUE(CheckSteps(*config).ok());
  EXPECT_THAT(refusal(CheckSteps(*Config(Spec("none", "drop", "batch"), 31, 8, 4))),
              HasSubstr("no whole step of batch_size 8 * world_size 4 = 32 samples"));
  EXPECT_TRUE(CheckSteps(*Config(Spec("none", "pad", "batch"), 31, 8, 4)).ok());
}

TEST(SamplerSchema, ReadsThePipelinesWords) {
  auto node = ParseYaml(
      "{shuffle: block, seed: 7, last: pad, shard: interleave, block_records: 128}", "p.yaml");
  ASSERT_TRUE(node.ok());
  auto spec = SamplerSchema().Read(*node, "sampler");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->shuffle, "block");
  EXPECT_EQ(spec->seed, 7u);
  EXPECT_EQ(spec->last, "pad");
  EXPECT_EQ(spec->shard, "interleave");
  EXPECT_EQ(spec->block_records, 128);
  auto wrong = SamplerSchema().Read(*ParseYaml("{shuffle: blok}", "p.yaml"), "sampler");
  EXPECT_THAT(std::string(wrong.status().message()),
              HasSubstr("p.yaml:1:11: 'shuffle' must be none, full or block"));
}

}  // namespace
}  // namespace feedwater::server
