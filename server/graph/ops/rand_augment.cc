// Does operations drawn at random with one strength, as torchvision's RandAugment does on PIL
// images.
#include "absl/strings/str_cat.h"
#include "server/graph/augmentations.h"

namespace feedwater::server {
namespace {

struct Params : AugmentParams {
  int64_t num_ops = 2;
  int64_t magnitude = 9;
  int64_t num_magnitude_bins = 31;
};

class RandAugment : public AugmentOp {
 public:
  explicit RandAugment(const Params& params) : AugmentOp(params), params_(params) {}

  static absl::Status Check(const Params& params) {
    if (params.magnitude < params.num_magnitude_bins) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("'magnitude' counts from 0 and must be less than 'num_magnitude_bins', ",
                     params.num_magnitude_bins, ", not ", params.magnitude));
  }

 protected:
  int64_t most() const override { return params_.num_ops; }

  void Draw(Draws draws, Size image, DrawnAugmentations* drawn) const override {
    for (int64_t i = 0; i < params_.num_ops; ++i) {
      const Augmentation kind = AnyAugmentation(&draws);
      const double magnitude =
          MagnitudeOf(kModerate, kind, image, params_.num_magnitude_bins, params_.magnitude);
      drawn->push_back(WithSign(kind, magnitude, &draws));
    }
  }

 private:
  const Params params_;
};

const OpRegistrar kRegistrar(
    AugmentSchema(OpSchema<Params>("rand_augment")
                      .Summary("Does some of 14 operations at random, all with one strength "
                               "(RandAugment)."))
        .Param("num_ops", &Params::num_ops, "How many operations, one after the other.",
               Range(0, static_cast<double>(kMaxAugmentations)))
        .Param("magnitude", &Params::magnitude,
               "Which strength, from 0 (nothing) to num_magnitude_bins - 1 (the most).",
               Range(0, 999999))
        .Param("num_magnitude_bins", &Params::num_magnitude_bins, "How many strengths there are.",
               Range(2, 1000000))
        .Cost("That of the operations drawn; those of colours that follow each other share passes "
              "over the image.")
        .Example("- rand_augment: {num_ops: 2, magnitude: 9}")
        .AlsoKnownAs("torchvision", {"RandAugment"})
        .AlsoKnownAs("MindSpore", {"RandAugment"})
        .AlsoKnownAs("DALI", {"rand_augment"})
        .NearestTo("MindSpore", {"RandomSelectSubpolicy"})
        .Create<RandAugment>());

}  // namespace
}  // namespace feedwater::server
