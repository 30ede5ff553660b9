// Resamples an image to a new size, as torchvision.transforms.Resize does on PIL images: one number
// scales the shorter side to it and keeps the aspect ratio, two numbers give height and width.
// bilinear and bicubic are antialiased.
#include "absl/strings/str_cat.h"
#include "server/graph/resampling_op.h"

namespace feedwater::server {
namespace {

struct Params : ResamplingParams {
  ResizeSize size;
  std::optional<int64_t> max_size;
};

class Resize : public ResamplingOp {
 public:
  explicit Resize(Params params) : ResamplingOp(params), params_(std::move(params)) {}

  static absl::Status Check(const Params& params) {
    if (!params.max_size) return absl::OkStatus();
    if (!params.size.is_shorter_side()) {
      return absl::InvalidArgumentError(
          "'max_size' limits the longer side, so 'size' must be one number, not [height, width]");
    }
    if (*params.max_size > params.size.height) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("'max_size' must be greater than 'size' (",
                                                   params.size.height, "), not ",
                                                   *params.max_size));
  }

  absl::StatusOr<PlannedSize> PlanSize(PlannedSize input) const override {
    if (!params_.size.is_shorter_side())
      return PlannedSize{params_.size.height, params_.size.width};
    if (input.height < 0 || input.width < 0) return PlannedSize{};
    return WithShorterSide(params_.size.height, params_.max_size, input);
  }

  PlannedSize MostSize(PlannedSize, const ImageLimits& limits) const override {
    const int64_t longest = params_.max_size.value_or(limits.max_pixels / params_.size.height);
    return {longest, longest};
  }

  absl::Status Compose(size_t input, Draws, const ImageLimits& limits,
                       ImageTransform* transform) const override {
    PlannedSize size{params_.size.height, params_.size.width};
    if (params_.size.is_shorter_side()) {
      size = WithShorterSide(params_.size.height, params_.max_size,
                             {transform->size().height, transform->size().width});
    }
    return ResizeTo(size.height, size.width, input, limits, transform);
  }

 private:
  const Params params_;
};

const OpRegistrar kRegistrar(
    JointImageSchema(OpSchema<Params>("resize").Summary("Resamples an image to a new size."))
        .Required(
            "size", &Params::size,
            "One number: the shorter side, the other keeps the aspect ratio. Two: [height, width].",
            Range(1, kMaxSide))
        .Param<Interpolations>("interpolation", &Params::interpolation, kInterpolationText)
        .Param("max_size", &Params::max_size,
               "With one number as 'size': the most that the longer side may get; the shorter then "
               "gets less than 'size'.",
               Range(1, kMaxSide))
        .Cost("Grows with the input's pixels. Where it is fused with crops, only the pixels that "
              "are needed are resampled.")
        .Example("- resize: {size: 256}")
        .AlsoKnownAs("torchvision", {"Resize", "Scale"})
        .AlsoKnownAs("Albumentations", {"Resize", "SmallestMaxSize"})
        .AlsoKnownAs("MindSpore", {"Resize"})
        .AlsoKnownAs("DALI", {"resize"})
        .NearestTo("MindSpore", {"RandomResize", "ResizeWithBBox", "ResizedCrop"})
        .NearestTo("DALI", {"resize_crop_mirror"})
        .NearestTo("Albumentations", {"LongestMaxSize"})
        .Create<Resize>());

}  // namespace
}  // namespace feedwater::server
