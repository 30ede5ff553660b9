#include "server/codec/jpeg/pixel_kernels.h"

#include <type_traits>

#include "server/codec/jpeg/block_guard.h"
#include "server/codec/jpeg/plain_pixels.h"

// Sizeless vectors (SVE, RISC-V) cannot be stored in arrays, which the transposes need; NEON is
// there wherever SVE is.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/codec/jpeg/pixel_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "server/codec/jpeg/colour-inl.h"
#include "server/codec/jpeg/idct-inl.h"
#include "server/codec/jpeg/reduced_idct-inl.h"
#include "server/codec/jpeg/simd-inl.h"
#include "server/codec/jpeg/upsample-inl.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::jpeg {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

bool TransformPlain(const int16_t* coefficients, const uint16_t* blocks, size_t count,
                    const uint16_t* quant, int side, uint8_t* out, size_t stride) {
  for (size_t i = 0; i < count; ++i) {
    const size_t block = blocks[i];
    if (!TransformBlockPlain(coefficients + kBlockSamples * block, quant, side,
                             out + static_cast<size_t>(side) * block, static_cast<int>(stride)))
      return false;
  }
  return true;
}

#if HWY_TARGET == HWY_SCALAR

bool TransformRow(const int16_t* coefficients, BlockLists& lists, const uint16_t* quant, int side,
                  uint8_t* out, size_t stride) {
  for (int kind = 0; kind < kBlockKinds; ++kind) {
    if (!TransformPlain(coefficients, lists.blocks[kind].data(), lists.count[kind], quant, side,
                        out, stride))
      return false;
  }
  return true;
}

bool CheckRow(const int16_t* coefficients, size_t blocks, const uint16_t* quant) {
  for (size_t i = 0; i < blocks; ++i) {
    if (!TransformBlockPlain(coefficients + kBlockSamples * i, quant, 8, nullptr, 0)) return false;
  }
  return true;
}

constexpr auto UpsampleH2V1 = UpsampleH2V1Plain;
constexpr auto UpsampleH2V2 = UpsampleH2V2Plain;
constexpr auto UpsampleH1V2 = UpsampleH1V2Plain;
constexpr auto YccToRgb = YccToRgbPlain;
constexpr auto GrayToRgb = GrayToRgbPlain;

#else

// Watches dequantisation for what could lie beyond the guards.
class Guard {
 public:
  // Coefficients up to `largest` keep coefficient * step within int16.
  explicit Guard(int largest) : largest_(hn::Set(D16(), static_cast<int16_t>(largest))) { Clear(); }

  HWY_INLINE void Clear() { sums_ = magnitudes_ = hn::Zero(D16()); }
  HWY_INLINE void Add(V16 coefficients, V16 products) {
    magnitudes_ = hn::Max(magnitudes_, Magnitude(coefficients));
    sums_ = hn::SaturatedAdd(sums_, hn::Abs(products));
  }
  // Whether all is known to be well: no product left int16 and each block's sum is small.
  // kQuarters: two blocks in each 128 bits.
  template <bool kQuarters>
  HWY_INLINE bool Safe() const {
    const D32 d32;
    auto sums = DotPairs(sums_, hn::Set(D16(), 1));
    sums = hn::Add(sums, hn::Shuffle2301(sums));
    if (!kQuarters) sums = hn::Add(sums, hn::Shuffle1032(sums));
    return Fits() && hn::AllFalse(d32, hn::Gt(sums, hn::Set(d32, kSafeBlockSum)));
  }
  HWY_INLINE bool Fits() const { return hn::AllFalse(D16(), hn::Gt(magnitudes_, largest_)); }
  HWY_INLINE bool SumsAllowed() const {
    return hn::AllFalse(D16(), hn::Gt(sums_, hn::Set(D16(), kMaxColumnSum)));
  }

 private:
  static HWY_INLINE V16 Magnitude(V16 v) {  // at most 32767
    const D16 d;
    return hn::Max(v, hn::SaturatedSub(hn::Zero(d), v));
  }

  V16 largest_, sums_, magnitudes_;
};

HWY_INLINE bool RangeAllowed(const V16* range) {
  const D16 d;
  return hn::AllFalse(d, hn::Lt(range[0], hn::Set(d, kMinValue + 128))) &&
         hn::AllFalse(d, hn::Gt(range[1], hn::Set(d, kMaxValue + 128)));
}

// Ascending: of several, the largest counts.
enum class Trust : int { kSafe, kLookAtValues, kBeyond };

// The dequantised rows that blocks of kSide need: of kBlocks blocks of kFull, or of 2 * kBlocks of
// kQuarter. And what the guards on coefficients say of them.
template <int kSide, bool kQuarters>
HWY_INLINE Trust LoadRows(const int16_t* const* in, const uint16_t* quant, Guard& guard,
                          V16* rows) {
  const D16 d;
  guard.Clear();
  for (int k = 0; k < (kQuarters ? 4 : 8); ++k) {
    if (!UsesRow<kSide>(k)) continue;
    const V16 coefficients = LoadPieces < kQuarters ? 4 : 8 > (d, in, 8 * k);
    V16 steps;
    const auto* q = reinterpret_cast<const int16_t*>(quant + 8 * k);
    if constexpr (kQuarters) {
      const hn::Repartition<int64_t, D16> d64;
      int64_t four;
      __builtin_memcpy(&four, q, 8);
      steps = hn::BitCast(d, hn::Set(d64, four));
    } else {
      steps = hn::LoadDup128(d, q);
    }
    rows[k] = hn::Mul(coefficients, steps);
    guard.Add(coefficients, rows[k]);
  }
  if (HWY_LIKELY(guard.Safe<kQuarters>())) return Trust::kSafe;
  return guard.Fits() && guard.SumsAllowed() ? Trust::kLookAtValues : Trust::kBeyond;
}

// As many blocks as are transformed together.
template <int kSide, bool kQuarters>
constexpr size_t kStepOf = kSide == 8 && !kQuarters ? kBlocks : 2 * kBlocks;

// kStepOf blocks. False: beyond the guards, or too large to be sure.
template <int kSide, bool kQuarters>
HWY_INLINE bool TransformVector(const int16_t* const* in, const uint16_t* quant, Guard& guard,
                                uint8_t* const* out, size_t stride) {
  V16 rows[8], more[4];
  Trust trust = LoadRows<kSide, kQuarters>(in, quant, guard, rows);
  if constexpr (kSide < 8) {
    V16 reduced[4];
    ReduceRows<kSide, kQuarters ? 4 : 8>(rows, reduced);
    if constexpr (!kQuarters) {
      const Trust second = LoadRows<kSide, false>(in + kBlocks, quant, guard, rows);
      ReduceRows<kSide, 8>(rows, more);
      if (second > trust) trust = second;
    }
    for (int k = 0; k < kSide; ++k) rows[k] = reduced[k];
  }
  const auto finish = [&]<bool kRange>(std::bool_constant<kRange>, V16* range) HWY_ATTR {
    if constexpr (kSide == 8 && kQuarters) {
      TransformQuarter<kRange>(rows, out, stride, range);
    } else if constexpr (kSide == 8) {
      TransformFull<kRange>(rows, out, stride, range);
    } else if constexpr (kQuarters) {
      FinishQuarter<kSide, kRange>(rows, out, stride, range);
    } else {
      FinishFull<kSide, kRange>(rows, more, out, stride, range);
    }
  };
  if (HWY_LIKELY(trust == Trust::kSafe)) {
    finish(std::false_type(), nullptr);
    return true;
  }
  if (trust == Trust::kBeyond) return false;
  V16 range[2] = {hn::Zero(D16()), hn::Zero(D16())};
  finish(std::true_type(), range);
  return RangeAllowed(range);
}

// `list` has kListPadding entries behind the last one.
template <int kSide, bool kQuarters>
HWY_INLINE bool TransformList(const int16_t* coefficients, uint16_t* list, size_t count,
                              const uint16_t* quant, Guard& guard, uint8_t* out, size_t stride) {
  constexpr size_t kStep = kStepOf<kSide, kQuarters>;
  static_assert(kStep <= kListPadding);
  if (count == 0) return true;
  for (size_t i = 0; i < kStep - 1; ++i) list[count + i] = list[count - 1];
  for (size_t i = 0; i < count; i += kStep) {
    const int16_t* in[kStep];
    uint8_t* to[kStep];
    for (size_t b = 0; b < kStep; ++b) {
      in[b] = coefficients + kBlockSamples * list[i + b];
      to[b] = out + kSide * list[i + b];
    }
    if (HWY_UNLIKELY((!TransformVector<kSide, kQuarters>(in, quant, guard, to, stride)))) {
      const size_t blocks = count - i < kStep ? count - i : kStep;
      if (!TransformPlain(coefficients, list + i, blocks, quant, kSide, out, stride)) return false;
    }
  }
  return true;
}

// Whose product with any step fits int16.
HWY_INLINE int LargestCoefficient(const uint16_t* quant) {
  int largest_step = 1;
  for (int i = 0; i < kBlockSamples; ++i) {
    if (quant[i] > largest_step) largest_step = quant[i];
  }
  return 32766 / largest_step;  // 32767 is also what -32768 looks like
}

bool CheckRow(const int16_t* coefficients, size_t blocks, const uint16_t* quant) {
  const D16 d;
  Guard guard(LargestCoefficient(quant));
  for (size_t i = 0; i < blocks; i += kBlocks) {
    const int16_t* in[kBlocks];
    for (size_t b = 0; b < kBlocks; ++b)
      in[b] = coefficients + kBlockSamples * (i + b < blocks ? i + b : blocks - 1);
    guard.Clear();
    for (int k = 0; k < 8; ++k) {
      const V16 row = LoadPieces<8>(d, in, 8 * k);
      const auto* steps = reinterpret_cast<const int16_t*>(quant + 8 * k);
      guard.Add(row, hn::Mul(row, hn::LoadDup128(d, steps)));
    }
    if (HWY_LIKELY(guard.Safe<false>())) continue;
    uint8_t samples[kBlocks][kBlockSamples];
    uint8_t* out[kBlocks];
    for (size_t b = 0; b < kBlocks; ++b) out[b] = samples[b];
    if (TransformVector<8, false>(in, quant, guard, out, 8)) continue;
    for (const int16_t* block : in) {
      if (!TransformBlockPlain(block, quant, 8, nullptr, 0)) return false;
    }
  }
  return true;
}

// Blocks of which DC is all that there is, or all that counts.
template <int kSide>
HWY_INLINE bool FillList(const int16_t* coefficients, const uint16_t* list, size_t count, int step,
                         uint8_t* out, size_t stride) {
  for (size_t i = 0; i < count; ++i) {
    const size_t block = list[i];
    const int dc = coefficients[kBlockSamples * block] * step;
    const int value = (dc + 4) >> 3;
    if (HWY_UNLIKELY(value < kMinValue || value > kMaxValue)) return false;
    FillBlock<kSide>(dc, out + kSide * block, stride);
  }
  return true;
}

template <int kSide>
bool TransformRowTo(const int16_t* coefficients, BlockLists& lists, const uint16_t* quant,
                    uint8_t* out, size_t stride) {
  if (!FillList<kSide>(coefficients, lists.blocks[kDcOnly].data(), lists.count[kDcOnly], quant[0],
                       out, stride)) {
    return false;
  }
  Guard guard(LargestCoefficient(quant));
  return TransformList<kSide, true>(coefficients, lists.blocks[kQuarter].data(),
                                    lists.count[kQuarter], quant, guard, out, stride) &&
         TransformList<kSide, false>(coefficients, lists.blocks[kFull].data(), lists.count[kFull],
                                     quant, guard, out, stride);
}

bool TransformRow(const int16_t* coefficients, BlockLists& lists, const uint16_t* quant, int side,
                  uint8_t* out, size_t stride) {
  switch (side) {
    case 8:
      return TransformRowTo<8>(coefficients, lists, quant, out, stride);
    case 4:
      return TransformRowTo<4>(coefficients, lists, quant, out, stride);
    case 2:
      return TransformRowTo<2>(coefficients, lists, quant, out, stride);
  }
  for (int kind = 0; kind < kBlockKinds; ++kind) {
    if (!FillList<1>(coefficients, lists.blocks[kind].data(), lists.count[kind], quant[0], out,
                     stride))
      return false;
  }
  return true;
}

#endif

const PixelKernels* PixelKernelTable() {
  static const PixelKernels kTable = {hwy::TargetName(HWY_TARGET),
                                      TransformRow,
                                      CheckRow,
                                      UpsampleH2V1,
                                      UpsampleH2V2,
                                      UpsampleH1V2,
                                      YccToRgb,
                                      GrayToRgb};
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::jpeg
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace feedwater::server::jpeg {

HWY_EXPORT(PixelKernelTable);

const PixelKernels& ActivePixelKernels() { return *HWY_DYNAMIC_DISPATCH(PixelKernelTable)(); }

}  // namespace feedwater::server::jpeg
#endif
