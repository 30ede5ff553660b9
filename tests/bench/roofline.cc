// The machine's own terms: what each step of decoding, resampling and writing costs by itself, per
// compressed byte, block or pixel, by chroma sampling, beside the machine's memory bandwidth. What
// a pipeline can reach is the sum of its steps; these make a figure comparable between machines.
// One pinned thread; CPU time; photo_set.h says how it is taken.
//
//   roofline [FOLDER] [--rounds N] [--cpu N] [--target NAME]
//
// Prints one JSON document: {target, photos, terms: [{term, unit, set, got}]}. `set` is a sampling,
// or "" for what does not depend on photos.
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "server/codec/axis_filter.h"
#include "server/codec/jpeg/pixel_kernels.h"
#include "server/codec/pixel_writer.h"
#include "server/codec/plane_kernels.h"
#include "server/codec/resample_kernels.h"
#include "tests/bench/decoding_terms.h"
#include "tests/bench/simd_target.h"

namespace feedwater::bench {
namespace {

// Zeroes at a multiple of 64 bytes, as the resampler has its buffers.
template <typename T>
class Aligned {
 public:
  explicit Aligned(size_t count) : memory_(count * sizeof(T) + 64) {}
  T* data() {
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    return reinterpret_cast<T*>((at + 63) / 64 * 64);
  }

 private:
  std::vector<std::byte> memory_;
};

// Kernels on rows in the core's cache: the sizes are those of a usual photo.
void KernelTerms(int rounds, Terms* terms) {
  constexpr int kWidth = 512;
  const PixelKernels& kernels = ActivePixelKernels();
  std::mt19937 random(1);
  const auto noise = [&](size_t bytes) {
    std::vector<uint8_t> made(bytes);
    for (uint8_t& byte : made) byte = static_cast<uint8_t>(random());
    return made;
  };
  const auto a = noise(4 * kWidth + kRowPadding), b = noise(4 * kWidth + kRowPadding),
             c = noise(4 * kWidth + kRowPadding);
  std::vector<uint8_t> out(size_t{4} * kWidth + kRowPadding);
  const auto add = [&](const char* term, const char* unit, double units,
                       const std::function<void()>& run) {
    terms->Add(term, unit, "", 1e9 * SecondsOf(run, rounds) / units);
  };
  const int half = kWidth / 2;
  add("upsampling, one component of 4:2:2", "ns/pixel", kWidth,
      [&] { kernels.upsample_h2v1(a.data(), 0, half, 0, kWidth, out.data()); });
  add("upsampling, one component of 4:2:0", "ns/pixel", kWidth,
      [&] { kernels.upsample_h2v2(a.data(), b.data(), 0, half, 0, kWidth, out.data()); });
  add("colour conversion", "ns/pixel", kWidth,
      [&] { kernels.ycc_to_rgb(a.data(), b.data(), c.data(), kWidth, out.data()); });

  // The antialiased resize of 500x375 to 224x224: bands of 16 rows along x, then rows along y.
  constexpr Size kCrop = {500, 375};
  const kernels::ResampleTable& resize = kernels::Resample();
  AxisFilter x, y;
  const auto whole = [](int samples) { return AxisBox{samples, 0, static_cast<double>(samples)}; };
  x.Build(whole(kCrop.width), kSide, 0, kSide, Kernel::kTriangle, false);
  y.Build(whole(kCrop.height), kSide, 0, kSide, Kernel::kTriangle, false);
  constexpr size_t kPlane = (kSide + 31) / 32 * 32;
  const auto source = noise(size_t{3} * kCrop.width * kernels::kBandRows);
  const uint8_t* rows[kernels::kBandRows];
  int16_t* to[kernels::kBandRows];
  Aligned<int16_t> scratch(kernels::kStripSamples),
      ring(kernels::kBandRows * 3 * kPlane + kernels::kPad);
  for (int r = 0; r < kernels::kBandRows; ++r) {
    rows[r] = source.data() + static_cast<size_t>(r) * 3 * kCrop.width;
    to[r] = ring.data() + static_cast<size_t>(r) * 3 * kPlane;
  }
  std::vector<int32_t> start(x.start), pairs(static_cast<size_t>(x.count) * x.taps);
  for (int32_t& sample : start) sample *= 3;
  std::transform(x.narrow.begin(), x.narrow.begin() + static_cast<std::ptrdiff_t>(pairs.size()),
                 pairs.begin(), kernels::PairedWeight);
  kernels::AxisWeights axis;
  axis.start = start.data();
  axis.weights = pairs.data();
  axis.taps = x.taps;
  axis.channels = 3;
  axis.count = x.count;
  axis.samples = size_t{3} * kCrop.width;
  axis.plane = kPlane;
  add("resize along x", "ns/pixel read", static_cast<double>(kCrop.width) * kernels::kBandRows,
      [&] { resize.filter_band_narrow(rows, axis, scratch.data(), to); });
  Aligned<uint8_t> finished(3 * kPlane + kernels::kPad);
  add("resize along y", "ns/pixel written", kSide, [&] {
    const int16_t* taps[AxisFilter::kMaxNarrowTaps];
    for (int k = 0; k < y.taps; ++k) taps[k] = to[k];
    resize.filter_rows(taps, y.narrow.data(), y.taps, 3 * kPlane, finished.data());
  });

  // Batches of 64 in turn, as a slot is written: it does not stay in any cache.
  constexpr size_t kImage = size_t{3} * kSide * kSide;
  for (const bool is_float : {false, true}) {
    PixelFormat format = Normalised();
    if (!is_float) format = PixelFormat();
    format.planar = true;
    const size_t bytes = kImage * ElementBytes(format.type);
    format.stream = is_float;  // as for a slot that nothing reads again
    const size_t slot_bytes = 64 * bytes;
    Aligned<std::byte> slot(slot_bytes);
    PixelWriter writer;
    size_t at = 0;
    add(is_float ? "normalise to float32 CHW, into the slot" : "uint8 CHW, into the slot",
        "ns/pixel written", static_cast<double>(kSide) * kSide, [&] {
          writer.Start(format, kSide, kSide, 3, false, slot.data() + at, kernels::Planes());
          for (int row = 0; row < kSide; ++row) writer.WritePlanes(row, finished.data(), kPlane);
          writer.Finish();
          at = (at + bytes) % slot_bytes;
        });
  }
}

void MemoryTerms(int rounds, Terms* terms) {
  constexpr size_t kBytes = 256 << 20;
  std::vector<uint8_t> from(kBytes, 1), to(kBytes, 2);
  const auto add = [&](const char* term, const std::function<void()>& run) {
    terms->Add(term, "GB/s", "", static_cast<double>(kBytes) * 1e-9 / SecondsOf(run, rounds));
  };
  add("memory: copying", [&] { std::memcpy(to.data(), from.data(), kBytes); });
#ifdef __SSE2__
  for (const bool streams : {false, true}) {
    add(streams ? "memory: streaming writing" : "memory: writing", [&] {
      auto* const vectors = reinterpret_cast<__m128i*>(to.data());  // malloc aligns to 16
      for (size_t i = 0; i < kBytes / sizeof(__m128i); ++i) {
        if (streams) {
          _mm_stream_si128(vectors + i, _mm_set1_epi8(3));
        } else {
          _mm_store_si128(vectors + i, _mm_set1_epi8(4));
        }
      }
      _mm_sfence();
    });
  }
#endif
  uint64_t sum = 0;
  add("memory: reading", [&] {
    for (size_t i = 0; i < kBytes; i += 64) {
      uint64_t word;
      std::memcpy(&word, from.data() + i, sizeof(word));
      sum += word;
    }
  });
  Require(sum != 0, "reading");
}

}  // namespace
}  // namespace feedwater::bench

int main(int argc, char** argv) {
  using namespace feedwater;  // NOLINT: a program of one file
  const char* data = std::getenv("FEEDWATER_TEST_DATA");
  std::string folder = data != nullptr ? std::string(data) + "/photos" : "../shared/data/photos";
  std::string target;
  int rounds = 9, cpu = 0;
  CLI::App app("What each step costs by itself on this machine, as JSON.", "roofline");
  app.add_option("FOLDER", folder, "Folder of photos")->capture_default_str();
  app.add_option("--rounds", rounds, "Median of so many")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--cpu", cpu, "Run on this CPU")->capture_default_str();
  app.add_option("--target", target, "Highest SIMD target, such as AVX2");
  CLI11_PARSE(app, argc, argv);

  bench::PinTo(cpu);
  if (!target.empty()) testing::HoldToTarget(target.c_str());
  std::vector<bench::Photo> photos = bench::LoadPhotos(folder);
  bench::Terms terms;
  bench::MemoryTerms(rounds, &terms);
  bench::KernelTerms(rounds, &terms);
  for (const auto& [name, group] : bench::BySampling(photos)) {
    if (name != "all") bench::DecodingTerms(name, group, rounds, &terms);
  }
  const nlohmann::json document = {
      {"target", server::SimdTarget()}, {"photos", photos.size()}, {"terms", terms.Take()}};
  std::printf("%s\n", document.dump(1).c_str());
  return 0;
}
