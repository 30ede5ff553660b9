// What the tests of trivial_augment_wide, rand_augment, auto_augment and aug_mix share: one
// operation, done by the op that exists for it, or by hand.
#pragma once

#include <cmath>

#include "absl/strings/str_format.h"
#include "server/graph/augmentations.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server::graph_testing {

// An op of the graph that does it; "" for those that translate or do nothing.
inline std::string OpFor(const DrawnAugmentation& drawn, const std::string& warp) {
  const double m = drawn.magnitude, degrees = std::atan(m) * (180 / std::acos(-1.0));
  switch (drawn.kind) {
    case Augmentation::kShearX:
      return absl::StrFormat(
          "random_affine: {degrees: 0, shear: [%.17g, %.17g, 0, 0], "
          "center: [0, 0]%s}",
          degrees, degrees, warp);
    case Augmentation::kShearY:
      return absl::StrFormat(
          "random_affine: {degrees: 0, shear: [0, 0, %.17g, %.17g], "
          "center: [0, 0]%s}",
          degrees, degrees, warp);
    case Augmentation::kRotate:
      return absl::StrFormat("random_rotation: {degrees: [%.17g, %.17g]%s}", m, m, warp);
    case Augmentation::kBrightness:
      return absl::StrFormat("adjust_brightness: {brightness_factor: %.17g}", 1 + m);
    case Augmentation::kColor:
      return absl::StrFormat("adjust_saturation: {saturation_factor: %.17g}", 1 + m);
    case Augmentation::kContrast:
      return absl::StrFormat("adjust_contrast: {contrast_factor: %.17g}", 1 + m);
    case Augmentation::kSharpness:
      return absl::StrFormat("random_adjust_sharpness: {sharpness_factor: %.17g, p: 1}", 1 + m);
    case Augmentation::kPosterize:
      return absl::StrFormat("random_posterize: {bits: %d, p: 1}", static_cast<int>(m));
    case Augmentation::kSolarize:
      return absl::StrFormat("random_solarize: {threshold: %.17g, p: 1}", 255 * m);
    case Augmentation::kAutoContrast:
      return "random_autocontrast: {p: 1}";
    case Augmentation::kEqualize:
      return "random_equalize: {p: 1}";
    case Augmentation::kInvert:
      return "random_invert: {p: 1}";
    default:
      return "";
  }
}

inline Bytes Translated(const Bytes& pixels, Size size, int channels, int right, int down,
                        uint8_t fill) {
  Bytes moved(pixels.size(), fill);
  for (int y = 0; y < size.height; ++y) {
    for (int x = 0; x < size.width; ++x) {
      const int to_x = x + right, to_y = y + down;
      if (to_x < 0 || to_x >= size.width || to_y < 0 || to_y >= size.height) continue;
      for (int c = 0; c < channels; ++c)
        moved[static_cast<size_t>((to_y * size.width + to_x) * channels + c)] =
            pixels[static_cast<size_t>((y * size.width + x) * channels + c)];
    }
  }
  return moved;
}

// `bilinear`: of shear, translate and rotate.
inline Bytes Augmented(const DrawnAugmentation& drawn, const Bytes& pixels, Size size, int channels,
                       bool bilinear = false, uint8_t fill = 0) {
  const auto shift = static_cast<int>(drawn.magnitude);
  if (drawn.kind == Augmentation::kTranslateX)
    return Translated(pixels, size, channels, shift, 0, fill);
  if (drawn.kind == Augmentation::kTranslateY)
    return Translated(pixels, size, channels, 0, shift, fill);
  const std::string op = OpFor(drawn, absl::StrFormat(", interpolation: %s, fill: %d",
                                                      bilinear ? "bilinear" : "nearest", fill));
  return op.empty() ? pixels : RunOnPixels("- " + op, size.height, size.width, channels, pixels);
}

// What an op of a graph's first place draws for a sample, as RunOnPixels runs it.
inline Draws FirstDraws(int64_t sample_id) {
  return Draws(EpochKey(1, 0), static_cast<uint64_t>(sample_id), 0);
}

}  // namespace feedwater::server::graph_testing
