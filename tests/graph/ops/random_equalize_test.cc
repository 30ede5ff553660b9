// random_equalize: what Pillow's ImageOps.equalize gives.
#include <gmock/gmock.h>

#include <numeric>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

// Pillow's ImageOps.equalize, spelled as there.
Bytes Equalized(const Bytes& in, int channels) {
  Bytes out = in;
  for (int c = 0; c < channels; ++c) {
    std::vector<int64_t> h(256), nonzero;
    for (size_t i = static_cast<size_t>(c); i < in.size(); i += channels) ++h[in[i]];
    int64_t sum = 0;
    for (int64_t n : h) {
      if (n != 0) nonzero.push_back(n);
      sum += n;
    }
    if (nonzero.size() <= 1) continue;
    const int64_t step = (sum - nonzero.back()) / 255;
    if (step == 0) continue;
    int64_t n = step / 2;
    std::vector<int64_t> lut;
    for (int v = 0; v < 256; ++v) {
      lut.push_back(std::min<int64_t>(255, n / step));
      n += h[v];
    }
    for (size_t i = static_cast<size_t>(c); i < in.size(); i += channels)
      out[i] = static_cast<uint8_t>(lut[in[i]]);
  }
  return out;
}

TEST(RandomEqualize, GivesPillowsNumbers) {
  for (int channels : {1, 3}) {
    for (int64_t height : {1, 20, 97}) {
      Bytes pixels = PatternPixels(height, 60, channels);
      for (uint8_t& v : pixels) v = static_cast<uint8_t>(v / 2 + 30);
      EXPECT_EQ(RunOnPixels("- random_equalize: {p: 1}", height, 60, channels, pixels),
                Equalized(pixels, channels))
          << channels << " " << height;
    }
  }
  // Pillow itself, on the same pixels of 20x30: the sum of all values, and the first ones.
  Bytes pixels = PatternPixels(20, 30, 3);
  for (uint8_t& v : pixels) v = static_cast<uint8_t>(v / 2 + 30);
  const Bytes out = RunOnPixels("- random_equalize: {p: 1}", 20, 30, 3, pixels);
  EXPECT_EQ(std::accumulate(out.begin(), out.end(), int64_t{0}), 262453);
  EXPECT_THAT(Bytes(out.begin(), out.begin() + 12),
              ElementsAre(0, 43, 88, 129, 174, 216, 255, 17, 59, 103, 146, 190));
}

TEST(RandomEqualize, AnImageOfFewPixelsOrOneValueStaysAsItIs) {
  const Bytes few = {0, 100, 200, 50, 50, 7}, same(600, 9);
  EXPECT_EQ(RunOnPixels("- random_equalize: {p: 1}", 2, 3, 1, few), few);
  EXPECT_EQ(RunOnPixels("- random_equalize: {p: 1}", 10, 20, 3, same), same);
}

TEST(RandomEqualize, ChangesAsOftenAsItsProbabilitySays) {
  const Bytes pixels = PatternPixels(20, 20, 1);
  int changed = 0;
  for (int64_t id = 0; id < 1000; ++id)
    changed += RunOnPixels("- random_equalize: {p: 0.3}", 20, 20, 1, pixels, id) != pixels;
  EXPECT_NEAR(changed, 300, 73);  // five standard deviations
}

}  // namespace
}  // namespace feedwater::server
