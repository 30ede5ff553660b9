// Composition of crops, resize, flips and padding, against doing one after the other on a small
// image of numbers.
#include "server/graph/image_transform.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace feedwater::server {
namespace {

// An image of numbers; -1 is padding.
struct Grid {
  int width = 0, height = 0;
  std::vector<int> cells;
  int& at(int x, int y) { return cells[static_cast<size_t>(y * width + x)]; }
  int at(int x, int y) const { return cells[static_cast<size_t>(y * width + x)]; }
  friend bool operator==(const Grid&, const Grid&) = default;
};

Grid Make(int width, int height) {
  return {width, height, std::vector<int>(static_cast<size_t>(width * height), -1)};
}

Grid Numbered(int width, int height) {
  Grid grid = Make(width, height);
  for (size_t i = 0; i < grid.cells.size(); ++i) grid.cells[i] = static_cast<int>(i);
  return grid;
}

Grid Crop(const Grid& in, Rect rect) {
  Grid out = Make(rect.width, rect.height);
  for (int y = 0; y < rect.height; ++y) {
    for (int x = 0; x < rect.width; ++x) out.at(x, y) = in.at(rect.x + x, rect.y + y);
  }
  return out;
}

Grid Pad(const Grid& in, int left, int top, int right, int bottom) {
  Grid out = Make(left + in.width + right, top + in.height + bottom);
  for (int y = 0; y < in.height; ++y) {
    for (int x = 0; x < in.width; ++x) out.at(left + x, top + y) = in.at(x, y);
  }
  return out;
}

Grid Flip(const Grid& in, bool horizontal) {
  Grid out = Make(in.width, in.height);
  for (int y = 0; y < in.height; ++y) {
    for (int x = 0; x < in.width; ++x)
      out.at(x, y) = horizontal ? in.at(in.width - 1 - x, y) : in.at(x, in.height - 1 - y);
  }
  return out;
}

// Nearest neighbour with whole factors, so that it needs no rounding.
Grid Enlarge(const Grid& in, int factor) {
  Grid out = Make(in.width * factor, in.height * factor);
  for (int y = 0; y < out.height; ++y) {
    for (int x = 0; x < out.width; ++x) out.at(x, y) = in.at(x / factor, y / factor);
  }
  return out;
}

// What the codec and the renderer do with a transform.
Grid Apply(const Grid& source, const ImageTransform& transform, int factor) {
  Grid out = Make(transform.size().width, transform.size().height);
  const Rect placed = transform.placed();
  if (placed.width == 0 || placed.height == 0) return out;
  const Geometry& geometry = transform.geometry();
  Grid image = Crop(source, geometry.crop);
  if (!(geometry.scaled == Size{geometry.crop.width, geometry.crop.height}))
    image = Enlarge(image, factor);
  image = Crop(image, geometry.window);
  if (geometry.flip_horizontal) image = Flip(image, true);
  if (geometry.flip_vertical) image = Flip(image, false);
  for (int y = 0; y < placed.height; ++y) {
    for (int x = 0; x < placed.width; ++x) out.at(placed.x + x, placed.y + y) = image.at(x, y);
  }
  return out;
}

TEST(ImageTransform, ACropAfterAFlipIsTheMirroredWindow) {
  ImageTransform transform({5, 1});
  transform.FlipHorizontal();
  transform.Crop({0, 0, 2, 1});
  EXPECT_EQ(transform.geometry().crop, (Rect{3, 0, 2, 1}));
  EXPECT_TRUE(transform.geometry().flip_horizontal);
  EXPECT_FALSE(transform.padded());
}

TEST(ImageTransform, ACropAfterAResizeIsAWindowOfIt) {
  ImageTransform transform({10, 10});
  transform.Crop({1, 2, 8, 6});
  transform.Resize({4, 3}, Interpolation::kBicubic);
  transform.Crop({1, 0, 2, 2});
  EXPECT_EQ(transform.geometry().crop, (Rect{1, 2, 8, 6}));
  EXPECT_EQ(transform.geometry().scaled, (Size{4, 3}));
  EXPECT_EQ(transform.geometry().window, (Rect{1, 0, 2, 2}));
  EXPECT_EQ(transform.geometry().interpolation, Interpolation::kBicubic);
  EXPECT_TRUE(transform.resampled());
}

TEST(ImageTransform, ACropThatSeesOnlyPaddingHasNoImage) {
  ImageTransform transform({2, 2});
  transform.Pad(5, 0, 0, 0, PixelFill{1});
  transform.Crop({0, 0, 3, 2});
  EXPECT_EQ(transform.placed().width, 0);
  EXPECT_TRUE(transform.padded());
  EXPECT_EQ(transform.size(), (Size{3, 2}));
}

TEST(ImageTransform, AnySequenceIsTheSameAsItsPartsOneAfterTheOther) {
  // 20,000 random sequences: crops, then perhaps one enlargement, then crops, flips and one padding
  // in any order.
  std::mt19937 random(20240229);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 20000; ++round) {
    const Grid source = Numbered(1 + below(9), 1 + below(9));
    Grid expected = source;
    ImageTransform transform({source.width, source.height});
    std::string story;
    const int factor = 2 + below(2);
    bool may_resize = true, may_pad = true;
    for (int step = 0; step < 6; ++step) {
      switch (below(5)) {
        case 0: {
          Rect rect;
          rect.width = 1 + below(expected.width);
          rect.height = 1 + below(expected.height);
          rect.x = below(expected.width - rect.width + 1);
          rect.y = below(expected.height - rect.height + 1);
          expected = Crop(expected, rect);
          transform.Crop(rect);
          story += "crop ";
          break;
        }
        case 1:
          if (!may_resize) break;
          may_resize = false;
          expected = Enlarge(expected, factor);
          transform.Resize({expected.width, expected.height}, Interpolation::kNearest);
          story += "resize ";
          break;
        case 2:
        case 3: {
          const bool horizontal = below(2) == 0;
          may_resize = false;
          expected = Flip(expected, horizontal);
          horizontal ? transform.FlipHorizontal() : transform.FlipVertical();
          story += horizontal ? "flip-h " : "flip-v ";
          break;
        }
        case 4: {
          if (!may_pad) break;
          may_pad = may_resize = false;
          const int left = below(4), top = below(4), right = below(4), bottom = below(4);
          expected = Pad(expected, left, top, right, bottom);
          transform.Pad(left, top, right, bottom, PixelFill{});
          story += "pad ";
          break;
        }
      }
    }
    ASSERT_EQ(Apply(source, transform, factor), expected) << "round " << round << ": " << story;
  }
}

}  // namespace
}  // namespace feedwater::server
