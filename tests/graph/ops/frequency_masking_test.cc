// frequency_masking: one run of whole bands in all channels, of every length up to the parameter.
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "tests/graph/ops/audio_op_testing.h"

namespace feedwater::server {
namespace {

using namespace audio_op_testing;  // NOLINT: the tests' own words

TEST(FrequencyMasking, MasksOneRunInAllChannels) {
  const Floats numbers(2 * 20 * 30, 5);
  std::map<size_t, int> lengths;
  std::set<size_t> begins;
  for (int64_t id = 0; id < 600; ++id) {
    const Floats made = RunOnNumbers("- frequency_masking: {freq_mask_param: 8, mask_value: -1}",
                                     "mel", {2, 20, 30}, numbers, id);
    std::set<size_t> masked;
    for (const size_t place : Differences(numbers, made)) {
      EXPECT_EQ(made[place], -1);
      masked.insert(place % 600 / 30);
    }
    EXPECT_EQ(Differences(numbers, made).size(), masked.size() * numbers.size() / 20);
    if (!masked.empty()) {
      EXPECT_EQ(*masked.rbegin() - *masked.begin() + 1, masked.size()) << "one run";
      begins.insert(*masked.begin());
    }
    ++lengths[masked.size()];
  }
  // Lengths are whole parts of Uniform(0, 8).
  EXPECT_EQ(lengths.size(), 8u);
  EXPECT_EQ(lengths.rbegin()->first, 7u);
  for (const auto& [length, count] : lengths) EXPECT_NEAR(count, 75, 45) << length;
  EXPECT_GT(begins.size(), 10u);
}

TEST(FrequencyMasking, NeverLeavesTheAxis) {
  for (int64_t id = 0; id < 50; ++id)
    RunOnNumbers("- frequency_masking: {freq_mask_param: 1000000}", "mel", {2, 3}, Floats(6, 1),
                 id);
  EXPECT_EQ(RunOnNumbers("- frequency_masking: {freq_mask_param: 0}", "mel", {2, 3}, Floats(6, 1)),
            Floats(6, 1));
}

}  // namespace
}  // namespace feedwater::server
