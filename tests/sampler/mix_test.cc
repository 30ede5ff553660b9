// Shares that are exact at every position, own epochs that are whole, and the inverse.
#include "server/sampler/mix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/str_join.h"
#include "server/sampler/order.h"
#include "tests/testing/test_seed.h"

namespace feedwater::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

MixSchedule MustSchedule(const std::vector<int64_t>& weights) {
  absl::StatusOr<MixSchedule> schedule = MixSchedule::Create(weights);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return *std::move(schedule);
}

// Goal: |x_i - t w_i / W| <= 1 - 1/(2n - 2) after every number of positions. Method: counts over a
// whole period, in whole numbers.
void ExpectExactShares(const std::vector<int64_t>& weights) {
  SCOPED_TRACE(absl::StrJoin(weights, ":"));
  const MixSchedule schedule = MustSchedule(weights);
  const auto sources = static_cast<int64_t>(weights.size());
  const int64_t period = schedule.period(), bound = std::max<int64_t>(1, 2 * sources - 2);
  std::vector<int64_t> turns(weights.size());
  for (int64_t position = 0; position < period; ++position) {
    const MixSchedule::Turn turn = schedule.TurnAt(position);
    ASSERT_LT(turn.source, weights.size());
    ASSERT_EQ(turn.nth, turns[turn.source]++);
    ASSERT_EQ(schedule.PositionOf(turn.source, turn.nth), position);
    for (size_t i = 0; i < weights.size(); ++i) {
      const int64_t off =
          std::abs(turns[i] * period - (position + 1) * schedule.weights()[i]);  // times period
      ASSERT_LE(off * bound, (sources == 1 ? 0 : bound - 1) * period)
          << "source " << i << " after " << position + 1;
      if (period > 3000) continue;
      ASSERT_EQ(schedule.TurnsBefore(i, position + 1), turns[i]);
    }
  }
  EXPECT_EQ(turns, schedule.weights());
  // The next period goes on in the same way.
  for (const int64_t position : {int64_t{0}, period / 2, period - 1}) {
    const MixSchedule::Turn first = schedule.TurnAt(position);
    const MixSchedule::Turn later = schedule.TurnAt(position + 1000 * period);
    EXPECT_EQ(later.source, first.source);
    EXPECT_EQ(later.nth, first.nth + 1000 * schedule.weights()[first.source]);
    EXPECT_EQ(schedule.PositionOf(later.source, later.nth), position + 1000 * period);
  }
}

TEST(MixSchedule, IsNeverAWholeSampleOffAnyShare) {
  ExpectExactShares({1});
  ExpectExactShares({3, 1});
  ExpectExactShares({1, 1, 1});
  ExpectExactShares({6, 3, 2, 1});
  ExpectExactShares({65535, 1});
  ExpectExactShares({1, 1000, 7, 64528});
  ExpectExactShares(std::vector<int64_t>(64, 1));
  std::vector<int64_t> rising;  // 64 sources over the longest period
  for (int64_t i = 0; i < 63; ++i) rising.push_back(i + 1);
  rising.push_back(65536 - 63 * 64 / 2);
  ExpectExactShares(rising);
  const uint64_t seed = testing::TestSeed();
  std::mt19937_64 random(seed);
  for (int i = 0; i < 300; ++i) {
    std::vector<int64_t> weights(1 + random() % 12);
    for (int64_t& weight : weights)
      weight = 1 + static_cast<int64_t>(random() % (random() % 3 == 0 ? 300 : 5));
    ExpectExactShares(weights);
  }
}

TEST(MixSchedule, IsWhatItsPageSays) {
  const MixSchedule schedule = MustSchedule({6, 2});  // 3 : 1
  std::vector<size_t> sources;
  for (int64_t i = 0; i < 8; ++i) sources.push_back(schedule.TurnAt(i).source);
  EXPECT_THAT(sources, ElementsAre(0, 0, 1, 0, 0, 0, 1, 0));
}

TEST(MixSchedule, RefusesWhatHasNoTable) {
  const auto refusal = [](const std::vector<int64_t>& weights) {
    return std::string(MixSchedule::Create(weights).status().message());
  };
  EXPECT_THAT(refusal({}), HasSubstr("1 to 64 sources, not 0"));
  EXPECT_THAT(refusal(std::vector<int64_t>(65, 1)), HasSubstr("not 65"));
  EXPECT_THAT(refusal({1, 0}), HasSubstr("a weight is 0"));
  EXPECT_THAT(refusal({65536, 1}), HasSubstr("more than 65536"));
  EXPECT_THAT(refusal({INT64_MAX, INT64_MAX - 1}), HasSubstr("more than 65536"));
  EXPECT_TRUE(MixSchedule::Create({INT64_MAX, INT64_MAX}).ok());
}

std::shared_ptr<const Mix> MustMix(const std::vector<MixSource>& sources, MixStop stop,
                                   int64_t samples = 0) {
  auto mix = Mix::Create(sources, stop, samples);
  EXPECT_TRUE(mix.ok()) << mix.status();
  return mix.ok() ? *mix : nullptr;
}

TEST(Mix, EndsWhereItsStopSays) {
  const std::vector<MixSource> sources = {{10, 3}, {100, 1}};
  // Source 1 has its hundredth turn in period 99, at place 2.
  EXPECT_EQ(MustMix(sources, MixStop::kAll)->positions(), 99 * 4 + 3);
  // Source 0 has its tenth in period 3, at place 0.
  EXPECT_EQ(MustMix(sources, MixStop::kFirst)->positions(), 3 * 4 + 1);
  const auto mix = MustMix(sources, MixStop::kSamples, 50);
  EXPECT_EQ(mix->positions(), 50);
  EXPECT_EQ(mix->records(), 110);
  EXPECT_EQ(mix->sources()[0].per_epoch + mix->sources()[1].per_epoch, 50);
  EXPECT_EQ(mix->sources()[1].first, 10);
  EXPECT_EQ(mix->SourceOf(9), 0u);
  EXPECT_EQ(mix->SourceOf(10), 1u);
}

TEST(Mix, RefusesWhatWouldNeverBeSeenOrHasNoEnd) {
  const auto refusal = [](const std::vector<MixSource>& sources, MixStop stop, int64_t samples) {
    return std::string(Mix::Create(sources, stop, samples).status().message());
  };
  EXPECT_THAT(refusal({{1, 100}, {50, 1}}, MixStop::kFirst, 0),
              ::testing::AllOf(HasSubstr("source 1 of the mix has no sample in an epoch of 1"),
                               HasSubstr("Cure: a larger weight")));
  EXPECT_THAT(refusal({{1, 1}, {0, 1}}, MixStop::kAll, 0), HasSubstr("source 1"));
  EXPECT_THAT(refusal({{1, 1}}, MixStop::kSamples, 0), HasSubstr("an epoch of 0 samples"));
  EXPECT_THAT(refusal({{1, 1}}, MixStop::kSamples, INT64_MAX), HasSubstr("1 to 2^62"));
  EXPECT_THAT(refusal({{10, 9}, {int64_t{1} << 61, 1}}, MixStop::kAll, 0),
              HasSubstr("all of source 1 of the mix has 2^62 positions or more"));
  EXPECT_THAT(refusal({{int64_t{1} << 61, 1}, {(int64_t{1} << 61) + 1, 1}}, MixStop::kFirst, 0),
              HasSubstr("too many records"));
}

std::shared_ptr<const OrderConfig> Config(const SamplerSpec& spec, std::shared_ptr<const Mix> mix,
                                          int64_t batch_size = 1, int64_t world_size = 1) {
  auto config = MakeOrderConfig(spec, std::move(mix), batch_size, world_size);
  EXPECT_TRUE(config.ok()) << config.status();
  config->seed = spec.seed;
  return std::make_shared<const OrderConfig>(*std::move(config));
}

SamplerSpec Spec(const std::string& shuffle, const std::string& last = "partial") {
  SamplerSpec spec;
  spec.shuffle = shuffle;
  spec.last = last;
  spec.seed = 11;
  spec.block_records = 4;
  return spec;
}

class MixOrder : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Shuffles, MixOrder, ::testing::Values("none", "full", "block"),
                         [](const auto& info) { return info.param; });

// Goal: within each of its own epochs a source gives every record once, whatever the mix's epochs
// are. Method: all records of many epochs, one source's after the other, cut into its own epochs.
TEST_P(MixOrder, ASourceIsWholeInEachOfItsOwnEpochs) {
  const std::vector<std::vector<MixSource>> mixes = {
      {{7, 3, {0, 2, 5}}, {100, 1, {0, 40, 90}}},
      {{5, 1}, {5, 1}},
      {{4, 2}, {37, 5}, {11, 1, {0, 0, 6}}},
  };
  for (const auto& sources : mixes) {
    for (const auto& [stop, samples] : std::vector<std::pair<MixStop, int64_t>>{
             {MixStop::kAll, 0}, {MixStop::kFirst, 0}, {MixStop::kSamples, 29}}) {
      const auto mix = MustMix(sources, stop, samples);
      const auto config = Config(Spec(GetParam()), mix);
      std::vector<std::vector<int64_t>> given(sources.size());
      std::map<PhiloxKey, std::set<int64_t>> by_key;
      for (uint64_t epoch = 0; epoch < 40; ++epoch) {
        const EpochOrder order(config, epoch, 0);
        ASSERT_EQ(order.steps(), mix->positions());
        for (int64_t position = 0; position < mix->positions(); ++position) {
          const Placement place = order.At(position, 0, 0);
          ASSERT_EQ(place.position, position);
          const size_t source = mix->schedule().TurnAt(position).source;
          ASSERT_EQ(mix->SourceOf(place.record), source);
          given[source].push_back(place.record - mix->sources()[source].first);
          // No record has the same draws twice.
          ASSERT_TRUE(by_key[place.key].insert(place.record).second);
        }
      }
      for (size_t i = 0; i < sources.size(); ++i) {
        const auto records = static_cast<size_t>(sources[i].records);
        std::set<std::vector<int64_t>> orders;
        for (size_t begin = 0; begin + records <= given[i].size(); begin += records) {
          const std::vector<int64_t> own(
              given[i].begin() + static_cast<ptrdiff_t>(begin),
              given[i].begin() + static_cast<ptrdiff_t>(begin + records));
          ASSERT_EQ(std::set<int64_t>(own.begin(), own.end()).size(), records);
          orders.insert(own);
        }
        const bool is_shuffled = std::string(GetParam()) != "none";
        if (!is_shuffled || records < 30) continue;
        EXPECT_EQ(orders.size(), given[i].size() / records);  // another one each time
      }
    }
  }
}

TEST_P(MixOrder, SaysWhereARecordStands) {
  for (const char* last : {"drop", "pad", "partial"}) {
    for (const auto& [stop, samples] : std::vector<std::pair<MixStop, int64_t>>{
             {MixStop::kAll, 0}, {MixStop::kFirst, 0}, {MixStop::kSamples, 13}}) {
      const auto mix = MustMix({{3, 2, {0, 1}}, {10, 3}, {6, 1}}, stop, samples);
      for (const int64_t batch_size : {1, 4, 50}) {
        const auto config = Config(Spec(GetParam(), last), mix, batch_size, /*world_size=*/2);
        for (const int64_t start : {int64_t{0}, mix->positions() / 2}) {
          const EpochOrder order(config, 9, start);
          using At = std::tuple<int64_t, int64_t, int64_t, int64_t, bool>;
          std::map<int64_t, std::vector<At>> wanted;
          for (int64_t step = 0; step < order.steps(); ++step) {
            for (int64_t rank = 0; rank < 2; ++rank) {
              for (int64_t k = 0; k < order.BatchSamples(step, rank); ++k) {
                const Placement place = order.At(step, rank, k);
                wanted[place.record].push_back({step, rank, k, place.position, place.is_real});
              }
            }
          }
          for (int64_t record = 0; record < mix->records(); ++record) {
            const int64_t first = order.PositionOf(record);
            EXPECT_EQ(first < 0 ? record : order.RecordAt(first), record);
            std::vector<At> uses;
            for (const Use& use : order.UsesOf(record))
              uses.push_back({use.step, use.rank, use.place, use.position, use.is_real});
            std::vector<At>& want = wanted[record];
            if (want.size() > EpochOrder::kMaxUses) {
              EXPECT_EQ(uses.size(), EpochOrder::kMaxUses);
              continue;
            }
            std::sort(uses.begin(), uses.end());
            std::sort(want.begin(), want.end());
            ASSERT_EQ(uses, want) << record;
          }
        }
      }
    }
  }
}

// Goal: an epoch that goes on in another world is the same order. Method: the records by position.
TEST_P(MixOrder, IsTheSameInEveryWorld) {
  const auto mix = MustMix({{9, 2}, {20, 5}}, MixStop::kAll);
  const EpochOrder whole(Config(Spec(GetParam()), mix), 3, 0);
  for (const auto& [batch_size, world_size, start] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{{2, 3, 0}, {3, 2, 6}, {1, 1, 12}}) {
    const EpochOrder order(Config(Spec(GetParam()), mix, batch_size, world_size), 3, start);
    std::set<int64_t> positions;
    for (int64_t step = 0; step < order.steps(); ++step) {
      for (int64_t rank = 0; rank < world_size; ++rank) {
        for (int64_t k = 0; k < order.BatchSamples(step, rank); ++k) {
          const Placement place = order.At(step, rank, k);
          EXPECT_EQ(place.record, whole.RecordAt(place.position));
          EXPECT_EQ(place.key, whole.PickAt(place.position).key);
          EXPECT_TRUE(positions.insert(place.position).second);
        }
      }
    }
    EXPECT_EQ(static_cast<int64_t>(positions.size()), mix->positions() - start);
  }
}

TEST(MixEpoch, TakesConstantTimeForLargeNumbers) {
  const auto mix =
      MustMix({{int64_t{1} << 60, 7}, {1'000'000, 2}, {3, 1}}, MixStop::kSamples, int64_t{1} << 62);
  const auto config = Config(Spec("full"), mix, kMaxBatchSize, kMaxWorldSize);
  const EpochOrder order(config, (uint64_t{1} << 63) - 1, 0);
  std::mt19937_64 random(5);
  for (int i = 0; i < 1000; ++i) {
    const auto position = static_cast<int64_t>(random() >> 2);
    const Pick pick = order.PickAt(position);
    ASSERT_GE(pick.record, 0);
    ASSERT_LT(pick.record, mix->records());
  }
  EXPECT_EQ(order.UsesOf(mix->records() - 1).size(), EpochOrder::kMaxUses);
  EXPECT_LE(order.UsesOf(12345).size(), 4u);
}

// Goal: orders of own epochs are made once they are needed, and dropped, whoever asks. Method: the
// positions of an epoch in which a small source has many own epochs, by several threads.
TEST(MixEpoch, ManyThreadsSeeTheSameOrder) {
  const auto mix = MustMix({{9, 5, {0, 2, 7}}, {500, 2, {0, 100}}}, MixStop::kAll);
  const auto config = Config(Spec("block"), mix);
  std::vector<int64_t> wanted;
  const EpochOrder alone(config, 4, 0);
  for (int64_t i = 0; i < mix->positions(); ++i) wanted.push_back(alone.RecordAt(i));
  const EpochOrder shared(config, 4, 0);
  std::vector<std::thread> threads;
  std::atomic<int> differ{0};
  for (int64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int64_t i = 0; i < mix->positions(); ++i) {
        const int64_t position = (i + thread * 117) % mix->positions();
        differ += shared.RecordAt(position) != wanted[static_cast<size_t>(position)];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(differ, 0);
}

TEST(MixOrderConfig, SaysWhatAnEpochIs) {
  const auto mix = MustMix({{10, 3}, {100, 1}}, MixStop::kSamples, 50);
  const auto config = Config(Spec("full", "drop"), mix, 4, 3);
  EXPECT_EQ(config->records, 110);
  EXPECT_EQ(config->positions(), 50);
  EXPECT_EQ(StepsPerEpoch(*config), 4);
  EXPECT_EQ(LeftOut(*config), 2);
  EXPECT_TRUE(CheckStart(*config, 0, 50).ok());
  EXPECT_THAT(std::string(CheckStart(*config, 0, 51).message()),
              HasSubstr("an epoch of the mix has 50 samples"));
  const auto refused = CheckSteps(*Config(Spec("full", "drop"), mix, 51));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("an epoch of 50 samples has no whole step"));
}

}  // namespace
}  // namespace feedwater::server
