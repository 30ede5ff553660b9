// pack: the texts of a batch in windows of fixed length.
#include <gmock/gmock.h>

#include <numeric>
#include <set>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kLongest = 4;

struct Packed {
  absl::Status status;
  std::vector<int32_t> tokens, segments, positions;
  std::vector<uint8_t> packed;
};

std::string PackText(const std::string& params) {
  return PipelineText(
      "", "[tokens, segment_ids, positions, packed]",
      absl::StrCat("batch:\n  graph:\n  - pack: {out: [tokens, segment_ids, positions, packed], ",
                   params, "}\n"));
}

// A batch of texts of so many tokens; those of text k are 10k+10, 10k+11, ... Those in `unreal` are
// padding.
Packed Pack(const std::string& params, const std::vector<int64_t>& lengths,
            const std::set<int64_t>& unreal = {}) {
  const TensorSpec ids{DType::kInt32, Layout::kPlain, {kLongest}},
      mask{DType::kBool, Layout::kPlain, {kLongest}};
  std::vector<TestRecord> records(lengths.size());
  for (size_t k = 0; k < lengths.size(); ++k) {
    std::vector<int32_t> values(kLongest, -1);
    std::iota(values.begin(), values.begin() + lengths[k], static_cast<int32_t>(10 * k + 10));
    Bytes bytes(values.size() * sizeof(int32_t)), is_token(kLongest);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    std::fill(is_token.begin(), is_token.begin() + lengths[k], 1);
    records[k].Add("tokens", ids, ids, bytes).Add("mask", mask, mask, is_token);
  }
  Packed result;
  const auto plan = MakePlan(PackText(params), records[0].fields());
  if (!plan.ok()) return {plan.status(), {}, {}, {}, {}};
  const auto count = static_cast<int64_t>(lengths.size());
  TestBatch batch(**plan, count);
  SampleWorkspace workspace;
  for (int64_t k = 0; k < count; ++k) {
    SampleInput input;
    input.record = records[static_cast<size_t>(k)].record();
    input.is_real = unreal.count(k) == 0;
    EXPECT_TRUE((*plan)->Run(input, k, batch.memory, workspace).ok());
  }
  result.status = (*plan)->FinishBatch(count, 0, {}, batch.memory, workspace);
  EXPECT_TRUE(batch.GuardsHold());
  for (int64_t k = 0; k < count; ++k) {
    const auto add = [&](size_t output, auto* all) {
      const auto values =
          As<typename std::decay_t<decltype(*all)>::value_type>(batch.Output(output, k));
      all->insert(all->end(), values.begin(), values.end());
    };
    add(0, &result.tokens);
    add(1, &result.segments);
    add(2, &result.positions);
    add(3, &result.packed);
  }
  return result;
}

// Four samples, two for each window of six: 3 + 2 and, since 4 does not fit behind them, 4 and 1
// into the first that has room.
TEST(Pack, ATextGoesIntoTheFirstWindowWithRoom) {
  const Packed packed = Pack("length: 6, samples: 2, pad_id: 7", {3, 2, 4, 1});
  ASSERT_TRUE(packed.status.ok()) << packed.status;
  EXPECT_THAT(packed.tokens, ElementsAre(10, 11, 12, 20, 21, 40, 30, 31, 32, 33, 7, 7));
  EXPECT_THAT(packed.segments, ElementsAre(1, 1, 1, 2, 2, 3, 1, 1, 1, 1, 0, 0));
  EXPECT_THAT(packed.positions, ElementsAre(0, 1, 2, 0, 1, 0, 0, 1, 2, 3, 0, 0));
  EXPECT_THAT(packed.packed, ElementsAre(1, 1, 1, 1));
}

TEST(Pack, TextsWithoutRoomAreRefusedOrSaidToBeLeftOut) {
  const Packed fails = Pack("length: 6, samples: 2", {4, 4, 4, 2});
  EXPECT_TRUE(absl::IsInvalidArgument(fails.status));
  EXPECT_THAT(std::string(fails.status.message()),
              HasSubstr("1 of 4 texts, with 4 tokens, find no room in 2 windows of 6"));
  const Packed left = Pack("length: 6, samples: 2, overflow: leave_out", {4, 4, 4, 2});
  ASSERT_TRUE(left.status.ok()) << left.status;
  EXPECT_THAT(left.packed, ElementsAre(1, 1, 0, 1));
  EXPECT_THAT(left.tokens, ElementsAre(10, 11, 12, 13, 40, 41, 20, 21, 22, 23, 0, 0));
}

TEST(Pack, SamplesThatAreNotRealAreInNoWindowAndTheirPlacesAreTheOthers) {
  // Without the second there is room for all.
  const Packed packed = Pack("length: 6, samples: 2", {4, 4, 4, 2}, {1});
  ASSERT_TRUE(packed.status.ok()) << packed.status;
  EXPECT_THAT(packed.tokens, ElementsAre(10, 11, 12, 13, 40, 41, 30, 31, 32, 33, 0, 0));
  EXPECT_THAT(packed.segments, ElementsAre(1, 1, 1, 1, 2, 2, 1, 1, 1, 1, 0, 0));
  EXPECT_THAT(packed.packed, ElementsAre(1, 0, 1, 1));
  const Packed none = Pack("length: 6, samples: 2", {4, 4}, {0, 1});
  ASSERT_TRUE(none.status.ok()) << none.status;
  EXPECT_THAT(none.segments, ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(none.packed, ElementsAre(0, 0));
}

// It cannot hold a text that is longer; padding makes it whole.
TEST(Pack, AShorterLastWindowIsNamedWithWhatMakesItWhole) {
  const Packed partial = Pack("length: 6, samples: 2", {4, 4, 4});
  EXPECT_TRUE(absl::IsInvalidArgument(partial.status));
  EXPECT_THAT(std::string(partial.status.message()),
              HasSubstr("2 of 3 texts, with 8 tokens, find no room in 2 windows of 6, of which the "
                        "last has 3 places, since the batch has 3 samples: with sampler: {last: "
                        "pad} all are whole"));
  const Packed left = Pack("length: 6, samples: 2, overflow: leave_out", {4, 4, 4});
  ASSERT_TRUE(left.status.ok()) << left.status;
  EXPECT_THAT(left.packed, ElementsAre(1, 0, 0));
  const Packed padded = Pack("length: 8, samples: 4", {4, 4, 4, 4, 4}, {3});
  EXPECT_TRUE(absl::IsInvalidArgument(padded.status));  // two windows, of 8 and of 2
  const Packed whole = Pack("length: 8, samples: 4", {4, 4, 4, 4, 4, 4, 4, 4}, {4, 5, 6, 7});
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  EXPECT_THAT(whole.packed, ElementsAre(1, 1, 1, 1, 0, 0, 0, 0));
}

TEST(Pack, EmptyTextsTakeNoRoomAndTheLastWindowOfAnUnevenBatchIsShorter) {
  const Packed packed = Pack("length: 6, samples: 2", {0, 4, 3});
  ASSERT_TRUE(packed.status.ok()) << packed.status;
  EXPECT_THAT(packed.segments, ElementsAre(1, 1, 1, 1, 0, 0, 1, 1, 1));
  EXPECT_THAT(packed.packed, ElementsAre(1, 1, 1));
}

TEST(Pack, EveryTokenIsThereOnceWhateverTheLengths) {
  uint32_t state = 5;
  for (int round = 0; round < 50; ++round) {
    std::vector<int64_t> lengths(24);
    for (int64_t& length : lengths) {
      state = state * 1664525 + 1013904223;
      length = (state >> 16) % (kLongest + 1);
    }
    const Packed packed = Pack("length: 9, samples: 3, overflow: leave_out", lengths);
    ASSERT_TRUE(packed.status.ok()) << packed.status;
    std::multiset<int32_t> expected, found;
    for (size_t k = 0; k < lengths.size(); ++k) {
      for (int64_t i = 0; packed.packed[k] != 0 && i < lengths[k]; ++i)
        expected.insert(static_cast<int32_t>(10 * k + 10) + static_cast<int32_t>(i));
    }
    for (size_t i = 0; i < packed.tokens.size(); ++i) {
      if (packed.segments[i] == 0) continue;
      found.insert(packed.tokens[i]);
      // A text is whole and in one window.
      if (packed.positions[i] == 0) continue;
      ASSERT_NE(i % 9, 0U);
      EXPECT_EQ(packed.segments[i], packed.segments[i - 1]);
      EXPECT_EQ(packed.tokens[i], packed.tokens[i - 1] + 1);
    }
    EXPECT_EQ(found, expected);
  }
}

TEST(Pack, SizesThatMakeNoSenseAreRefusedBeforeTheFirstSample) {
  const std::pair<const char*, const char*> cases[] = {
      {"length: 7, samples: 2", "length must be a multiple of samples"},
      {"length: 2, samples: 2", "has windows of length 2, and a text may have 4"},
      {"length: 8, samples: 2", "nothing is gained"},
  };
  for (const auto& [params, message] : cases) {
    const Packed packed = Pack(params, {1});
    EXPECT_TRUE(absl::IsInvalidArgument(packed.status)) << packed.status;
    EXPECT_THAT(std::string(packed.status.message()), HasSubstr(message));
  }
}

}  // namespace
}  // namespace feedwater::server
