#include <cstring>

#include "server/codec/jpeg/block_guard.h"
#include "server/codec/jpeg/header_walk.h"
#include "server/codec/jpeg/packed_block.h"
#include "server/codec/jpeg/store_kernels.h"

// As in pixel_kernels.cc.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/codec/jpeg/unpack_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "server/codec/jpeg/idct-inl.h"
#include "server/codec/jpeg/reduced_idct-inl.h"
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

#if HWY_TARGET == HWY_SCALAR

bool TransformPacked(const PackedBlocks& from, int skip, int count, const uint16_t* quant, int side,
                     uint8_t* out, size_t stride) {
  HeaderWalk walk(from);
  for (int i = 0; i < skip + count; ++i) {
    if (!walk.Next() || !walk.WithinPayload()) return false;
    if (i < skip) continue;
    int16_t block[64];
    UnpackBlockPlain(walk.header, from.payload + walk.groups, block);
    ApplyExceptions(walk.exception, walk.exceptions, nullptr, block);
    block[0] = static_cast<int16_t>(walk.dc());
    uint8_t* const samples = out + side * (i - skip);
    // Beyond the guards, as no packer lets it be. Other targets give what their sums become: none
    // refuses it, and nothing of an earlier image may stay here.
    if (!TransformBlockPlain(block, quant, side, samples, static_cast<int>(stride))) {
      for (int y = 0; y < side; ++y) std::fill_n(samples + y * stride, side, uint8_t{128});
    }
  }
  return true;
}

#else

// Blocks are unpacked in chunks that stay in L1: first all headers, then the blocks of each kind.
constexpr int kChunk = 64;

enum PackedKind : int { kPackedDc, kPackedQuarter, kPackedFull, kPackedWide, kPackedKinds };

struct Chunk {
  HWY_ALIGN uint8_t groups[kChunk][64];  // the bytes u in order of groups
  HWY_ALIGN int16_t dc[kChunk][8];       // dequantised, in the first lane; the others 0
  HWY_ALIGN uint64_t headers[kChunk];
  HWY_ALIGN uint64_t offsets[kChunk];  // AVX3_DL: of the eight groups, a byte each
  const uint8_t* payload[kChunk];
  uint8_t exceptions[kChunk];
  const uint8_t* exception[kChunk];
  uint8_t list[kPackedKinds][2 * kChunk];  // room to pad, and to store whole vectors
  int count[kPackedKinds];
};

#if HWY_TARGET == HWY_AVX3_DL

// All eight groups at once: each group's bytes to its 64 bits (vpermb), each value to its byte
// (vpmultishiftqb), the bits above it cleared. `header` and `offsets` stand in all 64-bit lanes.
HWY_INLINE __m512i UnpackGroups(__m512i header, __m512i offsets, const uint8_t* from) {
  const auto shifts = [](uint64_t bits) {
    return static_cast<int64_t>(bits * 0x0706050403020100u);
  };
  const __m512i by_class =
      _mm512_setr_epi64(0, 0, shifts(2), shifts(3), shifts(4), shifts(5), shifts(6), shifts(8));
  const __m512i masks = _mm512_loadu_si512(kValueMasks.data());
  const __m512i iota = _mm512_set1_epi64(0x0706050403020100);
  const __m512i spread = _mm512_setr_epi64(
      0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303, 0x0404040404040404,
      0x0505050505050505, 0x0606060606060606, 0x0707070707070707);
  const __m512i one = _mm512_set1_epi64(1), seven = _mm512_set1_epi64(7);
  // vpermq and vpmultishiftqb take only the bits of an index that they need.
  const __m512i classes = _mm512_srlv_epi64(header, _mm512_setr_epi64(0, 3, 6, 9, 12, 15, 18, 21));
  const __m512i index = _mm512_add_epi8(_mm512_permutexvar_epi8(spread, offsets), iota);
  const __m512i raw = _mm512_permutexvar_epi8(index, _mm512_loadu_si512(from));
  const __m512i values =
      _mm512_multishift_epi64_epi8(_mm512_permutexvar_epi64(classes, by_class), raw);
  const __m512i u = _mm512_and_si512(values, _mm512_permutexvar_epi64(classes, masks));
  // Class 1: two values at two positions.
  const __m512i position = _mm512_set1_epi64(56);
  const __m512i first = _mm512_add_epi64(_mm512_and_si512(_mm512_srli_epi64(raw, 6), one), one);
  const __m512i second = _mm512_add_epi64(_mm512_and_si512(_mm512_srli_epi64(raw, 7), one), one);
  const __m512i two = _mm512_or_si512(
      _mm512_sllv_epi64(first, _mm512_and_si512(_mm512_slli_epi64(raw, 3), position)),
      _mm512_sllv_epi64(second, _mm512_and_si512(raw, position)));
  return _mm512_mask_mov_epi64(u, _mm512_cmpeq_epi64_mask(_mm512_and_si512(classes, seven), one),
                               two);
}

HWY_INLINE __m512i UnpackGroups(const Chunk& chunk, int block) {
  return UnpackGroups(_mm512_set1_epi64(static_cast<int64_t>(chunk.headers[block])),
                      _mm512_set1_epi64(static_cast<int64_t>(chunk.offsets[block])),
                      chunk.payload[block]);
}

HWY_INLINE void UnpackList(Chunk& chunk, PackedKind kind, int count) {
  if (kind != kPackedQuarter) return;  // LoadGroups keeps the others in registers
  for (int i = 0; i < count; ++i) {
    const int block = chunk.list[kind][i];
    _mm512_store_si512(chunk.groups[block], UnpackGroups(chunk, block));
  }
}

// pairs[k]: groups 2k and 2k + 1 of four blocks, one in each 128 bits.
HWY_INLINE void LoadGroups(const Chunk& chunk, const uint8_t* list, V8* pairs) {
  const __m512i a = UnpackGroups(chunk, list[0]), b = UnpackGroups(chunk, list[1]);
  const __m512i c = UnpackGroups(chunk, list[2]), d = UnpackGroups(chunk, list[3]);
  const __m512i ab_low = _mm512_shuffle_i64x2(a, b, 0x44),
                cd_low = _mm512_shuffle_i64x2(c, d, 0x44);
  const __m512i ab_high = _mm512_shuffle_i64x2(a, b, 0xEE);
  const __m512i cd_high = _mm512_shuffle_i64x2(c, d, 0xEE);
  pairs[0] = V8{_mm512_shuffle_i64x2(ab_low, cd_low, 0x88)};
  pairs[1] = V8{_mm512_shuffle_i64x2(ab_low, cd_low, 0xDD)};
  pairs[2] = V8{_mm512_shuffle_i64x2(ab_high, cd_high, 0x88)};
  pairs[3] = V8{_mm512_shuffle_i64x2(ab_high, cd_high, 0xDD)};
}

#else

HWY_INLINE void UnpackOneGroup(const uint8_t* from, uint32_t group_class, uint8_t* to) {
#if FEEDWATER_HAVE_BMI2
  const uint64_t raw = ReadU64(from);
  const uint64_t u = _pdep_u64(raw, kValueMasks[group_class]) |
                     (kTwoValues[raw & 0xFF] & (group_class == 1 ? ~uint64_t{0} : 0));
#else
  const uint64_t raw = ReadU64(from);
  const uint64_t spread = UnpackBits(raw, kClassBits[group_class]);
  const uint64_t u = group_class == 1 ? kTwoValues[raw & 0xFF] : spread;
#endif
  std::memcpy(to, &u, 8);
}

HWY_INLINE void UnpackList(Chunk& chunk, PackedKind kind, int count) {
  for (int i = 0; i < count; ++i) {
    const int block = chunk.list[kind][i];
    const auto header = static_cast<uint32_t>(chunk.headers[block]);
    const uint8_t* from = chunk.payload[block];
    uint8_t* to = chunk.groups[block];
    if (kind == kPackedQuarter) {
      const uint32_t first = header & 7, third = header >> 6 & 7;
      UnpackOneGroup(from, first, to);
      UnpackOneGroup(from + kClassBytes[first], third, to + 16);
    } else {
      for (int g = 0; g < kGroups; ++g) {
        const uint32_t group_class = header >> (3 * g) & 7;
        UnpackOneGroup(from, group_class, to + 8 * g);
        from += kClassBytes[group_class];
      }
    }
  }
}

// pairs[k]: groups 2k and 2k + 1 of kBlocks blocks, one in each 128 bits.
HWY_INLINE void LoadGroups(const Chunk& chunk, const uint8_t* list, V8* pairs) {
  const uint8_t* groups[kBlocks];
  for (size_t b = 0; b < kBlocks; ++b) groups[b] = chunk.groups[list[b]];
  for (int k = 0; k < 4; ++k) pairs[k] = LoadPieces<16>(D8(), groups, 16 * k);
}

#endif

// Bytes u of two groups of a block in each 128 bits to two vectors of int16, times 256: per 128
// bits the upper rows of the groups, and the lower ones.
HWY_INLINE void ToRows(V8 u, V16* upper, V16* lower) {
  const D8 d;
  const D16 d16;
  const auto zero = hn::Zero(d);
  const auto sign = hn::Sub(zero, hn::And(u, hn::Set(d, 1)));
  const auto v = hn::Xor(hn::ShiftRight<1>(u), sign);
  HWY_ALIGN static constexpr uint8_t kRows[16] = {0, 1, 2, 3, 8,  9,  10, 11,
                                                  4, 5, 6, 7, 12, 13, 14, 15};
  const auto rows = hn::TableLookupBytes(v, hn::LoadDup128(d, kRows));
  *upper = hn::BitCast(d16, hn::InterleaveLower(d, zero, rows));
  *lower = hn::BitCast(d16, hn::InterleaveUpper(d, zero, rows));
}

// 256 * value times 128 * step: exactly value * step, which needs 16 bits.
HWY_INLINE V16 Dequantise(V16 value, V16 step) { return hn::MulFixedPoint15(value, step); }

HWY_INLINE void SetDc(int dequantised, int16_t* lanes) {
  const uint64_t halves[2] = {static_cast<uint16_t>(dequantised), 0};
  std::memcpy(lanes, halves, sizeof(halves));
}

// Fills the chunk from the headers; the walk's next block is the chunk's first.
#if HWY_TARGET == HWY_AVX3_DL

HWY_INLINE bool ReadHeaders(HeaderWalk& walk, const uint8_t* payload, int count, int step,
                            Chunk& chunk) {
  // Eight headers at a time (a vector may reach behind the row's last, into the payload or the
  // padding): the bytes of each group, summed up.
  const __m512i fields = _mm512_set1_epi64(0x15120F0C09060300);
  const __m512i sevens = _mm512_set1_epi8(7);
  const __m512i lengths = _mm512_set1_epi64(0x0806050403020100);
  uint64_t any_group = 0, beyond_quarter = 0, wide = 0;
  HWY_ALIGN uint64_t totals[kChunk];
  const uint8_t* headers = walk.next_headers();
  for (int i = 0; i < count; i += 8) {
    const __m512i header = _mm512_cvtepu32_epi64(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(headers + kBlockHeaderBytes * i)));
    const __m512i classes = _mm512_and_si512(_mm512_multishift_epi64_epi8(fields, header), sevens);
    __m512i sums = _mm512_shuffle_epi8(_mm512_shuffle_i64x2(lengths, lengths, 0), classes);
    sums = _mm512_add_epi8(sums, _mm512_slli_epi64(sums, 8));
    sums = _mm512_add_epi8(sums, _mm512_slli_epi64(sums, 16));
    sums = _mm512_add_epi8(sums, _mm512_slli_epi64(sums, 32));
    _mm512_store_si512(chunk.headers + i, header);
    _mm512_store_si512(chunk.offsets + i, _mm512_slli_epi64(sums, 8));
    _mm512_store_si512(totals + i, _mm512_srli_epi64(sums, 56));
    any_group |= uint64_t{_mm512_test_epi64_mask(header, _mm512_set1_epi64(0xFFFFFF))} << i;
    beyond_quarter |=
        uint64_t{_mm512_test_epi64_mask(header, _mm512_set1_epi64(0xFFFFFF & ~kQuarterHeaderBits))}
        << i;
  }
  for (int i = 0; i < count; ++i) {
    if (!walk.Next(static_cast<uint32_t>(chunk.headers[i]), totals[i])) return false;
    chunk.payload[i] = payload + walk.groups;
    SetDc(walk.dc() * step, chunk.dc[i]);
    if (walk.exceptions != 0) [[unlikely]] {
      wide |= uint64_t{1} << i;
      chunk.exceptions[i] = static_cast<uint8_t>(walk.exceptions);
      chunk.exception[i] = walk.exception;
    }
  }
  const uint64_t narrow = ~uint64_t{0} >> (kChunk - count) & ~wide;
  const uint64_t kinds[kPackedKinds] = {narrow & ~any_group, narrow & any_group & ~beyond_quarter,
                                        narrow & beyond_quarter, wide};
  HWY_ALIGN static constexpr uint8_t kIndices[64] = {
      0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
      22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
      44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
  for (int kind = 0; kind < kPackedKinds; ++kind) {
    _mm512_storeu_si512(chunk.list[kind],
                        _mm512_maskz_compress_epi8(kinds[kind], _mm512_load_si512(kIndices)));
    chunk.count[kind] = __builtin_popcountll(kinds[kind]);
  }
  return walk.WithinPayload();
}

#else

HWY_INLINE bool ReadHeaders(HeaderWalk& walk, const uint8_t* payload, int count, int step,
                            Chunk& chunk) {
  for (int& n : chunk.count) n = 0;
  for (int i = 0; i < count; ++i) {
    if (!walk.Next()) return false;
    const uint32_t classes = walk.header & 0xFFFFFF;
    chunk.headers[i] = classes;
    chunk.payload[i] = payload + walk.groups;
    SetDc(walk.dc() * step, chunk.dc[i]);
    int kind = (classes != 0) + ((classes & ~kQuarterHeaderBits) != 0);
    if (walk.exceptions != 0) [[unlikely]] {
      kind = kPackedWide;
      chunk.exceptions[i] = static_cast<uint8_t>(walk.exceptions);
      chunk.exception[i] = walk.exception;
    }
    chunk.list[kind][chunk.count[kind]++] = static_cast<uint8_t>(i);
  }
  return walk.WithinPayload();
}

#endif

// Repeats the last entry, so that whole vectors can be taken.
HWY_INLINE int PadList(Chunk& chunk, PackedKind kind, size_t step) {
  const int count = chunk.count[kind];
  if (count == 0) return 0;
  uint8_t* list = chunk.list[kind];
  for (size_t i = 0; i + 1 < step; ++i) list[count + i] = list[count - 1];
  return count;
}

// The dequantised rows of kBlocks blocks of a list: kPackedFull, or kPackedWide, coefficients
// beyond a signed byte, where the high bytes' share is added to the rows.
template <PackedKind kKind>
HWY_INLINE void LoadRows(const Chunk& chunk, const uint8_t* list, const V16* steps,
                         const uint16_t* quant, V16* rows) {
  const D16 d16;
  const int16_t* added[kBlocks];
  HWY_ALIGN int16_t high[kKind == kPackedWide ? kBlocks : 1][64];
  if constexpr (kKind == kPackedWide) std::memset(high, 0, sizeof(high));
  for (size_t b = 0; b < kBlocks; ++b) {
    const int block = list[b];
    added[b] = chunk.dc[block];
    if constexpr (kKind == kPackedWide) {
      ApplyExceptions(chunk.exception[block], chunk.exceptions[block], quant, high[b]);
      high[b][0] = chunk.dc[block][0];
      added[b] = high[b];
    }
  }
  V8 pairs[4];
  LoadGroups(chunk, list, pairs);
  for (int k = 0; k < 4; ++k) {
    ToRows(pairs[k], &rows[2 * k], &rows[2 * k + 1]);
    rows[2 * k] = Dequantise(rows[2 * k], steps[2 * k]);
    rows[2 * k + 1] = Dequantise(rows[2 * k + 1], steps[2 * k + 1]);
  }
  for (int k = 0; k < (kKind == kPackedWide ? 8 : 1); ++k) {
    rows[k] = hn::Add(rows[k], LoadPieces<8>(d16, added, 8 * k));
  }
}

template <PackedKind kKind, int kSide>
HWY_INLINE void TransformFullBlocks(Chunk& chunk, const V16* steps, const uint16_t* quant,
                                    uint8_t* out, size_t stride) {
  constexpr size_t kStep = kSide == 8 ? kBlocks : 2 * kBlocks;
  const int count = PadList(chunk, kKind, kStep);
  UnpackList(chunk, kKind, count);
  for (int i = 0; i < count; i += static_cast<int>(kStep)) {
    const uint8_t* list = chunk.list[kKind] + i;
    uint8_t* to[kStep];
    for (size_t b = 0; b < kStep; ++b) to[b] = out + kSide * list[b];
    V16 rows[8];
    LoadRows<kKind>(chunk, list, steps, quant, rows);
    if constexpr (kSide == 8) {
      TransformFull<false>(rows, to, stride, nullptr);
    } else {
      V16 first[4], second[4];
      ReduceRows<kSide, 8>(rows, first);
      LoadRows<kKind>(chunk, list + kBlocks, steps, quant, rows);
      ReduceRows<kSide, 8>(rows, second);
      FinishFull<kSide, false>(first, second, to, stride, nullptr);
    }
  }
}

template <int kSide>
HWY_INLINE void TransformChunk(Chunk& chunk, const V16* steps, const V16* quarter_steps,
                               const uint16_t* quant, uint8_t* out, size_t stride) {
  const D8 d;
  const D16 d16;
  for (int i = 0; i < chunk.count[kPackedDc]; ++i) {
    const int block = chunk.list[kPackedDc][i];
    FillBlock<kSide>(chunk.dc[block][0], out + kSide * block, stride);
  }
  const int quarters = PadList(chunk, kPackedQuarter, 2 * kBlocks);
  UnpackList(chunk, kPackedQuarter, quarters);
  for (int i = 0; i < quarters; i += static_cast<int>(2 * kBlocks)) {
    const uint8_t* groups[2 * kBlocks];
    const int16_t* dc[2 * kBlocks];
    uint8_t* to[2 * kBlocks];
    for (size_t b = 0; b < 2 * kBlocks; ++b) {
      const int block = chunk.list[kPackedQuarter][i + b];
      groups[b] = chunk.groups[block];
      dc[b] = chunk.dc[block];
      to[b] = out + kSide * block;
    }
    V16 rows[8];
    for (int k = 0; k < 2; ++k)
      ToRows(LoadPieces<8>(d, groups, 16 * k), &rows[2 * k], &rows[2 * k + 1]);
    for (int k = 0; k < 4; ++k) rows[k] = Dequantise(rows[k], quarter_steps[k]);
    rows[0] = hn::Add(rows[0], LoadPieces<4>(d16, dc, 0));
    if constexpr (kSide == 8) {
      TransformQuarter<false>(rows, to, stride, nullptr);
    } else {
      V16 reduced[4];
      ReduceRows<kSide, 4>(rows, reduced);
      FinishQuarter<kSide, false>(reduced, to, stride, nullptr);
    }
  }
  TransformFullBlocks<kPackedFull, kSide>(chunk, steps, quant, out, stride);
  TransformFullBlocks<kPackedWide, kSide>(chunk, steps, quant, out, stride);
}

// One sample a block: of its header alone.
bool FillPacked(const PackedBlocks& from, int skip, int count, int step, uint8_t* out) {
  HeaderWalk walk(from);
  for (int i = 0; i < skip + count; ++i) {
    if (!walk.Next()) return false;
    if (i >= skip) FillBlock<1>(static_cast<int16_t>(walk.dc() * step), out + (i - skip), 0);
  }
  return walk.WithinPayload();
}

template <int kSide>
bool TransformPackedTo(const PackedBlocks& from, int skip, int count, const uint16_t* quant,
                       uint8_t* out, size_t stride) {
  const D16 d16;
  HeaderWalk walk(from);
  for (int i = 0; i < skip; ++i) {
    if (!walk.Next()) return false;
  }
  V16 steps[8], quarter_steps[4];
  for (int k = 0; k < 8; ++k) {
    const auto row = hn::LoadDup128(d16, reinterpret_cast<const int16_t*>(quant + 8 * k));
    steps[k] = hn::ShiftLeft<7>(row);
    const hn::Repartition<int64_t, D16> d64;
    const auto halves = hn::BitCast(d64, steps[k]);
    if (k < 4) quarter_steps[k] = hn::BitCast(d16, hn::InterleaveLower(d64, halves, halves));
  }
  Chunk chunk;
  for (int done = 0; done < count; done += kChunk) {
    const int blocks = count - done < kChunk ? count - done : kChunk;
    if (!ReadHeaders(walk, from.payload, blocks, quant[0], chunk)) return false;
    TransformChunk<kSide>(chunk, steps, quarter_steps, quant, out + kSide * done, stride);
  }
  return true;
}

bool TransformPacked(const PackedBlocks& from, int skip, int count, const uint16_t* quant, int side,
                     uint8_t* out, size_t stride) {
  switch (side) {
    case 8:
      return TransformPackedTo<8>(from, skip, count, quant, out, stride);
    case 4:
      return TransformPackedTo<4>(from, skip, count, quant, out, stride);
    case 2:
      return TransformPackedTo<2>(from, skip, count, quant, out, stride);
  }
  return FillPacked(from, skip, count, quant[0], out);
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::jpeg
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace feedwater::server::jpeg {

HWY_EXPORT(TransformPacked);

bool TransformPacked(const PackedBlocks& from, int skip, int count, const uint16_t* quant, int side,
                     uint8_t* out, size_t stride) {
  return HWY_DYNAMIC_DISPATCH(TransformPacked)(from, skip, count, quant, side, out, stride);
}

}  // namespace feedwater::server::jpeg
#endif
