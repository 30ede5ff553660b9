#include "server/graph/plugin_op.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/escape.h"
#include "server/base/float_mode.h"
#include "server/base/no_throw.h"
#include "server/base/units.h"
#include "server/graph/plugin_declaration.h"

namespace feedwater::server {
namespace {

constexpr size_t kMessageBytes = 1024;
// Of one output or of scratch: nothing that a machine has, and far from overflowing a sum.
constexpr uint64_t kMostBytes = uint64_t{1} << 40;
constexpr uint64_t kDefaultMostBytes = 1 << 20;

template <typename T>
using Few = absl::InlinedVector<T, 4>;

// --- specs on both sides

absl::StatusOr<feedwater_spec> ToPlugin(const TensorSpec& spec) {
  if (spec.shape.size() > FEEDWATER_MAX_AXES) {
    return absl::InvalidArgumentError(absl::StrCat("takes fields of at most ", FEEDWATER_MAX_AXES,
                                                   " axes, not ", spec.ToString()));
  }
  feedwater_spec made{};
  made.dtype = static_cast<int32_t>(spec.dtype);
  made.layout = static_cast<int32_t>(spec.layout);
  made.axes = static_cast<uint32_t>(spec.shape.size());
  std::copy(spec.shape.begin(), spec.shape.end(), made.shape);
  return made;
}

// What a plug-in says that a field looks like; the message says what there cannot be.
absl::StatusOr<TensorSpec> FromPlugin(const feedwater_spec& said) {
  const auto wrong = [](auto... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  TensorSpec spec;
  spec.dtype = static_cast<DType>(said.dtype);
  if (said.dtype < 0 || said.dtype > FEEDWATER_FLOAT64 || DTypeSize(spec.dtype) == 0)
    return wrong("dtype ", said.dtype, ", which there is not");
  if (said.layout < 0 || said.layout > FEEDWATER_ENCODED)
    return wrong("layout ", said.layout, ", which there is not");
  if (said.axes > FEEDWATER_MAX_AXES)
    return wrong(said.axes, " axes, and there are ", FEEDWATER_MAX_AXES, " at most");
  spec.layout = static_cast<Layout>(said.layout);
  spec.shape.assign(said.shape, said.shape + said.axes);
  const bool is_negative =
      std::any_of(spec.shape.begin(), spec.shape.end(), [](int64_t size) { return size < -1; });
  if (is_negative) return wrong(spec.ToString(), ", with a negative size");
  if (IsImage(spec)) {
    const int64_t channels =
        spec.shape.size() == 3 ? spec.shape[spec.layout == Layout::kCHW ? 0 : 2] : -1;
    if (channels != 1 && channels != 3)
      return wrong(spec.ToString(), ", and images have three axes and 1 or 3 channels");
    if (std::find(spec.shape.begin(), spec.shape.end(), 0) != spec.shape.end())
      return wrong(spec.ToString(), ", an image without a pixel");
  }
  if (spec.layout == Layout::kEncoded && (spec.dtype != DType::kUInt8 || spec.shape.size() != 1))
    return wrong(spec.ToString(), ", and compressed images are uint8 with one axis");
  if (spec.IsStatic()) {
    FW_ASSIGN_OR_RETURN(const int64_t bytes, spec.ByteSize());
    if (static_cast<uint64_t>(bytes) > kMostBytes)
      return wrong(spec.ToString(), ", more than a sample can hold");
  }
  return spec;
}

template <typename T>
bool Allows(const std::vector<T>& allowed, T one) {
  return allowed.empty() || std::find(allowed.begin(), allowed.end(), one) != allowed.end();
}

// Whether `spec` is `planned` with sizes for its -1.
bool Settles(const TensorSpec& spec, const TensorSpec& planned) {
  if (spec.dtype != planned.dtype || spec.layout != planned.layout ||
      spec.shape.size() != planned.shape.size()) {
    return false;
  }
  for (size_t axis = 0; axis < spec.shape.size(); ++axis) {
    if (planned.shape[axis] >= 0 && planned.shape[axis] != spec.shape[axis]) return false;
  }
  return true;
}

// Makes the one open axis as long as `bytes` allow, where they are known.
void Settle(int64_t bytes, TensorSpec* spec) {
  const auto open = std::find(spec->shape.begin(), spec->shape.end(), -1);
  if (bytes == 0 || std::count(open, spec->shape.end(), -1) != 1) return;
  *open = 1;
  const int64_t one = spec->ByteSize().value_or(0);
  *open = one > 0 ? bytes / one : -1;
}

// --- the op

struct Planned {
  Specs outputs;
  Few<uint64_t> most_bytes;  // by output: where its size is open and it is no image
  uint64_t scratch_bytes = 0;
};

class PluginOp final : public Op {
 public:
  PluginOp(std::shared_ptr<const PluginOpDeclaration> declared, PluginArguments arguments)
      : declared_(std::move(declared)), arguments_(std::move(arguments)) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    FW_ASSIGN_OR_RETURN(Planned planned, Ask(inputs));
    return std::move(planned.outputs);
  }

  // An image of unknown size is taken for a square one of max_pixels, and what else has one open
  // axis is as long as it may be.
  OpMemory Memory(absl::Span<const TensorSpec> inputs,
                  const PlanEnvironment& environment) const override {
    const auto side =
        static_cast<int64_t>(std::sqrt(static_cast<double>(environment.limits.max_pixels)));
    Specs known(inputs.begin(), inputs.end());
    for (size_t i = 0; i < known.size(); ++i) {
      TensorSpec& spec = known[i];
      if (!IsImage(spec)) {
        Settle(environment.most_bytes[i], &spec);
        continue;
      }
      for (int64_t& size : spec.shape) size = size < 0 ? side : size;
    }
    OpMemory memory;
    memory.scratch_is_bound =
        declared_->plan != nullptr &&
        !std::all_of(known.begin(), known.end(), [](const auto& spec) { return spec.IsStatic(); });
    const absl::StatusOr<Planned> planned = Ask(known);
    if (!planned.ok()) return memory;
    memory.scratch = static_cast<int64_t>(planned->scratch_bytes);
    for (size_t i = 0; i < planned->outputs.size(); ++i) {
      const TensorSpec& spec = planned->outputs[i];
      memory.outputs.push_back(spec.IsStatic() ? spec.ByteSize().value_or(0)
                                               : static_cast<int64_t>(planned->most_bytes[i]));
    }
    return memory;
  }

  absl::Status Run(Sample& sample, Draws draws) const override;

  absl::StatusOr<Planned> Ask(absl::Span<const TensorSpec> inputs) const;
  const PluginOpDeclaration& declared() const { return *declared_; }

 private:
  const std::shared_ptr<const PluginOpDeclaration> declared_;
  const PluginArguments arguments_;
};

absl::StatusOr<Planned> PluginOp::Ask(absl::Span<const TensorSpec> inputs) const {
  Few<feedwater_spec> in;
  for (const TensorSpec& input : inputs) {
    FW_ASSIGN_OR_RETURN(feedwater_spec spec, ToPlugin(input));
    in.push_back(spec);
  }
  const size_t count = declared_->is_repeated ? in.size() : declared_->outputs.size();
  Few<feedwater_output> out(count);
  for (size_t i = 0; i < count; ++i) out[i].spec = in[std::min(i, in.size() - 1)];
  feedwater_plan plan{};
  if (declared_->plan != nullptr) {
    char message[kMessageBytes] = "";
    plan.struct_size = sizeof(plan);
    plan.input_count = static_cast<uint32_t>(in.size());
    plan.output_count = static_cast<uint32_t>(count);
    plan.inputs = in.data();
    plan.outputs = out.data();
    plan.message = message;
    plan.message_bytes = sizeof(message);
    std::optional<std::string> said;
    FW_RETURN_IF_ERROR(Annotate(NoThrow([&] {
                                  const char* text = declared_->plan(arguments_.values(), &plan);
                                  if (text != nullptr) said = PluginMessage(text);
                                  return absl::OkStatus();
                                }),
                                "threw an exception in its plan"));
    if (said.has_value()) return absl::InvalidArgumentError(*said);
  }
  Planned planned;
  for (size_t i = 0; i < count; ++i) {
    absl::StatusOr<TensorSpec> spec = FromPlugin(out[i].spec);
    if (!spec.ok()) return Annotate(spec.status(), absl::StrCat("plans for output ", i + 1));
    const Port& port = declared_->output(i);
    if (!Allows(port.dtypes, spec->dtype) || !Allows(port.layouts, spec->layout)) {
      return absl::InvalidArgumentError(absl::StrCat("plans ", spec->ToString(), " for output ",
                                                     i + 1, ", which it has declared otherwise"));
    }
    const uint64_t most = out[i].most_bytes == 0 ? kDefaultMostBytes : out[i].most_bytes;
    const bool is_open = !spec->IsStatic() && !IsImage(*spec);
    planned.most_bytes.push_back(is_open ? most : 0);
    if (is_open && most > kMostBytes) {
      return absl::InvalidArgumentError(absl::StrCat("plans up to ", most, " bytes for output ",
                                                     i + 1,
                                                     ", more than a sample can "
                                                     "hold"));
    }
    planned.outputs.push_back(*std::move(spec));
  }
  const bool is_known =
      std::all_of(inputs.begin(), inputs.end(), [](const auto& spec) { return spec.IsStatic(); });
  if (is_known && plan.scratch_bytes > kMostBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "plans ", plan.scratch_bytes, " bytes of scratch, more than a sample can hold"));
  }
  planned.scratch_bytes = is_known ? plan.scratch_bytes : 0;
  return planned;
}

// One call of `run`: the sample as the plug-in sees it, and the first thing that it was refused.
struct Call : feedwater_sample {
  Call(const PluginOp& plugin_op, Sample& of, Draws op_draws)
      : feedwater_sample(), op(plugin_op), sample(of), draws(op_draws) {}

  const PluginOp& op;
  Sample& sample;
  Draws draws;
  absl::Status refused;
  Few<feedwater_input> fields;
  Few<bool> written;
  std::optional<Planned> planned;  // for this sample's sizes; when it is first asked for
  char text[kMessageBytes];

  absl::Status Begin() {
    for (const Tensor& input : sample.inputs()) {
      feedwater_input field{};
      FW_ASSIGN_OR_RETURN(field.spec, ToPlugin(input.spec));
      field.data = input.data;
      field.bytes = input.bytes();
      fields.push_back(field);
    }
    const PluginOpDeclaration& declared = op.declared();
    written.resize(declared.is_repeated ? fields.size() : declared.outputs.size(), false);
    struct_size = sizeof(feedwater_sample);
    input_count = static_cast<uint32_t>(fields.size());
    output_count = static_cast<uint32_t>(written.size());
    inputs = fields.data();
    text[0] = '\0';
    message = text;
    message_bytes = sizeof(text);
    output = [](feedwater_sample* at, uint32_t i, const feedwater_spec* spec) -> void* {
      return Of(at).Or<void*>(nullptr,
                              [&](Call& call, void** data) { return call.Output(i, spec, data); });
    };
    scratch = [](feedwater_sample* at, uint64_t bytes) -> void* {
      return Of(at).Or<void*>(nullptr,
                              [&](Call& call, void** data) { return call.Scratch(bytes, data); });
    };
    next = [](feedwater_sample* at) -> uint32_t {
      return Of(at).Draw<uint32_t>([](Draws& from) { return from.Next(); });
    };
    uniform = [](feedwater_sample* at, double low, double high) -> double {
      return Of(at).Draw<double>([&](Draws& from) { return from.Uniform(low, high); });
    };
    below = [](feedwater_sample* at, int64_t n) -> int64_t {
      if (n < 1) return Of(at).Refuse(absl::StrCat("asks for a draw below ", n)), 0;
      return Of(at).Draw<int64_t>([&](Draws& from) { return from.Below(n); });
    };
    normal = [](feedwater_sample* at) -> double {
      return Of(at).Draw<double>([](Draws& from) { return from.Normal(); });
    };
    go_on = [](feedwater_sample* at) -> int {
      return Of(at).Or<int>(0, [](Call& call, int* go) {
        *go = 1;
        return call.sample.clock().Check();
      });
    };
    return absl::OkStatus();
  }

  static Call& Of(feedwater_sample* at) { return *static_cast<Call*>(at); }

  void Refuse(absl::string_view why) {
    if (refused.ok()) refused = absl::InternalError(why);
  }
  // What `work(call, &value)` finds; `none` once anything was refused. No exception may pass
  // through the plug-in.
  template <typename T, typename F>
  T Or(T none, const F& work) {
    T value = none;
    if (refused.ok()) refused = NoThrow([&] { return work(*this, &value); });
    return refused.ok() ? value : none;
  }
  template <typename T, typename F>
  T Draw(const F& draw) {
    if (!op.declared().is_random) Refuse("draws, and is not declared as FEEDWATER_RANDOM");
    return refused.ok() ? draw(draws) : T{};
  }

  // What it plans for inputs of this sample's sizes.
  absl::Status Plan() {
    if (planned.has_value()) return absl::OkStatus();
    Specs specs;
    for (const Tensor& input : sample.inputs()) specs.push_back(input.spec);
    FW_ASSIGN_OR_RETURN(planned, op.Ask(specs));
    return absl::OkStatus();
  }

  absl::Status Output(uint32_t i, const feedwater_spec* said, void** data) {
    if (i >= written.size())
      return absl::InternalError(
          absl::StrCat("asks for output ", uint64_t{i} + 1, " of ", written.size()));
    if (written[i]) return absl::InternalError(absl::StrCat("asks for output ", i + 1, " twice"));
    if (said == nullptr)
      return absl::InternalError(absl::StrCat("asks for output ", i + 1, " without a spec"));
    absl::StatusOr<TensorSpec> spec = FromPlugin(*said);
    if (!spec.ok() || !spec->IsStatic()) {
      return absl::InternalError(
          absl::StrCat("writes output ", i + 1, " as ",
                       spec.ok() ? spec->ToString() : std::string(spec.status().message())));
    }
    FW_RETURN_IF_ERROR(CheckSize(i, *spec));
    FW_ASSIGN_OR_RETURN(const Tensor tensor, sample.Output(i, *spec));
    written[i] = true;
    *data = tensor.data;
    return absl::OkStatus();
  }

  // Of an output that was planned open: that it is as large as the sum of memory has it.
  absl::Status CheckSize(uint32_t i, const TensorSpec& spec) {
    if (sample.planned(i).IsStatic()) return absl::OkStatus();  // Sample::Output compares
    FW_RETURN_IF_ERROR(Plan());
    const TensorSpec& expected = planned->outputs[i];
    if (!Settles(spec, expected)) {
      return absl::InternalError(absl::StrCat("writes ", spec.ToString(), ", but had planned ",
                                              expected.ToString(), " for this sample"));
    }
    if (expected.IsStatic()) return absl::OkStatus();
    FW_ASSIGN_OR_RETURN(const int64_t bytes, spec.ByteSize());
    uint64_t most = planned->most_bytes[i];
    if (IsImage(spec)) {
      const int64_t channels = spec.shape[spec.layout == Layout::kCHW ? 0 : 2];
      most = static_cast<uint64_t>(sample.limits().max_pixels * channels) * DTypeSize(spec.dtype);
    }
    if (static_cast<uint64_t>(bytes) <= most) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("writes ", spec.ToString(), ", ", FormatBytes(bytes),
                                            ", but had planned ",
                                            FormatBytes(static_cast<int64_t>(most)), " at most (",
                                            IsImage(spec) ? "max_pixels" : "most_bytes", ")"));
  }

  absl::Status Scratch(uint64_t bytes, void** data) {
    FW_RETURN_IF_ERROR(Plan());
    if (bytes > planned->scratch_bytes) {
      return absl::InternalError(absl::StrCat("asks for ", bytes,
                                              " bytes of scratch, but had planned ",
                                              planned->scratch_bytes, " for this sample"));
    }
    FW_ASSIGN_OR_RETURN(*data, sample.Scratch(static_cast<size_t>(bytes)));
    return absl::OkStatus();
  }
};

absl::Status PluginOp::Run(Sample& sample, Draws draws) const {
  Call call(*this, sample, draws);
  FW_RETURN_IF_ERROR(call.Begin());
  std::optional<std::string> said;
  const absl::Status caught = NoThrow([&] {
    const KeptFloatMode mode;
    const char* const text = declared_->run(arguments_.values(), &call);
    if (text != nullptr) said = PluginMessage(text);
    return absl::OkStatus();
  });
  FW_RETURN_IF_ERROR(call.refused);
  // Whatever it threw tells of the sample, want of memory too: what it takes was planned.
  if (!caught.ok())
    return absl::InternalError(absl::StrCat("threw an exception: ", caught.message()));
  if (said.has_value()) return absl::InvalidArgumentError(*said);
  for (size_t i = 0; i < call.written.size(); ++i) {
    if (!call.written[i])
      return absl::InternalError(absl::StrCat("wrote no output ", i + 1, " and gave no reason"));
  }
  return absl::OkStatus();
}

OpEntry EntryOf(const std::shared_ptr<const PluginOpDeclaration>& declared) {
  OpEntry entry;
  entry.name = declared->name;
  entry.version = declared->version;
  entry.summary = declared->summary;
  entry.cost = declared->cost;
  entry.example = declared->example;
  entry.randomness = declared->is_random ? Randomness::kPerSample : Randomness::kNone;
  entry.is_repeated = declared->is_repeated;
  entry.inputs = declared->inputs;
  entry.outputs = declared->outputs;
  for (const PluginParam& param : declared->params) entry.params.push_back(param.info());
  const auto read = [declared](const YamlNode& node) {
    return PluginArguments::Read(declared->params, node, absl::StrCat("op '", declared->name, "'"));
  };
  entry.create = [declared, read](const YamlNode& node,
                                  const OpFiles&) -> absl::StatusOr<std::unique_ptr<Op>> {
    FW_ASSIGN_OR_RETURN(PluginArguments arguments, read(node));
    return std::unique_ptr<Op>(new PluginOp(declared, std::move(arguments)));
  };
  // '@': no parameter's name has one.
  entry.canonical = [declared, read](const YamlNode& node,
                                     const OpFiles&) -> absl::StatusOr<std::string> {
    FW_ASSIGN_OR_RETURN(const PluginArguments arguments, read(node));
    return absl::StrCat(arguments.Text(declared->params),
                        "@version=", ParamType<std::string>::Text(declared->version), ";");
  };
  return entry;
}

}  // namespace

std::string PluginMessage(const char* text) {
  const size_t length = strnlen(text, kMessageBytes);
  if (length == 0) return "failed, and gave no reason";
  return absl::StrCat(Escaped(absl::string_view(text, length)),
                      length == kMessageBytes ? "..." : "");
}

absl::StatusOr<std::vector<OpEntry>> PluginOps(const feedwater_plugin_info& info) {
  FW_ASSIGN_OR_RETURN(std::vector<PluginOpDeclaration> declared, ReadPluginOps(info));
  std::vector<OpEntry> entries;
  for (PluginOpDeclaration& op : declared)
    entries.push_back(EntryOf(std::make_shared<const PluginOpDeclaration>(std::move(op))));
  return entries;
}

}  // namespace feedwater::server
