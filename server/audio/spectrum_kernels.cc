#include "server/audio/spectrum_kernels.h"

#include <algorithm>
#include <utility>

// As in codec/resample_kernels.cc.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/audio/spectrum_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, kMostLanes>;
using V = hn::Vec<D>;

struct Complex {
  V re, im;
};

HWY_INLINE Complex LoadComplex(const float* at) {
  const D d;
  return {hn::Load(d, at), hn::Load(d, at + hn::Lanes(d))};
}
HWY_INLINE void StoreComplex(Complex value, float* at) {
  const D d;
  hn::Store(value.re, d, at);
  hn::Store(value.im, d, at + hn::Lanes(d));
}
HWY_INLINE Complex Plus(Complex a, Complex b) { return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)}; }
HWY_INLINE Complex Minus(Complex a, Complex b) {
  return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)};
}
HWY_INLINE Complex Times(Complex a, const float* root) {
  const D d;
  const V c = hn::Set(d, root[0]), s = hn::Set(d, root[1]);
  return {hn::Sub(hn::Mul(a.re, c), hn::Mul(a.im, s)), hn::Add(hn::Mul(a.re, s), hn::Mul(a.im, c))};
}
HWY_INLINE Complex TimesMinusI(Complex a) {
  const D d;
  return {a.im, hn::Sub(hn::Zero(d), a.re)};
}

// Where the numbers of one butterfly lie.
struct Places {
  const float* in;
  size_t in_step;
  float* out;
  size_t out_step;
};

// The k-th result, turned by its root; the 0th is not turned.
HWY_INLINE void Put(Complex value, int k, const float* twiddles, const Places& at) {
  StoreComplex(k == 0 ? value : Times(value, twiddles + 2 * (k - 1)),
               at.out + static_cast<size_t>(k) * at.out_step);
}

struct Radix2 {
  HWY_INLINE void operator()(const Places& at, const float* twiddles) const {
    const Complex a = LoadComplex(at.in), b = LoadComplex(at.in + at.in_step);
    Put(Plus(a, b), 0, twiddles, at);
    Put(Minus(a, b), 1, twiddles, at);
  }
};

struct Radix4 {
  HWY_INLINE void operator()(const Places& at, const float* twiddles) const {
    const Complex a = LoadComplex(at.in), b = LoadComplex(at.in + at.in_step),
                  c = LoadComplex(at.in + 2 * at.in_step), e = LoadComplex(at.in + 3 * at.in_step);
    const Complex even = Plus(a, c), odd = Plus(b, e), turned = TimesMinusI(Minus(b, e)),
                  rest = Minus(a, c);
    Put(Plus(even, odd), 0, twiddles, at);
    Put(Plus(rest, turned), 1, twiddles, at);
    Put(Minus(even, odd), 2, twiddles, at);
    Put(Minus(rest, turned), 3, twiddles, at);
  }
};

// An odd radix: the j-th number and the j-th from the end share their cosines and sines.
template <int kRadix>
struct OddRadix {
  int radix;
  const float* own_roots;

  HWY_INLINE void operator()(const Places& at, const float* twiddles) const {
    constexpr int kPairs = (kRadix > 0 ? kRadix : kLargestFourierFactor) / 2;
    const D d;
    const int r = kRadix > 0 ? kRadix : radix, pairs = r / 2;
    Complex sums[kPairs], differences[kPairs];
    const Complex first = LoadComplex(at.in);
    Complex all = first;
    for (int j = 1; j <= pairs; ++j) {
      const Complex a = LoadComplex(at.in + static_cast<size_t>(j) * at.in_step),
                    b = LoadComplex(at.in + static_cast<size_t>(r - j) * at.in_step);
      sums[j - 1] = Plus(a, b);
      differences[j - 1] = Minus(a, b);
      all = Plus(all, sums[j - 1]);
    }
    Put(all, 0, twiddles, at);
    for (int k = 1; k <= pairs; ++k) {
      Complex even = first, odd = {hn::Zero(d), hn::Zero(d)};
      int at_root = 0;
      for (int j = 0; j < pairs; ++j) {
        at_root += k;
        if (at_root >= r) at_root -= r;
        const V c = hn::Set(d, own_roots[2 * at_root]), s = hn::Set(d, own_roots[2 * at_root + 1]);
        even.re = hn::Add(even.re, hn::Mul(c, sums[j].re));
        even.im = hn::Add(even.im, hn::Mul(c, sums[j].im));
        // i times the negative sine
        odd.re = hn::Sub(odd.re, hn::Mul(s, differences[j].im));
        odd.im = hn::Add(odd.im, hn::Mul(s, differences[j].re));
      }
      Put(Plus(even, odd), k, twiddles, at);
      Put(Minus(even, odd), r - k, twiddles, at);
    }
  }
};

template <class Butterfly>
HWY_INLINE void RunStage(const Fourier::Stage& stage, const Butterfly& butterfly,
                         const float* roots, const float* from, float* to) {
  const D d;
  const size_t complex = 2 * hn::Lanes(d), stride = static_cast<size_t>(stage.stride),
               groups = static_cast<size_t>(stage.groups), radix = static_cast<size_t>(stage.radix);
  for (size_t p = 0; p < groups; ++p) {
    const float* const twiddles = roots + stage.twiddles + 2 * p * (radix - 1);
    for (size_t q = 0; q < stride; ++q) {
      butterfly(Places{from + complex * (q + stride * p), complex * stride * groups,
                       to + complex * (q + stride * radix * p), complex * stride},
                twiddles);
    }
  }
}

// The transform of fourier.points complex numbers at `from`; where it is then: there or at `other`.
float* Transform(const Fourier& fourier, float* from, float* other) {
  const float* const roots = fourier.roots.data();
  for (const Fourier::Stage& stage : fourier.stages) {
    const float* const own = roots + stage.own_roots;
    switch (stage.radix) {
      case 2:
        RunStage(stage, Radix2(), roots, from, other);
        break;
      case 4:
        RunStage(stage, Radix4(), roots, from, other);
        break;
      case 3:
        RunStage(stage, OddRadix<3>{3, own}, roots, from, other);
        break;
      case 5:
        RunStage(stage, OddRadix<5>{5, own}, roots, from, other);
        break;
      default:
        RunStage(stage, OddRadix<0>{stage.radix, own}, roots, from, other);
    }
    std::swap(from, other);
  }
  return from;
}

HWY_INLINE V Magnitude(Complex value, bool squared) {
  const V power = hn::Add(hn::Mul(value.re, value.re), hn::Mul(value.im, value.im));
  return squared ? power : hn::Sqrt(power);
}

// From the transform of pairs of neighbours to the bins of all numbers.
void BinsOfHalves(const Fourier& fourier, const float* halves, bool squared, float* bins) {
  const D d;
  const size_t lanes = hn::Lanes(d), complex = 2 * lanes,
               points = static_cast<size_t>(fourier.points);
  const V half = hn::Set(d, 0.5f);
  for (size_t k = 0; k <= points; ++k) {
    const Complex a = LoadComplex(halves + complex * (k == points ? 0 : k));
    Complex b = LoadComplex(halves + complex * (k == 0 ? 0 : points - k));
    b.im = hn::Sub(hn::Zero(d), b.im);
    const Complex odd = Times(TimesMinusI(Minus(a, b)), fourier.half_roots.data() + 2 * k);
    Complex bin = Plus(Plus(a, b), odd);
    bin = {hn::Mul(half, bin.re), hn::Mul(half, bin.im)};
    hn::Store(Magnitude(bin, squared), d, bins + lanes * k);
  }
}

void BinsOfAll(const Fourier& fourier, const float* all, bool squared, float* bins) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  for (size_t k = 0; k < static_cast<size_t>(fourier.bins()); ++k)
    hn::Store(Magnitude(LoadComplex(all + 2 * lanes * k), squared), d, bins + lanes * k);
}

void Frames(const FrameJob& job, int64_t first, int64_t count, float* scratch) {
  const D d;
  const size_t lanes = hn::Lanes(d), size = static_cast<size_t>(job.fourier->size),
               points = static_cast<size_t>(job.fourier->points);
  float* const one = scratch;
  float* const two = one + kMostLanes * 2 * (points + 1);
  float* const bins = two + kMostLanes * 2 * (points + 1);
  const size_t step = job.fourier->is_even ? lanes : 2 * lanes;  // an odd size has no pairs
  for (int64_t t = first; t < first + count; t += static_cast<int64_t>(lanes)) {
    const int64_t here = std::min<int64_t>(static_cast<int64_t>(lanes), first + count - t);
    if (step != lanes) std::fill_n(one, 2 * lanes * points, 0.0f);
    for (size_t lane = 0; lane < lanes; ++lane) {
      // The lanes behind the last frame do it again.
      const float* const samples =
          job.samples + (t + std::min<int64_t>(static_cast<int64_t>(lane), here - 1)) * job.hop;
      float* to = one + lane;
      for (size_t i = 0; i < size; ++i) to[i * step] = samples[i] * job.window[i];
    }
    const float* const transformed = Transform(*job.fourier, one, two);
    if (job.fourier->is_even) {
      BinsOfHalves(*job.fourier, transformed, job.squared, bins);
    } else {
      BinsOfAll(*job.fourier, transformed, job.squared, bins);
    }
    for (int c = 0; c < job.filters.columns; ++c) {
      const float* weight = job.filters.weights + job.filters.start[c];
      const float* bin = bins + lanes * static_cast<size_t>(job.filters.first[c]);
      V sum = hn::Zero(d);
      for (int32_t i = 0; i < job.filters.count[c]; ++i, ++weight, bin += lanes)
        sum = hn::Add(sum, hn::Mul(hn::Set(d, *weight), hn::Load(d, bin)));
      float* const out = job.out + c * job.out_stride + t;
      if (here == static_cast<int64_t>(lanes)) {
        hn::StoreU(sum, d, out);
      } else {
        HWY_ALIGN float some[kMostLanes];
        hn::Store(sum, d, some);
        std::copy_n(some, here, out);
      }
    }
  }
}

// The natural logarithm by its series around 1, of positive finite numbers that are not
// subnormal. Within two units in the last place.
HWY_INLINE V Logarithm(V x) {
  const D d;
  const hn::RebindToSigned<D> di;
  // x = m * 2^e with m from sqrt(0.5) to sqrt(2).
  const auto bits = hn::Sub(hn::BitCast(di, x), hn::Set(di, 0x3f3504f3));
  const V e = hn::ConvertTo(d, hn::ShiftRight<23>(bits));
  const V m =
      hn::BitCast(d, hn::Add(hn::And(bits, hn::Set(di, 0x007fffff)), hn::Set(di, 0x3f3504f3)));
  const V f = hn::Sub(m, hn::Set(d, 1.0f));
  constexpr float kSeries[] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
                               -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
                               2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
  V series = hn::Set(d, kSeries[0]);
  for (int i = 1; i < 9; ++i) series = hn::Add(hn::Mul(series, f), hn::Set(d, kSeries[i]));
  const V square = hn::Mul(f, f);
  V rest = hn::Mul(hn::Mul(series, f), square);
  rest = hn::Add(rest, hn::Mul(e, hn::Set(d, -2.12194440e-4f)));
  rest = hn::Sub(rest, hn::Mul(square, hn::Set(d, 0.5f)));
  return hn::Add(hn::Add(f, rest), hn::Mul(e, hn::Set(d, 0.693359375f)));
}

template <class Function>
HWY_INLINE void ForEach(const float* in, size_t count, float* out, const Function& function) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(function(hn::LoadU(d, in + i)), d, out + i);
  if (i == count) return;
  HWY_ALIGN float some[kMostLanes];
  std::fill_n(some, lanes, 1.0f);
  std::copy_n(in + i, count - i, some);
  hn::Store(function(hn::Load(d, some)), d, some);
  std::copy_n(some, count - i, out + i);
}

// What Logarithm cannot take becomes the smallest or largest number that it can; what is no number
// stays none.
HWY_INLINE V LogarithmWithin(V x, V least) {
  const D d;
  const V logarithm = Logarithm(hn::Min(hn::Max(x, least), hn::Set(d, 3.4e38f)));
  return hn::IfThenElse(hn::Eq(x, x), logarithm, x);
}

void Decibels(const float* in, size_t count, float scale, float least, float offset, float* out) {
  const D d;
  const V low = hn::Set(d, std::max(least, 1.2e-38f)),
          factor = hn::Set(d, static_cast<float>(scale * 0.43429448190325182)),
          more = hn::Set(d, offset);
  ForEach(in, count, out,
          [=](V x) { return hn::Add(hn::Mul(LogarithmWithin(x, low), factor), more); });
}

void Logarithms(const float* in, size_t count, float more, float* out) {
  const D d;
  const V low = hn::Set(d, 1.2e-38f), add = hn::Set(d, more);
  ForEach(in, count, out, [=](V x) { return LogarithmWithin(hn::Add(x, add), low); });
}

void TransformRows(const float* in, int rows, int64_t stride, const float* matrix, int columns,
                   int64_t count, float* out) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int c = 0; c < columns; ++c) {
    int64_t t = 0;
    for (; t + lanes <= count; t += lanes) {
      V sum = hn::Zero(d);
      for (int m = 0; m < rows; ++m)
        sum = hn::Add(
            sum, hn::Mul(hn::Set(d, matrix[m * columns + c]), hn::LoadU(d, in + m * stride + t)));
      hn::StoreU(sum, d, out + c * stride + t);
    }
    for (; t < count; ++t) {
      float sum = 0;
      for (int m = 0; m < rows; ++m) sum += matrix[m * columns + c] * in[m * stride + t];
      out[c * stride + t] = sum;
    }
  }
}

const SpectrumTable* SpectrumTargetTable() {
  static const SpectrumTable kTable = {hwy::TargetName(HWY_TARGET), Frames, Decibels, Logarithms,
                                       TransformRows};
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace feedwater::server::kernels {

HWY_EXPORT(SpectrumTargetTable);

const SpectrumTable& Spectrums() { return *HWY_DYNAMIC_DISPATCH(SpectrumTargetTable)(); }

}  // namespace feedwater::server::kernels
#endif
