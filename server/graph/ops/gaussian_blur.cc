// Blurs an image by a Gaussian of random width, as torchvision.transforms.v2.GaussianBlur does:
// edges are mirrored. Values differ from torchvision's by 1 at most.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/graph/filter_op.h"
#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"
#include "server/imaging/filter.h"

namespace feedwater::server {
namespace {

struct Params {
  OneOrTwo kernel_size;
  OneOrTwo sigma = {0.1, 2.0};
  double p = 1;
};

class GaussianBlurOp : public FilterOp {
 public:
  explicit GaussianBlurOp(const Params& params) : params_(params) {}

  static absl::Status Check(const Params& params) {
    for (double size : {params.kernel_size.first, params.kernel_size.second}) {
      if (std::fmod(size, 2) != 1) {
        return absl::InvalidArgumentError(absl::StrCat(
            "'kernel_size' must be an odd whole number, or [x, y] of two, not ", size));
      }
    }
    if (params.sigma.first <= params.sigma.second) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("'sigma' must be [low, high] with low <= high, not [", params.sigma.first,
                     ", ", params.sigma.second, "]"));
  }

 protected:
  size_t ScratchBytes(Size size, int channels) const override {
    return BlurScratch(size, channels, kernel_x() / 2, kernel_y() / 2);
  }

  absl::Status Filter(const Image& image, Draws draws) const override {
    const double sigma = draws.Uniform(params_.sigma.first, params_.sigma.second);
    if (!draws.Bernoulli(params_.p)) return image.Copy();
    return GaussianBlur(image.pixels, image.size, image.channels, MakeGaussian(kernel_x(), sigma),
                        MakeGaussian(kernel_y(), sigma), image.scratch, image.clock, image.out);
  }

 private:
  int kernel_x() const { return static_cast<int>(params_.kernel_size.first); }
  int kernel_y() const { return static_cast<int>(params_.kernel_size.second); }

  const Params params_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("gaussian_blur")
        .Summary("Blurs an image by a Gaussian of random width.")
        .Input({.field = "image",
                .layouts = {Layout::kHWC},
                .dtypes = {DType::kUInt8},
                .doc = "The image."})
        .OutputLikeInput()
        .Randomness(Randomness::kPerSample)
        .Required("kernel_size", &Params::kernel_size,
                  "Odd number of pixels that a result is made of along each axis; [x, y] for two "
                  "numbers.",
                  Range(1, 2 * kMaxBlurRadius + 1))
        .Param("sigma", &Params::sigma,
               "Standard deviation in pixels, drawn from [low, high]; a number is fixed.",
               Range(0.01, 100))
        .Param("p", &Params::p, "Probability of doing so.", Range(0, 1))
        .Cost("Grows with sigma: weights that round to nothing are left out, whatever kernel_size "
              "says.")
        .Example("- gaussian_blur: {kernel_size: 23, sigma: [0.1, 2.0]}")
        .AlsoKnownAs("torchvision", {"GaussianBlur"})
        .AlsoKnownAs("Albumentations", {"GaussianBlur"})
        .AlsoKnownAs("MindSpore", {"GaussianBlur"})
        .AlsoKnownAs("DALI", {"gaussian_blur"})
        .NearestTo("Albumentations", {"Blur", "Defocus"})
        .Create<GaussianBlurOp>());

}  // namespace
}  // namespace feedwater::server
