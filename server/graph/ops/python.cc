// Runs a function of the user's own, which the user's own processes serve (feedwater.serve_op): per
// sample in `graph:`, on whole batches in `batch: graph:` or with `batch: true`. What it draws
// comes from a seed that the daemon gives: of (seed, epoch, record, op), so that samples do not
// depend on which process makes them, or when.
//
// It never belongs to what a cache keeps: nobody knows whether the function gives the same twice.
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/shm/wire.h"
#include "server/graph/op_caller.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

struct Params {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<int64_t>> shape;
  bool random = false;
  bool batch = false;
};

bool IsImageShape(const Shape& shape, Layout layout) {
  if (shape.size() != 3) return false;
  const int64_t channels = shape[layout == Layout::kCHW ? 0 : 2];
  return channels == 1 || channels == 3;
}

// How the axes are read: as those of the input, where they can be.
Layout LayoutOf(const TensorSpec& made, const TensorSpec& input) {
  if (input.layout == Layout::kEncoded) {
    return made.dtype == DType::kUInt8 && IsImageShape(made.shape, Layout::kHWC) ? Layout::kHWC
                                                                                 : Layout::kPlain;
  }
  return IsImageShape(made.shape, input.layout) ? input.layout : Layout::kPlain;
}

// The first output has the dtype and shape that are given; what is not given is as in the input of
// the same place.
absl::StatusOr<Specs> PlanOutputs(const Params& params, absl::Span<const TensorSpec> inputs,
                                  size_t axes_more) {
  if (inputs.empty()) return absl::InvalidArgumentError("takes at least one field");
  if (inputs.size() > wire::kMaxTensors)
    return absl::InvalidArgumentError(absl::StrCat("takes at most ", wire::kMaxTensors, " fields"));
  Specs outputs(inputs.begin(), inputs.end());
  if (params.dtype.has_value()) outputs[0].dtype = *DTypeFromName(*params.dtype);
  if (params.shape.has_value()) outputs[0].shape.assign(params.shape->begin(), params.shape->end());
  if (params.dtype.has_value() || params.shape.has_value())
    outputs[0].layout = LayoutOf(outputs[0], inputs[0]);
  // Of images the sum of memory knows the size.
  const bool is_open = !outputs[0].IsStatic() && inputs[0].layout != Layout::kHWC &&
                       inputs[0].layout != Layout::kCHW;
  if (is_open && DTypeSize(outputs[0].dtype) > DTypeSize(inputs[0].dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("makes ", outputs[0].ToString(), " of ",
                                                   inputs[0].ToString(),
                                                   ": say with 'shape' how large that is"));
  }
  const auto check = [&](const TensorSpec& spec) {
    if (spec.shape.size() + axes_more <= wire::kMaxAxes) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "takes and gives at most ", wire::kMaxAxes - axes_more, " axes, not ", spec.ToString()));
  };
  for (const TensorSpec& spec : inputs) FW_RETURN_IF_ERROR(check(spec));
  FW_RETURN_IF_ERROR(check(outputs[0]));
  FW_RETURN_IF_ERROR(CheckCallBytes(inputs, outputs));
  return outputs;
}

absl::InlinedVector<TensorSpec, 2> SpecsOf(absl::Span<const Tensor> tensors) {
  absl::InlinedVector<TensorSpec, 2> specs;
  for (const Tensor& tensor : tensors) specs.push_back(tensor.spec);
  return specs;
}

// The function draws from the common generators in any case; the lowest bit says whether it gets
// one of its own.
std::array<uint64_t, 2> SeedFor(const Params& params, Draws draws) {
  std::array<uint64_t, 2> seed = SeedOf(draws);
  seed[1] = (seed[1] & ~uint64_t{1}) | (params.random ? 1 : 0);
  return seed;
}

absl::Status NobodyRunsIt(const std::string& name) {
  return absl::FailedPreconditionError(
      absl::StrCat("'", name, "' is run by your own program, which a daemon asks for it"));
}

class PythonOp final : public Op {
 public:
  explicit PythonOp(Params params) : params_(std::move(params)) {}

  static absl::Status Check(const Params& params) {
    return params.name.empty() ? absl::InvalidArgumentError("'name' is empty") : absl::OkStatus();
  }

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    return PlanOutputs(params_, inputs, /*axes_more=*/0);
  }

  OpMemory Memory(absl::Span<const TensorSpec> inputs,
                  const PlanEnvironment& environment) const override {
    OpMemory memory;
    const absl::StatusOr<Specs> made = Plan(inputs, environment);
    if (!made.ok()) return memory;
    for (size_t i = 0; i < inputs.size(); ++i) {
      int64_t most = 0;
      if (inputs[i].IsStatic()) {
        most = inputs[i].ByteSize().value_or(0);
      } else if (i < environment.most_bytes.size()) {
        most = environment.most_bytes[i];
      }
      // Nothing is known of it before the record is there.
      if (most == 0 && !inputs[i].IsStatic() && !environment.is_for_sample) most = kMostCallBytes;
      memory.call_inputs += most;
      // What is like its input is as large as that is.
      const TensorSpec& output = (*made)[i];
      memory.call_outputs += output.IsStatic()
                                 ? output.ByteSize().value_or(0)
                                 : most / static_cast<int64_t>(DTypeSize(inputs[i].dtype)) *
                                       static_cast<int64_t>(DTypeSize(output.dtype));
      memory.calls_are_open |= !inputs[i].IsStatic() || !output.IsStatic();
    }
    return memory;
  }

  // What is like its input is as large as that is.
  int64_t MostPixels(const TensorSpec&, int64_t pixels, const ImageLimits&) const override {
    return pixels;
  }

  absl::Status Run(Sample& sample, Draws draws) const override {
    if (sample.caller() == nullptr) return NobodyRunsIt(params_.name);
    absl::InlinedVector<TensorSpec, 2> planned;
    for (size_t i = 0; i < sample.inputs().size(); ++i) {
      planned.push_back(sample.planned(i));
      // What is like its input is as large as that is.
      if (!planned[i].IsStatic()) planned[i].shape = sample.inputs()[i].spec.shape;
    }
    FW_RETURN_IF_ERROR(CheckCallBytes(SpecsOf(sample.inputs()), planned));
    OpCall call;
    call.name = &params_.name;
    call.record = sample.record();
    call.seed = SeedFor(params_, draws);
    call.inputs = sample.inputs();
    call.outputs = planned;
    call.gone = sample.gone();
    call.clock = &sample.clock();
    return sample.caller()->Call(call, [&](absl::Span<const Tensor> made) {
      for (size_t i = 0; i < made.size(); ++i) {
        FW_ASSIGN_OR_RETURN(const Tensor output, sample.Output(i, planned[i]));
        std::memcpy(output.data, made[i].data, output.bytes());
      }
      return absl::OkStatus();
    });
  }

 private:
  const Params params_;
};

class PythonBatchOp final : public BatchOp {
 public:
  explicit PythonBatchOp(Params params) : params_(std::move(params)) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    return PlanOutputs(params_, inputs, /*axes_more=*/1);
  }

  absl::Status CheckBatchSize(absl::Span<const TensorSpec> inputs,
                              absl::Span<const TensorSpec> outputs,
                              int64_t batch_size) const override {
    return CheckBatchCallBytes(inputs, outputs, batch_size);
  }

  absl::Status Run(const OpBatch& batch, Draws draws) const override {
    if (batch.caller == nullptr) return NobodyRunsIt(params_.name);
    absl::InlinedVector<Tensor, 2> inputs;
    absl::InlinedVector<TensorSpec, 2> planned;
    for (const BatchField& field : batch.inputs)
      inputs.push_back({WithSamples(field.spec, batch.samples), field.data});
    for (const BatchField& field : batch.outputs)
      planned.push_back(WithSamples(field.spec, batch.samples));
    OpCall call;
    call.name = &params_.name;
    call.record = batch.number;
    call.seed = SeedFor(params_, draws);
    call.inputs = inputs;
    call.outputs = planned;
    call.gone = batch.gone;
    call.clock = batch.clock;
    return batch.caller->Call(call, [&](absl::Span<const Tensor> made) {
      for (size_t i = 0; i < made.size(); ++i)
        std::memcpy(batch.outputs[i].data, made[i].data, made[i].bytes());
      return absl::OkStatus();
    });
  }

 private:
  static TensorSpec WithSamples(TensorSpec spec, int64_t samples) {
    spec.layout = Layout::kPlain;
    spec.shape.insert(spec.shape.begin(), samples);
    return spec;
  }

  const Params params_;
};

template <typename C>
OpEntry Declare() {
  return OpSchema<Params>(kOwnOp)
      .Summary(
          "Runs a function of your own, served by your own processes "
          "(`feedwater.serve_op`): the fields of `in` go to it as NumPy arrays, and what it "
          "returns are the fields of `out`.")
      .Input({.field = "image", .layouts = {}, .dtypes = {}, .doc = "What the function takes."})
      .OutputLikeInput()
      .AnyFields()
      .Randomness(Randomness::kPerSample)
      .Required("name", &Params::name,
                "The name under which it is served: feedwater.serve_op(\"my_aug\", fn).")
      .Param("dtype", &Params::dtype,
             "Type of the first output; by default, and of the others, that of the input of "
             "the same place.",
             OneOf({"uint8", "int8", "bool", "int16", "uint16", "int32", "int64", "float16",
                    "bfloat16", "float32", "float64"}))
      .Param("shape", &Params::shape,
             "Shape of the first output, without the batch; by default, and of the others, that "
             "of the input of the same place.",
             Range(0, 1 << 24))
      .Param("random", &Params::random,
             "The function gets `rng`, a numpy.random.Generator that depends on (seed, epoch, "
             "record, op) alone. Without it there is no such argument.")
      .Param("batch", &Params::batch,
             "The function takes and returns whole batches. Only such ops can follow, and every "
             "field has a fixed shape by then.")
      .Cost(
          "What the function takes, and two copies of what goes in and out; a worker waits "
          "for it.")
      .Example("- python: {name: my_aug, in: image, out: image, random: true}")
      .AlsoKnownAs("DALI", {"python_function"})
      .NearestTo("torchvision", {"Lambda"})
      .NearestTo("Albumentations", {"Lambda"})
      .Create<C>();
}

OpEntry DeclareBoth() {
  OpEntry entry = Declare<PythonOp>();
  entry.create_batch = Declare<PythonBatchOp>().create_batch;
  return entry;
}

const OpRegistrar kRegistrar(DeclareBoth());

}  // namespace
}  // namespace feedwater::server
