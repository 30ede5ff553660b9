// The base of ops that move pixels without changing them otherwise: crop, resize, flip, pad. Such
// an op only says what it does to an ImageTransform; running it, alone or fused with its
// neighbours, is done here and in the planner.
//
// With several fields in `in` (an image and its mask) all of them get the same draws, so they move
// together.
#pragma once

#include "server/graph/image_transform.h"
#include "server/graph/op.h"

namespace feedwater::server {

class GeometryOp : public Op {
 public:
  // Height and width as Plan knows them; -1 where only the sample will tell.
  struct PlannedSize {
    int64_t height = -1, width = -1;
  };

  virtual bool resamples() const { return false; }  // may call ImageTransform::Resize
  virtual bool flips() const { return false; }      // may mirror
  virtual bool pads() const { return false; }       // may show pixels that are not of the image
  // Whether it resamples by OpenCV, which takes the part of the image and its result in memory.
  virtual bool ResamplesByCopy(size_t) const { return false; }
  virtual size_t choices() const { return 1; }  // values given per field of `in`; 1 serves all
  virtual absl::StatusOr<PlannedSize> PlanSize(PlannedSize input) const = 0;
  // Adds this op to `transform`. `input`: the place in `in`, for parameters that differ between
  // fields. The same draws give the same change whatever `input` is. InvalidArgument when the image
  // is not fit for it.
  virtual absl::Status Compose(size_t input, Draws draws, const ImageLimits& limits,
                               ImageTransform* transform) const = 0;

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment& environment) const final;
  absl::Status Run(Sample& sample, Draws draws) const final;
  const GeometryOp* AsGeometry() const final { return this; }
};

// How an image's spec is to be read. REQUIRES: layout HWC or CHW.
Size ImageSizeOf(const TensorSpec& spec);
int64_t ChannelsOf(const TensorSpec& spec);
TensorSpec ImageSpec(DType dtype, Layout layout, int64_t height, int64_t width, int64_t channels);

// InvalidArgument when an image of this size would pass max_pixels.
absl::Status CheckPixels(int64_t height, int64_t width, const ImageLimits& limits);

}  // namespace feedwater::server
