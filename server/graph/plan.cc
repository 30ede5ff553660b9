#include "server/graph/plan.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/graph/fusion.h"
#include "server/graph/plan_impl.h"

namespace feedwater::server {
namespace {

Step MakeStep(const Dataflow& flow, const FusedRun& run) {
  Step step;
  for (int index : run.nodes) {
    const Node& node = flow.nodes[index];
    step.parts.push_back({node.entry, node.op.get(), node.instance});
  }
  step.in = flow.nodes[run.nodes.front()].in;
  step.out = flow.nodes[run.nodes.back()].out;
  step.format = run.format;
  return step;
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
  if (agrees && (tensor.data != nullptr || tensor.elements() == 0)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("field '", value.name, "' of the record is ",
                                          given.ToString(), ", not ", value.spec.ToString(),
                                          " as the dataset announced"));
}

}  // namespace

Plan::Plan() = default;
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
  FW_ASSIGN_OR_RETURN(impl.flow, Settle(spec, fields, classes));
  for (const FusedRun& run : FindRuns(impl.flow, options.fuse))
    impl.steps.push_back(MakeStep(impl.flow, run));
  FW_RETURN_IF_ERROR(PlaceBatchValues(&impl));
  PlaceValues(&impl);
  for (int output : impl.flow.outputs) {
    const BatchValue& value = impl.flow.batch_values[output];
    FieldSpec field;
    field.name = value.name;
    field.spec = value.spec;
    for (const FieldSpec& source : fields) {
      const bool is_source =
          value.sample_value >= 0 && impl.flow.values[value.sample_value].source >= 0;
      if (is_source && source.name == value.name) field.doc = source.doc;
    }
    impl.outputs.push_back(std::move(field));
  }
  return std::shared_ptr<const Plan>(std::move(plan));
}

absl::Status Plan::Validate(const PipelineSpec& spec) {
  FW_ASSIGN_OR_RETURN(const std::vector<FieldSpec> fields, DescribeDataset(spec.dataset));
  // How many classes there are is known only when the dataset is opened, and any number is as good
  // for checking.
  return Create(spec, fields, /*classes=*/1).status();
}

const std::vector<FieldSpec>& Plan::outputs() const { return impl_->outputs; }
int64_t Plan::staging_bytes_per_sample() const { return impl_->staging_bytes; }

absl::Status Plan::Run(const SampleInput& input, int64_t k, const BatchMemory& memory,
                       SampleWorkspace& workspace) const {
  const Impl& plan = *impl_;
  SampleWorkspace::Impl& work = *workspace.impl();
  if (input.record == nullptr || input.record->fields.size() != plan.dataset_fields) {
    return absl::DataLossError("the record has not the fields that the dataset announced");
  }
  if (work.values.size() < plan.flow.values.size()) work.values.resize(plan.flow.values.size());
  if (work.buffers.size() < plan.buffers) work.buffers.resize(plan.buffers);
  work.sample_id = input.sample_id;
  work.position = input.position;
  work.is_real = input.is_real;
  std::byte* const own[kOwnFields] = {reinterpret_cast<std::byte*>(&work.sample_id),
                                      reinterpret_cast<std::byte*>(&work.position),
                                      reinterpret_cast<std::byte*>(&work.is_real)};
  for (size_t i = 0; i < plan.dataset_fields; ++i) {
    FW_RETURN_IF_ERROR(CheckSource(plan.flow.values[i], input.record->fields[i]));
    work.values[i] = input.record->fields[i];
  }
  for (size_t i = 0; i < kOwnFields; ++i) {
    work.values[plan.dataset_fields + i] = {plan.flow.values[plan.dataset_fields + i].spec, own[i]};
  }
  const SampleRun run{plan, input, k, memory, work};
  for (const Step& step : plan.steps) FW_RETURN_IF_ERROR(RunStep(step, run));
  for (int value : plan.copied) {
    const BatchPlace& place = plan.batch_places[plan.flow.values[value].batch_value];
    std::memcpy(place.At(memory, k), work.values[value].data,
                static_cast<size_t>(place.sample_bytes));
  }
  return absl::OkStatus();
}

bool Plan::OnlyDecoded(size_t field) const {
  const Value& value = impl_->flow.values[field];
  if (value.batch_value >= 0 || value.readers.empty()) return false;
  for (int reader : value.readers) {
    if (impl_->flow.nodes[reader].op->AsDecode() == nullptr) return false;
  }
  return true;
}

bool Plan::has_batch_ops() const {
  for (const BatchNode& node : impl_->flow.batch_nodes) {
    if (node.is_live) return true;
  }
  return false;
}

absl::Status Plan::FinishBatch(int64_t samples, uint64_t global_batch, PhiloxKey key,
                               const BatchMemory& memory, SampleWorkspace& workspace) const {
  const Impl& plan = *impl_;
  SampleWorkspace::Impl& work = *workspace.impl();
  if (samples <= 0) return absl::OkStatus();
  const auto fields = [&](const std::vector<int>& values, std::vector<BatchField>* out) {
    out->clear();
    for (int value : values) {
      const BatchPlace& place = plan.batch_places[value];
      out->push_back({plan.flow.batch_values[value].spec, place.Base(memory), place.sample_bytes});
    }
  };
  for (const BatchNode& node : plan.flow.batch_nodes) {
    if (!node.is_live) continue;
    fields(node.in, &work.batch_inputs);
    fields(node.out, &work.batch_outputs);
    if (work.permutation.size() < static_cast<size_t>(samples))
      work.permutation.resize(static_cast<size_t>(samples));
    Batch batch;
    batch.inputs = work.batch_inputs;
    batch.outputs = work.batch_outputs;
    batch.samples = samples;
    FW_ASSIGN_OR_RETURN(batch.scratch,
                        work.scratch.Get(static_cast<size_t>(plan.batch_scratch_bytes)));
    batch.permutation = absl::MakeSpan(work.permutation).first(static_cast<size_t>(samples));
    FW_RETURN_IF_ERROR(
        Annotate(node.op->Run(batch, Draws(key, global_batch, node.instance)), node.entry->name));
  }
  return absl::OkStatus();
}

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
  for (const Step& step : impl_->steps) {
    std::vector<std::string> names;
    for (const Step::Part& part : step.parts) names.push_back(part.entry->name);
    line(names, flow.values, step.out);
  }
  for (int value : impl_->copied) line({"copy"}, flow.values, {value});
  for (const BatchNode& node : flow.batch_nodes) {
    if (node.is_live) line({absl::StrCat("batch ", node.entry->name)}, flow.batch_values, node.out);
  }
  return lines;
}

}  // namespace feedwater::server
