// Cuts out a part of random area and aspect ratio and resamples it to a fixed size, as
// torchvision.transforms.RandomResizedCrop does: ten tries of an area share uniform in `scale` and
// an aspect ratio log-uniform in `ratio`; if none fits into the image, the largest middle part
// whose ratio lies within `ratio`.
#include <algorithm>
#include <cmath>

#include "server/graph/resampling_op.h"

namespace feedwater::server {
namespace {

struct Params : ResamplingParams {
  CropSize size;
  Interval scale = {0.08, 1.0};
  Interval ratio = {3.0 / 4.0, 4.0 / 3.0};
};

constexpr int kTries = 10;

int Round(double value) {
  return static_cast<int>(std::nearbyint(value));
}  // half to even, as Python's round()

class RandomResizedCrop : public ResamplingOp {
 public:
  explicit RandomResizedCrop(Params params)
      : ResamplingOp(params),
        params_(std::move(params)),
        log_ratio_{std::log(params_.ratio.low), std::log(params_.ratio.high)} {}

  absl::StatusOr<PlannedSize> PlanSize(PlannedSize) const override {
    return PlannedSize{params_.size.height, params_.size.width};
  }

  absl::Status Compose(size_t input, Draws draws, const ImageLimits& limits,
                       ImageTransform* transform) const override {
    transform->Crop(Choose(transform->size(), draws));
    return ResizeTo(params_.size.height, params_.size.width, input, limits, transform);
  }

 private:
  Rect Choose(Size size, Draws& draws) const {
    const double area = static_cast<double>(size.height) * size.width;
    for (int i = 0; i < kTries; ++i) {
      const double target = area * draws.Uniform(params_.scale.low, params_.scale.high);
      const double aspect = std::exp(draws.Uniform(log_ratio_.low, log_ratio_.high));
      // Compared before the conversion to int, which a huge number would not survive.
      const double width = std::nearbyint(std::sqrt(target * aspect)),
                   height = std::nearbyint(std::sqrt(target / aspect));
      if (width < 1 || width > size.width || height < 1 || height > size.height) continue;
      const int w = static_cast<int>(width), h = static_cast<int>(height);
      const int y = static_cast<int>(draws.Below(size.height - h + 1));
      const int x = static_cast<int>(draws.Below(size.width - w + 1));
      return {x, y, w, h};
    }
    const double aspect = static_cast<double>(size.width) / size.height;
    int w = size.width, h = size.height;
    if (aspect < params_.ratio.low) h = std::clamp(Round(w / params_.ratio.low), 1, size.height);
    if (aspect > params_.ratio.high) w = std::clamp(Round(h * params_.ratio.high), 1, size.width);
    return {(size.width - w) / 2, (size.height - h) / 2, w, h};
  }

  const Params params_;
  const Interval log_ratio_;
};

const OpRegistrar kRegistrar(
    JointImageSchema(OpSchema<Params>("random_resized_crop")
                         .Summary("Cuts out a part of random area and aspect ratio and resamples "
                                  "it to a fixed size."))
        .Randomness(Randomness::kPerSample)
        .Required("size", &Params::size, "Height and width of the result; one number is a square.",
                  Range(1, kMaxSide))
        .Param("scale", &Params::scale, "Area of the part, as a share of the image's.",
               Range(1e-6, 1))
        .Param("ratio", &Params::ratio, "Width divided by height of the part.", Range(1e-3, 1e3))
        .Param<Interpolations>("interpolation", &Params::interpolation, kInterpolationText)
        .Cost("Grows with the pixels of the part. Where it is fused with decode, only that part of "
              "the image is decoded.")
        .Example("- random_resized_crop: {size: 224, scale: [0.08, 1.0]}")
        .AlsoKnownAs("torchvision", {"RandomResizedCrop", "RandomSizedCrop"})
        .NearestTo("torchvision", {"resized_crop"})
        .AlsoKnownAs("Albumentations", {"RandomResizedCrop"})
        .AlsoKnownAs("MindSpore", {"RandomResizedCrop"})
        .AlsoKnownAs("DALI", {"random_resized_crop"})
        .NearestTo("MindSpore", {"RandomCropDecodeResize", "RandomResizedCropWithBBox"})
        .NearestTo("DALI", {"decoders.image_random_crop"})
        .NearestTo("Albumentations", {"RandomSizedCrop"})
        .Create<RandomResizedCrop>());

}  // namespace
}  // namespace feedwater::server
