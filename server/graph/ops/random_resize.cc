// Scales the shorter side of an image to a size drawn from a range, as
// torchvision.transforms.v2.RandomResize does on PIL images.
#include "absl/strings/str_cat.h"
#include "server/graph/resampling_op.h"

namespace feedwater::server {
namespace {

struct Params : ResamplingParams {
  int64_t min_size = 0, max_size = 0;
};

class RandomResize : public ResamplingOp {
 public:
  explicit RandomResize(Params params) : ResamplingOp(params), params_(std::move(params)) {}

  static absl::Status Check(const Params& params) {
    if (params.min_size < params.max_size) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("'max_size' must be greater than 'min_size' (",
                                                   params.min_size, "), not ", params.max_size,
                                                   ": it is the first size that is not drawn"));
  }

  absl::StatusOr<PlannedSize> PlanSize(PlannedSize) const override { return PlannedSize{}; }

  PlannedSize MostSize(PlannedSize input, const ImageLimits& limits) const override {
    if (input.height > 0 && input.width > 0)
      return WithShorterSide(params_.max_size - 1, std::nullopt, input);
    const int64_t longest = limits.max_pixels / params_.min_size;
    return {longest, longest};
  }

  absl::Status Compose(size_t input, Draws draws, const ImageLimits& limits,
                       ImageTransform* transform) const override {
    const int64_t side = params_.min_size + draws.Below(params_.max_size - params_.min_size);
    const PlannedSize size =
        WithShorterSide(side, std::nullopt, {transform->size().height, transform->size().width});
    return ResizeTo(size.height, size.width, input, limits, transform);
  }

 private:
  const Params params_;
};

const OpRegistrar kRegistrar(
    JointImageSchema(
        OpSchema<Params>("random_resize")
            .Summary("Scales the shorter side of an image to a size drawn from a range."))
        .Randomness(Randomness::kPerSample)
        .Required("min_size", &Params::min_size, "The smallest size of the shorter side.",
                  Range(1, kMaxSide))
        .Required("max_size", &Params::max_size, "One more than the largest.", Range(1, kMaxSide))
        .Param<Interpolations>("interpolation", &Params::interpolation, kInterpolationText)
        .Cost("As resize.")
        .Example("- random_resize: {min_size: 24, max_size: 37}")
        .AlsoKnownAs("torchvision", {"RandomResize"})
        .Create<RandomResize>());

}  // namespace
}  // namespace feedwater::server
