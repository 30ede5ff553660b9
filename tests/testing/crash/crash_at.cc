// An op that faults on one value: what a hole in a decoder looks like from outside. Linked into
// tools/crashing_feedwaterd only, never into the product.
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

struct Params {
  int64_t value = -1;
};

class CrashAt : public Op {
 public:
  explicit CrashAt(const Params& params) : value_(params.value) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    return Specs{inputs[0]};
  }

  absl::Status Run(Sample& sample, Draws) const override {
    const Tensor& input = sample.inputs()[0];
    FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, input.spec));
    *output.as<int64_t>() = *input.as<int64_t>();
    if (*output.as<int64_t>() == value_) {
      volatile uintptr_t nowhere = 8;
      *reinterpret_cast<volatile int*>(nowhere) = 1;
    }
    return absl::OkStatus();
  }

 private:
  const int64_t value_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("crash_at")
        .Summary("Ends the daemon with SIGSEGV when the field has this value.")
        .Input({.field = "label",
                .layouts = {Layout::kPlain},
                .dtypes = {DType::kInt64},
                .doc = "A number."})
        .OutputLikeInput()
        .Param("value", &Params::value, "The value.")
        .Cost("Nothing, or everything.")
        .Example("- crash_at: {in: label, value: 3}")
        .Create<CrashAt>());

}  // namespace
}  // namespace feedwater::server
