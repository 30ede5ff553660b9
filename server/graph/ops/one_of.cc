// Does one of several ops to a sample, chosen at random: torchvision's RandomChoice,
// Albumentations' OneOf.
#include <numeric>

#include "server/graph/combinator.h"

namespace feedwater::server {
namespace {

struct Params {
  InnerOps ops;
  std::vector<double> weights;
  double p = 1;
};

class OneOfOp final : public Combinator {
 public:
  OneOfOp(const Params& params, std::vector<InnerOp> ops)
      : Combinator(std::move(ops)), p_(params.p), weights_(params.weights) {
    if (weights_.empty()) weights_.assign(size(), 1);
    total_ = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  }

  static absl::Status Check(const Params& params) {
    const std::vector<double>& weights = params.weights;
    if (!weights.empty() && weights.size() != params.ops.specs.size()) {
      return absl::InvalidArgumentError(absl::StrCat("'weights' has ", weights.size(),
                                                     " numbers for ", params.ops.specs.size(),
                                                     " ops; give one for each"));
    }
    if (!weights.empty() && std::accumulate(weights.begin(), weights.end(), 0.0) <= 0)
      return absl::InvalidArgumentError("'weights' are all 0, so that no op can be chosen");
    return absl::OkStatus();
  }
  static absl::StatusOr<std::unique_ptr<Op>> Make(Params params,
                                                  absl::Span<const std::string> fields) {
    return MakeCombinator<OneOfOp>(std::move(params), fields);
  }

 protected:
  bool chooses_one() const override { return true; }

  void Choose(Draws* draws, Choice* choice) const override {
    const bool is_done = draws->Bernoulli(p_);
    double rest = draws->Uniform() * total_;
    if (!is_done) return;
    size_t op = 0;
    while (op + 1 < weights_.size() && (rest >= weights_[op] || weights_[op] == 0))
      rest -= weights_[op++];
    choice->push_back({static_cast<uint16_t>(op), 0});
  }

  absl::StatusOr<Specs> Flow(Specs fields, PlanOne plan) const override {
    absl::StatusOr<Specs> one = One(fields, plan);
    return p_ < 1 ? Either(std::move(one), fields) : one;
  }

 private:
  const double p_;
  std::vector<double> weights_;
  double total_ = 0;
};

const OpRegistrar kRegistrar(
    CombinatorSchema(
        OpSchema<Params>("one_of").Summary("Does one of several ops, chosen at random."))
        .AlsoKnownAs("torchvision", {"RandomChoice"})
        .AlsoKnownAs("Albumentations", {"OneOf"})
        .AlsoKnownAs("MindSpore", {"RandomChoice"})
        .Param("weights", &Params::weights,
               "How likely each op is beside the others; by default all are alike.", Range(0, 1e6))
        .Param("p", &Params::p, "Probability that any is done at all.", Range(0, 1))
        .Cost("That of the op that is chosen. Fused with its neighbours where all ops are fused "
              "point ops on one image; else a pass of its own, and a copy where nothing is done.")
        .Example("- one_of:\n"
                 "    ops:\n"
                 "      - gaussian_blur: {kernel_size: 5}\n"
                 "      - motion_blur: {blur_limit: 7}\n"
                 "      - random_adjust_sharpness: {sharpness_factor: 2, p: 1}\n"
                 "    weights: [2, 1, 1]")
        .Create<OneOfOp>());

}  // namespace
}  // namespace feedwater::server
