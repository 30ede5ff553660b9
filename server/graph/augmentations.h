// What trivial_augment_wide, rand_augment, auto_augment and aug_mix share: the operations that
// torchvision's policies choose among, how strong each is, and carrying out those that were drawn,
// with the arithmetic that torchvision has on PIL images. Point operations next to each other run
// as one PointProgram.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "server/graph/op.h"
#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {

// In torchvision's order, which the draws follow.
enum class Augmentation : uint8_t {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
  kInvert,
};

// Whether its magnitude gets a sign by chance.
inline bool IsSigned(Augmentation kind) {
  return kind >= Augmentation::kShearX && kind <= Augmentation::kSharpness;
}

// How strong each operation is at most.
struct Magnitudes {
  double shear = 0;            // tangent of the angle
  double translate = 0;        // pixels
  double translate_share = 0;  // of the side, beside those pixels
  double rotate = 0;           // degrees
  double enhance = 0;          // brightness, colour, contrast, sharpness: the factor is 1 + it
  int bits_off = 0;            // posterize: of `bits`
  int bits = 8;
};

// torchvision's number `bin` of `bins`, from nothing to the most, in its float32: of posterize the
// bits that are kept, of solarize the threshold as a share of 255; 0 of an operation without.
// REQUIRES: bins >= 2, 0 <= bin < bins.
double MagnitudeOf(const Magnitudes& most, Augmentation kind, Size image, int64_t bins,
                   int64_t bin);

// The strengths of torchvision's auto_augment and rand_augment.
inline constexpr Magnitudes kModerate = {
    .shear = 0.3, .translate_share = 150.0 / 331.0, .rotate = 30, .enhance = 0.9, .bits_off = 4};

struct DrawnAugmentation {
  Augmentation kind = Augmentation::kIdentity;
  double magnitude = 0;
};

// Any of them but kInvert.
inline Augmentation AnyAugmentation(Draws* draws) {
  return static_cast<Augmentation>(draws->Below(static_cast<int64_t>(Augmentation::kInvert)));
}
// The draw is made whether the operation is signed or not.
inline DrawnAugmentation WithSign(Augmentation kind, double magnitude, Draws* draws) {
  const bool is_negative = draws->Bernoulli(0.5);
  return {kind, is_negative && IsSigned(kind) ? -magnitude : magnitude};
}

inline constexpr int64_t kMaxAugmentations = 16;  // of one sample
using DrawnAugmentations = absl::InlinedVector<DrawnAugmentation, kMaxAugmentations>;

struct AugmentParams {
  std::string interpolation = "nearest";
  FillColor fill;
};

// Does to the sample's image what was drawn. `spare` and `out` have room for it; without more than
// one operation `spare` may be null.
absl::Status Augment(Sample& sample, const AugmentParams& params, const DrawnAugmentations& drawn,
                     uint8_t* spare, uint8_t* out);

// An op that draws operations and does them one after the other.
class AugmentOp : public Op {
 public:
  explicit AugmentOp(const AugmentParams& params) : params_(params) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment& environment) const final;
  absl::Status Run(Sample& sample, Draws draws) const final;
  OpMemory Memory(absl::Span<const TensorSpec> inputs,
                  const PlanEnvironment& environment) const final;
  int64_t MostPixels(const TensorSpec&, int64_t pixels, const ImageLimits&) const final {
    return pixels;
  }

 protected:
  virtual int64_t most() const = 0;  // operations of a sample, up to kMaxAugmentations
  virtual void Draw(Draws draws, Size image, DrawnAugmentations* drawn) const = 0;

 private:
  const AugmentParams params_;
};

// The port and the parameters of every AugmentOp.
template <typename P>
OpSchema<P>&& AugmentSchema(OpSchema<P>&& schema) {
  return std::move(schema)
      .Input(kColourImage)
      .OutputLikeInput()
      .Randomness(Randomness::kPerSample)
      .template Param<std::string>("interpolation", &P::interpolation,
                                   "Of shear, translate and rotate, as Pillow's: nearest or "
                                   "bilinear.",
                                   OneOf({"nearest", "bilinear"}))
      .template Param<FillColor>("fill", &P::fill,
                                 "What shows where nothing of the image is: one number or one per "
                                 "channel.",
                                 Range(0, 255));
}

}  // namespace feedwater::server
