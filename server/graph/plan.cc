#include "server/graph/plan.h"

#include <atomic>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/clock.h"
#include "server/graph/element.h"
#include "server/graph/fusion.h"
#include "server/graph/op_ports.h"
#include "server/graph/plan_impl.h"
#include "server/graph/prefix.h"
#include "server/graph/shared_decode.h"
#include "server/graph/varying_rows.h"

namespace feedwater::server {
namespace {

Step MakeStep(const Dataflow& flow, const FusedRun& run) {
  Step step;
  for (int index : run.nodes) {
    const Node& node = flow.nodes[index];
    step.parts.push_back({node.entry, node.op.get(), node.instance, node.draws_as});
  }
  step.in = flow.nodes[run.nodes.front()].in;
  step.out = flow.nodes[run.nodes.back()].out;
  step.format = run.format;
  step.has_points = run.has_points;
  step.needs_image = run.needs_image;
  const TensorSpec& output = flow.values[step.out[0]].spec;
  step.image_is_output = run.needs_image && run.nodes.size() > 1 && !run.format.affine &&
                         output.dtype == DType::kUInt8 && output.layout == Layout::kHWC &&
                         ChannelsOf(output) == run.channels;
  return step;
}

Program MakeProgram(const Dataflow& flow, std::vector<int> sources, const std::vector<bool>& nodes,
                    bool fuse) {
  Program program;
  program.sources = std::move(sources);
  for (const FusedRun& run : FindRuns(flow, nodes, fuse))
    program.steps.push_back(MakeStep(flow, run));
  return program;
}

// The graph as one program, and as two with a cut where a cache may keep what the first one makes.
absl::Status MakePrograms(const PipelineSpec& spec, int64_t classes, const PlanOptions& options,
                          Plan::Impl* plan) {
  const bool fuse = options.fuse;
  const Dataflow& flow = plan->flow;
  std::vector<int> fields(plan->dataset_fields);
  std::iota(fields.begin(), fields.end(), 0);
  std::vector<bool> live, after;
  for (const Node& node : flow.nodes) live.push_back(node.is_live);
  plan->whole = MakeProgram(flow, fields, live, fuse);
  PlaceValues(flow, nullptr, &plan->whole);

  FW_ASSIGN_OR_RETURN(const Prefix prefix, FindPrefix(flow, plan->dataset_fields, spec, classes));
  for (size_t i = 0; i < flow.nodes.size(); ++i) after.push_back(live[i] && !prefix.nodes[i]);
  plan->before = MakeProgram(flow, fields, prefix.nodes, fuse);
  PlaceValues(flow, &prefix.kept, &plan->before);
  plan->after = MakeProgram(flow, prefix.kept, after, fuse);
  plan->after.first_buffer = prefix.kept.size();
  PlaceValues(flow, nullptr, &plan->after);
  for (Program* program : {&plan->whole, &plan->before, &plan->after}) {
    if (fuse) ShareDecodes(flow, program);
    for (Step& step : program->steps) step.format.stream &= options.stream;
  }

  plan->is_in_prefix = prefix.nodes;
  plan->prefix.digest = prefix.digest;
  for (size_t i = 0; i < flow.nodes.size(); ++i) {
    if (prefix.nodes[i]) plan->prefix.ops.push_back(flow.nodes[i].entry->name);
  }
  for (int value : prefix.kept)
    plan->prefix.fields.push_back({flow.values[value].name, flow.values[value].spec, ""});
  return absl::OkStatus();
}

// The dataset's tensor must be what the dataset announced, or it would not fit its place in the
// slot.
absl::Status CheckSource(const Value& value, const Tensor& tensor) {
  if (tensor.spec == value.spec && tensor.data != nullptr) return absl::OkStatus();
  const TensorSpec& given = tensor.spec;
  bool agrees = given.dtype == value.spec.dtype && given.layout == value.spec.layout &&
                given.shape.size() == value.spec.shape.size() && given.IsStatic();
  for (size_t d = 0; agrees && d < given.shape.size(); ++d) {
    agrees = value.spec.shape[d] < 0 || value.spec.shape[d] == given.shape[d];
  }
  if (agrees && (tensor.data != nullptr || tensor.elements() == 0)) {
    absl::Status status = CheckNotEmpty(given);
    if (status.ok()) return status;
    return Annotate(status, absl::StrCat("field '", value.name, "' of the record"));
  }
  return absl::DataLossError(absl::StrCat("field '", value.name, "' of the record is ",
                                          given.ToString(), ", not ", value.spec.ToString(),
                                          " as the dataset announced"));
}

// Of numbers that come out of the samples themselves.
std::vector<ClassCheck> ClassChecksOf(const Dataflow& flow) {
  std::vector<ClassCheck> checks;
  for (const BatchNode& node : flow.batch_nodes) {
    const std::optional<size_t> input = node.op->class_input();
    if (!node.is_live || !input.has_value()) continue;
    const BatchValue& value = flow.batch_values[node.in[*input]];
    if (value.sample_value < 0 || !value.spec.shape.empty()) continue;
    const BatchValue& weights = flow.batch_values[node.out[*input]];
    checks.push_back({value.sample_value, weights.spec.shape[0], node.entry});
  }
  return checks;
}

}  // namespace

Plan::Plan()
    : id_([] {
        static std::atomic<uint64_t> last{0};
        return ++last;
      }()) {}
Plan::~Plan() = default;

absl::StatusOr<std::shared_ptr<const Plan>> Plan::Create(const PipelineSpec& spec,
                                                         const std::vector<FieldSpec>& fields,
                                                         int64_t classes,
                                                         const PlanOptions& options) {
  std::shared_ptr<Plan> plan(new Plan);
  plan->impl_ = std::make_unique<Impl>();
  Impl& impl = *plan->impl_;
  impl.limits = spec.limits;
  impl.dataset_fields = fields.size();
  impl.classes = classes;
  FW_ASSIGN_OR_RETURN(impl.flow, Settle(spec, fields, classes, options.classes_are_known));
  impl.class_checks = ClassChecksOf(impl.flow);
  FW_RETURN_IF_ERROR(PlaceBatchValues(&impl));
  FW_RETURN_IF_ERROR(MakePrograms(spec, classes, options, &impl));
  for (int output : impl.flow.outputs) {
    const BatchValue& value = impl.flow.batch_values[output];
    FieldSpec field;
    field.name = value.name;
    field.spec = value.spec;
    field.max_rows = value.max_rows;
    if (value.is_length)
      field.doc = absl::StrCat("Rows of '", impl.flow.values[value.sample_value].name, "'.");
    for (const FieldSpec& source : fields) {
      const bool is_source =
          value.sample_value >= 0 && impl.flow.values[value.sample_value].source >= 0;
      if (is_source && source.name == value.name) field.doc = source.doc;
    }
    impl.outputs.push_back(std::move(field));
  }
  for (const SampleWay way : {SampleWay::kWhole, SampleWay::kFromPrefix, SampleWay::kKeeping})
    impl.memory[static_cast<int>(way)] = MemoryOf(impl, way);
  return std::shared_ptr<const Plan>(std::move(plan));
}

absl::Status Plan::Validate(const PipelineSpec& spec) {
  FW_ASSIGN_OR_RETURN(const auto fields, DescribeDataset(spec.dataset));
  if (!fields) return absl::OkStatus();
  // How many classes there are is known only when the dataset is opened, and any number is as good
  // for checking.
  return Create(spec, *fields, /*classes=*/1, {.classes_are_known = false}).status();
}

const std::vector<FieldSpec>& Plan::outputs() const { return impl_->outputs; }
int64_t Plan::staging_bytes_per_sample() const { return impl_->staging_bytes; }
const ImageLimits& Plan::limits() const { return impl_->limits; }

int64_t Plan::table_bytes() const {
  int64_t bytes = 0;
  for (const Node& node : impl_->flow.nodes) bytes += node.op->TableBytes();
  return bytes;
}

const PlanPrefix& Plan::prefix() const { return impl_->prefix; }

namespace {

// Gives the values their tensors: those of the record's fields, and Feedwater's own.
absl::Status TakeSources(const Plan::Impl& plan, const Program& program, const SampleInput& input,
                         SampleWorkspace::Impl& work) {
  if (input.record == nullptr || input.record->fields.size() != program.sources.size()) {
    return absl::DataLossError("the record has not the fields that the dataset announced");
  }
  if (work.values.size() < plan.flow.values.size()) work.values.resize(plan.flow.values.size());
  if (work.buffers.size() < program.buffers) work.buffers.resize(program.buffers);
  work.sample_id = input.stands_for >= 0 ? input.stands_for : input.sample_id;
  work.position = input.position;
  work.is_real = input.is_real;
  std::byte* const own[kOwnFields] = {reinterpret_cast<std::byte*>(&work.sample_id),
                                      reinterpret_cast<std::byte*>(&work.position),
                                      reinterpret_cast<std::byte*>(&work.is_real)};
  for (size_t i = 0; i < program.sources.size(); ++i) {
    const int value = program.sources[i];
    FW_RETURN_IF_ERROR(CheckSource(plan.flow.values[value], input.record->fields[i]));
    work.values[value] = input.record->fields[i];
  }
  for (size_t i = 0; i < kOwnFields; ++i) {
    work.values[plan.dataset_fields + i] = {plan.flow.values[plan.dataset_fields + i].spec, own[i]};
  }
  return absl::OkStatus();
}

// What a batch op would fail on is this sample's fault, and not the batch's.
absl::Status CheckClasses(const SampleRun& run) {
  for (const ClassCheck& check : run.plan.class_checks) {
    const Tensor& label = run.workspace.values[check.value];
    FW_RETURN_IF_ERROR(Annotate(LoadClass(label.spec.dtype, label.data, check.classes).status(),
                                check.entry->name));
  }
  return absl::OkStatus();
}

absl::Status RunProgram(const Program& program, const SampleRun& run) {
  FW_RETURN_IF_ERROR(TakeSources(run.plan, program, run.input, run.workspace));
  FW_RETURN_IF_ERROR(run.workspace.clock->Check());
  const bool is_timed = !run.pass_ns.empty();
  int64_t since = is_timed ? ThreadCpuNs() : 0;
  const auto count = [&](size_t pass) {
    const int64_t now = ThreadCpuNs();
    run.pass_ns[pass] += now - std::exchange(since, now);
  };
  for (size_t i = 0; i < program.steps.size(); ++i) {
    FW_RETURN_IF_ERROR(RunStep(program.steps[i], run));
    FW_RETURN_IF_ERROR(run.workspace.clock->Check());
    if (is_timed) count(i);
  }
  if (&program != &run.plan.before) FW_RETURN_IF_ERROR(CheckClasses(run));
  for (int value : program.copied) {
    const BatchPlace& place = run.plan.batch_places[run.plan.flow.values[value].batch_value];
    const Tensor& tensor = run.workspace.values[value];
    FW_RETURN_IF_ERROR(CheckRows(run.plan, value, tensor.spec));
    if (const size_t bytes = tensor.bytes(); bytes > 0)
      std::memcpy(place.At(run.memory, run.k), tensor.data, bytes);
  }
  for (int value : program.varying)
    FinishRows(run.plan, value, run.workspace.values[value].spec.shape[0], run.k, run.memory);
  if (is_timed) count(program.steps.size());
  return absl::OkStatus();
}

// The fields that the sampler gives and not the record.
void WriteOwnFields(const Plan::Impl& plan, const SampleInput& input, int64_t k,
                    const BatchMemory& memory) {
  const int64_t sample_id = input.stands_for >= 0 ? input.stands_for : input.sample_id;
  const void* const own[kOwnFields] = {&sample_id, &input.position, &input.is_real};
  for (int value : plan.whole.copied) {
    const size_t field = static_cast<size_t>(value);
    if (field < plan.dataset_fields || field >= plan.dataset_fields + kOwnFields) continue;
    const BatchPlace& place = plan.batch_places[plan.flow.values[value].batch_value];
    std::memcpy(place.At(memory, k), own[field - plan.dataset_fields],
                static_cast<size_t>(place.sample_bytes));
  }
}

constexpr int64_t kNothingKept = 0;

}  // namespace

absl::Status Plan::Run(const SampleInput& input, int64_t k, const BatchMemory& memory,
                       SampleWorkspace& workspace) const {
  return RunProgram(impl_->whole,
                    {*impl_, impl_->whole, input, k, memory, *workspace.impl(), kNothingKept});
}

size_t Plan::passes() const { return impl_->whole.steps.size(); }

absl::Status Plan::RunTimed(const SampleInput& input, int64_t k, const BatchMemory& memory,
                            SampleWorkspace& workspace, absl::Span<int64_t> pass_ns) const {
  return RunProgram(impl_->whole, {*impl_, impl_->whole, input, k, memory, *workspace.impl(),
                                   kNothingKept, pass_ns});
}

absl::Status Plan::RunPrefix(const SampleInput& input, int64_t max_field_bytes,
                             SampleWorkspace& workspace, Record* kept) const {
  const Program& program = impl_->before;
  FW_RETURN_IF_ERROR(RunProgram(
      program, {*impl_, program, input, 0, BatchMemory(), *workspace.impl(), max_field_bytes}));
  kept->fields.clear();
  for (int value : impl_->after.sources) kept->fields.push_back(workspace.impl()->values[value]);
  return absl::OkStatus();
}

absl::Status Plan::RunFromPrefix(const SampleInput& input, int64_t k, const BatchMemory& memory,
                                 SampleWorkspace& workspace) const {
  return RunProgram(impl_->after,
                    {*impl_, impl_->after, input, k, memory, *workspace.impl(), kNothingKept});
}

const SampleMemory& Plan::memory(SampleWay way) const {
  return impl_->memory[static_cast<int>(way)];
}

SampleNeed Plan::NeedOf(const SampleInput& input, SampleWay way, SampleWorkspace& workspace) const {
  SampleWorkspace::Impl& work = *workspace.impl();
  if (input.record == nullptr) return {};
  return NeedsOfSample(*impl_, *input.record, way, &work.sizes, &work.needs);
}

void Plan::RunBlank(const SampleInput& input, int64_t k, const BatchMemory& memory) const {
  const Impl& plan = *impl_;
  for (const Value& value : plan.flow.values) {
    if (value.batch_value < 0) continue;
    if (value.spec.HasVaryingRows()) continue;
    const BatchPlace& place = plan.batch_places[value.batch_value];
    std::memset(place.At(memory, k), 0, static_cast<size_t>(place.sample_bytes));
  }
  for (int value : plan.whole.varying) FinishRows(plan, value, 0, k, memory);
  WriteOwnFields(plan, input, k, memory);
}

absl::Status Plan::CopySample(const SampleInput& input, const BatchMemory& from, int64_t from_k,
                              const BatchMemory& memory, int64_t k) const {
  const Impl& plan = *impl_;
  for (const Value& value : plan.flow.values) {
    if (value.batch_value < 0 || value.spec.HasVaryingRows()) continue;
    const BatchPlace& place = plan.batch_places[value.batch_value];
    std::memcpy(place.At(memory, k), place.At(from, from_k),
                static_cast<size_t>(place.sample_bytes));
  }
  for (int value : plan.whole.varying)
    FW_RETURN_IF_ERROR(CopyRows(plan, value, from, from_k, memory, k));
  WriteOwnFields(plan, input, k, memory);
  return absl::OkStatus();
}

std::optional<std::vector<Plan::Copy>> Plan::OnlyCopies() const {
  const Impl& plan = *impl_;
  if (!plan.whole.steps.empty() || !plan.whole.varying.empty() || finishes_batches() ||
      plan.staging_bytes > 0) {
    return std::nullopt;
  }
  std::vector<Copy> copies;
  for (const int value : plan.whole.copied) {
    const BatchPlace& place = plan.batch_places[plan.flow.values[value].batch_value];
    if (place.output < 0) return std::nullopt;
    copies.push_back(
        {static_cast<size_t>(place.output), place.sample_bytes, static_cast<size_t>(value)});
  }
  if (copies.size() != plan.outputs.size()) return std::nullopt;
  return copies;
}

bool Plan::OnlyDecoded(size_t field) const {
  const Value& value = impl_->flow.values[field];
  if (value.batch_value >= 0 || value.length_value >= 0 || value.readers.empty()) return false;
  for (int reader : value.readers) {
    const DecodeOp* decode = impl_->flow.nodes[reader].op->AsDecode();
    if (decode == nullptr || decode->values() != PixelValues::kRgb) return false;
  }
  return true;
}

bool Plan::decodes() const {
  // None does within another op: inner_ops.cc.
  return std::any_of(impl_->flow.nodes.begin(), impl_->flow.nodes.end(),
                     [](const Node& node) { return node.entry->DecodesFiles(); });
}

bool Plan::has_batch_ops() const {
  for (const BatchNode& node : impl_->flow.batch_nodes) {
    if (node.is_live) return true;
  }
  return false;
}
absl::Status Plan::CheckBatchSize(int64_t batch_size) const {
  const auto specs = [&](const std::vector<int>& values) {
    Specs of_samples;
    for (int value : values) of_samples.push_back(impl_->flow.batch_values[value].spec);
    return of_samples;
  };
  for (const BatchNode& node : impl_->flow.batch_nodes) {
    if (!node.is_live) continue;
    FW_RETURN_IF_ERROR(
        Annotate(node.op->CheckBatchSize(specs(node.in), specs(node.out), batch_size),
                 absl::StrCat("op '", node.entry->name, "' of the batch")));
  }
  return absl::OkStatus();
}

bool Plan::finishes_batches() const {
  return has_batch_ops() || std::any_of(impl_->outputs.begin(), impl_->outputs.end(),
                                        [](const FieldSpec& output) { return output.is_ragged(); });
}

absl::Status Plan::FinishBatch(int64_t samples, uint64_t global_batch, PhiloxKey key,
                               const BatchMemory& memory, SampleWorkspace& workspace,
                               size_t* ops_done) const {
  const Impl& plan = *impl_;
  SampleWorkspace::Impl& work = *workspace.impl();
  const auto fields = [&](const std::vector<int>& values, std::vector<BatchField>* out) {
    out->clear();
    for (int value : values) {
      const BatchPlace& place = plan.batch_places[value];
      out->push_back({plan.flow.batch_values[value].spec, place.Base(memory), place.sample_bytes});
    }
  };
  const std::vector<BatchNode>& nodes = plan.flow.batch_nodes;
  size_t from_the_first = 0;
  for (size_t& next = ops_done != nullptr ? *ops_done : from_the_first; next < nodes.size();
       ++next) {
    const BatchNode& node = nodes[next];
    if (!node.is_live || samples <= 0) continue;
    fields(node.in, &work.batch_inputs);
    fields(node.out, &work.batch_outputs);
    if (work.permutation.size() < static_cast<size_t>(samples))
      work.permutation.resize(static_cast<size_t>(samples));
    OpBatch batch;
    batch.inputs = work.batch_inputs;
    batch.outputs = work.batch_outputs;
    batch.samples = samples;
    FW_ASSIGN_OR_RETURN(batch.scratch,
                        work.scratch.Get(static_cast<size_t>(plan.batch_scratch_bytes)));
    batch.permutation = absl::MakeSpan(work.permutation).first(static_cast<size_t>(samples));
    batch.clock = work.clock;
    batch.number = static_cast<int64_t>(global_batch);
    batch.caller = work.caller;
    batch.gone = work.gone;
    FW_RETURN_IF_ERROR(
        Annotate(node.op->Run(batch, Draws(key, global_batch, node.instance)), node.entry->name));
  }
  PackRaggedOutputs(plan, samples, memory);
  return absl::OkStatus();
}

namespace {

// "decode(once, what 2 steps take of it)", or "decode(fast_scale)", since it changes pixels. It
// does so only together with a resize: where none is in the step, what stands between is named:
// colour ops, or what reads the image.
std::string PartText(const Step& step, const Step::Part& part, const Dataflow& flow) {
  const DecodeOp* decode = part.op->AsDecode();
  if (decode == nullptr || !decode->fast_scale()) {
    if (step.views.empty()) return part.entry->name;
    return absl::StrCat(part.entry->name, "(once, what ", step.views.size(), " steps take of it)");
  }
  for (const Step::Part& other : step.parts) {
    const GeometryOp* op = other.op->AsGeometry();
    if (op != nullptr && op->resamples()) return absl::StrCat(part.entry->name, "(fast_scale)");
  }
  std::vector<std::string> readers;
  for (const Step::Part& other : step.parts) {
    if (other.op->AsPoint() != nullptr) readers.push_back(other.entry->name);
  }
  for (int value : readers.empty() ? step.out : std::vector<int>{}) {
    for (int node : flow.values[value].readers) {
      if (flow.nodes[node].is_live) readers.push_back(flow.nodes[node].entry->name);
    }
  }
  return absl::StrCat(part.entry->name, "(fast_scale without effect: no resize in this step",
                      readers.empty() ? "" : ", read by ", absl::StrJoin(readers, " and "), ")");
}

}  // namespace

std::vector<std::string> Plan::Describe() const {
  const Dataflow& flow = impl_->flow;
  std::vector<std::string> lines;
  const auto line = [&](const std::vector<std::string>& names, const auto& values,
                        const std::vector<int>& out) {
    std::vector<std::string> fields;
    for (int value : out)
      fields.push_back(absl::StrCat(values[value].name, " ", values[value].spec.ToString()));
    lines.push_back(absl::StrCat(absl::StrJoin(names, "+"), " -> ", absl::StrJoin(fields, ", ")));
  };
  for (const Step& step : impl_->whole.steps) {
    std::vector<std::string> names;
    for (const Step::Part& part : step.parts) names.push_back(PartText(step, part, flow));
    line(names, flow.values, step.out);
  }
  for (int value : impl_->whole.copied) line({"copy"}, flow.values, {value});
  for (const BatchNode& node : flow.batch_nodes) {
    if (node.is_live) line({absl::StrCat("batch ", node.entry->name)}, flow.batch_values, node.out);
  }
  return lines;
}

}  // namespace feedwater::server
