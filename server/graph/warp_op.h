// The base of ops that move pixels off the grid: rotation, affine, perspective, elastic. Such an op
// draws a Warp (imaging/warp.h); moving images, masks, boxes and keypoints by it (joint_fields.h)
// is done here.
#pragma once

#include <string>

#include "server/graph/joint_fields.h"
#include "server/graph/joint_image.h"
#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"
#include "server/imaging/warp.h"

namespace feedwater::server {

struct WarpParams : BoxRules {
  std::string interpolation = "bilinear";
  FillColor fill;
  double mask_fill = 0;
};

// InvalidArgument for an image whose sides are too long for a warp.
absl::Status CheckWarpSides(Size size);

class WarpOp : public Op {
 public:
  explicit WarpOp(const WarpParams& params) : params_(params) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment& environment) const final;
  absl::Status Run(Sample& sample, Draws draws) const final;
  OpMemory Memory(absl::Span<const TensorSpec> inputs,
                  const PlanEnvironment& environment) const final;
  int64_t MostPixels(const TensorSpec&, int64_t pixels, const ImageLimits&) const override {
    return pixels;
  }

 protected:
  virtual PlannedSize PlanSize(PlannedSize input) const { return input; }
  virtual int64_t ScratchBytes(Size /*image*/) const { return 0; }
  static int64_t PlaneBytes(Size image);  // of displacements along one axis, in scratch
  // Fills in `warp`, which changes nothing so far and has sizes `from` and `to` of the image.
  // `scratch` has ScratchBytes(warp->from), as long as the warp is used.
  virtual absl::Status Draw(Draws draws, std::byte* scratch, WorkClock& clock,
                            Warp* warp) const = 0;
  // Where a point of the source comes to lie in the result. Of warps with displacements, which are
  // known the other way round, the default looks for it, and finds it where the displacements
  // differ by less than a pixel from one pixel to the next.
  virtual Point Move(const Warp& warp, const Matrix3& forward, const std::byte* scratch,
                     Point point) const;

 private:
  class Map;

  const WarpParams params_;
};

// The port and the parameters of every WarpOp. `interpolation` is the op's own default.
template <typename P>
OpSchema<P>&& WarpSchema(OpSchema<P>&& schema) {
  return JointImageSchema(std::move(schema))
      .Randomness(Randomness::kPerSample)
      .template Param<std::string>(
          "interpolation", &P::interpolation,
          "Of images, as Pillow's: nearest or bilinear. Masks are nearest.",
          OneOf({"nearest", "bilinear"}))
      .template Param<FillColor>("fill", &P::fill,
                                 "What images show where nothing of them is: one number or one per "
                                 "channel.",
                                 Range(0, 255))
      .template Param<double>("mask_fill", &P::mask_fill, "The same of masks.", Range(-1e9, 1e9));
}

}  // namespace feedwater::server
