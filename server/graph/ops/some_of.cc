// Does some of several ops to a sample, chosen at random: Albumentations' SomeOf; with all of them
// in random order, torchvision's RandomOrder.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "server/graph/combinator.h"
#include "server/graph/op_params.h"

namespace feedwater::server {
namespace {

struct Params {
  InnerOps ops;
  OneOrTwo n;
  std::string order = "listed";
  double p = 1;
};

class SomeOfOp final : public Combinator {
 public:
  SomeOfOp(const Params& params, std::vector<InnerOp> ops)
      : Combinator(std::move(ops)),
        least_(static_cast<int64_t>(params.n.first)),
        most_(static_cast<int64_t>(params.n.second)),
        keeps_order_(params.order == "listed"),
        p_(params.p) {}

  static absl::Status Check(const Params& params) {
    const auto size = static_cast<double>(params.ops.specs.size());
    const auto [least, most] = params.n;
    if (std::floor(least) == least && std::floor(most) == most && least >= 0 && least <= most &&
        most >= 1 && most <= size)
      return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("'n' must be a whole number from 1 to ", size,
                                                   ", which is how many ops there are, or "
                                                   "[least, most] of such, not ",
                                                   ParamType<OneOrTwo>::Text(params.n)));
  }
  static absl::StatusOr<std::unique_ptr<Op>> Make(Params params,
                                                  absl::Span<const std::string> fields) {
    return MakeCombinator<SomeOfOp>(std::move(params), fields);
  }

 protected:
  bool chooses_one() const override { return most_ == 1; }

  void Choose(Draws* draws, Choice* choice) const override {
    const bool is_done = draws->Bernoulli(p_);
    const auto n = static_cast<size_t>(least_ + draws->Below(most_ - least_ + 1));
    std::array<uint16_t, kMaxInnerOps> ops;
    std::iota(ops.begin(), ops.end(), uint16_t{0});
    for (size_t i = 0; i < n; ++i) {
      const auto other = i + static_cast<size_t>(draws->Below(static_cast<int64_t>(size() - i)));
      std::swap(ops[i], ops[other]);
    }
    if (!is_done) return;
    if (keeps_order_) std::sort(ops.begin(), ops.begin() + n);
    for (size_t i = 0; i < n; ++i) choice->push_back({ops[i], 0});
  }

  bool may_repeat() const override { return !keeps_order_ && !chooses_one(); }

  absl::StatusOr<Specs> Flow(Specs fields, PlanOne plan) const override {
    const bool all_in_order = keeps_order_ && p_ >= 1 && least_ == static_cast<int64_t>(size());
    if (all_in_order) return Chain(std::move(fields), plan);
    if (chooses_one()) {
      absl::StatusOr<Specs> one = One(fields, plan);
      return p_ >= 1 && least_ == 1 ? one : Either(std::move(one), fields);
    }
    // Each op may be done or not. In random order it may also follow those behind it, until nothing
    // more becomes open.
    for (;;) {
      const Specs before = fields;
      for (size_t i = 0; i < size(); ++i) {
        FW_ASSIGN_OR_RETURN(fields, Either(fields, plan(i, fields)));
      }
      if (keeps_order_ || fields == before) return fields;
    }
  }

 private:
  const int64_t least_, most_;
  const bool keeps_order_;
  const double p_;
};

const OpRegistrar kRegistrar(
    CombinatorSchema(
        OpSchema<Params>("some_of").Summary("Does some of several ops, chosen at random."))
        .AlsoKnownAs("torchvision", {"RandomOrder"})
        .AlsoKnownAs("Albumentations", {"SomeOf", "RandomOrder"})
        .AlsoKnownAs("MindSpore", {"RandomOrder", "UniformAugment"})
        .Required("n", &Params::n, "How many: a number, or [least, most].", Range(0, kMaxInnerOps))
        .Param("order", &Params::order,
               "listed: in the order of `ops`; random: in the order in which they were chosen.",
               OneOf({"listed", "random"}))
        .Param("p", &Params::p, "Probability that any is done at all.", Range(0, 1))
        .Cost("That of the ops that are chosen. Fused with its neighbours where all ops are fused "
              "point ops on one image; else a pass for each.")
        .Example("- some_of:\n"
                 "    n: [1, 2]\n"
                 "    ops:\n"
                 "      - random_equalize: {p: 1}\n"
                 "      - random_posterize: {bits: 4, p: 1}\n"
                 "      - random_solarize: {threshold: 128, p: 1}")
        .Create<SomeOfOp>());

}  // namespace
}  // namespace feedwater::server
