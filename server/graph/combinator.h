// The base of one_of, some_of, apply and repeat: ops that do other ops to some fields. A combinator
// says which of its ops a sample gets, and in which order (Choose); planning and running them is
// done here. Where all of them change colours of one image, the combinator is itself such an op,
// and fuses with its neighbours.
//
// Its ops draw from a Philox of their own, whose key are two words of the combinator's draws: op
// number i of `ops` in round r as instance i of record r.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "server/graph/inner_ops.h"
#include "server/graph/op_schema.h"
#include "server/graph/point_op.h"

namespace feedwater::server {

inline constexpr size_t kMaxChosen = 256;  // ops of a sample, rounds counted
inline constexpr size_t kMaxCombinatorFields = 32;

class Combinator : public Op {
 public:
  explicit Combinator(std::vector<InnerOp> ops);

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment& environment) const final;
  absl::Status Run(Sample& sample, Draws draws) const final;
  OpMemory Memory(absl::Span<const TensorSpec> inputs,
                  const PlanEnvironment& environment) const final;
  int64_t TableBytes() const final;
  const PointOp* AsPoint() const final { return points_.get(); }

 protected:
  struct Chosen {
    uint16_t op = 0, round = 0;
  };
  using Choice = absl::InlinedVector<Chosen, kMaxChosen>;
  // What fields become by op number `op`. NotFound: it does not fit this sample.
  using PlanOne = absl::FunctionRef<absl::StatusOr<Specs>(size_t op, const Specs& fields)>;

  virtual void Choose(Draws* draws, Choice* choice) const = 0;
  virtual bool chooses_one() const { return false; }  // or none, always
  // Whether an op may also be done behind itself, or behind one that follows it in `ops`.
  virtual bool may_repeat() const { return false; }
  // What may come out, whatever is chosen. NotFound: nothing does of this sample, which is too
  // small for all that may be chosen.
  virtual absl::StatusOr<Specs> Flow(Specs fields, PlanOne plan) const = 0;

  size_t size() const { return ops_.size(); }
  // What fields are that may be one or the other: a size that differs is open. What does not fit
  // the sample (NotFound) is left out. InvalidArgument where more than sizes differ.
  static absl::StatusOr<Specs> Either(absl::StatusOr<Specs> one,
                                      const absl::StatusOr<Specs>& other);
  // One op, whichever.
  absl::StatusOr<Specs> One(const Specs& fields, PlanOne plan) const;
  // All ops in their order.
  absl::StatusOr<Specs> Chain(Specs fields, PlanOne plan) const;

 private:
  class InnerSample;
  class Points;

  absl::StatusOr<Specs> PlanInner(size_t op, const Specs& fields,
                                  const PlanEnvironment& environment) const;
  absl::Status RunInner(Sample& sample, const Choice& choice, PhiloxKey key) const;

  std::vector<InnerOp> ops_;
  std::unique_ptr<PointOp> points_;
};

// `Make` of a combinator, which has the constructor C(params, ops).
template <typename C, typename P>
absl::StatusOr<std::unique_ptr<Op>> MakeCombinator(P params, absl::Span<const std::string> fields) {
  FW_ASSIGN_OR_RETURN(std::vector<InnerOp> ops, MakeInnerOps(params.ops, fields));
  return std::unique_ptr<Op>(new C(std::move(params), std::move(ops)));
}

// The port and the parameter of every combinator.
template <typename P>
OpSchema<P>&& CombinatorSchema(OpSchema<P>&& schema) {
  return std::move(schema)
      .Input({.field = "image",
              .layouts = {},
              .dtypes = {},
              .doc = "The fields that the ops change: one, or several that some of them move "
                     "together."})
      .OutputLikeInput()
      .AnyFields()
      .Randomness(Randomness::kPerSample)
      .template Required<InnerOps>(
          kInnerOps, &P::ops,
          "The ops. Each writes the fields that it reads: those that its own `in` names, or else "
          "all of them where it moves fields together, and the first one where it does not.");
}

}  // namespace feedwater::server
