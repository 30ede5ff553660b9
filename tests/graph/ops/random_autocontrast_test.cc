// random_autocontrast: what Pillow's ImageOps.autocontrast gives.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

TEST(RandomAutocontrast, GivesPillowsNumbers) {
  EXPECT_THAT(RunOnPixels("- random_autocontrast: {p: 1}", 2, 3, 1, {0, 100, 200, 50, 50, 7}),
              ElementsAre(0, 127, 254, 63, 63, 8));
}

// Pillow's ImageOps.autocontrast, spelled as there.
TEST(RandomAutocontrast, StretchesEachChannelByItself) {
  Bytes pixels = PatternPixels(30, 50, 3);
  for (size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<uint8_t>(pixels[i] / (i % 3 + 2) + 10 * (i % 3));
  Bytes expected = pixels;
  for (size_t c = 0; c < 3; ++c) {
    int lo = 255, hi = 0;
    for (size_t i = c; i < pixels.size(); i += 3) {
      lo = std::min<int>(lo, pixels[i]);
      hi = std::max<int>(hi, pixels[i]);
    }
    const double scale = 255.0 / (hi - lo), offset = -lo * scale;
    for (size_t i = c; i < pixels.size(); i += 3) {
      const int ix = static_cast<int>(pixels[i] * scale + offset);
      expected[i] = static_cast<uint8_t>(ix < 0 ? 0 : ix > 255 ? 255 : ix);
    }
  }
  EXPECT_EQ(RunOnPixels("- random_autocontrast: {p: 1}", 30, 50, 3, pixels), expected);
}

TEST(RandomAutocontrast, AnImageOfOneValueStaysAsItIs) {
  const Bytes same(600, 9);
  EXPECT_EQ(RunOnPixels("- random_autocontrast: {p: 1}", 10, 20, 3, same), same);
}

TEST(RandomAutocontrast, ChangesAsOftenAsItsProbabilitySays) {
  constexpr int kSamples = 4000;
  int changed = 0;
  for (int64_t id = 0; id < kSamples; ++id)
    changed += RunOnPixels("- random_autocontrast: {p: 0.3}", 1, 2, 1, {1, 2}, id) != Bytes{1, 2};
  EXPECT_NEAR(changed, 0.3 * kSamples, 145);  // five standard deviations
}

}  // namespace
}  // namespace feedwater::server
