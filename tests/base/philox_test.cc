// Philox and the draws made of it: the published known answers, and what the draws promise.
#include "server/base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/testing/test_data.h"

namespace feedwater::server {
namespace {

struct KnownAnswer {
  PhiloxCounter counter;
  PhiloxKey key;
  PhiloxCounter expected;
};

TEST(Philox, GivesTheThreePublishedAnswers) {
  // Random123's kat_vectors, "philox4x32 10".
  const KnownAnswer answers[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const KnownAnswer& answer : answers)
    EXPECT_EQ(Philox4x32(answer.counter, answer.key), answer.expected);
}

TEST(Philox, GivesEveryAnswerOfTheVectorFile) {
  FW_TEST_DATA_OR_SKIP(path, "kat/philox_kat_vectors.txt");
  std::ifstream file(path);
  std::string line;
  int checked = 0;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    int rounds = 0;
    if (!(words >> name >> rounds) || name != "philox4x32" || rounds != 10) continue;
    KnownAnswer answer;
    words >> std::hex;
    for (uint32_t& word : answer.counter) words >> word;
    for (uint32_t& word : answer.key) words >> word;
    for (uint32_t& word : answer.expected) words >> word;
    ASSERT_TRUE(words) << line;
    EXPECT_EQ(Philox4x32(answer.counter, answer.key), answer.expected) << line;
    ++checked;
  }
  EXPECT_GE(checked, 3);
}

TEST(EpochKey, IsPhiloxOfEpochUnderTheSeed) {
  const PhiloxCounter out = Philox4x32({7, 1, 0x66656564, 0}, {0x89abcdef, 0x01234567});
  EXPECT_EQ(EpochKey(0x0123456789abcdef, (uint64_t{1} << 32) + 7), (PhiloxKey{out[0], out[1]}));
}

TEST(EpochKey, DiffersForEverySeedAndEpochNearby) {
  std::set<PhiloxKey> keys;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (uint64_t epoch = 0; epoch < 100; ++epoch) keys.insert(EpochKey(seed, epoch));
  }
  EXPECT_EQ(keys.size(), 10'000u);
}

TEST(Draws, HandOutTheWordsOfBlocksInOrder) {
  const PhiloxKey key = {11, 22};
  const uint64_t record = 0x0000000500000006;
  Draws draws(key, record, 3);
  for (uint32_t block = 0; block < 3; ++block) {
    const PhiloxCounter words = Philox4x32({6, 5, 3, block}, key);
    for (uint32_t word : words) EXPECT_EQ(draws.Next(), word);
  }
}

TEST(Draws, DependOnKeyRecordAndInstance) {
  const auto first = [](PhiloxKey key, uint64_t record, uint32_t instance) {
    return Draws(key, record, instance).Next();
  };
  const uint32_t base = first({1, 2}, 3, 4);
  EXPECT_NE(base, first({1, 3}, 3, 4));
  EXPECT_NE(base, first({1, 2}, 4, 4));
  EXPECT_NE(base, first({1, 2}, 3 + (uint64_t{1} << 32), 4));
  EXPECT_NE(base, first({1, 2}, 3, 5));
}

TEST(Draws, ACopyContinuesAtTheSamePlace) {
  Draws draws({1, 2}, 3, 4);
  for (int used = 0; used < 9; ++used) {
    Draws copy = draws;
    const uint32_t expected = copy.Next();
    EXPECT_EQ(draws.Next(), expected) << "after " << used << " words";
  }
}

TEST(Draws, UniformIsTheWordOverTwoToThe32) {
  Draws words({5, 6}, 7, 8);
  Draws uniforms({5, 6}, 7, 8);
  for (int i = 0; i < 100; ++i) {
    const double value = uniforms.Uniform();
    EXPECT_EQ(value, words.Next() / 4294967296.0);
    EXPECT_GE(value, 0.0);
    EXPECT_LT(value, 1.0);
  }
}

TEST(Draws, BelowIsTheHighHalfOfA64BitDrawTimesN) {
  Draws words({5, 6}, 7, 8);
  Draws draws({5, 6}, 7, 8);
  for (int64_t n : {int64_t{1}, int64_t{2}, int64_t{1000}, int64_t{1} << 40, INT64_MAX}) {
    const uint64_t low = words.Next();
    const uint64_t draw = low | uint64_t{words.Next()} << 32;
    const auto expected =
        static_cast<int64_t>(static_cast<unsigned __int128>(draw) * static_cast<uint64_t>(n) >> 64);
    const int64_t got = draws.Below(n);
    EXPECT_EQ(got, expected) << n;
    EXPECT_GE(got, 0);
    EXPECT_LT(got, n);
  }
}

TEST(Draws, BelowReachesEveryValueAboutEquallyOften) {
  // Chi-square with 9 degrees of freedom: 33.7 is exceeded once in 10,000 times, and the draws are
  // fixed.
  std::vector<int> counts(10);
  constexpr int kDraws = 100'000;
  Draws draws({1, 2}, 0, 0);
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(draws.Below(10))];
  double chi_square = 0;
  for (int count : counts)
    chi_square += (count - kDraws / 10.0) * (count - kDraws / 10.0) / (kDraws / 10.0);
  EXPECT_LT(chi_square, 33.7);
}

TEST(Draws, NormalHasMeanZeroAndVarianceOneAndIsFinite) {
  constexpr int kDraws = 100'000;
  Draws draws({1, 2}, 0, 0);
  double sum = 0, squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double value = draws.Normal();
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kDraws, 0.0, 0.015);  // about five standard errors
  EXPECT_NEAR(squares / kDraws, 1.0, 0.025);
}

}  // namespace
}  // namespace feedwater::server
