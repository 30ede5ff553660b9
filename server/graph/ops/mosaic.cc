// Makes every image of a batch of parts of four: its own upper left part, and the upper right,
// lower left and lower right parts of three others, which meet at a random point; the labels are
// mixed by the areas. It is YOLO's mosaic, for images of one size and labels of whole images (as
// RICAP): boxes and masks do not go with it, since the batch has boxes of varying number only at
// its end. One point and three permutations of partners are drawn for a batch.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/graph/batch_mixing.h"
#include "server/graph/joint_fields.h"
#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

struct Params {
  Interval center = {0.25, 0.75};
  std::optional<int64_t> num_classes;
};

class Mosaic final : public MixingOp {
 public:
  explicit Mosaic(const Params& params) : MixingOp(params.num_classes), params_(params) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment& environment) const override {
    // Weights would be overwritten while they are still somebody's own.
    if (!IsClassNumber(inputs[1])) {
      return absl::InvalidArgumentError(
          absl::StrCat("takes a class number as label, not ", inputs[1].ToString(),
                       "; put it before one_hot and other ops of 'batch: graph:'"));
    }
    return MixingOp::Plan(inputs, environment);
  }

  absl::Status Run(const OpBatch& batch, Draws draws) const override {
    const BatchField& images = batch.inputs[0];
    const BatchField& out = batch.outputs[0];
    const Size size = ImageSizeOf(images.spec);
    const int x = DrawAt(size.width, draws), y = DrawAt(size.height, draws);
    const double area = static_cast<double>(size.width) * size.height;
    const auto share = [&](Rect part) {
      return static_cast<float>(static_cast<double>(part.width) * part.height / area);
    };
    FW_RETURN_IF_ERROR(StartLabels(batch, share({0, 0, x, y})));
    if (out.data != images.data) {
      for (int64_t k = 0; k < batch.samples; ++k) {
        FW_RETURN_IF_ERROR(batch.clock->Check());
        std::memcpy(out.at(k), images.at(k), static_cast<size_t>(images.sample_bytes));
      }
    }
    const Rect parts[] = {{x, 0, size.width - x, y},
                          {0, y, x, size.height - y},
                          {x, y, size.width - x, size.height - y}};
    for (const Rect& part : parts) {
      DrawPermutation(batch.permutation, draws);
      AddLabels(batch, share(part));
      // No part is read or written by another one, so the parts may be done in place.
      FW_RETURN_IF_ERROR(
          MixField(batch, 0, [&](std::byte* to, const std::byte* own, const std::byte* partner) {
            if (partner != own) CopyBox(images.spec, part, partner, to);
          }));
    }
    return absl::OkStatus();
  }

 private:
  int DrawAt(int pixels, Draws& draws) const {
    return static_cast<int>(
        std::lround(pixels * draws.Uniform(params_.center.low, params_.center.high)));
  }

  const Params params_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("mosaic")
        .Summary("Makes every image of a batch of parts of four, and mixes the labels by the "
                 "areas.")
        .Input({.field = "image", .layouts = kImageLayouts, .dtypes = {}, .doc = "The images."})
        .Input({.field = "label",
                .layouts = {Layout::kPlain},
                .dtypes = {},
                .doc = "Class number. Boxes and masks are not offered."})
        .Output({.field = "", .layouts = kImageLayouts, .dtypes = {}, .doc = "The mosaics."})
        .Output({.field = "",
                 .layouts = {Layout::kPlain},
                 .dtypes = {DType::kFloat32},
                 .doc = "Weights of the classes."})
        .Randomness(Randomness::kPerBatch)
        .Param("center", &Params::center,
               "Where the four parts meet, as a share of width and height; drawn from [low, high].",
               Range(0, 1))
        .Param("num_classes", &Params::num_classes,
               "Length of the label's vector; by default the dataset's number of classes.",
               Range(1, 1 << 24))
        .Cost("A copy of three quarters of the batch.")
        .Example("- mosaic: {in: [image, label], num_classes: 10}")
        .NearestTo("Albumentations", {"Mosaic"})
        .Create<Mosaic>());

}  // namespace
}  // namespace feedwater::server
