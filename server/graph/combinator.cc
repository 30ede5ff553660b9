#include "server/graph/combinator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/graph/element.h"
#include "server/graph/op_ports.h"

namespace feedwater::server {
namespace {

// A field has two numbers of its own among the spares: what one op writes the next one reads.
constexpr size_t kSparesOfField = 2;

PhiloxKey KeyOf(Draws* draws) {
  const uint32_t first = draws->Next();
  return {first, draws->Next()};
}

Draws DrawsOf(PhiloxKey key, size_t op, size_t round) {
  return Draws(key, round, static_cast<uint32_t>(op));
}

// A mask that moves with an image, whose height and width are open together.
bool IsMask(const TensorSpec& spec) {
  return spec.layout == Layout::kPlain && spec.shape.size() == 2 && !IsFloating(spec.dtype);
}

int64_t ChannelsOrOne(const TensorSpec& spec) { return IsImage(spec) ? ChannelsOf(spec) : 1; }

}  // namespace

// All ops in one point program.
class Combinator::Points : public PointOp {
 public:
  explicit Points(const Combinator& combinator) : combinator_(combinator) {}

  bool needs_image() const override {
    return std::any_of(combinator_.ops_.begin(), combinator_.ops_.end(),
                       [](const InnerOp& inner) { return inner.op->AsPoint()->needs_image(); });
  }
  absl::Status CheckChannels(int channels) const override {
    for (const InnerOp& inner : combinator_.ops_)
      FW_RETURN_IF_ERROR(inner.op->AsPoint()->CheckChannels(channels));
    return absl::OkStatus();
  }
  void Append(Draws draws, PointProgram* program) const override {
    Choice choice;
    combinator_.Choose(&draws, &choice);
    const PhiloxKey key = KeyOf(&draws);
    for (const Chosen& chosen : choice) {
      combinator_.ops_[chosen.op].op->AsPoint()->Append(DrawsOf(key, chosen.op, chosen.round),
                                                        program);
    }
  }

 private:
  const Combinator& combinator_;
};

// A sample as one of the ops sees it: some of the fields, as the ops before have left them.
class Combinator::InnerSample : public Sample {
 public:
  InnerSample(Sample& outer, size_t fields) : outer_(outer), fields_(fields), spare_(fields) {
    for (size_t f = 0; f < fields; ++f) current_.push_back(outer.inputs()[f]);
  }

  // Begins with the next op. `is_last`: by field of the op, whether nothing writes it after.
  absl::Status Begin(const InnerOp& inner, absl::Span<const bool> is_last) {
    inner_ = &inner;
    is_last_ = is_last;
    inputs_.clear();
    made_.clear();
    Specs specs;
    for (size_t field : inner.fields) {
      inputs_.push_back(current_[field]);
      specs.push_back(current_[field].spec);
    }
    made_.resize(inner.fields.size());
    planned_.clear();
    // Which of its ops a combinator will choose is not known here; they check what they write.
    if (inner.entry->is_combinator()) return absl::OkStatus();
    PlanEnvironment environment;
    environment.fields = inner.names;
    environment.classes = outer_.classes();
    environment.limits = outer_.limits();
    FW_ASSIGN_OR_RETURN(planned_, inner.op->Plan(specs, environment));
    return absl::OkStatus();
  }
  // Ends with it: what it wrote is what the next ones read.
  void End() {
    for (size_t i = 0; i < made_.size(); ++i) current_[inner_->fields[i]] = made_[i];
  }

  absl::Span<const Tensor> inputs() const override { return inputs_; }
  const TensorSpec& planned(size_t i) const override { return planned_[i]; }
  absl::StatusOr<Tensor> Output(size_t i, const TensorSpec& spec) override {
    if (!planned_.empty()) FW_RETURN_IF_ERROR(CheckPlanned(spec, planned_[i]));
    const size_t field = inner_->fields[i];
    Tensor& tensor = made_[i];
    if (is_last_[field]) {
      FW_ASSIGN_OR_RETURN(tensor, outer_.Output(field, spec));
      return tensor;
    }
    FW_ASSIGN_OR_RETURN(const int64_t bytes, spec.ByteSize());
    tensor.spec = spec;
    FW_ASSIGN_OR_RETURN(tensor.data, outer_.Spare(kSparesOfField * field + spare_[field],
                                                  static_cast<size_t>(bytes)));
    spare_[field] = 1 - spare_[field];
    return tensor;
  }
  absl::StatusOr<std::byte*> Scratch(size_t bytes) override { return outer_.Scratch(bytes); }
  absl::StatusOr<std::byte*> Spare(size_t number, size_t bytes) override {
    return outer_.Spare(kSparesOfField * fields_ + number, bytes);
  }
  ImageWorkspace& images() override { return outer_.images(); }
  PointProgram& points() override { return outer_.points(); }
  const ImageLimits& limits() const override { return outer_.limits(); }
  int64_t classes() const override { return outer_.classes(); }
  WorkClock& clock() override { return outer_.clock(); }
  absl::string_view field(size_t i) const override { return inner_->names[i]; }
  int64_t record() const override { return outer_.record(); }
  OpCaller* caller() override { return outer_.caller(); }
  const std::atomic<bool>* gone() const override { return outer_.gone(); }

 private:
  Sample& outer_;
  const size_t fields_;
  const InnerOp* inner_ = nullptr;
  absl::Span<const bool> is_last_;
  absl::InlinedVector<uint8_t, 4> spare_;   // by field: which of its two is free
  absl::InlinedVector<Tensor, 4> current_;  // by field
  absl::InlinedVector<Tensor, 4> inputs_, made_;
  Specs planned_;
};

Combinator::Combinator(std::vector<InnerOp> ops) : ops_(std::move(ops)) {
  const auto changes_colours = [](const InnerOp& inner) {
    const PointOp* point = inner.op->AsPoint();
    if (point == nullptr || inner.fields.size() != 1 || inner.fields[0] != 0) return false;
    return point->OutputChannels(1) == 1 && point->OutputChannels(3) == 3;
  };
  if (std::all_of(ops_.begin(), ops_.end(), changes_colours))
    points_ = std::make_unique<Points>(*this);
}

absl::StatusOr<Specs> Combinator::Either(absl::StatusOr<Specs> one,
                                         const absl::StatusOr<Specs>& other) {
  if (absl::IsNotFound(one.status())) return other;
  if (!one.ok() || absl::IsNotFound(other.status())) return one;
  if (!other.ok()) return other;
  Specs& either = *one;
  for (size_t i = 0; i < either.size(); ++i) {
    TensorSpec& spec = either[i];
    const TensorSpec before = spec, &with = (*other)[i];
    const bool fits = spec.dtype == with.dtype && spec.layout == with.layout &&
                      spec.shape.size() == with.shape.size();
    bool differs = false;
    for (size_t d = 0; fits && d < spec.shape.size(); ++d) {
      if (spec.shape[d] == with.shape[d]) continue;
      spec.shape[d] = -1;
      differs = true;
    }
    if (differs && IsMask(spec)) spec.shape = {-1, -1};
    if (fits && (!IsImage(spec) || ChannelsOf(spec) >= 0)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("makes ", before.ToString(), " or ", with.ToString(),
                     " of one field, by chance: only heights, widths and numbers of rows may "
                     "differ; put the op that changes more behind it in 'graph'"));
  }
  return one;
}

absl::StatusOr<Specs> Combinator::One(const Specs& fields, PlanOne plan) const {
  absl::StatusOr<Specs> either = plan(0, fields);
  for (size_t i = 1; i < ops_.size(); ++i) either = Either(std::move(either), plan(i, fields));
  return either;
}

absl::StatusOr<Specs> Combinator::Chain(Specs fields, PlanOne plan) const {
  for (size_t i = 0; i < ops_.size(); ++i) {
    FW_ASSIGN_OR_RETURN(fields, plan(i, fields));
  }
  return fields;
}

absl::StatusOr<Specs> Combinator::PlanInner(size_t op, const Specs& fields,
                                            const PlanEnvironment& environment) const {
  const InnerOp& inner = ops_[op];
  const auto refuse = [&](const absl::Status& status) -> absl::Status {
    if (environment.is_for_sample) return absl::NotFoundError("");
    // Of combinators in one another only the op is told that does not fit.
    if (inner.entry->is_combinator() && absl::StartsWith(status.message(), "cannot do '"))
      return status;
    return absl::InvalidArgumentError(absl::StrCat("cannot do '", inner.entry->name, "' (",
                                                   inner.where, "): it ", status.message()));
  };
  Specs inputs;
  PlanEnvironment own = environment;
  own.fields = inner.names;
  own.label = -1;
  own.most_bytes = {};
  absl::InlinedVector<bool, 8> are_of_dataset;
  for (size_t field : inner.fields) {
    are_of_dataset.push_back(field < environment.are_of_dataset.size() &&
                             environment.are_of_dataset[field]);
  }
  own.are_of_dataset = are_of_dataset;
  for (size_t i = 0; i < inner.fields.size(); ++i) {
    const size_t field = inner.fields[i];
    const absl::Status fits =
        CheckPort(*inner.entry, i, inner.names[i], fields[field], are_of_dataset[i]);
    if (!fits.ok()) return refuse(fits);
    if (environment.label == static_cast<int>(field)) own.label = static_cast<int>(i);
    inputs.push_back(fields[field]);
  }
  absl::StatusOr<Specs> made = inner.op->Plan(inputs, own);
  if (!made.ok()) return refuse(made.status());
  FW_RETURN_IF_ERROR(CheckSizes(*made));
  Specs result = fields;
  for (size_t i = 0; i < inner.fields.size(); ++i) result[inner.fields[i]] = (*made)[i];
  return result;
}

absl::StatusOr<Specs> Combinator::Plan(absl::Span<const TensorSpec> inputs,
                                       const PlanEnvironment& environment) const {
  if (inputs.size() > kMaxCombinatorFields) {
    return absl::InvalidArgumentError(
        absl::StrCat("takes at most ", kMaxCombinatorFields, " fields, not ", inputs.size()));
  }
  return Flow(Specs(inputs.begin(), inputs.end()),
              [&](size_t op, const Specs& fields) { return PlanInner(op, fields, environment); });
}

int64_t Combinator::TableBytes() const {
  int64_t bytes = 0;
  for (const InnerOp& inner : ops_) bytes += inner.op->TableBytes();
  return bytes;
}

OpMemory Combinator::Memory(absl::Span<const TensorSpec> inputs,
                            const PlanEnvironment& environment) const {
  OpMemory memory;
  memory.outputs.assign(environment.most_bytes.begin(), environment.most_bytes.end());
  ByteCounts numbers;  // by field: how many it has at most, whichever ops are done
  for (size_t f = 0; f < inputs.size(); ++f)
    numbers.push_back(memory.outputs[f] / static_cast<int64_t>(DTypeSize(inputs[f].dtype)));
  // Flow ends once no spec changes. An op that makes an open image larger may do so again behind
  // that, and the others then have to do with the larger one: it counts with max_pixels.
  bool grows = false;
  const size_t base = kSparesOfField * inputs.size();
  memory.spares.resize(base);
  const auto plan = [&](size_t op, const Specs& fields) -> absl::StatusOr<Specs> {
    const InnerOp& inner = ops_[op];
    absl::StatusOr<Specs> planned = PlanInner(op, fields, environment);
    // What does not fit takes nothing, but for a combinator of whose ops only a later one does not.
    if (!planned.ok() && !inner.entry->is_combinator()) return planned;
    Specs result = planned.ok() ? *planned : fields;
    Specs in, out;
    ByteCounts most;
    for (size_t field : inner.fields) {
      in.push_back(fields[field]);
      out.push_back(result[field]);
      most.push_back(numbers[field] * static_cast<int64_t>(DTypeSize(fields[field].dtype)));
    }
    PlanEnvironment own_environment = environment;
    own_environment.most_bytes = most;
    const OpMemory own = inner.op->Memory(in, own_environment);
    most = MostBytesMade(*inner.entry, *inner.op, own, in, own_environment, &out, &memory.is_bound);
    memory.is_bound |= own.is_bound;
    memory.scratch_is_bound |= own.scratch_is_bound;
    memory.scratch = std::max(memory.scratch, own.scratch);
    memory.codec_copies = std::max(memory.codec_copies, own.codec_copies);
    memory.codec_rows = std::max(memory.codec_rows, own.codec_rows);
    memory.codec_jpeg = std::max(memory.codec_jpeg, own.codec_jpeg);
    memory.call_inputs = std::max(memory.call_inputs, own.call_inputs);
    memory.call_outputs = std::max(memory.call_outputs, own.call_outputs);
    memory.calls_are_open |= own.calls_are_open;
    if (memory.spares.size() < base + own.spares.size())
      memory.spares.resize(base + own.spares.size());
    for (size_t i = 0; i < own.spares.size(); ++i)
      memory.spares[base + i] = std::max(memory.spares[base + i], own.spares[i]);
    for (size_t i = 0; i < inner.fields.size(); ++i) {
      const size_t field = inner.fields[i];
      const auto number_bytes = static_cast<int64_t>(DTypeSize(out[i].dtype));
      const bool is_open_picture = !in[i].IsStatic() && (IsImage(in[i]) || IsMask(in[i]));
      const int64_t channels = ChannelsOrOne(in[i]), max_pixels = environment.limits.max_pixels;
      if (may_repeat() && is_open_picture &&
          std::min(max_pixels, most[i] / number_bytes / ChannelsOrOne(out[i])) >
              numbers[field] / channels) {
        grows = true;
        most[i] = std::max(most[i], MostBytes(out[i], environment.limits, &memory.is_bound));
        // Also with the channels that it had, or the next pass would find it larger again.
        numbers[field] = std::max(numbers[field], max_pixels * channels);
      }
      memory.outputs[field] = std::max(memory.outputs[field], most[i]);
      numbers[field] = std::max(numbers[field], most[i] / number_bytes);
      for (size_t s = 0; s < kSparesOfField && !chooses_one(); ++s) {
        int64_t& spare = memory.spares[kSparesOfField * field + s];
        spare = std::max(spare, most[i]);
      }
      result[field] = out[i];
    }
    if (!planned.ok()) return planned;
    return result;
  };
  // What cannot be planned is refused elsewhere, or is this sample's error.
  do {
    grows = false;
    Flow(Specs(inputs.begin(), inputs.end()), plan).IgnoreError();
  } while (grows);
  return memory;
}

absl::Status Combinator::Run(Sample& sample, Draws draws) const {
  Choice choice;
  Choose(&draws, &choice);
  return RunInner(sample, choice, KeyOf(&draws));
}

absl::Status Combinator::RunInner(Sample& sample, const Choice& choice, PhiloxKey key) const {
  const size_t fields = sample.inputs().size();
  std::array<size_t, kMaxCombinatorFields> last;  // by field: the op after which nothing writes it
  last.fill(std::numeric_limits<size_t>::max());
  for (size_t k = 0; k < choice.size(); ++k) {
    for (size_t field : ops_[choice[k].op].fields) last[field] = k;
  }
  for (size_t f = 0; f < fields; ++f) {
    if (last[f] < choice.size()) continue;
    const Tensor& input = sample.inputs()[f];
    FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(f, input.spec));
    if (input.bytes() > 0) std::memcpy(output.data, input.data, input.bytes());
  }
  InnerSample inner(sample, fields);
  for (size_t k = 0; k < choice.size(); ++k) {
    const InnerOp& op = ops_[choice[k].op];
    std::array<bool, kMaxCombinatorFields> is_last{};
    for (size_t f = 0; f < fields; ++f) is_last[f] = last[f] == k;
    FW_RETURN_IF_ERROR(sample.clock().Check());
    FW_RETURN_IF_ERROR(Annotate(inner.Begin(op, is_last), op.entry->name));
    FW_RETURN_IF_ERROR(
        Annotate(op.op->Run(inner, DrawsOf(key, choice[k].op, choice[k].round)), op.entry->name));
    inner.End();
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
