// Sharpens or smooths an image with a given probability, as
// torchvision.transforms.RandomAdjustSharpness does on PIL images, byte for byte.
#include <cstring>

#include "server/graph/geometry_op.h"
#include "server/graph/op_schema.h"
#include "server/imaging/filter.h"

namespace feedwater::server {
namespace {

struct Params {
  double sharpness_factor = 1;
  double p = 0.5;
};

class RandomAdjustSharpness : public Op {
 public:
  explicit RandomAdjustSharpness(const Params& params) : params_(params) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    return Specs{inputs[0]};
  }

  int64_t MostPixels(const TensorSpec&, int64_t pixels, const ImageLimits&) const override {
    return pixels;
  }

  absl::Status Run(Sample& sample, Draws draws) const override {
    const Tensor& input = sample.inputs()[0];
    FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, input.spec));
    if (!draws.Bernoulli(params_.p)) {
      std::memcpy(output.data, input.data, input.bytes());
      return absl::OkStatus();
    }
    return AdjustSharpness(input.as<const uint8_t>(), ImageSizeOf(input.spec),
                           static_cast<int>(ChannelsOf(input.spec)),
                           static_cast<float>(params_.sharpness_factor), sample.clock(),
                           output.as<uint8_t>());
  }

 private:
  const Params params_;
};

const OpRegistrar kRegistrar(OpSchema<Params>("random_adjust_sharpness")
                                 .Summary("Sharpens or smooths an image with a given probability.")
                                 .Input({.field = "image",
                                         .layouts = {Layout::kHWC},
                                         .dtypes = {DType::kUInt8},
                                         .doc = "The image."})
                                 .OutputLikeInput()
                                 .Randomness(Randomness::kPerSample)
                                 .Required("sharpness_factor", &Params::sharpness_factor,
                                           "0 is smooth, 1 changes nothing, 2 is twice as sharp.",
                                           Range(0, 1000))
                                 .Param("p", &Params::p, "Probability of doing so.", Range(0, 1))
                                 .Cost("A few operations per value.")
                                 .Example("- random_adjust_sharpness: {sharpness_factor: 2}")
                                 .AlsoKnownAs("torchvision", {"RandomAdjustSharpness"})
                                 .AlsoKnownAs("MindSpore", {"RandomAdjustSharpness"})
                                 .NearestTo("MindSpore", {"RandomSharpness", "AdjustSharpness"})
                                 .NearestTo("Albumentations", {"Sharpen", "UnsharpMask"})
                                 .NearestTo("torchvision", {"adjust_sharpness"})
                                 .Create<RandomAdjustSharpness>());

}  // namespace
}  // namespace feedwater::server
