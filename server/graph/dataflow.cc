#include "server/graph/dataflow.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/graph/element.h"
#include "server/graph/op_ports.h"
#include "server/graph/op_spec.h"
#include "server/graph/unknown_field.h"

namespace feedwater::server {
namespace {

// Names in force at one point of the file.
using Names = std::map<std::string, int>;

std::vector<std::string> FieldsOf(const Names& names) {
  std::vector<std::string> fields;
  for (const auto& [field, value] : names) fields.push_back(field);
  return fields;
}

// How to decode a field that is not called as `decode` reads it by default.
std::string DecodeOf(absl::string_view name) {
  return name == "data" ? "" : absl::StrCat(" (`decode: {in: ", name, "}`)");
}

std::string NoFixedSize(const std::string& name, const TensorSpec& spec) {
  if (spec.layout == Layout::kEncoded) {
    return absl::StrCat("'", name, "' is a compressed image of varying length: decode it",
                        DecodeOf(name), ", and give it a fixed size with resize with size [h, w], ",
                        "center_crop or random_resized_crop");
  }
  if (IsImage(spec)) {
    return absl::StrCat("'", name, "' has no fixed size (", spec.ToString(),
                        "): add resize with size [h, w], center_crop or random_resized_crop");
  }
  const bool is_audio = spec.dtype == DType::kFloat32 && spec.shape.size() == 2 &&
                        spec.shape[0] > 0 && spec.shape[1] < 0;
  if (is_audio) {
    return absl::StrCat("'", name, "' has no fixed length (", spec.ToString(),
                        "): add crop_audio or random_crop_audio with frames; as an output of "
                        "varying length it needs one axis, as decode_audio gives it with mono: "
                        "true");
  }
  return absl::StrCat("'", name, "' has no fixed shape (", spec.ToString(),
                      "), so it cannot stand in a batch");
}

// What an output of varying rows takes by default, of each sample: some hundred boxes or a text.
constexpr int64_t kDefaultSampleBytes = 16 << 10;

// Of NAME_length, NAME; else "".
absl::string_view LengthOf(absl::string_view name) {
  return absl::ConsumeSuffix(&name, "_length") ? name : "";
}

// The bytes of one element that pads; an error when the dtype has no such number.
absl::StatusOr<std::string> Padding(DType dtype, double value) {
  std::string bytes(DTypeSize(dtype), '\0');
  StoreDouble(dtype, value, reinterpret_cast<std::byte*>(bytes.data()));
  const double stored = LoadDouble(dtype, reinterpret_cast<const std::byte*>(bytes.data()));
  if (IsFloating(dtype) ? std::isfinite(stored) : stored == value) return bytes;
  return absl::InvalidArgumentError(absl::StrCat("pad_value ", value, " is no ", DTypeName(dtype)));
}

// Calls Plan and checks that the op keeps its own contract.
template <typename AnyOp>
absl::StatusOr<Specs> PlanOp(const AnyOp& op, const OpEntry& entry, const OpSpec& spec,
                             absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment& environment) {
  const YamlNode& place = PlaceOf(spec, "", 0);
  absl::StatusOr<Specs> planned = op.Plan(inputs, environment);
  if (!planned.ok())
    return place.Error(absl::StrCat("op '", entry.name, "' ", planned.status().message()));
  if (planned->size() != spec.out.size()) {
    return absl::InternalError(absl::StrCat("op '", entry.name, "' planned ", planned->size(),
                                            " outputs, not ", spec.out.size()));
  }
  const absl::Status fits = CheckSizes(*planned);
  if (!fits.ok()) return place.Error(absl::StrCat("op '", entry.name, "': ", fits.message()));
  return planned;
}

class Settler {
 public:
  Settler(const PipelineSpec& spec, int64_t classes, bool classes_are_known)
      : spec_(spec), environment_{classes, spec.limits, classes_are_known} {}

  absl::StatusOr<Dataflow> Run(const std::vector<FieldSpec>& fields) {
    FW_RETURN_IF_ERROR(AddSources(fields));
    for (size_t i = 0; i < spec_.graph.size(); ++i)
      FW_RETURN_IF_ERROR(AddNode(spec_.graph[i], static_cast<uint32_t>(i)));
    for (size_t i = 0; i < spec_.batch_graph.size(); ++i) {
      const OpSpec& op = spec_.batch_graph[i];
      FW_RETURN_IF_ERROR(
          AddBatchNode(op, kBatchInstance + op.batch_place.value_or(static_cast<uint32_t>(i))));
    }
    FW_RETURN_IF_ERROR(AddOutputs());
    MarkLive();
    return std::move(flow_);
  }

 private:
  absl::Status AddSources(const std::vector<FieldSpec>& fields) {
    for (const FieldSpec& field : fields) {
      if (IsOwnField(field.name) || names_.count(field.name) > 0) {
        return spec_.dataset.Error(
            absl::StrCat("the dataset's field '", field.name, "' has a name that is taken"));
      }
      AddSource(field.name, field.spec, /*is_deterministic=*/true);
    }
    // A record's own number is as lasting as its bytes; its place in an epoch is not, nor the
    // number of the bad record that it stands for.
    AddSource("sample_id", {DType::kInt64, Layout::kPlain, {}},
              spec_.on_bad_sample != BadSamplePolicy::kSkipWithCount);
    AddSource("position", {DType::kInt64, Layout::kPlain, {}}, /*is_deterministic=*/false);
    AddSource("is_real", {DType::kBool, Layout::kPlain, {}}, /*is_deterministic=*/false);
    return absl::OkStatus();
  }

  void AddSource(const std::string& name, const TensorSpec& spec, bool is_deterministic) {
    Value value;
    value.is_deterministic = is_deterministic;
    value.name = name;
    value.spec = spec;
    value.source = static_cast<int>(flow_.values.size());
    names_[name] = value.source;
    flow_.values.push_back(std::move(value));
  }

  // Whether the value is the dataset's own label, whose names are its classes.
  bool IsLabel(int value) const {
    return value >= 0 && flow_.values[value].source >= 0 && flow_.values[value].name == "label";
  }

  // Behind the error for a field that is not there: what gives it, where the dataset has compressed
  // images in one field, or in `data`, and these were meant.
  std::string DecodeCure(absl::string_view missing, const OpEntry& reader) const {
    std::string encoded;
    int count = 0;
    for (const auto& [name, value] : names_) {
      if (flow_.values[value].spec.layout != Layout::kEncoded) continue;
      ++count;
      if (encoded != "data") encoded = name;
    }
    if (count == 0 || (count > 1 && encoded != "data")) return "";
    if (reader.DecodesFiles())
      return absl::StrCat("; cure: `", reader.name, ": {in: ", encoded, "}`");
    if (missing != "image") return "";
    return absl::StrCat("; `decode: {in: ", encoded, ", out: image}` before this op makes it");
  }

  absl::Status AddNode(const OpSpec& spec, uint32_t instance) {
    Node node;
    node.entry = Registry<OpEntry>::Get().Find(spec.name);
    if (node.entry == nullptr || !node.entry->create) {
      return spec.node.Error(UnknownOp(spec.name));
    }
    node.instance = instance;
    node.draws_as = spec.draws_as;
    FW_ASSIGN_OR_RETURN(node.op, MakeOp(*node.entry, spec.params, spec.files, spec.in, &tables_));
    PlanEnvironment environment = environment_;
    environment.fields = spec.in;
    absl::InlinedVector<bool, 8> are_of_dataset;
    Specs inputs;
    bool is_deterministic = node.entry->randomness == Randomness::kNone;
    for (size_t i = 0; i < spec.in.size(); ++i) {
      const YamlNode& place = PlaceOf(spec, "in", i);
      const auto found = names_.find(spec.in[i]);
      if (found == names_.end()) {
        return UnknownFieldError(place, absl::StrCat("op '", spec.name, "' reads the"), spec.in[i],
                                 FieldsOf(names_), DecodeCure(spec.in[i], *node.entry));
      }
      const TensorSpec& input = flow_.values[found->second].spec;
      if (IsLabel(found->second)) environment.label = static_cast<int>(i);
      are_of_dataset.push_back(flow_.values[found->second].source >= 0);
      const absl::Status fits = CheckPort(*node.entry, i, spec.in[i], input, are_of_dataset.back());
      if (!fits.ok()) return place.Error(absl::StrCat("op '", spec.name, "' ", fits.message()));
      node.in.push_back(found->second);
      inputs.push_back(input);
      is_deterministic &= flow_.values[found->second].is_deterministic;
    }
    environment.are_of_dataset = are_of_dataset;
    FW_ASSIGN_OR_RETURN(const Specs outputs,
                        PlanOp(*node.op, *node.entry, spec, inputs, environment));
    for (size_t i = 0; i < outputs.size(); ++i) {
      Value value;
      value.name = spec.out[i];
      value.spec = outputs[i];
      value.is_deterministic = is_deterministic;
      node.out.push_back(static_cast<int>(flow_.values.size()));
      names_[value.name] = node.out.back();
      flow_.values.push_back(std::move(value));
    }
    flow_.nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  // The one number of the resize that gives a field its size, which leaves its other side open;
  // null where there is none, or where what follows it may do more than that.
  const YamlNode* SideOfResize(const std::string& name) const {
    for (auto op = spec_.graph.rbegin(); op != spec_.graph.rend(); ++op) {
      if (!absl::c_linear_search(op->out, name)) continue;
      if (!op->inner.empty()) return nullptr;
      if (op->name != "resize") continue;
      const YamlNode* const size = op->params.Find("size");
      return size != nullptr && size->is_scalar() ? size : nullptr;
    }
    return nullptr;
  }

  // The batch value of a name: what a batch op wrote last, else the sample graph's value, which
  // must then have a fixed size.
  absl::StatusOr<int> FindBatchValue(const std::string& name, const YamlNode& place,
                                     absl::string_view reader) {
    if (const auto found = batch_names_.find(name); found != batch_names_.end())
      return found->second;
    const auto found = names_.find(name);
    if (found == names_.end()) {
      Names known = names_;
      known.insert(batch_names_.begin(), batch_names_.end());
      return UnknownFieldError(place, reader, name, FieldsOf(known));
    }
    Value& value = flow_.values[found->second];
    if (!value.spec.IsStatic() || value.spec.layout == Layout::kEncoded) {
      if (const YamlNode* const side = SideOfResize(name); side != nullptr) {
        const std::string square = absl::StrCat("size: [", side->scalar, ", ", side->scalar, "]");
        return side->Error(absl::StrCat(
            "'", name, "' has no fixed size (", value.spec.ToString(), "): size: ", side->scalar,
            " keeps the aspect ratio, so that widths or heights differ: write ", square,
            ", or center_crop: {", square, "} behind it"));
      }
      return place.Error(NoFixedSize(name, value.spec));
    }
    value.batch_value = static_cast<int>(flow_.batch_values.size());
    batch_names_[name] = value.batch_value;
    BatchValue batch_value;
    batch_value.name = name;
    batch_value.spec = value.spec;
    batch_value.sample_value = found->second;
    flow_.batch_values.push_back(std::move(batch_value));
    return value.batch_value;
  }

  absl::Status AddBatchNode(const OpSpec& spec, uint32_t instance) {
    BatchNode node;
    node.entry = Registry<OpEntry>::Get().Find(spec.name);
    if (node.entry == nullptr || !node.entry->create_batch) {
      return spec.node.Error(UnknownOp(spec.name));
    }
    node.instance = instance;
    FW_ASSIGN_OR_RETURN(node.op, node.entry->create_batch(spec.params, spec.files));
    PlanEnvironment environment = environment_;
    Specs inputs;
    for (size_t i = 0; i < spec.in.size(); ++i) {
      const YamlNode& place = PlaceOf(spec, "in", i);
      FW_ASSIGN_OR_RETURN(
          const int value,
          FindBatchValue(spec.in[i], place, absl::StrCat("op '", spec.name, "' reads the")));
      const TensorSpec& input = flow_.batch_values[value].spec;
      if (IsLabel(flow_.batch_values[value].sample_value)) environment.label = static_cast<int>(i);
      // An op of samples could come before.
      const int of_sample = flow_.batch_values[value].sample_value;
      const absl::Status fits = CheckPort(*node.entry, i, spec.in[i], input,
                                          of_sample >= 0 && flow_.values[of_sample].source >= 0);
      if (!fits.ok()) return place.Error(absl::StrCat("op '", spec.name, "' ", fits.message()));
      node.in.push_back(value);
      inputs.push_back(input);
    }
    FW_ASSIGN_OR_RETURN(const Specs outputs,
                        PlanOp(*node.op, *node.entry, spec, inputs, environment));
    for (size_t i = 0; i < outputs.size(); ++i) {
      BatchValue value;
      value.name = spec.out[i];
      value.spec = outputs[i];
      node.out.push_back(static_cast<int>(flow_.batch_values.size()));
      batch_names_[value.name] = node.out.back();
      flow_.batch_values.push_back(std::move(value));
    }
    flow_.batch_nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  // The batch value of a sample's value that only an output can be; once for each.
  int AddOwnBatchValue(const std::string& name, int sample_value, BatchValue value) {
    value.name = name;
    value.sample_value = sample_value;
    const auto number = static_cast<int>(flow_.batch_values.size());
    batch_names_[name] = number;
    flow_.batch_values.push_back(std::move(value));
    return number;
  }

  // A value whose number of rows differs, as the file wants it.
  absl::StatusOr<int> AddVaryingOutput(const OutputSpec& output, int sample_value,
                                       const YamlNode& place) {
    Value& value = flow_.values[sample_value];
    BatchValue made;
    made.spec = value.spec;
    if (output.pad_to.has_value()) {
      made.spec = value.spec.WithRows(*output.pad_to);
      if (made.spec.layout == Layout::kEncoded) made.spec.layout = Layout::kPlain;
      absl::StatusOr<std::string> padding = Padding(value.spec.dtype, output.pad_value);
      if (!padding.ok())
        return place.Error(
            absl::StrCat("output '", output.name, "': ", padding.status().message()));
      made.padding = *std::move(padding);
    } else if (output.max_rows.has_value()) {
      made.max_rows = *output.max_rows;
    } else if (value.spec.layout == Layout::kEncoded) {
      return place.Error(
          absl::StrCat("'", output.name, "' is a compressed image of varying length: decode it",
                       DecodeOf(output.name),
                       ", or, where its bytes are wanted, say how many there are at most: {",
                       output.name, ": {max_rows: 200000}}"));
    } else {
      const int64_t row_bytes = value.spec.WithRows(1).ByteSize().value_or(INT64_MAX);
      made.max_rows = std::max<int64_t>(1, kDefaultSampleBytes / std::max<int64_t>(1, row_bytes));
    }
    value.batch_value = AddOwnBatchValue(output.name, sample_value, std::move(made));
    return value.batch_value;
  }

  absl::StatusOr<int> AddOutput(const OutputSpec& output, const YamlNode& place,
                                absl::string_view reader) {
    const auto found = names_.find(output.name);
    const bool by_batch_op = batch_names_.count(output.name) > 0;
    if (!by_batch_op && found != names_.end() && IsOfVaryingRows(found->second))
      return AddVaryingOutput(output, found->second, place);
    if (!output.is_plain() && (by_batch_op || found != names_.end())) {
      const TensorSpec& spec = by_batch_op ? flow_.batch_values[batch_names_[output.name]].spec
                                           : flow_.values[found->second].spec;
      return place.Error(
          absl::StrCat("output '", output.name, "' is ", spec.ToString(), ": ",
                       output.max_rows.has_value() ? "max_rows" : "pad_to",
                       " is for fields whose number of rows differs from sample to sample, such as "
                       "float32[?,4]"));
    }
    const auto of = names_.find(std::string(LengthOf(output.name)));
    if (!by_batch_op && found == names_.end() && of != names_.end() &&
        IsOfVaryingRows(of->second)) {
      if (!output.is_plain())
        return place.Error(absl::StrCat("output '", output.name, "' is one number a sample"));
      BatchValue length;
      length.spec.dtype = DType::kInt64;
      length.is_length = true;
      const int value = AddOwnBatchValue(output.name, of->second, std::move(length));
      flow_.values[of->second].length_value = value;
      return value;
    }
    return FindBatchValue(output.name, place, reader);
  }

  bool IsOfVaryingRows(int value) const {
    const TensorSpec& spec = flow_.values[value].spec;
    return !IsImage(spec) && spec.HasVaryingRows();
  }

  absl::Status AddOutputs() {
    const bool is_given = spec_.outputs_node.is_list();
    for (size_t i = 0; i < spec_.outputs.size(); ++i) {
      const YamlNode& place = is_given && i < spec_.outputs_node.items.size()
                                  ? spec_.outputs_node.items[i]
                                  : spec_.outputs_node;
      FW_ASSIGN_OR_RETURN(
          const int value,
          AddOutput(spec_.outputs[i], place,
                    is_given ? "'outputs' names the"
                             : "'outputs' is not given, so it is [image, label]; this names the"));
      flow_.outputs.push_back(value);
    }
    return absl::OkStatus();
  }

  // Backwards from the outputs; readers are listed of live nodes only.
  void MarkLive() {
    std::vector<bool> batch_needed(flow_.batch_values.size()), needed(flow_.values.size());
    for (int output : flow_.outputs) batch_needed[output] = true;
    for (int i = static_cast<int>(flow_.batch_nodes.size()) - 1; i >= 0; --i) {
      BatchNode& node = flow_.batch_nodes[i];
      for (int value : node.out) node.is_live |= batch_needed[value];
      if (!node.is_live) continue;
      for (int value : node.in) {
        batch_needed[value] = true;
        flow_.batch_values[value].readers.push_back(i);
      }
    }
    for (size_t i = 0; i < flow_.batch_values.size(); ++i) {
      const int value = flow_.batch_values[i].sample_value;
      if (value < 0) continue;
      if (batch_needed[i]) {
        needed[value] = true;
      } else {
        flow_.values[value].batch_value = -1;  // lengths are outputs, and so needed
      }
    }
    for (int i = static_cast<int>(flow_.nodes.size()) - 1; i >= 0; --i) {
      Node& node = flow_.nodes[i];
      for (int value : node.out) node.is_live |= needed[value];
      if (!node.is_live) continue;
      for (int value : node.in) {
        needed[value] = true;
        flow_.values[value].readers.push_back(i);
      }
    }
  }

  const PipelineSpec& spec_;
  const PlanEnvironment environment_;
  Dataflow flow_;
  Names names_, batch_names_;
  int64_t tables_ = 0;  // of the ops so far
};

}  // namespace

absl::StatusOr<Dataflow> Settle(const PipelineSpec& spec, const std::vector<FieldSpec>& fields,
                                int64_t classes, bool classes_are_known) {
  return Settler(spec, classes, classes_are_known).Run(fields);
}

}  // namespace feedwater::server
