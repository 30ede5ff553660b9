// The base of geometry ops that resample: resize and its random relatives. It keeps how images and
// masks are interpolated.
#pragma once

#include "server/graph/geometry_op.h"
#include "server/graph/op_params.h"

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

 protected:
  // Of one image or mask. InvalidArgument where the result has more pixels than the limits allow.
  absl::Status ResizeTo(int64_t height, int64_t width, size_t input, const ImageLimits& limits,
                        ImageTransform* transform) const {
    FW_RETURN_IF_ERROR(CheckPixels(height, width, limits));
    transform->Resize({static_cast<int>(width), static_cast<int>(height)},
                      interpolation_.For(input));
    return absl::OkStatus();
  }

 private:
  const Interpolations interpolation_;
};

}  // namespace feedwater::server
