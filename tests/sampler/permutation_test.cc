// The keyed permutation: it is one for every size, its inverse is one, and small ones look random.
#include "server/sampler/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <unordered_set>
#include <vector>

namespace feedwater::server {
namespace {

// The value that chi-square with that many degrees of freedom exceeds once in about 100,000 times
// (Wilson and Hilferty).
double ChiSquareLimit(double freedom) {
  const double z = 4.27;
  return freedom * std::pow(1 - 2 / (9 * freedom) + z * std::sqrt(2 / (9 * freedom)), 3);
}

TEST(Permutation, HitsEveryValueOnceAndInvertsForEverySmallSize) {
  for (int64_t size = 1; size <= 1100; ++size) {
    const Permutation permutation(size, EpochKey(1, static_cast<uint64_t>(size)),
                                  ShuffleUse::kRecords);
    std::vector<bool> seen(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) {
      const int64_t value = permutation.At(i);
      ASSERT_GE(value, 0);
      ASSERT_LT(value, size);
      ASSERT_FALSE(seen[static_cast<size_t>(value)]) << "size " << size << " index " << i;
      seen[static_cast<size_t>(value)] = true;
      ASSERT_EQ(permutation.IndexOf(value), i) << "size " << size;
    }
  }
}

TEST(Permutation, GivesTheSameForManyAtATime) {
  std::mt19937_64 random(11);
  for (int64_t size :
       {int64_t{1}, int64_t{2}, int64_t{255}, int64_t{257}, int64_t{1000}, int64_t{60'000},
        int64_t{1} << 33, (int64_t{1} << 40) + 1, int64_t{1} << 62}) {
    const Permutation permutation(size, EpochKey(5, 6), ShuffleUse::kWindow);
    for (size_t count : {0, 1, 3, 15, 16, 17, 63, 64, 65, 1000}) {
      std::vector<int64_t> indices(count), expected(count);
      for (size_t i = 0; i < count; ++i) {
        indices[i] = static_cast<int64_t>(random() % static_cast<uint64_t>(size));
        expected[i] = permutation.At(indices[i]);
      }
      permutation.AtAll(absl::MakeSpan(indices));
      ASSERT_EQ(indices, expected) << "size " << size << " count " << count;
    }
  }
}

TEST(Permutation, IsOneToOneOnSamplesOfHugeSizes) {
  constexpr uint32_t kSeed = 7;
  std::mt19937_64 random(kSeed);
  for (int64_t size :
       {int64_t{1} << 40, (int64_t{1} << 40) - 87, (int64_t{1} << 40) + 1, (int64_t{1} << 41) - 1,
        (int64_t{1} << 32) + 1, int64_t{1} << 62, (int64_t{1} << 61) + 12345}) {
    const Permutation permutation(size, EpochKey(3, 4), ShuffleUse::kRecords);
    std::unordered_set<int64_t> indices, values;
    for (int i = 0; i < 20'000; ++i) {
      // Half of them consecutive, where a weak permutation would show.
      const int64_t index =
          i < 10'000 ? i : static_cast<int64_t>(random() % static_cast<uint64_t>(size));
      const int64_t value = permutation.At(index);
      ASSERT_GE(value, 0);
      ASSERT_LT(value, size);
      ASSERT_EQ(permutation.IndexOf(value), index) << "size " << size << " seed " << kSeed;
      indices.insert(index);
      values.insert(value);
    }
    EXPECT_EQ(indices.size(), values.size()) << size;
  }
}

TEST(Permutation, EveryRecordStandsAtEveryPositionEquallyOften) {
  // Marginals and pairs over many epochs, chi-square. For n values: the record at position 0 (n
  // cells), the position of record n-1 (n cells), and the ordered pair of records at two
  // neighbouring positions (n(n-1) cells).
  for (int64_t n : {2, 3, 4, 5, 6, 7, 8, 9, 10, 16, 17, 31, 33, 255, 256, 257}) {
    const int epochs = n <= 10 ? 20'000 : 10'000;
    std::vector<double> first(static_cast<size_t>(n)), last(static_cast<size_t>(n)),
        pairs(static_cast<size_t>(n * n));
    for (int epoch = 0; epoch < epochs; ++epoch) {
      const Permutation permutation(n, EpochKey(11, static_cast<uint64_t>(epoch)),
                                    ShuffleUse::kRecords);
      const int64_t a = permutation.At(n / 2 - 1), b = permutation.At(n / 2);
      ++first[static_cast<size_t>(permutation.At(0))];
      ++last[static_cast<size_t>(permutation.IndexOf(n - 1))];
      ++pairs[static_cast<size_t>(a * n + b)];
    }
    const auto chi_square = [&](const std::vector<double>& counts, double cells,
                                bool skip_diagonal) {
      const double expected = epochs / cells;
      double sum = 0;
      for (size_t i = 0; i < counts.size(); ++i) {
        if (skip_diagonal && i / static_cast<size_t>(n) == i % static_cast<size_t>(n)) continue;
        sum += (counts[i] - expected) * (counts[i] - expected) / expected;
      }
      return sum;
    };
    const auto size = static_cast<double>(n);
    EXPECT_LT(chi_square(first, size, false), ChiSquareLimit(size - 1)) << "position 0 of " << n;
    EXPECT_LT(chi_square(last, size, false), ChiSquareLimit(size - 1))
        << "record " << n - 1 << " of " << n;
    EXPECT_LT(chi_square(pairs, size * (size - 1), true), ChiSquareLimit(size * (size - 1) - 1))
        << "pairs of " << n;
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(pairs[static_cast<size_t>(i * n + i)], 0);
  }
}

TEST(Permutation, AllOrdersOfFourRecordsAreEquallyLikely) {
  constexpr int kEpochs = 48'000;
  std::vector<int> counts(256);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const Permutation permutation(4, EpochKey(5, static_cast<uint64_t>(epoch)),
                                  ShuffleUse::kRecords);
    size_t code = 0;
    for (int64_t i = 0; i < 4; ++i) code = code * 4 + static_cast<size_t>(permutation.At(i));
    ++counts[code];
  }
  double chi_square = 0;
  int orders = 0;
  for (int count : counts) {
    if (count == 0) continue;
    ++orders;
    chi_square += (count - kEpochs / 24.0) * (count - kEpochs / 24.0) / (kEpochs / 24.0);
  }
  EXPECT_EQ(orders, 24);
  EXPECT_LT(chi_square, ChiSquareLimit(23));
}

TEST(Permutation, DiffersByKeyAndUse) {
  const auto at = [](uint64_t seed, ShuffleUse use) {
    std::vector<int64_t> values;
    const Permutation permutation(1000, EpochKey(seed, 0), use);
    for (int64_t i = 0; i < 20; ++i) values.push_back(permutation.At(i));
    return values;
  };
  EXPECT_NE(at(1, ShuffleUse::kRecords), at(2, ShuffleUse::kRecords));
  EXPECT_NE(at(1, ShuffleUse::kRecords), at(1, ShuffleUse::kShards));
  EXPECT_NE(at(1, ShuffleUse::kShards), at(1, ShuffleUse::kWindow));
  EXPECT_EQ(at(1, ShuffleUse::kRecords), at(1, ShuffleUse::kRecords));
}

TEST(Permutation, StaysTheSameForever) {
  // Saved cursors depend on it. Computed by the Python of README.md.
  const auto at = [](int64_t size, uint64_t seed, uint64_t epoch) {
    std::vector<int64_t> values;
    const Permutation permutation(size, EpochKey(seed, epoch), ShuffleUse::kRecords);
    for (int64_t i = 0; i < 8; ++i) values.push_back(permutation.At(i));
    return values;
  };
  EXPECT_EQ(at(10, 42, 0), (std::vector<int64_t>{2, 8, 6, 0, 9, 1, 7, 3}));
  EXPECT_EQ(at(1'281'167, 42, 3),
            (std::vector<int64_t>{254734, 995753, 1274510, 705581, 913160, 85138, 471063, 666607}));
}

}  // namespace
}  // namespace feedwater::server
