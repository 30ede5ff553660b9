#include "server/imaging/median_kernels.h"

#include <algorithm>
#include <iterator>
#include <utility>

// As in codec/resample_kernels.cc.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#ifndef FEEDWATER_IMAGING_MEDIAN_NETWORKS
#define FEEDWATER_IMAGING_MEDIAN_NETWORKS

namespace feedwater::server::kernels {

// A step of a network: wire `low` takes the smaller one of two numbers, wire `high` the larger.
struct Exchange {
  uint8_t low, high;
};

// Sorts a column of kSide numbers.
template <int kSide>
struct ColumnSort;
template <>
struct ColumnSort<3> {
  static constexpr Exchange kExchanges[] = {{0, 1}, {1, 2}, {0, 1}};
};
template <>
struct ColumnSort<5> {
  static constexpr Exchange kExchanges[] = {{0, 3}, {1, 4}, {0, 2}, {1, 3}, {0, 1},
                                            {2, 4}, {1, 2}, {3, 4}, {2, 3}};
};
template <>
struct ColumnSort<7> {
  static constexpr Exchange kExchanges[] = {{0, 6}, {2, 3}, {4, 5}, {0, 2}, {1, 4}, {3, 6},
                                            {0, 1}, {2, 5}, {3, 4}, {1, 2}, {4, 6}, {2, 3},
                                            {4, 5}, {1, 2}, {3, 4}, {5, 6}};
};

// Brings the median of a square of sorted columns to wire kAnswer; wire rank * kSide + column
// begins with a column's number of that rank. Rows of equal rank are sorted as far as needed, since
// then only those near the anti-diagonal can be the median; a selection among these follows. Made
// by leaving out of such a network, one by one, what changed no answer; the test's picture of all
// columns of zeros and ones proves them (the 0-1 principle).
template <int kSide>
struct Selection;
// 10 exchanges.
template <>
struct Selection<3> {
  static constexpr int kAnswer = 4;
  static constexpr Exchange kExchanges[] = {{0, 1}, {1, 2}, {3, 4}, {4, 5}, {3, 4},
                                            {7, 8}, {6, 7}, {2, 4}, {2, 6}, {4, 6}};
};

// 58 exchanges.
template <>
struct Selection<5> {
  static constexpr int kAnswer = 4;
  static constexpr Exchange kExchanges[] = {
      {0, 3},   {1, 4},   {0, 2},   {1, 3},   {2, 4},   {3, 4},   {2, 3},   {5, 8},   {6, 9},
      {6, 8},   {5, 6},   {7, 9},   {6, 7},   {8, 9},   {10, 13}, {11, 14}, {10, 12}, {11, 13},
      {10, 11}, {12, 14}, {13, 14}, {12, 13}, {15, 18}, {16, 19}, {15, 17}, {16, 18}, {15, 16},
      {17, 19}, {17, 18}, {20, 23}, {21, 24}, {21, 23}, {20, 21}, {22, 24}, {21, 22}, {17, 15},
      {7, 17},  {16, 4},  {13, 9},  {12, 11}, {13, 4},  {12, 17}, {13, 15}, {11, 16}, {13, 11},
      {4, 17},  {13, 4},  {8, 4},   {8, 3},   {4, 11},  {11, 16}, {21, 11}, {4, 3},   {21, 4},
      {11, 3},  {11, 4},  {11, 20}, {4, 20}};
};

// 180 exchanges.
template <>
struct Selection<7> {
  static constexpr int kAnswer = 26;
  static constexpr Exchange kExchanges[] = {
      {0, 6},   {4, 5},   {1, 4},   {0, 1},   {2, 5},   {3, 4},   {1, 2},   {4, 6},   {2, 3},
      {4, 5},   {3, 4},   {5, 6},   {7, 13},  {9, 10},  {11, 12}, {7, 9},   {8, 11},  {10, 13},
      {7, 8},   {9, 12},  {10, 11}, {8, 9},   {11, 13}, {9, 10},  {11, 12}, {14, 20}, {16, 17},
      {14, 16}, {15, 18}, {17, 20}, {14, 15}, {16, 19}, {17, 18}, {15, 16}, {18, 20}, {16, 17},
      {18, 19}, {15, 16}, {17, 18}, {21, 27}, {23, 24}, {25, 26}, {21, 23}, {22, 25}, {24, 27},
      {21, 22}, {24, 25}, {23, 24}, {25, 26}, {22, 23}, {24, 25}, {26, 27}, {28, 34}, {30, 31},
      {32, 33}, {28, 30}, {29, 32}, {31, 34}, {30, 33}, {31, 32}, {29, 30}, {32, 34}, {32, 33},
      {35, 41}, {39, 40}, {35, 37}, {36, 39}, {38, 41}, {35, 36}, {37, 40}, {36, 37}, {39, 41},
      {37, 38}, {39, 40}, {38, 39}, {42, 48}, {44, 45}, {46, 47}, {42, 44}, {43, 46}, {45, 48},
      {42, 43}, {44, 47}, {45, 46}, {43, 44}, {44, 45}, {17, 37}, {12, 5},  {23, 36}, {31, 29},
      {6, 24},  {18, 44}, {12, 38}, {17, 12}, {23, 6},  {36, 29}, {24, 44}, {13, 29}, {23, 18},
      {36, 24}, {31, 36}, {10, 31}, {5, 18},  {29, 24}, {38, 13}, {30, 28}, {12, 5},  {23, 37},
      {36, 38}, {22, 12}, {36, 30}, {36, 22}, {28, 29}, {5, 37},  {29, 37}, {6, 5},   {29, 30},
      {31, 18}, {6, 12},  {28, 29}, {31, 22}, {6, 28},  {38, 30}, {13, 30}, {30, 23}, {38, 30},
      {5, 31},  {29, 4},  {35, 18}, {13, 12}, {35, 13}, {31, 4},  {4, 12},  {31, 5},  {25, 35},
      {18, 28}, {4, 28},  {13, 20}, {13, 22}, {13, 25}, {35, 30}, {4, 30},  {30, 29}, {18, 25},
      {5, 4},   {18, 11}, {20, 4},  {4, 30},  {25, 22}, {5, 11},  {4, 35},  {20, 16}, {25, 5},
      {4, 20},  {22, 11}, {35, 16}, {11, 16}, {35, 22}, {43, 5},  {35, 20}, {35, 43}, {22, 11},
      {5, 4},   {11, 4},  {32, 5},  {22, 43}, {11, 20}, {5, 43},  {43, 20}, {5, 11},  {19, 22},
      {5, 19},  {11, 22}, {22, 43}, {26, 11}, {19, 26}, {22, 11}, {42, 26}, {42, 22}, {26, 22}};
};

}  // namespace feedwater::server::kernels

#endif  // FEEDWATER_IMAGING_MEDIAN_NETWORKS

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/imaging/median_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <uint8_t kLow, uint8_t kHigh, class V>
HWY_INLINE void Swap(V* wires) {
  const V smaller = hn::Min(wires[kLow], wires[kHigh]);
  wires[kHigh] = hn::Max(wires[kLow], wires[kHigh]);
  wires[kLow] = smaller;
}

// All of a network's exchanges, unrolled: what no answer depends on is left out by the compiler.
template <class Network, class V, size_t... i>
HWY_INLINE void Run(V* wires, std::index_sequence<i...>) {
  (Swap<Network::kExchanges[i].low, Network::kExchanges[i].high>(wires), ...);
}
template <class Network, class V>
HWY_INLINE void Run(V* wires) {
  Run<Network>(wires, std::make_index_sequence<std::size(Network::kExchanges)>());
}

// The planes: column i's number of rank k is at planes + k * stride + margin + i.
template <int kSide, class D>
HWY_INLINE void SortColumns(D d, const uint8_t* const* rows, size_t i, size_t stride,
                            uint8_t* sorted) {
  hn::Vec<D> wires[kSide];
  for (int k = 0; k < kSide; ++k) wires[k] = hn::LoadU(d, rows[k] + i);
  Run<ColumnSort<kSide>>(wires);
  for (int k = 0; k < kSide; ++k)
    hn::StoreU(wires[k], d, sorted + static_cast<size_t>(k) * stride + i);
}

template <int kSide, class D>
HWY_INLINE void Select(D d, const uint8_t* planes, size_t stride, size_t step, size_t i,
                       uint8_t* out) {
  hn::Vec<D> wires[kSide * kSide];
  for (size_t k = 0; k < kSide; ++k) {
    for (size_t c = 0; c < kSide; ++c)
      wires[k * kSide + c] = hn::LoadU(d, planes + k * stride + c * step + i);
  }
  Run<Selection<kSide>>(wires);
  hn::StoreU(wires[Selection<kSide>::kAnswer], d, out + i);
}

// Calls work(d, i) so that whole vectors from places i cover 0 .. count - 1, and single numbers
// where there are fewer than a vector has.
template <class Work>
HWY_INLINE void Cover(size_t count, Work work) {
  const hn::CappedTag<uint8_t, 64> d;
  const size_t n = hn::Lanes(d);
  if (count < n) {
    for (size_t i = 0; i < count; ++i) work(hn::CappedTag<uint8_t, 1>(), i);
    return;
  }
  for (size_t i = 0; i < count; i += n) work(d, std::min(i, count - n));
}

template <int kSide>
void MedianRowOf(const uint8_t* const* rows, size_t count, size_t step, uint8_t* planes,
                 uint8_t* out) {
  const size_t margin = kSide / 2 * step, stride = count + 2 * margin;
  uint8_t* const sorted = planes + margin;
  Cover(count, [&](auto d, size_t i) HWY_ATTR { SortColumns<kSide>(d, rows, i, stride, sorted); });
  for (size_t k = 0; k < kSide; ++k) {
    uint8_t* const plane = sorted + k * stride;
    for (size_t i = 0; i < margin; ++i) {
      *(plane - margin + i) = plane[i % step];
      plane[count + i] = plane[count - step + i % step];
    }
  }
  Cover(count, [&](auto d, size_t i) HWY_ATTR { Select<kSide>(d, planes, stride, step, i, out); });
}

void MedianRow(const uint8_t* const* rows, int side, size_t count, size_t step, uint8_t* planes,
               uint8_t* out) {
  const auto make = side == 3 ? MedianRowOf<3> : side == 5 ? MedianRowOf<5> : MedianRowOf<7>;
  make(rows, count, step, planes, out);
}

const MedianTable* MedianTargetTable() {
  static const MedianTable kTable = {hwy::TargetName(HWY_TARGET), MedianRow};
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace feedwater::server::kernels {

HWY_EXPORT(MedianTargetTable);

const MedianTable& Medians() { return *HWY_DYNAMIC_DISPATCH(MedianTargetTable)(); }

}  // namespace feedwater::server::kernels
#endif
