// Which outputs of a pipeline a sheet shows, each as what, and what is drawn over which image: the
// plan's graph tells which boxes, masks and keypoints moved together with it (joint_fields.h);
// where no op moved any, their types do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/graph/plan.h"
#include "server/graph/plan_graph.h"

namespace feedwater::cli {

enum class ShownAs {
  kNothing,
  kImage,    // HWC or CHW, 1 or 3 channels
  kHeatMap,  // floats of two axes: [mels, frames]
  kWave,     // floats or int16 of one axis, or of few channels and many samples
  kMask,     // integers [H,W] that belong to no image
  kText,     // uint8 of one axis
  kNumbers,  // integers of one axis
};

// What a field is by its type alone.
ShownAs ShownAsOf(const server::FieldSpec& field);
bool IsBoxes(const server::TensorSpec& spec);  // floats [?,4]
bool IsMask(const server::TensorSpec& spec);   // integers [H,W]
// Integers of one axis with as many rows as boxes of this type have.
bool MayLabel(const server::FieldSpec& boxes, const server::FieldSpec& labels);

struct ShownField {
  size_t output = 0;
  ShownAs as = ShownAs::kNothing;
  std::string title;
  // Of one with an axis more than `as` says, such as the views of five_crop [5,H,W,3]: which of
  // them; -1: it has none.
  int64_t element = -1;
  // Outputs that are drawn over an image. `labels` has one for each of `boxes`; -1: there is none.
  std::vector<size_t> masks = {}, boxes = {}, keypoints = {};
  std::vector<int> labels = {};
};

// The part of a tensor that `element` counts, which is the whole where that is -1.
server::Tensor ElementOf(const server::Tensor& tensor, int64_t element);

// Those that are named, or all that can be shown, drawn over nothing and no class of a sample.
// InvalidArgument where a name is of no such output.
absl::StatusOr<std::vector<ShownField>> ChooseShown(const server::Plan& plan,
                                                    const server::PlanGraph& graph,
                                                    const std::vector<std::string>& names);

}  // namespace feedwater::cli
