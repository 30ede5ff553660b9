// What five_crop and ten_crop share: the four corners of an image and its middle, and for ten_crop
// those of the mirrored image, as one field with an axis in front, [5, ...]. It is no image any
// more for the planner, so ops of images (normalize too, which then sees the whole image once)
// stand before it.
#pragma once

#include "server/graph/op.h"
#include "server/graph/op_params.h"

namespace feedwater::server {

inline const char kStackedCropsDoc[] =
    "The crops: upper left, upper right, lower left, lower right, middle; [N, height, width, "
    "channels], or [N, channels, height, width] of planes. No image any more: cast may follow, and "
    "mixup.";

class StackedCrops : public Op {
 public:
  enum class Mirror { kNone, kLeftRight, kUpsideDown };

  StackedCrops(CropSize size, Mirror mirror) : size_(size), mirror_(mirror) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment& environment) const final;
  absl::Status Run(Sample& sample, Draws draws) const final;

 private:
  TensorSpec OutputSpec(const TensorSpec& image) const;
  absl::Status CheckSize(Size image) const;

  const CropSize size_;
  const Mirror mirror_;
};

}  // namespace feedwater::server
