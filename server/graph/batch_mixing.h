// What mixup, cutmix, resize_mix and mosaic share: each sample of a batch is mixed with a partner,
// image and label by the same weight. A class number becomes a vector of weights, since a mixed
// sample belongs to two classes.
#pragma once

#include "absl/functional/function_ref.h"
#include "server/codec/row_source.h"  // Rect
#include "server/graph/op.h"

namespace feedwater::server {

class MixingOp : public BatchOp {
 public:
  // Without `num_classes` the dataset's own.
  explicit MixingOp(std::optional<int64_t> num_classes) : num_classes_(num_classes.value_or(0)) {}

  // Specs of image and label after mixing.
  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment& environment) const override;
  std::optional<size_t> class_input() const final { return 1; }

 private:
  const int64_t num_classes_;
};

// Mixing by a box of the image, one for a batch: it becomes the partner's, and the labels are mixed
// by the areas.
class BoxMixingOp : public MixingOp {
 public:
  using MixingOp::MixingOp;
  absl::Status Run(const OpBatch& batch, Draws draws) const final;

 private:
  virtual Rect DrawBox(Size size, Draws& draws) const = 0;
  // Writes the box of `to`, a copy of a sample, from its partner.
  virtual void Paste(const TensorSpec& spec, Rect box, const std::byte* partner,
                     std::byte* to) const = 0;
};

// The logarithm of Gamma(alpha, 1), which for a small alpha would underflow itself.
double DrawLogGamma(double alpha, Draws& draws);
// Beta(alpha, alpha), alpha > 0; by two gamma draws after Marsaglia and Tsang (2000).
double DrawBeta(double alpha, Draws& draws);
// A permutation of 0..n-1, every one alike likely.
void DrawPermutation(absl::Span<int64_t> permutation, Draws& draws);

// Calls mix(output k, own input k, partner's input permutation[k]) once for every k; the inputs are
// as they were before the first call even where outputs overwrite them (output k may be own input
// k). `field` counts from 0. An error is the clock's: nobody waits for the batch any more, or it
// takes too long.
absl::Status MixField(
    const OpBatch& batch, size_t field,
    absl::FunctionRef<void(std::byte* out, const std::byte* own, const std::byte* partner)> mix);

// out = weight * own + (1 - weight) * partner, element by element in float32, stored as `dtype`.
// out may be own.
void MixElements(DType dtype, float weight, const std::byte* own, const std::byte* partner,
                 int64_t elements, std::byte* out);

// The label of every sample, mixed by weight: field 1 of the batch. InvalidArgument for a class
// number out of range, which only another batch op can have written.
absl::Status MixLabels(const OpBatch& batch, float weight);

// The same in steps, for more than two images. REQUIRES: labels are class numbers.
inline bool IsClassNumber(const TensorSpec& spec) { return spec.shape.empty(); }
absl::Status StartLabels(const OpBatch& batch, float weight);  // of a sample's own class
void AddLabels(const OpBatch& batch, float weight);  // of the classes of batch.permutation

// Copies the box from image to image, both of the same spec.
void CopyBox(const TensorSpec& spec, Rect box, const std::byte* from, std::byte* to);

}  // namespace feedwater::server
