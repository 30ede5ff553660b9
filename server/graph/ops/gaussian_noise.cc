// Adds normal noise to every value of an image, as torchvision.transforms.v2.GaussianNoise does to
// images of bytes: mean and sigma in units of the whole range.
#include "server/graph/geometry_op.h"
#include "server/graph/op_schema.h"
#include "server/imaging/noise.h"

namespace feedwater::server {
namespace {

struct Params {
  double mean = 0;
  double sigma = 0.1;
};

class GaussianNoise : public Op {
 public:
  explicit GaussianNoise(const Params& params) : noise_(255 * params.mean, 255 * params.sigma) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    return Specs{inputs[0]};
  }

  int64_t MostPixels(const TensorSpec&, int64_t pixels, const ImageLimits&) const override {
    return pixels;
  }

  int64_t TableBytes() const override { return NormalNoise::kTableBytes; }

  absl::Status Run(Sample& sample, Draws draws) const override {
    const Tensor& input = sample.inputs()[0];
    FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, input.spec));
    const uint32_t first = draws.Next(), second = draws.Next();
    return noise_.Add(input.as<const uint8_t>(), input.bytes(), {first, second}, sample.clock(),
                      output.as<uint8_t>());
  }

 private:
  const NormalNoise noise_;
};

const OpRegistrar kRegistrar(OpSchema<Params>("gaussian_noise")
                                 .Summary("Adds normal noise to every value of an image.")
                                 .Input({.field = "image",
                                         .layouts = {Layout::kHWC},
                                         .dtypes = {DType::kUInt8},
                                         .doc = "The image."})
                                 .OutputLikeInput()
                                 .Randomness(Randomness::kPerSample)
                                 .Param("mean", &Params::mean, "Of the noise, as a share of 255.",
                                        Range(-1, 1))
                                 .Param("sigma", &Params::sigma,
                                        "Its standard deviation, as a share of 255.", Range(0, 1))
                                 .Cost("About as much as a bilinear rotation: every value draws.")
                                 .Example("- gaussian_noise: {sigma: 0.1}")
                                 .AlsoKnownAs("torchvision", {"GaussianNoise"})
                                 .AlsoKnownAs("Albumentations", {"GaussNoise"})
                                 .AlsoKnownAs("DALI", {"noise.gaussian"})
                                 .NearestTo("Albumentations", {"ISONoise", "MultiplicativeNoise"})
                                 .NearestTo("DALI", {"noise.salt_and_pepper", "noise.shot"})
                                 .Create<GaussianNoise>());

}  // namespace
}  // namespace feedwater::server
