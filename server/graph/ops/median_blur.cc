// Replaces every value by the median of those around it, which takes single bright or dark pixels
// away and keeps edges. The bytes are those of OpenCV's medianBlur and of Pillow's MedianFilter: at
// its edges the image goes on as its edge. After Albumentations' MedianBlur.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/graph/filter_op.h"
#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"
#include "server/imaging/filter.h"

namespace feedwater::server {
namespace {

struct Params {
  OneOrTwo kernel_size = {3, 7};
  double p = 0.5;
};

class MedianBlurOp : public FilterOp {
 public:
  explicit MedianBlurOp(const Params& params) : params_(params) {}

  static absl::Status Check(const Params& params) {
    const OneOrTwo& size = params.kernel_size;
    if (std::fmod(size.first, 2) == 1 && std::fmod(size.second, 2) == 1 &&
        size.first <= size.second) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("'kernel_size' must be 3, 5 or 7, or [low, high] of two with low <= high, not "
                     "[",
                     size.first, ", ", size.second, "]"));
  }

 protected:
  size_t ScratchBytes(Size size, int channels) const override {
    return MedianScratch(size, channels, static_cast<int>(params_.kernel_size.second));
  }

  absl::Status Filter(const Image& image, Draws draws) const override {
    if (!draws.Bernoulli(params_.p)) return image.Copy();
    const auto low = static_cast<int64_t>(params_.kernel_size.first),
               high = static_cast<int64_t>(params_.kernel_size.second);
    const auto side = static_cast<int>(low + 2 * draws.Below((high - low) / 2 + 1));
    return MedianBlur(image.pixels, image.size, image.channels, side, image.scratch, image.clock,
                      image.out);
  }

 private:
  const Params params_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("median_blur")
        .Summary("Replaces every value of an image by the median of those around it.")
        .Input(kColourImage)
        .OutputLikeInput()
        .Randomness(Randomness::kPerSample)
        .Param("kernel_size", &Params::kernel_size,
               "Side in pixels of the square that a median is of: 3, 5 or 7, or [low, high] of "
               "these, from which one is drawn.",
               Range(3, kMaxMedianSide))
        .Param("p", &Params::p, "Probability of doing so.", Range(0, 1))
        .Cost("For 3 about four copies of the image; 5 takes three times as much, 7 nine times.")
        .Example("- median_blur: {kernel_size: 5, p: 0.5}")
        .AlsoKnownAs("Albumentations", {"MedianBlur"})
        .AlsoKnownAs("DALI", {"median_blur"})
        .Create<MedianBlurOp>());

}  // namespace
}  // namespace feedwater::server
