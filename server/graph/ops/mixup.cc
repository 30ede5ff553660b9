// Mixes every sample of a batch with another one of it, image and label by the same weight (Zhang
// and others, "mixup: Beyond Empirical Risk Minimization", 2018). The weight is drawn from
// Beta(alpha, alpha) once for a batch, the partners are a random permutation of the batch. A class
// number becomes a float32 vector with the two classes' weights.
#include "server/graph/batch_mixing.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

struct Params {
  double alpha = 1.0;
  std::optional<int64_t> num_classes;
};

class Mixup final : public MixingOp {
 public:
  explicit Mixup(const Params& params) : MixingOp(params.num_classes), params_(params) {}

  absl::Status Run(const OpBatch& batch, Draws draws) const override {
    const float weight = static_cast<float>(DrawBeta(params_.alpha, draws));
    DrawPermutation(batch.permutation, draws);
    FW_RETURN_IF_ERROR(MixLabels(batch, weight));
    const TensorSpec& spec = batch.inputs[0].spec;
    const int64_t elements =
        batch.inputs[0].sample_bytes / static_cast<int64_t>(DTypeSize(spec.dtype));
    return MixField(batch, 0, [&](std::byte* out, const std::byte* own, const std::byte* partner) {
      MixElements(spec.dtype, weight, own, partner, elements, out);
    });
  }

 private:
  const Params params_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("mixup")
        .Summary("Mixes every sample of a batch with another one of it, image and label by the "
                 "same weight.")
        .Input({.field = "image",
                .layouts = {Layout::kHWC, Layout::kCHW, Layout::kPlain},
                .dtypes = {DType::kUInt8, DType::kFloat16, DType::kBFloat16, DType::kFloat32},
                .doc = "What is mixed."})
        .Input({.field = "label",
                .layouts = {Layout::kPlain},
                .dtypes = {},
                .doc = "Class number, or weights of the classes."})
        .Output({.field = "", .layouts = {}, .dtypes = {}, .doc = "The mixture."})
        .Output({.field = "",
                 .layouts = {Layout::kPlain},
                 .dtypes = {},
                 .doc = "Weights of the classes."})
        .Randomness(Randomness::kPerBatch)
        .Param("alpha", &Params::alpha,
               "Of the Beta distribution of the weight: small ones mix little, 1 is uniform, large "
               "ones mix by halves.",
               Range(1e-3, 1e3))
        .Param("num_classes", &Params::num_classes,
               "Length of the label's vector; by default the dataset's number of classes.",
               Range(1, 1 << 24))
        .Cost("One pass over the batch.")
        .Example("- mixup: {in: [image, label], alpha: 0.2, num_classes: 10}")
        .AlsoKnownAs("torchvision", {"MixUp"})
        .AlsoKnownAs("MindSpore", {"MixUpBatch"})
        .NearestTo("MindSpore", {"MixUp"})
        .Create<Mixup>());

}  // namespace
}  // namespace feedwater::server
