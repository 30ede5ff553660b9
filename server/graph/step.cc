// Carries out one step for one sample: gives the op its inputs and the memory of its outputs, or
// composes a run of ops into one call of the codec.
#include "absl/strings/str_cat.h"
#include "server/graph/op_ports.h"
#include "server/graph/plan_impl.h"
#include "server/graph/point_op.h"
#include "server/graph/render.h"
#include "server/graph/varying_rows.h"

namespace feedwater::server {
namespace {

// The sample as the ops of one step see it. Also the guard of the slot: nothing gets memory that
// its plan has not foreseen.
class StepSample : public Sample {
 public:
  StepSample(const Step& step, const SampleRun& run) : step_(step), run_(run) {
    run_.workspace.inputs.clear();
    for (int value : step.in) run_.workspace.inputs.push_back(run_.workspace.values[value]);
  }

  absl::Span<const Tensor> inputs() const override { return run_.workspace.inputs; }
  const TensorSpec& planned(size_t i) const override {
    return run_.plan.flow.values[step_.out[i]].spec;
  }
  ImageWorkspace& images() override { return run_.workspace.images; }
  PointProgram& points() override { return run_.workspace.points; }
  const ImageLimits& limits() const override { return run_.plan.limits; }
  int64_t classes() const override { return run_.plan.classes; }
  WorkClock& clock() override { return *run_.workspace.clock; }
  absl::StatusOr<std::byte*> Scratch(size_t bytes) override {
    return run_.workspace.scratch.Get(bytes);
  }

  absl::StatusOr<std::byte*> Spare(size_t number, size_t bytes) override {
    if (number >= kMaxSpares) return absl::InternalError("asks for more memory than there may be");
    std::vector<GrowingBuffer>& spares = run_.workspace.spares;
    if (spares.size() <= number) spares.resize(number + 1);
    return spares[number].Get(bytes);
  }

  absl::string_view field(size_t i) const override {
    return run_.plan.flow.values[step_.in[i]].name;
  }
  int64_t record() const override { return run_.input.sample_id; }
  OpCaller* caller() override { return run_.workspace.caller; }
  const std::atomic<bool>* gone() const override { return run_.workspace.gone; }

  absl::StatusOr<Tensor> Output(size_t i, const TensorSpec& spec) override {
    FW_RETURN_IF_ERROR(CheckPlanned(spec, planned(i)));
    const int value = step_.out[i];
    const ValuePlace& place = run_.program.places[value];
    if (place.batch_value >= 0) FW_RETURN_IF_ERROR(CheckRows(run_.plan, value, spec));
    Tensor& tensor = run_.workspace.values[value];
    tensor.spec = spec;
    if (place.batch_value >= 0) {
      tensor.data = run_.plan.batch_places[place.batch_value].At(run_.memory, run_.k);
    } else {
      FW_ASSIGN_OR_RETURN(const int64_t bytes, spec.ByteSize());
      if (place.is_kept && bytes > run_.max_kept_bytes)
        return absl::ResourceExhaustedError("larger than what is kept of a record");
      FW_ASSIGN_OR_RETURN(tensor.data,
                          run_.workspace.buffers[place.buffer].Get(static_cast<size_t>(bytes)));
    }
    return tensor;
  }

 private:
  const Step& step_;
  const SampleRun& run_;
};

Draws DrawsOf(const Step::Part& part, const SampleRun& run) {
  return Draws(run.input.key, static_cast<uint64_t>(run.input.sample_id), part.draws_as);
}

// Renders the image as it is, changes it in as many passes as it takes, and writes it in its format
// with the last one.
absl::Status RenderInPasses(const RenderSource& source, const ImageTransform& transform,
                            const Step& step, Tensor& output, StepSample& sample) {
  PointProgram& program = sample.points();
  const Size size = transform.size();
  const int64_t pixels = static_cast<int64_t>(size.width) * size.height;
  std::byte* image = output.data;
  if (!step.image_is_output) {
    FW_ASSIGN_OR_RETURN(image, sample.Scratch(static_cast<size_t>(pixels * source.channels)));
  }
  uint8_t* const bytes = reinterpret_cast<uint8_t*>(image);
  FW_RETURN_IF_ERROR(Render(source, transform, PlainPixels(), image, sample));
  if (step.image_is_output) return program.Run(bytes, pixels, bytes, sample.clock());
  for (program.Start(); !program.IsLast(); program.NextPass())
    FW_RETURN_IF_ERROR(program.EditPixels(bytes, pixels, bytes, sample.clock()));
  PixelFormat format = step.format;
  format.edit = &program;
  return ResampleInto(bytes, size, program.InputChannels(), ImageTransform(size).geometry(), format,
                      output.data, sample.images());
}

// Every geometry op of the step, with its own draws.
absl::Status ComposeMoves(const Step& step, const SampleRun& run, ImageTransform* transform) {
  for (const Step::Part& part : step.parts) {
    const GeometryOp* op = part.op->AsGeometry();
    if (op == nullptr) continue;
    FW_RETURN_IF_ERROR(
        Annotate(op->Compose(0, DrawsOf(part, run), run.plan.limits, transform), part.entry->name));
  }
  return absl::OkStatus();
}

// `size` is left for the caller.
RenderSource EncodedSource(const DecodeOp& decode, const Tensor& encoded) {
  RenderSource source;
  source.encoded = {encoded.data, encoded.bytes()};
  source.apply_orientation = decode.apply_orientation();
  source.values = decode.values();
  source.channels = ChannelsOf(source.values);
  return source;
}

RenderSource PixelSource(const Tensor& image) {
  RenderSource source;
  source.pixels = image.as<const uint8_t>();
  source.size = ImageSizeOf(image.spec);
  source.part = WholeOf(source.size);
  source.channels = static_cast<int>(ChannelsOf(image.spec));
  return source;
}

absl::Status ReadSize(StepSample& sample, RenderSource* source) {
  FW_ASSIGN_OR_RETURN(const ImageInfo info,
                      ReadImageInfo(source->encoded, source->apply_orientation, sample.limits(),
                                    sample.images(), source->values));
  source->size = info.size;
  return absl::OkStatus();
}

// Decodes what the views take of the image (shared_decode.h).
absl::Status RunSharedDecode(const Step& step, const SampleRun& run, StepSample& sample) {
  RenderSource source = EncodedSource(*step.parts[0].op->AsDecode(), sample.inputs()[0]);
  FW_RETURN_IF_ERROR(ReadSize(sample, &source));
  SampleWorkspace::Impl& work = run.workspace;
  work.parts.clear();
  for (const int view : step.views) {
    ImageTransform transform(source.size);
    // One that the image does not fit says so when it is made.
    if (!ComposeMoves(run.program.steps[view], run, &transform).ok()) continue;
    if (transform.placed().width > 0) work.parts.push_back(transform.geometry().crop);
  }
  const auto value = static_cast<size_t>(step.out[0]);
  if (work.shared.size() <= value) work.shared.resize(value + 1);
  const Rect part = PartToDecode(source.size, work.parts, IsCoefficients(source.encoded));
  work.shared[value] = {source.size, part};
  work.values[value] = Tensor();
  if (part.width == 0) return absl::OkStatus();
  FW_ASSIGN_OR_RETURN(Tensor output,
                      sample.Output(0, ImageSpec(DType::kUInt8, Layout::kHWC, part.height,
                                                 part.width, source.channels)));
  ImageTransform cut(source.size);
  cut.Crop(part);
  return Render(source, cut, PlainPixels(), output.data, sample);
}

// Several ops at once, or one that takes a part of a shared decode: find the source's size, let
// every geometry op compose and every point op append with its own draws, and render.
absl::Status RunFused(const Step& step, const SampleRun& run, StepSample& sample) {
  const Tensor& input = sample.inputs()[0];
  const Step::Part* first = &step.parts[0];
  RenderSource source;
  if (step.shared_decode >= 0) {
    const SharedImage& shared = run.workspace.shared[static_cast<size_t>(step.in[0])];
    if (shared.part.width > 0) {
      source = PixelSource(input);
      source.part = shared.part;
    } else {
      const Step& decode = run.program.steps[static_cast<size_t>(step.shared_decode)];
      first = &decode.parts[0];
      source = EncodedSource(*first->op->AsDecode(), run.workspace.values[decode.in[0]]);
    }
    source.size = shared.size;
  } else if (const DecodeOp* decode = first->op->AsDecode()) {
    source = EncodedSource(*decode, input);
    source.fast_scale = decode->fast_scale();
    FW_RETURN_IF_ERROR(Annotate(ReadSize(sample, &source), first->entry->name));
  } else {
    source = PixelSource(input);
  }
  ImageTransform transform(source.size);
  FW_RETURN_IF_ERROR(ComposeMoves(step, run, &transform));
  PointProgram& program = sample.points();
  program.Begin(source.channels);
  for (const Step::Part& part : step.parts) {
    if (const PointOp* op = part.op->AsPoint()) op->Append(DrawsOf(part, run), &program);
  }
  const TensorSpec& planned = sample.planned(0);
  FW_ASSIGN_OR_RETURN(
      Tensor output,
      sample.Output(0, ImageSpec(planned.dtype, planned.layout, transform.size().height,
                                 transform.size().width, program.channels())));
  if (!program.is_one_pass()) {
    return Annotate(RenderInPasses(source, transform, step, output, sample), first->entry->name);
  }
  PixelFormat format = step.format;
  program.Start();
  if (!program.is_empty()) format.edit = &program;
  return Annotate(Render(source, transform, format, output.data, sample), first->entry->name);
}

}  // namespace

absl::Status RunStep(const Step& step, const SampleRun& run) {
  StepSample sample(step, run);
  if (step.parts.size() > 1 || step.shared_decode >= 0) return RunFused(step, run, sample);
  const Step::Part& part = step.parts[0];
  if (!step.views.empty()) return Annotate(RunSharedDecode(step, run, sample), part.entry->name);
  return Annotate(part.op->Run(sample, DrawsOf(part, run)), part.entry->name);
}

}  // namespace feedwater::server
