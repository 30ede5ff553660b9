// The base of ops that move pixels without changing them otherwise: crop, resize, flip, pad. Such
// an op only says what it does to an ImageTransform; running it, alone or fused with its
// neighbours, is done here and in the planner.
//
// With several fields in `in` (an image, its mask, its boxes) all of them get the same draws, so
// they move together: joint_fields.h.
#pragma once

#include "server/graph/image_transform.h"
#include "server/graph/joint_fields.h"
#include "server/graph/op.h"

namespace feedwater::server {

// Where points come to lie by an ImageTransform, which outlives it.
class TransformMap : public PointMap {
 public:
  explicit TransformMap(const ImageTransform& transform) : transform_(transform) {}
  Point Move(Point point) const override {
    return {transform_.MoveX(point.x), transform_.MoveY(point.y)};
  }

 private:
  const ImageTransform& transform_;
};

class GeometryOp : public Op {
 public:
  explicit GeometryOp(const BoxRules& rules) : rules_(rules) {}

  virtual bool resamples() const { return false; }  // may call ImageTransform::Resize
  virtual bool flips() const { return false; }      // may mirror
  virtual bool pads() const { return false; }       // may show pixels that are not of the image
  // Whether it resamples by OpenCV, which takes the part of the image and its result in memory.
  virtual bool ResamplesByCopy(size_t) const { return false; }
  // What images show where the op pads; null: it does not pad.
  virtual const FillColor* fill() const { return nullptr; }
  // What masks show where the op pads; null: what images show.
  virtual const PixelFill* mask_fill() const { return nullptr; }
  // Words of `interpolation`, one for each image and mask; 1 serves all images, and masks are
  // nearest.
  virtual size_t choices() const { return 1; }
  virtual bool IsNearest(size_t /*input*/) const { return true; }  // by its word
  virtual absl::StatusOr<PlannedSize> PlanSize(PlannedSize input) const = 0;
  // Of ops that resample, where PlanSize is open: the longest sides that they make of an image of
  // this size, which may be open too. -1: as long as the limits allow.
  virtual PlannedSize MostSize(PlannedSize /*input*/, const ImageLimits& /*limits*/) const {
    return {};
  }
  // Adds this op to `transform`. `input`: which image or mask, for parameters that differ. The same
  // draws give the same change whatever `input` is. InvalidArgument when the image is not fit for
  // it.
  virtual absl::Status Compose(size_t input, Draws draws, const ImageLimits& limits,
                               ImageTransform* transform) const = 0;

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment& environment) const final;
  absl::Status Run(Sample& sample, Draws draws) const final;
  OpMemory Memory(absl::Span<const TensorSpec> inputs,
                  const PlanEnvironment& environment) const final;
  int64_t MostPixels(const TensorSpec& picture, int64_t pixels,
                     const ImageLimits& limits) const override;
  const GeometryOp* AsGeometry() const final { return this; }

 private:
  // `source`: the limits of the picture that goes in.
  int64_t MostRowBytes(const TensorSpec& from, const ImageLimits& source, const TensorSpec& to,
                       const ImageLimits& limits) const;

  const BoxRules rules_;
};

}  // namespace feedwater::server
