// Powers or magnitudes as decibels, as torchaudio.transforms.AmplitudeToDB makes them.
#include <optional>

#include "server/graph/audio_op.h"
#include "server/graph/decibels.h"

namespace feedwater::server {
namespace {

struct Params {
  std::string stype = "power";
  std::optional<double> top_db;
};

class AmplitudeToDb : public Op {
 public:
  explicit AmplitudeToDb(const Params& params)
      : factor_(params.stype == "power" ? 10 : 20), top_db_(params.top_db.value_or(-1)) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    FW_RETURN_IF_ERROR(FixedSpectrogramOf(inputs[0]).status());
    return Specs{inputs[0]};
  }

  absl::Status Run(Sample& sample, Draws) const override {
    const Tensor& input = sample.inputs()[0];
    FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, input.spec));
    return ToDecibels(input.as<float>(), input.elements(), factor_, top_db_, sample.clock(),
                      output.as<float>());
  }

 private:
  const float factor_;
  const double top_db_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("amplitude_to_db")
        .Summary("Gives powers or magnitudes as decibels, as torchaudio.transforms.AmplitudeToDB "
                 "does: 10 or 20 times the logarithm, of at least 1e-10.")
        .Input(kSpectrogramPort)
        .OutputLikeInput()
        .Param("stype", &Params::stype, "What comes in: power or magnitude.",
               OneOf({"power", "magnitude"}))
        .Param("top_db", &Params::top_db,
               "Nothing is less than the sample's largest number minus this. Without it nothing is "
               "cut off.",
               Range(0, 1000))
        .Cost("Less than a nanosecond a number.")
        .Example("- amplitude_to_db: {in: mel, top_db: 80}")
        .Create<AmplitudeToDb>());

}  // namespace
}  // namespace feedwater::server
