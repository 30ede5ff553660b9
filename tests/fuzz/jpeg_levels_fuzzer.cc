// Differential: any bytes that begin as a JPEG, decoded by libjpeg-turbo, the own decoder and from
// coefficients, whole and cropped, with the best SIMD target and another one: the same verdict and
// the same pixels.
// LIBS: feedwater_codec
#include "tests/codec/jpeg_levels.h"
#include "tests/fuzz/fuzzer.h"

namespace feedwater::fuzz {
namespace {

using namespace server::testing;  // NOLINT: the images of the codec's tests
using server::ImageLimits;

// So small that no limit on time is met: a limit would make verdicts depend on the machine.
ImageLimits Limits() {
  ImageLimits limits;
  limits.max_pixels = 1 << 16;
  limits.max_decode_ms = 1'000'000;
  return limits;
}

void Run(Input input) {
  static auto* levels = new JpegLevels(Limits());
  if (input.size() < 2 || input[0] != 0xff || input[1] != 0xd8) return;
  const absl::Span<const std::byte> encoded(reinterpret_cast<const std::byte*>(input.data()),
                                            input.size());
  const uint32_t seed = SeedOf(input);
  ForTwoTargets(seed, [&] {
    std::mt19937 random(seed);
    const std::string difference = levels->Compare(encoded, 3, random);
    Require(difference.empty(), difference);
  });
}

std::vector<std::string> Seeds() {
  std::mt19937 random(1);
  std::vector<std::string> seeds;
  const int samplings[][2] = {{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}};
  for (int i = 0; i < 60; ++i) {
    JpegOptions options;
    options.quality = i % 3 == 0 ? 95 : 5 + i;
    options.luma_h = samplings[i % 5][0];
    options.luma_v = samplings[i % 5][1];
    options.gray = i % 7 == 0;
    options.optimised = i % 2 == 0;
    options.restart_rows = i % 11 == 0;
    options.progressive = i % 13 == 0;
    if (i % 4 == 1) options.scans = RandomScript(options.gray ? 1 : 3, random);
    if (i % 6 == 2) options.restart_mcus = 1 + i % 5;
    if (i % 17 == 3) options.interleaved = false;
    const server::Size size{1 + static_cast<int>(random() % 40),
                            1 + static_cast<int>(random() % 40)};
    seeds.push_back(EncodeJpeg(NoisyImage(size, options.gray ? 1 : 3, random), options));
  }
  return seeds;
}

}  // namespace

const FuzzTarget& Target() {
  static const FuzzTarget target = {
      Run, Seeds, {"hostile/jpeg", "hostile/jpeg_bugs", "hostile/damaged_jpeg"}, nullptr, 1 << 14};
  return target;
}

}  // namespace feedwater::fuzz
