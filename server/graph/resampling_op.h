// The base of geometry ops that resample: resize and its random relatives. It keeps how images and
// masks are interpolated.
#pragma once

#include <optional>

#include "absl/strings/str_cat.h"
#include "server/graph/geometry_op.h"
#include "server/graph/joint_image.h"
#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {

struct ResamplingParams : BoxRules {
  Interpolations interpolation;
};

class ResamplingOp : public GeometryOp {
 public:
  explicit ResamplingOp(const ResamplingParams& params)
      : GeometryOp(params), interpolation_(params.interpolation) {}

  bool resamples() const final { return true; }
  bool ResamplesByCopy(size_t input) const final {
    return interpolation_.For(input) == Interpolation::kOpenCvLinear;
  }
  size_t choices() const final { return interpolation_.values.size(); }
  bool IsNearest(size_t input) const final {
    return interpolation_.For(input) == Interpolation::kNearest;
  }

 protected:
  // The shorter side gets `side` and the other keeps the ratio, unless it gets more than `most`
  // then: torchvision's rule for one number, in whole numbers. A side may get 0.
  static PlannedSize WithShorterSide(int64_t side, std::optional<int64_t> most, PlannedSize input) {
    const bool is_portrait = input.width <= input.height;
    const int64_t shorter = is_portrait ? input.width : input.height,
                  longer = is_portrait ? input.height : input.width;
    int64_t new_longer = shorter == 0 ? 0 : side * longer / shorter;
    if (most && new_longer > *most) {
      side = *most * side / new_longer;
      new_longer = *most;
    }
    if (is_portrait) return {new_longer, side};
    return {side, new_longer};
  }

  // Of one image or mask. InvalidArgument where a side would be 0, or the result has more pixels
  // than the limits allow.
  absl::Status ResizeTo(int64_t height, int64_t width, size_t input, const ImageLimits& limits,
                        ImageTransform* transform) const {
    if (height == 0 || width == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("an image of ", transform->size().width, "x", transform->size().height,
                       " is too narrow: a side would shrink to nothing"));
    }
    FW_RETURN_IF_ERROR(CheckPixels(height, width, limits));
    transform->Resize({static_cast<int>(width), static_cast<int>(height)},
                      interpolation_.For(input));
    return absl::OkStatus();
  }

 private:
  const Interpolations interpolation_;
};

// The text of a ResamplingOp's parameter `interpolation`. Each op declares it at its own place,
// since digests and reference pages have parameters in the order of their declaration.
inline constexpr char kInterpolationText[] =
    "nearest, bilinear, bicubic (both antialiased, as Pillow's) or opencv_linear; a list gives one "
    "per image and mask of 'in'.";

}  // namespace feedwater::server
