// Scales the shorter side of an image to a size drawn from a list, as
// torchvision.transforms.v2.RandomShortestSize does on PIL images.
#include <algorithm>

#include "server/graph/resampling_op.h"

namespace feedwater::server {
namespace {

struct Params : ResamplingParams {
  std::vector<int64_t> min_size;
  std::optional<int64_t> max_size;
};

class RandomShortSide : public ResamplingOp {
 public:
  explicit RandomShortSide(Params params) : ResamplingOp(params), params_(std::move(params)) {}

  static absl::Status Check(const Params& params) {
    if (!params.min_size.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("'min_size' must be a list of at least one size");
  }

  absl::StatusOr<PlannedSize> PlanSize(PlannedSize) const override { return PlannedSize{}; }

  PlannedSize MostSize(PlannedSize input, const ImageLimits& limits) const override {
    const auto [least, most] =
        std::minmax_element(params_.min_size.begin(), params_.min_size.end());
    int64_t longest = params_.max_size.value_or(limits.max_pixels / *least);
    if (input.height <= 0 || input.width <= 0) return {longest, longest};
    const auto [shorter, longer] = std::minmax({input.height, input.width});
    longest = std::min(longest, (*most * longer + shorter - 1) / shorter);
    const int64_t shortest = std::min(longest, *most);
    if (input.height < input.width) return {shortest, longest};
    return {longest, shortest};
  }

  absl::Status Compose(size_t input, Draws draws, const ImageLimits& limits,
                       ImageTransform* transform) const override {
    const double height = transform->size().height, width = transform->size().width;
    const auto drawn =
        static_cast<size_t>(draws.Below(static_cast<int64_t>(params_.min_size.size())));
    double factor = static_cast<double>(params_.min_size[drawn]) / std::min(height, width);
    if (params_.max_size)
      factor = std::min(factor, static_cast<double>(*params_.max_size) / std::max(height, width));
    const auto new_height = static_cast<int64_t>(height * factor),
               new_width = static_cast<int64_t>(width * factor);
    return ResizeTo(new_height, new_width, input, limits, transform);
  }

 private:
  const Params params_;
};

const OpRegistrar kRegistrar(
    JointImageSchema(
        OpSchema<Params>("random_short_side")
            .Summary("Scales the shorter side of an image to a size drawn from a list."))
        .Randomness(Randomness::kPerSample)
        .Required("min_size", &Params::min_size, "Sizes of the shorter side, all alike likely.",
                  Range(1, kMaxSide))
        .Param("max_size", &Params::max_size,
               "The most that the longer side may get; the shorter then gets less.",
               Range(1, kMaxSide))
        .Param<Interpolations>("interpolation", &Params::interpolation, kInterpolationText)
        .Cost("As resize.")
        .Example("- random_short_side: {min_size: [24, 32, 36], max_size: 60}")
        .AlsoKnownAs("torchvision", {"RandomShortestSize"})
        .Create<RandomShortSide>());

}  // namespace
}  // namespace feedwater::server
