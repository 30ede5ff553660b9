#include "server/imaging/lab_kernels.h"

// As in codec/resample_kernels.cc.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/imaging/lab_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D32 = hn::CappedTag<int32_t, 16>;
using D8 = hn::Rebind<uint8_t, D32>;
using DF = hn::Rebind<float, D32>;
using V32 = hn::Vec<D32>;

HWY_INLINE V32 LoadBytes(const uint8_t* at) { return hn::PromoteTo(D32(), hn::LoadU(D8(), at)); }
HWY_INLINE void StoreBytes(V32 values, uint8_t* at) {
  hn::StoreU(hn::DemoteTo(D8(), values), D8(), at);
}
HWY_INLINE V32 Times(V32 value, int32_t factor) { return hn::Mul(value, hn::Set(D32(), factor)); }
HWY_INLINE V32 Plus(V32 value, int32_t term) { return hn::Add(value, hn::Set(D32(), term)); }
template <int kBits>
HWY_INLINE V32 Descale(V32 value) {
  return hn::ShiftRight<kBits>(Plus(value, 1 << (kBits - 1)));
}
template <int kBits>
HWY_INLINE V32 Mixed(const int32_t* weights, V32 a, V32 b, V32 c) {
  return Descale<kBits>(
      hn::Add(Times(a, weights[0]), hn::Add(Times(b, weights[1]), Times(c, weights[2]))));
}

void ToLab(const LabTables& tables, uint8_t* planes, size_t plane, size_t count) {
  constexpr int kScale = (116 * 255 + 50) / 100, kRootBits = LabTables::kRootBits;
  constexpr int kShift = -((16 * 255 * (1 << kRootBits) + 50) / 100);
  constexpr int kMiddle = 128 * (1 << kRootBits);
  const D32 d;
  const size_t n = hn::Lanes(d);
  for (size_t i = 0; i < count; i += n) {
    uint8_t* const at = planes + i;
    V32 rgb[3], f[3];
    for (size_t c = 0; c < 3; ++c)
      rgb[c] = hn::GatherIndex(d, tables.gamma, LoadBytes(at + c * plane));
    for (int k = 0; k < 3; ++k) {
      f[k] = hn::GatherIndex(d, tables.root,
                             Mixed<LabTables::kBits>(tables.to_xyz[k], rgb[0], rgb[1], rgb[2]));
    }
    StoreBytes(Descale<kRootBits>(Plus(Times(f[1], kScale), kShift)), at);
    StoreBytes(Descale<kRootBits>(Plus(Times(hn::Sub(f[0], f[1]), 500), kMiddle)), at + plane);
    StoreBytes(Descale<kRootBits>(Plus(Times(hn::Sub(f[1], f[2]), 200), kMiddle)), at + 2 * plane);
  }
}

// X or Z from its root: the cube, or a line near black, where divisions are cut off as C's are.
HWY_INLINE V32 CubeOf(V32 root) {
  constexpr int kBits = LabTables::kBaseBits;
  constexpr int kLastOfLine = 3390;
  constexpr int kOffset = LabTables::kBase * 16 / 116 * 108 / 841;
  const V32 cube = hn::ShiftRight<kBits>(hn::Mul(hn::ShiftRight<kBits>(hn::Mul(root, root)), root));
  // Below 2^24, so the quotient of floats is cut off to that of integers.
  const auto quotient = hn::Div(hn::ConvertTo(DF(), Times(root, 108)), hn::Set(DF(), 841.0f));
  const V32 line = Plus(hn::ConvertTo(D32(), quotient), -kOffset);
  return hn::IfThenElse(hn::Gt(root, hn::Set(D32(), kLastOfLine)), cube, line);
}

void FromLab(const LabTables& tables, uint8_t* planes, size_t plane, size_t count) {
  constexpr int kMiddleOfA = 128 * LabTables::kBase / 500,
                kMiddleOfB = 128 * LabTables::kBase / 200 - 1;
  const D32 d;
  const size_t n = hn::Lanes(d);
  const V32 most = hn::Set(d, LabTables::kInverseGammas - 1);
  for (size_t i = 0; i < count; i += n) {
    uint8_t* const at = planes + i;
    const V32 lightness = LoadBytes(at), a = LoadBytes(at + plane), b = LoadBytes(at + 2 * plane);
    const V32 y = hn::GatherIndex(d, tables.y, lightness),
              root = hn::GatherIndex(d, tables.root_of_y, lightness);
    // a / 500 and b / 200, as OpenCV approximates them.
    const V32 to_x = Plus(hn::ShiftRight<13>(Plus(Times(a, 5 * 53687), 1 << 7)), -kMiddleOfA),
              to_z = Plus(hn::ShiftRight<9>(Plus(Times(b, 41943), 1 << 4)), -kMiddleOfB);
    const V32 x = CubeOf(hn::Add(root, to_x)), z = CubeOf(hn::Sub(root, to_z));
    for (size_t c = 0; c < 3; ++c) {
      const V32 linear = Mixed<LabTables::kBackBits>(tables.to_rgb[c], x, y, z);
      const V32 index = hn::Max(hn::Zero(d), hn::Min(linear, most));
      StoreBytes(hn::GatherIndex(d, tables.inverse_gamma, index), at + c * plane);
    }
  }
}

const LabTable* LabTargetTable() {
  static const LabTable kTable = {hwy::TargetName(HWY_TARGET), ToLab, FromLab};
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace feedwater::server::kernels {

HWY_EXPORT(LabTargetTable);

const LabTable& Lab() { return *HWY_DYNAMIC_DISPATCH(LabTargetTable)(); }

}  // namespace feedwater::server::kernels
#endif
