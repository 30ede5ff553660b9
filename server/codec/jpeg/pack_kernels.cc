#include <cstring>

#include "server/codec/jpeg/header_walk.h"
#include "server/codec/jpeg/packed_block.h"
#include "server/codec/jpeg/store_kernels.h"

// As in pixel_kernels.cc.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/codec/jpeg/pack_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "server/codec/jpeg/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::jpeg {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#undef FEEDWATER_HAVE_BMI2
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86_64
#define FEEDWATER_HAVE_BMI2 1
#else
#define FEEDWATER_HAVE_BMI2 0
#endif

#if HWY_TARGET == HWY_AVX3_DL

// As the other one, with all 64 coefficients in one register.
HWY_INLINE bool ToGroups(const int16_t* block, uint64_t* groups) {
  HWY_ALIGN static constexpr uint8_t kGroupOrder[64] = {
      0,  1,  2,  3,  8,  9,  10, 11, 4,  5,  6,  7,  12, 13, 14, 15, 16, 17, 18, 19, 24, 25,
      26, 27, 20, 21, 22, 23, 28, 29, 30, 31, 32, 33, 34, 35, 40, 41, 42, 43, 36, 37, 38, 39,
      44, 45, 46, 47, 48, 49, 50, 51, 56, 57, 58, 59, 52, 53, 54, 55, 60, 61, 62, 63};
  const __m512i top = _mm512_loadu_si512(block), bottom = _mm512_loadu_si512(block + 32);
  const __m512i shift = _mm512_set1_epi16(128), limit = _mm512_set1_epi16(255);
  const uint32_t wide_top = _mm512_cmpgt_epu16_mask(_mm512_add_epi16(top, shift), limit);
  const uint32_t wide_bottom = _mm512_cmpgt_epu16_mask(_mm512_add_epi16(bottom, shift), limit);
  const __m512i low = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(top)),
                                         _mm512_cvtepi16_epi8(bottom), 1);
  const __m512i v =
      _mm512_maskz_permutexvar_epi8(~uint64_t{1}, _mm512_load_si512(kGroupOrder), low);
  const __m512i sign = _mm512_movm_epi8(_mm512_movepi8_mask(v));
  _mm512_store_si512(groups, _mm512_xor_si512(_mm512_add_epi8(v, v), sign));
  return ((wide_top & ~1u) | wide_bottom) != 0;
}

HWY_INLINE uint32_t PackGroups(const uint64_t* groups, uint8_t** payload) {
  const __m512i u = _mm512_load_si512(groups);
  const __m512i zero = _mm512_setzero_si512(), one = _mm512_set1_epi64(1);
  const __m512i two = _mm512_set1_epi64(2), seven = _mm512_set1_epi64(7);
  // The widest value of each group, and the class that has room for it.
  __m512i any = _mm512_or_si512(u, _mm512_srli_epi64(u, 32));
  any = _mm512_or_si512(any, _mm512_srli_epi64(any, 16));
  any = _mm512_and_si512(_mm512_or_si512(any, _mm512_srli_epi64(any, 8)), _mm512_set1_epi64(255));
  __m512i width = _mm512_or_si512(any, _mm512_srli_epi64(any, 1));
  width = _mm512_or_si512(width, _mm512_srli_epi64(width, 2));
  width = _mm512_popcnt_epi64(_mm512_or_si512(width, _mm512_srli_epi64(width, 4)));
  __m512i classes = _mm512_max_epu64(width, two);
  classes =
      _mm512_mask_mov_epi64(classes, _mm512_cmpgt_epu64_mask(classes, _mm512_set1_epi64(6)), seven);
  // Values side by side: pairs, then fours, then eights.
  const __m512i bits = _mm512_permutexvar_epi64(classes, _mm512_setr_epi64(0, 0, 2, 3, 4, 5, 6, 8));
  const auto join = [](__m512i values, __m512i by, int distance, uint64_t lower) HWY_ATTR {
    const __m512i mask = _mm512_set1_epi64(static_cast<int64_t>(lower));
    const __m512i upper =
        _mm512_and_si512(_mm512_srli_epi64(values, static_cast<unsigned>(distance)), mask);
    return _mm512_or_si512(_mm512_and_si512(values, mask), _mm512_sllv_epi64(upper, by));
  };
  __m512i packed = join(u, bits, 8, 0x00FF00FF00FF00FFu);
  packed = join(packed, _mm512_add_epi64(bits, bits), 16, 0x0000FFFF0000FFFFu);
  packed = join(packed, _mm512_slli_epi64(bits, 2), 32, 0x00000000FFFFFFFFu);
  // At most two bits, each the lower or the second of its byte: class 1, or 0 where there is none.
  const __mmask8 few = _mm512_mask_cmple_epu64_mask(
      _mm512_cmple_epu64_mask(any, _mm512_set1_epi64(3)), _mm512_popcnt_epi64(u), two);
  const auto lowest = [one](__m512i v) HWY_ATTR {  // position of the lowest bit
    return _mm512_popcnt_epi64(_mm512_andnot_si512(v, _mm512_sub_epi64(v, one)));
  };
  const __m512i rest = _mm512_and_si512(u, _mm512_sub_epi64(u, one));
  const __m512i first = lowest(u);
  const __m512i second = lowest(_mm512_mask_mov_epi64(u, _mm512_test_epi64_mask(rest, rest), rest));
  __m512i code = _mm512_or_si512(_mm512_srli_epi64(first, 3),
                                 _mm512_and_si512(second, _mm512_set1_epi64(0x38)));
  code = _mm512_or_si512(code, _mm512_slli_epi64(_mm512_and_si512(first, one), 6));
  code = _mm512_or_si512(code, _mm512_slli_epi64(_mm512_and_si512(second, one), 7));
  packed = _mm512_mask_mov_epi64(packed, few, code);
  classes = _mm512_mask_mov_epi64(classes, few,
                                  _mm512_maskz_mov_epi64(_mm512_cmpneq_epi64_mask(u, zero), one));
  // Only the bytes that each class takes.
  const __m512i kept = _mm512_permutexvar_epi64(
      classes, _mm512_setr_epi64(0, 0x01, 0x03, 0x07, 0x0F, 0x1F, 0x3F, 0xFF));
  const auto mask = static_cast<uint64_t>(_mm_cvtsi128_si64(_mm512_cvtepi64_epi8(kept)));
  _mm512_storeu_si512(*payload, _mm512_maskz_compress_epi8(mask, packed));
  *payload += __builtin_popcountll(mask);
  const auto class_bytes = static_cast<uint64_t>(_mm_cvtsi128_si64(_mm512_cvtepi64_epi8(classes)));
  return static_cast<uint32_t>(_pext_u64(class_bytes, 0x0707070707070707u));
}

#else

HWY_INLINE uint64_t PackGroup(uint64_t u, int group_class) {
#if FEEDWATER_HAVE_BMI2
  return _pext_u64(u, kValueMasks[group_class]);
#else
  return PackBits(u, kClassBits[group_class]);
#endif
}

// The bytes u of the eight groups, DC's place 0. Returns whether a coefficient besides DC does not
// fit a signed byte.
HWY_INLINE bool ToGroups(const int16_t* block, uint64_t* groups) {
#if HWY_TARGET == HWY_SCALAR
  bool wide = false;
  for (int g = 0; g < kGroups; ++g) {
    groups[g] = 0;
    for (int j = 0; j < 8; ++j) {
      const int at = NaturalPosition(g, j);
      if (at == 0) continue;
      const int v = static_cast<int8_t>(block[at]);
      wide |= v != block[at];
      groups[g] |= static_cast<uint64_t>(v < 0 ? -2 * v - 1 : 2 * v) << (8 * j);
    }
  }
  return wide;
#else
  const hn::FixedTag<int16_t, 8> d;
  const hn::FixedTag<int64_t, 2> d64;
  const hn::FixedTag<uint8_t, 16> d8;
  static constexpr int16_t kWithoutDc[8] = {0, -1, -1, -1, -1, -1, -1, -1};
  auto low = hn::Zero(d), high = hn::Zero(d);
  for (int pair = 0; pair < 4; ++pair) {
    auto a = hn::LoadU(d, block + 16 * pair), b = hn::LoadU(d, block + 16 * pair + 8);
    if (pair == 0) a = hn::And(a, hn::LoadU(d, kWithoutDc));
    low = hn::Min(low, hn::Min(a, b));
    high = hn::Max(high, hn::Max(a, b));
    // Twice the value, all bits turned if it is negative: of the low byte alone.
    const auto zigzag = [&](decltype(a) v) HWY_ATTR {
      const auto sign = hn::ShiftRight<15>(hn::ShiftLeft<8>(v));
      return hn::And(hn::Xor(hn::Add(v, v), sign), hn::Set(d, 0xFF));
    };
    const auto left = hn::BitCast(
        d, hn::InterleaveLower(d64, hn::BitCast(d64, zigzag(a)), hn::BitCast(d64, zigzag(b))));
    const auto right = hn::BitCast(
        d, hn::InterleaveUpper(d64, hn::BitCast(d64, zigzag(a)), hn::BitCast(d64, zigzag(b))));
    hn::StoreU(PackUnsigned(left, right), d8, reinterpret_cast<uint8_t*>(groups + 2 * pair));
  }
  return !hn::AllFalse(d, hn::Gt(high, hn::Set(d, 127))) ||
         !hn::AllFalse(d, hn::Lt(low, hn::Set(d, -128)));
#endif
}

// Appends the groups at *payload and returns their classes, as the header has them.
HWY_INLINE uint32_t PackGroups(const uint64_t* groups, uint8_t** payload) {
  uint8_t* p = *payload;
  uint32_t header = 0;
  for (int g = 0; g < kGroups; ++g) {
    const uint64_t u = groups[g];
    uint64_t any = u | u >> 32;
    any |= any >> 16;
    any = (any | any >> 8) & 0xFF;
    const int width = 64 - __builtin_clzll(2 * any + 1) - 1;
    int group_class = width < 2 ? 2 : width > 6 ? 7 : width;
    uint64_t bits = PackGroup(u, group_class);
    // At most two bits, each the lower or the second of its byte.
    const uint64_t rest = u & (u - 1);
    const bool two = any <= 3 && (rest & (rest - 1)) == 0;
    const int first = __builtin_ctzll(u | uint64_t{1} << 63);
    const int second = __builtin_ctzll((rest != 0 ? rest : u) | uint64_t{1} << 63);
    const int code = first >> 3 | second >> 3 << 3 | (first & 1) << 6 | (second & 1) << 7;
    bits = two ? static_cast<uint64_t>(code) : bits;
    group_class = two ? (u != 0 ? 1 : 0) : group_class;
    std::memcpy(p, &bits, 8);
    p += kClassBytes[group_class];
    header |= static_cast<uint32_t>(group_class) << (3 * g);
  }
  *payload = p;
  return header;
}

#endif

size_t PackRow(const int16_t* coefficients, size_t blocks, uint8_t* checkpoints, uint8_t* headers,
               uint8_t* payload) {
  const auto write_u16 = [](int value, uint8_t* to) {
    const auto v = static_cast<uint16_t>(value);
    std::memcpy(to, &v, 2);
  };
  uint8_t* p = payload;
  const uint8_t* checkpoint_start = p;
  int dc = 0;
  for (size_t i = 0; i < blocks; ++i) {
    const int16_t* block = coefficients + 64 * i;
    if (i % kCheckpointBlocks == 0) {
      uint8_t* checkpoint = checkpoints + i / kCheckpointBlocks * kCheckpointBytes;
      if (i > 0) write_u16(static_cast<int>(p - checkpoint_start), checkpoint - kCheckpointBytes);
      checkpoint_start = p;
      write_u16(dc, checkpoint + 2);
    }
    HWY_ALIGN uint64_t groups[kGroups];
    const bool wide = ToGroups(block, groups);
    const int difference = block[0] - dc;
    dc = block[0];
    uint32_t header = static_cast<uint32_t>(static_cast<uint8_t>(difference)) << 24;
    if (wide || difference < -127 || difference > 127) [[unlikely]] {
      header = static_cast<uint32_t>(kExceptionDc) << 24;
      write_u16(dc, p);
      uint8_t* count = p + 2;
      *count = 0;
      p += kExceptionBytes;
      for (int at = 1; wide && at < 64; ++at) {
        const int low = static_cast<int8_t>(block[at]);
        if (low == block[at]) continue;
        p[0] = static_cast<uint8_t>(at);
        p[1] = static_cast<uint8_t>((block[at] - low) / 256);
        p += 2;
        ++*count;
      }
    }
    header |= PackGroups(groups, &p);
    std::memcpy(headers + kBlockHeaderBytes * i, &header, 4);
  }
  const size_t last = (blocks - 1) / kCheckpointBlocks;
  write_u16(static_cast<int>(p - checkpoint_start), checkpoints + last * kCheckpointBytes);
  return static_cast<size_t>(p - payload);
}

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::jpeg
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace feedwater::server::jpeg {

HWY_EXPORT(PackRow);

size_t PackRow(const int16_t* coefficients, size_t blocks, uint8_t* checkpoints, uint8_t* headers,
               uint8_t* payload) {
  return HWY_DYNAMIC_DISPATCH(PackRow)(coefficients, blocks, checkpoints, headers, payload);
}

}  // namespace feedwater::server::jpeg
#endif
