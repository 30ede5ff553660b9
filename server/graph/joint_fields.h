// Fields that one op moves together, by one draw: an image first, then more images, masks, boxes,
// keypoints, and the labels of boxes. What a field is, its dtype, layout and shape say:
//
//   image      HWC or CHW
//   mask       [H,W] of an integer dtype, or [H,W,1] of one behind the first image: nearest,
//              unless `interpolation` has a word for each field
//   boxes      float32 [?,4]: left, top, right, bottom in pixels; a pixel reaches from its number
//              to the next one
//   keypoints  float32 [?,2], or [?,3] with visibility
//   labels     one axis, directly behind boxes (or behind other labels of theirs): a row for each
//
// A box becomes the smallest one around its moved corners, cut at the canvas. Boxes without area,
// or with less than the op's BoxRules want, are dropped, and the same rows of their labels.
// Keypoints are never dropped; beside the canvas, whose border is part of it, their visibility is
// 0.
#pragma once

#include "absl/functional/function_ref.h"
#include "server/graph/op.h"
#include "server/graph/op_params.h"

namespace feedwater::server {

// The same for users, in the reference of ops.
inline constexpr const char* kJointDoc =
    "Ops that have `min_visibility` move several fields by one draw: `in: [image, mask, boxes, "
    "labels, keypoints]`. The image stands first. What the others are, their type says: more "
    "images; "
    "masks, which are integers `[H,W]`, or `[H,W,1]` behind the first image, and nearest unless "
    "`interpolation` is a list of words, which those of uint8 obey; "
    "boxes, float32 `[?,4]` of left, top, right and bottom edge in pixels, where a pixel reaches "
    "from "
    "its number to the next one; keypoints, float32 `[?,2]`, or `[?,3]` with visibility; labels, "
    "one "
    "axis directly behind boxes, a row for each. A box becomes the smallest one around its moved "
    "corners (where lines bend, around its moved edges), cut at the image's edge: of a rotated "
    "image it is larger than the smallest one around the thing itself, as torchvision's is. Boxes "
    "of which nothing is left are dropped, and those "
    "below "
    "`min_visibility` or `min_area`, with their labels. Keypoints stay in their rows; outside the "
    "image, whose border is part of it, their visibility is 0. A box with NaN or whose right edge "
    "is left of its left one, and "
    "labels that are not as many as boxes, make a bad sample.";

enum class FieldRole { kImage, kMask, kBoxes, kKeypoints, kLabels };
using FieldRoles = absl::InlinedVector<FieldRole, 4>;
inline bool IsPicture(FieldRole role) {
  return role == FieldRole::kImage || role == FieldRole::kMask;
}

// Parameters of every op that moves boxes; OpSchema::Joint declares them.
struct BoxRules {
  double min_visibility = 0, min_area = 0;
};

struct PlannedSize {  // -1 where only the sample will tell
  int64_t height = -1, width = -1;
};

struct Point {
  double x = 0, y = 0;
};

// Where points of the source come to lie. Thread safety: none is needed, it lives for one sample.
class PointMap {
 public:
  virtual ~PointMap() = default;
  virtual Point Move(Point point) const = 0;
  // Whether lines stay lines, so that the corners of a box tell where all of it is.
  virtual bool keeps_lines() const { return true; }
  // Whether a box (left, top, right, bottom) is to be kept at all.
  virtual bool Keeps(const float* /*box*/) const { return true; }
};

// InvalidArgument where the inputs cannot be told apart or do not belong together. `fields` are
// their names.
absl::StatusOr<FieldRoles> RolesOf(absl::Span<const TensorSpec> inputs,
                                   absl::Span<const std::string> fields);

// The outputs, of pictures that become as large as `size` says.
absl::StatusOr<Specs> PlanJoint(absl::Span<const TensorSpec> inputs,
                                const PlanEnvironment& environment,
                                absl::FunctionRef<absl::StatusOr<PlannedSize>(PlannedSize)> size);

// InvalidArgument where an image cannot hold the value of parameter `name`, or has other channels.
absl::Status CheckFill(absl::Span<const TensorSpec> inputs, const PlanEnvironment& environment,
                       absl::string_view name, const FillColor& fill);

// InvalidArgument where a mask cannot hold the number.
absl::Status CheckMaskFill(absl::Span<const TensorSpec> inputs, const PlanEnvironment& environment,
                           double fill);

// What RunJoint takes for the boxes of these inputs.
OpMemory JointMemory(absl::Span<const TensorSpec> inputs);
int64_t JointScratchOf(const Sample& sample);

// The first boxes of a sample; null: there are none.
const Tensor* FindBoxes(const Sample& sample);

// The size that all pictures of a sample have, or an error that says which one differs.
absl::StatusOr<Size> JointSize(const Sample& sample);

// Writes every output: pictures by `draw`, which is given masks as [H,W,1] HWC, and everything else
// by `map`. `scratch`: of JointScratchOf bytes; null: the sample's, after the last `draw`.
absl::Status RunJoint(
    Sample& sample, const BoxRules& rules, Size source, Size canvas, const PointMap& map,
    std::byte* scratch,
    absl::FunctionRef<absl::Status(FieldRole role, const Tensor& in, Tensor out)> draw);

inline bool IsImage(const TensorSpec& spec) {
  return spec.layout == Layout::kHWC || spec.layout == Layout::kCHW;
}
// How an image's spec is to be read. REQUIRES: IsImage(spec).
Size ImageSizeOf(const TensorSpec& spec);
// The same; one of open size is as wide as images may be.
Size MostSizeOf(const TensorSpec& spec, const ImageLimits& limits);
inline constexpr int64_t kMaxImageSide = 1 << 20;  // of those that the codec takes or makes
int64_t ChannelsOf(const TensorSpec& spec);
TensorSpec ImageSpec(DType dtype, Layout layout, int64_t height, int64_t width, int64_t channels);

// Bytes of a field at most: of an image or mask of open size, those of max_pixels, and *is_bound
// becomes true. 0 of other open fields, whose bound is not known from what they are.
int64_t MostBytes(const TensorSpec& spec, const ImageLimits& limits, bool* is_bound);

// The limits for MostBytes and MostSizeOf of an input of Memory: where its size is open, the pixels
// that environment.most_bytes has room for.
ImageLimits LimitsOfInput(absl::Span<const TensorSpec> inputs, size_t i,
                          const PlanEnvironment& environment);
// The same of output i, which the op makes of that input.
ImageLimits LimitsOfOutput(const Op& op, absl::Span<const TensorSpec> inputs, size_t i,
                           const PlanEnvironment& environment);

// InvalidArgument when an image of this size would pass max_pixels.
absl::Status CheckPixels(int64_t height, int64_t width, const ImageLimits& limits);

}  // namespace feedwater::server
