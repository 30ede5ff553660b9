#include "client/cli/json_schema.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/registry.h"
#include "server/base/yaml.h"
#include "server/graph/op_schema.h"
#include "server/graph/op_spec.h"
#include "server/graph/pipeline_spec.h"
#include "server/service/config.h"
#include "server/source/dataset.h"
#include "server/source/format.h"
#include "server/source/mix.h"

namespace feedwater::cli {
namespace {

using json = nlohmann::ordered_json;
using server::FormatEntry;
using server::OpEntry;
using server::ParamInfo;
using server::Registry;
using server::YamlNode;

constexpr const char* kAlternatives[] = {"oneOf", "anyOf"};

json Parsed(const std::string& text) {
  json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  return value.is_discarded() ? json::object() : value;
}

// `type: integer`, or one of several types.
bool HasType(const json& schema, const char* type) {
  const auto found = schema.find("type");
  if (found == schema.end()) return false;
  return *found == type ||
         (found->is_array() && std::find(found->begin(), found->end(), type) != found->end());
}

// --- one parameter

// The bounds of a number, or of the numbers of a list, put where the schema's type says number. A
// minimum that the type itself has stays where it is the higher one.
void AddBounds(const ParamInfo& param, json* schema) {
  if (schema->contains("items")) return AddBounds(param, &(*schema)["items"]);
  for (const char* alternatives : kAlternatives) {
    if (!schema->contains(alternatives)) continue;
    for (json& alternative : (*schema)[alternatives]) AddBounds(param, &alternative);
    return;
  }
  const bool is_integer = HasType(*schema, "integer");
  if (!is_integer && !HasType(*schema, "number")) return;
  const auto number = [&](double value) {
    return is_integer ? json(static_cast<int64_t>(value)) : json(value);
  };
  if (param.low && (!schema->contains("minimum") || (*schema)["minimum"] < *param.low))
    (*schema)["minimum"] = number(*param.low);
  if (param.high) (*schema)["maximum"] = number(*param.high);
}

// Whether a scalar of this schema, or of its items and alternatives, may be of the type.
bool MayBe(const json& schema, const char* type) {
  if (HasType(schema, type)) return true;
  if (schema.contains("items") && MayBe(schema["items"], type)) return true;
  for (const char* alternatives : kAlternatives) {
    if (!schema.contains(alternatives)) continue;
    for (const json& alternative : schema[alternatives])
      if (MayBe(alternative, type)) return true;
  }
  return false;
}

// A default's YAML as JSON; the schema says what a scalar is.
json ToJson(const YamlNode& node, const json& schema) {
  if (node.is_list()) {
    json list = json::array();
    for (const YamlNode& item : node.items) list.push_back(ToJson(item, schema));
    return list;
  }
  if (node.is_map()) {
    json map = json::object();
    for (const auto& [key, value] : node.entries) map[key.scalar] = ToJson(value, schema);
    return map;
  }
  if (!MayBe(schema, "string")) {
    const json value = json::parse(node.scalar, nullptr, /*allow_exceptions=*/false);
    if (value.is_number() || value.is_boolean()) return value;
  }
  return node.scalar;
}

// Nothing where the default depends on the machine or the data: such a parameter is empty.
void AddDefault(const ParamInfo& param, json* schema) {
  if (param.default_text.empty() || param.default_text == "\"\"") return;
  const absl::StatusOr<YamlNode> node = server::ParseYaml(param.default_text, param.name);
  if (node.ok()) (*schema)["default"] = ToJson(*node, *schema);
}

json MapSchema(const std::vector<ParamInfo>& params);

// Of a list of names: each may be `NAME: {...}` too, a map of one key.
void AllowEntriesWithParams(const std::vector<ParamInfo>& params, json* list) {
  const json name = (*list)["items"];
  const json entry = {
      {"type", "object"},
      {"minProperties", 1},
      {"maxProperties", 1},
      {"additionalProperties", false},
      {"patternProperties", {{name["pattern"].get<std::string>(), MapSchema(params)}}}};
  (*list)["items"] = {{"anyOf", {name, entry}}};
}

json ParamSchema(const ParamInfo& param) {
  json schema = param.nested.empty() ? Parsed(param.json_type) : MapSchema(param.nested);
  if (!param.item.empty()) AllowEntriesWithParams(param.item, &schema);
  AddBounds(param, &schema);
  if (!param.choices.empty()) {
    json* words = schema.contains("items") ? &schema["items"] : &schema;
    (*words)["type"] = "string";
    (*words)["enum"] = param.choices;
  }
  AddDefault(param, &schema);
  schema["description"] = param.doc;
  return schema;
}

json MapSchema(const std::vector<ParamInfo>& params) {
  json properties = json::object(), required = json::array();
  for (const ParamInfo& param : params) {
    properties[param.name] = ParamSchema(param);
    if (param.required) required.push_back(param.name);
  }
  json schema = {{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
  if (required.empty()) {
    schema["type"] = {"object", "null"};  // `storage:` with every line below it commented out
  } else {
    schema["required"] = required;
  }
  return schema;
}

// --- ops

// `in` or `out`: one name or several.
json FieldsSchema(const std::string& description, const std::vector<std::string>& names) {
  const json field = Parsed(server::kFieldNameJson);
  json schema = {
      {"anyOf",
       {field, {{"type", "array"}, {"items", field}, {"minItems", 1}, {"uniqueItems", true}}}}};
  if (names.size() == 1) schema["default"] = names[0];
  if (names.size() > 1) schema["default"] = names;
  schema["description"] = description;
  return schema;
}

json InSchema(const OpEntry& op) {
  std::vector<std::string> texts, names;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    names.push_back(op.inputs[i].field);
    texts.push_back(absl::StrCat(op.inputs[i].doc, " (", op.InputText(i), ")"));
  }
  return FieldsSchema(absl::StrCat("What the op reads. ", absl::StrJoin(texts, " ")), names);
}

json OutSchema(const OpEntry& op) {
  std::vector<std::string> names;
  for (const server::Port& port : op.outputs) {
    if (!port.field.empty()) names.push_back(port.field);
  }
  return FieldsSchema(
      names.empty() ? "What the op writes; default: the same as `in`." : "What the op writes.",
      names);
}

// `- resize: {size: 256}`: a map of one key, the op. `- decode` alone where nothing is required.
enum class OpsOf { kGraph, kBatchGraph, kCombinator };
json OpList(OpsOf graph) {
  const bool batch_ops = graph == OpsOf::kBatchGraph;
  json properties = json::object(), bare = json::array();
  for (const std::string& name : Registry<OpEntry>::Get().Names()) {
    const OpEntry& op = *Registry<OpEntry>::Get().Find(name);
    if (batch_ops ? !op.create_batch : !op.create) continue;
    json schema = MapSchema(op.params);
    schema["properties"]["in"] = InSchema(op);
    if (graph != OpsOf::kCombinator) schema["properties"]["out"] = OutSchema(op);
    if (graph != OpsOf::kCombinator && op.randomness == server::Randomness::kPerSample) {
      schema["properties"][server::kDrawsAs] = {{"type", "integer"},
                                                {"minimum", 0},
                                                {"maximum", server::kMaxOps - 1},
                                                {"description", server::kDrawsAsDoc}};
    }
    schema["description"] = op.summary;
    if (!schema.contains("required")) bare.push_back(name);
    properties[name] = schema;
  }
  json entry = {{"type", "object"},
                {"minProperties", 1},
                {"maxProperties", 1},
                {"additionalProperties", false},
                {"properties", properties}};
  if (!bare.empty()) entry = {{"anyOf", {entry, {{"enum", bare}}}}};
  return {{"type", {"array", "null"}}, {"items", entry}, {"maxItems", server::kMaxOps}};
}

// --- documents

// The parameters that a dataset has depend on its format. `more`: of one in a mix.
json FormatSchema(const std::vector<ParamInfo>& more) {
  std::vector<ParamInfo> common = server::DatasetParams();
  common.insert(common.end(), more.begin(), more.end());
  json schema = MapSchema(common);
  schema.erase("additionalProperties");  // each format says which there are
  const json required = schema["required"];
  schema["required"] = {"format"};
  json cases = json::array();
  for (const std::string& name : Registry<FormatEntry>::Get().Names()) {
    const FormatEntry& format = *Registry<FormatEntry>::Get().Find(name);
    json own = MapSchema(format.params);
    own.erase("type");  // `dataset` itself has one
    for (const ParamInfo& param : common) {
      const bool is_place = param.name == "root" || param.name == "path";
      own["properties"][param.name] = is_place && !format.has_files ? json(false) : json::object();
    }
    if (format.has_files) {
      for (const json& name_of : required) {
        if (name_of != "format") own["required"].push_back(name_of);
      }
    }
    const json is_it = {{"properties", {{"format", {{"const", name}}}}}, {"required", {"format"}}};
    cases.push_back({{"if", is_it}, {"then", own}});
  }
  schema["allOf"] = cases;
  return schema;
}

// A dataset with a format, or a mix of several.
json DatasetSchema() {
  json mix = MapSchema(server::MixParams());
  json& list = mix["properties"]["mix"];
  list["items"] = FormatSchema(server::MixSourceParams());
  list["minItems"] = 1;
  list["maxItems"] = server::kMaxMixSources;
  json schema = FormatSchema({});
  schema["if"] = {{"required", {"mix"}}};
  schema["then"] = std::move(mix);
  schema["else"] = {{"required", schema["required"]}};
  schema.erase("required");
  return schema;
}

json Titled(const std::string& title, const json& schema) {
  json document = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                   {"$comment", "Generated by scripts/generate-reference; do not edit."},
                   {"title", title}};
  document.update(schema);
  return document;
}

}  // namespace

json PipelineSchema() {
  json schema = MapSchema(server::PipelineParams());
  const auto put = [](json* at, json with) {
    with["description"] = (*at)["description"];
    *at = std::move(with);
  };
  json& keys = schema["properties"];
  put(&keys["dataset"], DatasetSchema());
  put(&keys["graph"], OpList(OpsOf::kGraph));
  put(&keys["batch"]["properties"]["graph"], OpList(OpsOf::kBatchGraph));
  schema["definitions"]["inner_op"] = OpList(OpsOf::kCombinator)["items"];
  return Titled("A pipeline of Feedwater", schema);
}

json DaemonSchema() {
  return Titled("The configuration of feedwaterd", MapSchema(server::ConfigSchema().params()));
}

}  // namespace feedwater::cli
