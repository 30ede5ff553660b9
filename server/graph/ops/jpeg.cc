// Compresses an image as a JPEG of random quality and decodes it again, so that it has a JPEG's
// artefacts, as torchvision.transforms.v2.JPEG does. The bytes are those of libjpeg-turbo, colours
// halved (4:2:0) but in images up to four pixels wide; no file is made on the way.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/codec/jpeg_artefacts.h"
#include "server/graph/filter_op.h"
#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

struct Params {
  OneOrTwo quality;
  double p = 1;
};

class JpegOp : public FilterOp {
 public:
  explicit JpegOp(const Params& params) : params_(params) {}

  static absl::Status Check(const Params& params) {
    const OneOrTwo& quality = params.quality;
    if (quality.first == std::floor(quality.first) &&
        quality.second == std::floor(quality.second) && quality.first <= quality.second) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "'quality' must be a whole number, or [low, high] of two with low <= high, not [",
        quality.first, ", ", quality.second, "]"));
  }

 protected:
  Size most() const override { return {kMaxJpegSide, kMaxJpegSide}; }
  size_t ScratchBytes(Size, int) const override { return 0; }
  int64_t CodecBytes(Size size, int channels) const override {
    return NeedOfJpegArtefacts(size, channels);
  }

  absl::Status Filter(const Image& image, Draws draws) const override {
    if (!draws.Bernoulli(params_.p)) return image.Copy();
    const auto low = static_cast<int64_t>(params_.quality.first),
               high = static_cast<int64_t>(params_.quality.second);
    const auto quality = static_cast<int>(low + draws.Below(high - low + 1));
    return AddJpegArtefacts(image.pixels, image.size, image.channels, quality, image.out,
                            image.workspace);
  }

 private:
  const Params params_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("jpeg")
        .Summary("Gives an image the artefacts of a JPEG of random quality.")
        .Input(kColourImage)
        .OutputLikeInput()
        .Randomness(Randomness::kPerSample)
        .Required("quality", &Params::quality,
                  "libjpeg's, 1 to 100: a number, or [low, high], both included. Colours are "
                  "halved as in its files (4:2:0), but those of images up to four pixels wide are "
                  "not, where pixels differ from a file's.",
                  Range(1, 100))
        .Param("p", &Params::p, "Probability of doing so.", Range(0, 1))
        .Cost("Less than to decode such a file: nothing is entropy coded.")
        .Example("- jpeg: {quality: [50, 95]}")
        .AlsoKnownAs("torchvision", {"JPEG"})
        .AlsoKnownAs("Albumentations", {"ImageCompression"})
        .AlsoKnownAs("DALI", {"jpeg_compression_distortion"})
        .Create<JpegOp>());

}  // namespace
}  // namespace feedwater::server
