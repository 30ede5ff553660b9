// Does several ops one after the other, or none of them: torchvision's RandomApply.
#include "server/graph/combinator.h"

namespace feedwater::server {
namespace {

struct Params {
  InnerOps ops;
  double p = 0.5;
};

class ApplyOp final : public Combinator {
 public:
  ApplyOp(const Params& params, std::vector<InnerOp> ops)
      : Combinator(std::move(ops)), p_(params.p) {}

  static absl::StatusOr<std::unique_ptr<Op>> Make(Params params,
                                                  absl::Span<const std::string> fields) {
    return MakeCombinator<ApplyOp>(std::move(params), fields);
  }

 protected:
  bool chooses_one() const override { return size() == 1; }

  void Choose(Draws* draws, Choice* choice) const override {
    if (!draws->Bernoulli(p_)) return;
    for (size_t i = 0; i < size(); ++i) choice->push_back({static_cast<uint16_t>(i), 0});
  }

  absl::StatusOr<Specs> Flow(Specs fields, PlanOne plan) const override {
    absl::StatusOr<Specs> made = Chain(fields, plan);
    return p_ < 1 ? Either(std::move(made), fields) : made;
  }

 private:
  const double p_;
};

const OpRegistrar kRegistrar(
    CombinatorSchema(
        OpSchema<Params>("apply").Summary("Does several ops one after the other, or none of them."))
        .AlsoKnownAs("torchvision", {"RandomApply"})
        .AlsoKnownAs("Albumentations", {"Sequential"})
        .AlsoKnownAs("MindSpore", {"RandomApply"})
        .Required("p", &Params::p, "Probability that they are done.", Range(0, 1))
        .Cost("That of the ops, as often as they are done. Fused with its neighbours where all ops "
              "are fused point ops on one image; else a pass for each, and a copy where nothing is "
              "done. An op that has a `p` itself needs no `apply` around it.")
        .Example("- apply:\n"
                 "    p: 0.2\n"
                 "    ops:\n"
                 "      - random_rotation: {degrees: 10}\n"
                 "      - gaussian_noise: {sigma: 0.1}")
        .Create<ApplyOp>());

}  // namespace
}  // namespace feedwater::server
