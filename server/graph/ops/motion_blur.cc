// Blurs an image along a line of random length and direction, as a camera that moves does: the mean
// of the pixels on the line. After Albumentations' MotionBlur; torchvision has no counterpart.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/graph/filter_op.h"
#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"
#include "server/imaging/filter.h"

namespace feedwater::server {
namespace {

struct Params {
  OneOrTwo blur_limit = {3, 7};
  Degrees degrees = {-180, 180};
  double p = 0.5;
};

class MotionBlurOp : public FilterOp {
 public:
  explicit MotionBlurOp(const Params& params) : params_(params) {}

  static absl::Status Check(const Params& params) {
    const OneOrTwo& limit = params.blur_limit;
    if (std::fmod(limit.first, 2) == 1 && std::fmod(limit.second, 2) == 1 &&
        limit.first <= limit.second) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("'blur_limit' must be an odd whole number, or [low, high] of two with low <= "
                     "high, not [",
                     limit.first, ", ", limit.second, "]"));
  }

 protected:
  size_t ScratchBytes(Size size, int channels) const override {
    return MotionScratch(size, channels, static_cast<int>(params_.blur_limit.second));
  }

  absl::Status Filter(const Image& image, Draws draws) const override {
    if (!draws.Bernoulli(params_.p)) return image.Copy();
    const auto low = static_cast<int64_t>(params_.blur_limit.first),
               high = static_cast<int64_t>(params_.blur_limit.second);
    const auto length = static_cast<int>(low + 2 * draws.Below((high - low) / 2 + 1));
    const double angle =
        draws.Uniform(params_.degrees.low, params_.degrees.high) * std::acos(-1.0) / 180;
    const double x = std::cos(angle), y = -std::sin(angle);
    const double longer = std::max(std::abs(x), std::abs(y));
    return MotionBlur(image.pixels, image.size, image.channels, length, x / longer, y / longer,
                      image.scratch, image.clock, image.out);
  }

 private:
  const Params params_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("motion_blur")
        .Summary("Blurs an image along a line of random length and direction.")
        .Input({.field = "image",
                .layouts = {Layout::kHWC},
                .dtypes = {DType::kUInt8},
                .doc = "The image."})
        .OutputLikeInput()
        .Randomness(Randomness::kPerSample)
        .Param("blur_limit", &Params::blur_limit,
               "Pixels of the line: an odd number, or [low, high], both included.",
               Range(3, kMaxMotion))
        .Param("degrees", &Params::degrees,
               "Its direction drawn from this range, counter-clockwise from the right; a number x "
               "means [-x, x].",
               Range(-36000, 36000))
        .Param("p", &Params::p, "Probability of doing so.", Range(0, 1))
        .Cost("Grows with the line's length.")
        .Example("- motion_blur: {blur_limit: [3, 7]}")
        .AlsoKnownAs("Albumentations", {"MotionBlur"})
        .NearestTo("Albumentations", {"ZoomBlur", "GlassBlur"})
        .Create<MotionBlurOp>());

}  // namespace
}  // namespace feedwater::server
