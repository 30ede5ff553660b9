// What an epoch promises, over every mode and many sizes: each record exactly once, equal steps on
// every rank, the same global batches whatever the world size, and a continuation without loss or
// repeat at any cursor.
#include "server/sampler/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/sampler/order_testing.h"

namespace feedwater::server {
namespace {

using order_testing::Config;
using order_testing::Spec;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// All placements of a step, rank by rank.
std::vector<Placement> Step(const EpochOrder& order, int64_t step, int64_t world_size) {
  std::vector<Placement> places;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    for (int64_t k = 0; k < order.BatchSamples(step, rank); ++k)
      places.push_back(order.At(step, rank, k));
  }
  return places;
}

std::multiset<int64_t> RealRecords(const std::vector<Placement>& places) {
  std::multiset<int64_t> records;
  for (const Placement& place : places) {
    if (place.is_real) records.insert(place.record);
  }
  return records;
}

struct Sizes {
  int64_t records, batch_size, world_size;
};
const std::vector<Sizes> kSizes = {{1, 1, 1},  {1, 4, 3},   {2, 1, 2},  {10, 3, 1},  {10, 3, 2},
                                   {12, 3, 4}, {13, 3, 4},  {97, 5, 3}, {100, 7, 4}, {100, 25, 4},
                                   {23, 4, 7}, {257, 1, 1}, {31, 8, 4}, {5, 100, 1}};

class EveryMode
    : public ::testing::TestWithParam<std::tuple<std::string, std::string, std::string>> {
 protected:
  SamplerSpec spec() const {
    return Spec(std::get<0>(GetParam()), std::get<1>(GetParam()), std::get<2>(GetParam()));
  }
};

TEST_P(EveryMode, EveryRecordStandsExactlyOnceInAnEpoch) {
  for (const Sizes& sizes : kSizes) {
    for (uint64_t epoch : {0, 1, 2}) {
      SCOPED_TRACE(absl::StrCat("N ", sizes.records, " B ", sizes.batch_size, " W ",
                                sizes.world_size, " epoch ", epoch));
      const EpochOrder order(Config(spec(), sizes.records, sizes.batch_size, sizes.world_size),
                             epoch, 0);
      const int64_t global_batch = sizes.batch_size * sizes.world_size;
      std::vector<int> seen(static_cast<size_t>(sizes.records));
      std::vector<int64_t> rank_samples(static_cast<size_t>(sizes.world_size));
      for (int64_t step = 0; step < order.steps(); ++step) {
        int64_t least = INT64_MAX, most = 0;
        for (int64_t rank = 0; rank < sizes.world_size; ++rank) {
          const int64_t samples = order.BatchSamples(step, rank);
          least = std::min(least, samples);
          most = std::max(most, samples);
          rank_samples[static_cast<size_t>(rank)] += samples;
          std::vector<Placement> places(static_cast<size_t>(samples));
          order.Fill(step, rank, 0, &places);
          for (int64_t k = 0; k < samples; ++k) {
            const Placement place = order.At(step, rank, k);
            ASSERT_GE(place.position, 0);
            ASSERT_LT(place.position, sizes.records);
            ASSERT_EQ(place.record, order.RecordAt(place.position));
            const Placement& filled = places[static_cast<size_t>(k)];
            ASSERT_EQ(filled.position, place.position);
            ASSERT_EQ(filled.record, place.record);
            ASSERT_EQ(filled.key, place.key);
            ASSERT_EQ(filled.is_real, place.is_real);
            if (place.is_real) ++seen[static_cast<size_t>(place.record)];
          }
        }
        if (spec().last == "partial") {
          EXPECT_LE(most - least, 1) << "step " << step;
        } else {
          EXPECT_EQ(least, sizes.batch_size);
          EXPECT_EQ(most, sizes.batch_size);
        }
      }
      const int64_t dropped = spec().last == "drop" ? sizes.records % global_batch : 0;
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), sizes.records - dropped);
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 0), dropped);
      const auto config = Config(spec(), sizes.records, sizes.batch_size, sizes.world_size);
      EXPECT_EQ(LeftOut(*config), dropped);
      int64_t first_empty = 0;
      while (first_empty < sizes.world_size && order.steps() > 0 &&
             order.BatchSamples(order.steps() - 1, first_empty) > 0)
        ++first_empty;
      if (order.steps() > 0) {
        EXPECT_EQ(FirstEmptyRank(*config), first_empty);
      }
      EXPECT_EQ(order.steps(),
                StepsPerEpoch(*Config(spec(), sizes.records, sizes.batch_size, sizes.world_size)));
      for (int64_t rank = 0; rank < sizes.world_size; ++rank) {
        EXPECT_EQ(rank_samples[static_cast<size_t>(rank)],
                  SamplesPerEpoch(
                      *Config(spec(), sizes.records, sizes.batch_size, sizes.world_size), rank));
      }
    }
  }
}

TEST_P(EveryMode, AGlobalBatchIsTheSameSetWhateverTheWorldSize) {
  constexpr int64_t kGlobalBatch = 24;
  for (int64_t records : {1, 23, 24, 25, 100, 240, 251}) {
    const EpochOrder alone(Config(spec(), records, kGlobalBatch, 1), 3, 0);
    for (int64_t world_size : {2, 3, 4, 6, 8, 12, 24}) {
      const EpochOrder order(Config(spec(), records, kGlobalBatch / world_size, world_size), 3, 0);
      ASSERT_EQ(order.steps(), alone.steps());
      for (int64_t step = 0; step < order.steps(); ++step) {
        EXPECT_EQ(RealRecords(Step(order, step, world_size)), RealRecords(Step(alone, step, 1)))
            << "N " << records << " W " << world_size << " step " << step;
        EXPECT_EQ(order.NextPosition(step), alone.NextPosition(step));
      }
    }
  }
}

TEST_P(EveryMode, AResumedEpochContinuesWithoutLossOrRepeatInAnotherWorld) {
  // Stop after every step, continue in another world with another batch size, stop again, continue
  // once more.
  const Sizes worlds[] = {{0, 5, 3}, {0, 4, 4}, {0, 7, 1}};
  const int64_t records = 97;
  for (int64_t first_steps = 0; first_steps <= 6; ++first_steps) {
    for (int64_t second_steps = 0; second_steps <= 2; ++second_steps) {
      SCOPED_TRACE(absl::StrCat("stops after ", first_steps, " and ", second_steps, " steps"));
      std::multiset<int64_t> seen;
      int64_t position = 0, end = 0;
      const int64_t stops[] = {first_steps, second_steps, INT64_MAX};
      for (int part = 0; part < 3; ++part) {
        const Sizes& world = worlds[part];
        const EpochOrder order(Config(spec(), records, world.batch_size, world.world_size), 9,
                               position);
        for (int64_t step = 0; step < std::min(order.steps(), stops[part]); ++step) {
          const auto places = Step(order, step, world.world_size);
          seen.merge(RealRecords(places));
          position = order.NextPosition(step);
        }
        end = order.start() + order.steps() * world.batch_size * world.world_size;
      }
      // The whole order up to the end, from an order that was never stopped.
      const EpochOrder whole(Config(spec(), records, 1, 1), 9, 0);
      std::multiset<int64_t> expected;
      for (int64_t i = 0; i < std::min(end, records); ++i) expected.insert(whole.RecordAt(i));
      EXPECT_EQ(seen, expected);
      EXPECT_EQ(position, std::min(end, records));
      EXPECT_TRUE(spec().last == "drop" || position == records) << position;
    }
  }
}

TEST_P(EveryMode, AtTheEndNothingIsLeft) {
  const EpochOrder order(Config(spec(), 97, 5, 3), 0, 97);
  EXPECT_EQ(order.steps(), 0);
}

TEST_P(EveryMode, WithHugeDatasetsPositionsStayExact) {
  const int64_t records = (int64_t{1} << 40) - 87;
  const int64_t start = records - 1000;
  const EpochOrder order(
      Config(Spec(std::get<0>(GetParam()), std::get<1>(GetParam()), std::get<2>(GetParam()), 4096),
             records, 64, 4),
      5, start);
  EXPECT_EQ(order.steps(), spec().last == "drop" ? 3 : 4);
  std::set<int64_t> positions, seen;
  for (int64_t step = 0; step < order.steps(); ++step) {
    for (const Placement& place : Step(order, step, 4)) {
      if (!place.is_real) continue;
      positions.insert(place.position);
      seen.insert(place.record);
    }
  }
  const size_t expected = spec().last == "drop" ? 768 : 1000;
  EXPECT_EQ(positions.size(), expected);
  EXPECT_EQ(*positions.begin(), start);
  EXPECT_EQ(seen.size(), expected);
}

INSTANTIATE_TEST_SUITE_P(Order, EveryMode,
                         ::testing::Combine(::testing::Values("none", "full", "block"),
                                            ::testing::Values("drop", "pad", "partial"),
                                            ::testing::Values("batch", "interleave")),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::get<1>(info.param) + "_" +
                                  std::get<2>(info.param);
                         });

std::vector<int64_t> Positions(const EpochOrder& order, int64_t step, int64_t rank) {
  std::vector<int64_t> positions;
  for (int64_t k = 0; k < order.BatchSamples(step, rank); ++k)
    positions.push_back(order.At(step, rank, k).position);
  return positions;
}

TEST(Order, BatchGivesConsecutivePositionsAndInterleaveEveryWth) {
  const EpochOrder batch(Config(Spec("none", "drop", "batch"), 12, 3, 2), 0, 0);
  EXPECT_THAT(Positions(batch, 1, 0), ElementsAre(6, 7, 8));
  EXPECT_THAT(Positions(batch, 1, 1), ElementsAre(9, 10, 11));
  const EpochOrder interleave(Config(Spec("none", "drop", "interleave"), 12, 3, 2), 0, 0);
  EXPECT_THAT(Positions(interleave, 1, 0), ElementsAre(6, 8, 10));
  EXPECT_THAT(Positions(interleave, 1, 1), ElementsAre(7, 9, 11));
}

TEST(Order, PartialSharesTheRemainderAndMayLeaveARankWithNothing) {
  const EpochOrder batch(Config(Spec("none", "partial", "batch"), 22, 4, 4), 0,
                         0);  // 16, then 6 for 4 ranks
  EXPECT_EQ(batch.steps(), 2);
  EXPECT_THAT(Positions(batch, 1, 0), ElementsAre(16, 17));
  EXPECT_THAT(Positions(batch, 1, 1), ElementsAre(18, 19));
  EXPECT_THAT(Positions(batch, 1, 2), ElementsAre(20));
  EXPECT_THAT(Positions(batch, 1, 3), ElementsAre(21));
  const EpochOrder interleave(Config(Spec("none", "partial", "interleave"), 22, 4, 4), 0, 0);
  EXPECT_THAT(Positions(interleave, 1, 1), ElementsAre(17, 21));
  EXPECT_THAT(Positions(interleave, 1, 3), ElementsAre(19));
  const EpochOrder few(Config(Spec("none", "partial", "batch"), 2, 4, 4), 0, 0);
  EXPECT_EQ(few.BatchSamples(0, 1), 1);
  EXPECT_EQ(few.BatchSamples(0, 2), 0);
}

TEST(Order, PadWrapsAroundTheEpochsOwnOrderAsOftenAsItMust) {
  const EpochOrder order(Config(Spec("full", "pad", "batch"), 3, 4, 2), 0, 0);
  EXPECT_EQ(order.steps(), 1);
  EXPECT_THAT(Positions(order, 0, 0), ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(Positions(order, 0, 1), ElementsAre(1, 2, 0, 1));
  EXPECT_TRUE(order.At(0, 0, 2).is_real);
  EXPECT_FALSE(order.At(0, 0, 3).is_real);
  EXPECT_EQ(order.At(0, 0, 3).record, order.At(0, 0, 0).record);
  EXPECT_EQ(order.NextPosition(0), 3);
}

TEST(Order, NextPositionEndsWhereTheEpochEnds) {
  EXPECT_EQ(EpochOrder(Config(Spec("none", "drop", "batch"), 22, 4, 4), 0, 0).NextPosition(0), 16);
  EXPECT_EQ(EpochOrder(Config(Spec("none", "pad", "batch"), 22, 4, 4), 0, 0).NextPosition(1), 22);
  EXPECT_EQ(EpochOrder(Config(Spec("none", "partial", "batch"), 22, 4, 4), 0, 3).NextPosition(1),
            22);
}

TEST(Order, EpochsAndSeedsDifferAndRepeat) {
  const auto records = [](uint64_t seed, uint64_t epoch, const std::string& shuffle) {
    SamplerSpec spec = Spec(shuffle, "drop", "batch");
    spec.seed = seed;
    const EpochOrder order(Config(spec, 100, 1, 1), epoch, 0);
    std::vector<int64_t> result;
    for (int64_t i = 0; i < 100; ++i) result.push_back(order.RecordAt(i));
    return result;
  };
  for (const char* shuffle : {"full", "block"}) {
    EXPECT_EQ(records(1, 0, shuffle), records(1, 0, shuffle));
    EXPECT_NE(records(1, 0, shuffle), records(1, 1, shuffle));
    EXPECT_NE(records(1, 0, shuffle), records(2, 0, shuffle));
  }
  EXPECT_NE(records(1, 0, "full"), records(1, 0, "block"));
  EXPECT_EQ(records(1, 0, "none"), records(2, 5, "none"));
}

TEST(Block, KeepsReadsNearlySequential) {
  // A window of K places takes its records from the few shards that it spans, not from the whole
  // dataset.
  constexpr int64_t kBlock = 64;
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < 20; ++i) starts.push_back(i * 100 - (i % 3));
  starts[0] = 0;
  const EpochOrder order(Config(Spec("block", "drop", "batch", kBlock), 2000, 1, 1, starts), 4, 0);
  std::set<int64_t> all;
  bool is_moved = false;
  for (int64_t window = 0; window * kBlock < 2000; ++window) {
    std::set<int64_t> shards;
    for (int64_t i = window * kBlock; i < std::min<int64_t>(2000, (window + 1) * kBlock); ++i) {
      const int64_t record = order.RecordAt(i);
      all.insert(record);
      is_moved |= record != i;
      shards.insert(std::upper_bound(starts.begin(), starts.end(), record) - starts.begin());
    }
    EXPECT_LE(shards.size(), 2u) << "window " << window;
  }
  EXPECT_EQ(all.size(), 2000u);
  EXPECT_TRUE(is_moved);
}

TEST(Block, AllowsEmptyShardsAndAnyBlockSize) {
  for (int64_t block :
       {int64_t{1}, int64_t{2}, int64_t{9}, int64_t{10}, int64_t{11}, int64_t{1'000'000'000}}) {
    for (const std::vector<int64_t>& starts :
         {std::vector<int64_t>{}, std::vector<int64_t>{0}, std::vector<int64_t>{0, 0, 3, 3, 10}}) {
      const EpochOrder order(Config(Spec("block", "drop", "batch", block), 10, 1, 1, starts), 1, 0);
      std::set<int64_t> all;
      for (int64_t i = 0; i < 10; ++i) all.insert(order.RecordAt(i));
      EXPECT_EQ(all.size(), 10u) << block;
      EXPECT_EQ(*all.rbegin(), 9);
    }
  }
}

TEST(Block, TablesAreMadeByWhoeverNeedsThemFirst) {
  std::vector<int64_t> starts(1000);
  std::iota(starts.begin(), starts.end(), 0);
  const auto config = Config(Spec("block", "drop", "batch", 9), 1000, 1, 1, starts);
  const EpochOrder asked(config, 1, 0), prepared(config, 1, 0);
  EXPECT_FALSE(asked.is_prepared());
  EXPECT_EQ(asked.NextPosition(3), 4);
  EXPECT_FALSE(asked.is_prepared()) << "positions need none";
  prepared.Prepare();
  EXPECT_TRUE(prepared.is_prepared());
  EXPECT_EQ(asked.RecordAt(17), prepared.RecordAt(17));
  EXPECT_TRUE(asked.is_prepared());
  EXPECT_TRUE(
      EpochOrder(Config(Spec("full", "drop", "batch", 9), 1000, 1, 1, {}), 1, 0).is_prepared());
}

TEST_P(EveryMode, WhereARecordIsUsedIsTheInverseOfTheOrder) {
  for (const Sizes& sizes : kSizes) {
    for (const bool with_shards : {false, true}) {
      std::vector<int64_t> starts;
      if (with_shards) starts = {0, 0, sizes.records / 3, sizes.records / 2, sizes.records / 2};
      const auto config = Config(spec(), sizes.records, sizes.batch_size, sizes.world_size, starts);
      for (const int64_t start : {int64_t{0}, sizes.records / 3, sizes.records}) {
        const EpochOrder order(config, 3, start);
        SCOPED_TRACE(absl::StrCat("N ", sizes.records, " B ", sizes.batch_size, " W ",
                                  sizes.world_size, " from ", start, " shards ", with_shards));
        // Every place, by its record.
        std::map<int64_t, std::vector<std::string>> expected;
        const auto text = [](const Use& use) {
          return absl::StrCat(use.step, " ", use.rank, " ", use.place, " ", use.is_real);
        };
        for (int64_t step = 0; step < order.steps(); ++step) {
          for (int64_t rank = 0; rank < sizes.world_size; ++rank) {
            for (int64_t k = 0; k < order.BatchSamples(step, rank); ++k) {
              const Placement at = order.At(step, rank, k);
              expected[at.record].push_back(text({step, rank, k, at.is_real}));
            }
          }
        }
        for (int64_t record = 0; record < sizes.records; ++record) {
          ASSERT_EQ(order.RecordAt(order.PositionOf(record)), record);
          std::vector<std::string> uses;
          for (const Use& use : order.UsesOf(record)) uses.push_back(text(use));
          auto& wanted = expected[record];
          if (wanted.size() > EpochOrder::kMaxUses) {
            EXPECT_EQ(uses.size(), EpochOrder::kMaxUses);
            continue;
          }
          EXPECT_THAT(uses, ::testing::UnorderedElementsAreArray(wanted)) << "record " << record;
        }
      }
    }
  }
}

TEST(UsesOf, CostsTheSameInALargeDataset) {
  for (const char* shuffle : {"none", "full", "block"}) {
    const auto config = Config(Spec(shuffle, "drop", "batch", 4096), 1'000'000'007, 256, 64);
    const EpochOrder order(config, 5, 0);
    for (const int64_t record : {int64_t{0}, int64_t{123'456'789}, int64_t{1'000'000'006}}) {
      for (const Use& use : order.UsesOf(record))
        EXPECT_EQ(order.At(use.step, use.rank, use.place).record, record) << shuffle;
    }
  }
}

// What is read ahead of a window is what the window gives.
TEST(Windows, HoldTheRecordsOfTheirPlaces) {
  for (const std::vector<int64_t>& starts :
       {std::vector<int64_t>{}, std::vector<int64_t>{0, 10, 11, 70}}) {
    SamplerSpec spec = Spec("block", "drop", "batch", /*block=*/16);
    const EpochOrder order(Config(spec, 100, 4, 1, starts), 3, 0);
    ASSERT_NE(order.records(), nullptr);
    ASSERT_EQ(order.records()->window_records(), 16);
    for (int64_t window = 0; window < 100; window += 16) {
      std::multiset<int64_t> given, stored;
      for (int64_t i = window; i < std::min<int64_t>(window + 16, 100); ++i) {
        given.insert(order.RecordAt(i));
        stored.insert(order.records()->RecordAtPlace(i));
      }
      EXPECT_EQ(given, stored) << window;
    }
  }
  EXPECT_EQ(
      EpochOrder(Config(Spec("full", "drop", "batch"), 9, 1, 1), 0, 0).records()->window_records(),
      0);
}

TEST(OrderBytes, GrowWithShardsAndNotWithRecords) {
  std::vector<int64_t> starts(1000);
  for (size_t i = 0; i < starts.size(); ++i) starts[i] = static_cast<int64_t>(i);
  const auto block = Config(Spec("block", "drop", "batch"), 1'000'000, 1, 1, starts);
  EXPECT_EQ(OrderBytes(*block), 16'000);
  EXPECT_EQ(ConfigBytes(*block), 8'000);
  EXPECT_EQ(OrderBytes(*Config(Spec("full", "drop", "batch"), 1'000'000'000, 1, 1, starts)), 0);
  EXPECT_LE(OrderBytes(*Config(Spec("block", "drop", "batch"), 1'000'000'000, 1, 1)), 32 << 10);
}

// A full shuffle of a thousand million: every place leads to a record and back.
TEST(ManyRecords, HaveAPlaceEach) {
  constexpr int64_t kMany = 1'000'000'000;
  const EpochOrder order(Config(Spec("full", "drop", "batch"), kMany, 256, 8), 7, 0);
  std::set<int64_t> records;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t position = i * 999'999 + 1;
    const int64_t record = order.RecordAt(position);
    ASSERT_TRUE(record >= 0 && record < kMany);
    ASSERT_EQ(order.PositionOf(record), position);
    records.insert(record);
  }
  EXPECT_EQ(records.size(), 1000u);
  EXPECT_EQ(StepsPerEpoch(*Config(Spec("full", "drop", "batch"), kMany, 256, 8)), kMany / 2048);
}

}  // namespace
}  // namespace feedwater::server
