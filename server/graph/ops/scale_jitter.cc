// Scales an image to a random share of a target size and keeps its aspect ratio, as
// torchvision.transforms.v2.ScaleJitter does on PIL images. A crop most often follows.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/graph/resampling_op.h"

namespace feedwater::server {
namespace {

struct Params : ResamplingParams {
  CropSize target_size;
  Interval scale_range = {0.1, 2.0};
};

class ScaleJitter : public ResamplingOp {
 public:
  explicit ScaleJitter(Params params) : ResamplingOp(params), params_(std::move(params)) {}

  absl::StatusOr<PlannedSize> PlanSize(PlannedSize) const override { return PlannedSize{}; }

  PlannedSize MostSize(PlannedSize input, const ImageLimits&) const override {
    const auto target_height = static_cast<double>(params_.target_size.height),
               target_width = static_cast<double>(params_.target_size.width);
    double height = target_height, width = target_width;
    if (input.height > 0 && input.width > 0) {  // which keeps its ratio
      height = static_cast<double>(input.height), width = static_cast<double>(input.width);
      const double fits = std::min(target_height / height, target_width / width);
      height *= fits, width *= fits;
    }
    const auto most = [&](double side) {
      return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(params_.scale_range.high * side)));
    };
    return {most(height), most(width)};
  }

  absl::Status Compose(size_t input, Draws draws, const ImageLimits& limits,
                       ImageTransform* transform) const override {
    const double height = transform->size().height, width = transform->size().width;
    const double scale = draws.Uniform(params_.scale_range.low, params_.scale_range.high);
    const double factor = scale * std::min(static_cast<double>(params_.target_size.height) / height,
                                           static_cast<double>(params_.target_size.width) / width);
    const auto new_height = std::max<int64_t>(1, static_cast<int64_t>(height * factor)),
               new_width = std::max<int64_t>(1, static_cast<int64_t>(width * factor));
    return ResizeTo(new_height, new_width, input, limits, transform);
  }

 private:
  const Params params_;
};

const OpRegistrar kRegistrar(
    JointImageSchema(
        OpSchema<Params>("scale_jitter")
            .Summary(
                "Scales an image to a random share of a target size and keeps its aspect ratio."))
        .Randomness(Randomness::kPerSample)
        .Required("target_size", &Params::target_size,
                  "Height and width that a scale of 1 fits the image into; one number is a square. "
                  "torchvision's ScaleJitter reads two numbers the other way round.",
                  Range(1, kMaxSide))
        .Param("scale_range", &Params::scale_range, "Scale drawn from this range.",
               Range(0.001, 1000))
        .Param<Interpolations>("interpolation", &Params::interpolation, kInterpolationText)
        .Cost("As resize.")
        .Example("- scale_jitter: {target_size: 64}")
        .AlsoKnownAs("torchvision", {"ScaleJitter"})
        .NearestTo("Albumentations", {"RandomScale"})
        .Create<ScaleJitter>());

}  // namespace
}  // namespace feedwater::server
