// Does the same ops several times, each time with draws of their own.
#include "server/graph/combinator.h"

namespace feedwater::server {
namespace {

struct Params {
  InnerOps ops;
  int64_t times = 1;
};

class RepeatOp final : public Combinator {
 public:
  RepeatOp(const Params& params, std::vector<InnerOp> ops)
      : Combinator(std::move(ops)), times_(params.times) {}

  static absl::StatusOr<std::unique_ptr<Op>> Make(Params params,
                                                  absl::Span<const std::string> fields) {
    return MakeCombinator<RepeatOp>(std::move(params), fields);
  }

 protected:
  bool chooses_one() const override { return times_ == 1 && size() == 1; }

  void Choose(Draws*, Choice* choice) const override {
    for (int64_t round = 0; round < times_; ++round) {
      for (size_t i = 0; i < size(); ++i)
        choice->push_back({static_cast<uint16_t>(i), static_cast<uint16_t>(round)});
    }
  }

  bool may_repeat() const override { return times_ > 1; }

  absl::StatusOr<Specs> Flow(Specs fields, PlanOne plan) const override {
    for (int64_t round = 0; round < times_; ++round) {
      FW_ASSIGN_OR_RETURN(Specs made, Chain(fields, plan));
      if (made == fields) break;  // and so are the rounds behind it
      fields = std::move(made);
    }
    return fields;
  }

 private:
  const int64_t times_;
};

const OpRegistrar kRegistrar(
    CombinatorSchema(OpSchema<Params>("repeat").Summary(
                         "Does the same ops several times, each time with draws of their own."))
        .Required(kRounds, &Params::times, "How many times.", Range(1, 16))
        .Cost("That of the ops, as often as it says. Fused with its neighbours where all ops are "
              "fused point "
              "ops on one image; else a pass for each.")
        .Example("- repeat:\n"
                 "    times: 3\n"
                 "    ops:\n"
                 "      - one_of:\n"
                 "          ops:\n"
                 "            - random_affine: {degrees: 5}\n"
                 "            - color_jitter: {brightness: 0.2}")
        .Create<RepeatOp>());

}  // namespace
}  // namespace feedwater::server
