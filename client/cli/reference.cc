// feedwater reference: the pages of config/reference and the schemas of config/schema, written from
// the registries and the schemas that read the files themselves. scripts/generate-reference puts
// them in place; not shown in `feedwater --help`.
#include <iostream>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/command.h"
#include "server/base/registry.h"
#include "server/graph/op_schema.h"
#include "server/graph/pipeline_spec.h"
#include "server/service/config.h"
#include "server/source/dataset.h"
#include "server/source/format.h"

namespace feedwater::cli {
namespace {

using json = nlohmann::ordered_json;
using server::FormatEntry;
using server::OpEntry;
using server::ParamInfo;
using server::Registry;

// --- JSON Schema (draft-07, which editors' YAML servers know best)
// ------------------------------------------------

// The bounds of a number, or of the numbers of a list, put where the schema's type says number.
void AddBounds(const ParamInfo& param, json* schema) {
  if (schema->contains("items")) return AddBounds(param, &(*schema)["items"]);
  for (const char* alternatives : {"oneOf", "anyOf"}) {
    if (!schema->contains(alternatives)) continue;
    for (json& alternative : (*schema)[alternatives]) AddBounds(param, &alternative);
    return;
  }
  const json type = schema->value("type", json());
  if (type != "number" && type != "integer") return;
  const auto number = [&](double value) {
    return type == "integer" ? json(static_cast<int64_t>(value)) : json(value);
  };
  if (param.low) (*schema)["minimum"] = number(*param.low);
  if (param.high) (*schema)["maximum"] = number(*param.high);
}

json MapSchema(const std::vector<ParamInfo>& params);

json ParamSchema(const ParamInfo& param) {
  json schema = param.nested.empty()
                    ? json::parse(param.json_type, nullptr, /*allow_exceptions=*/false)
                    : MapSchema(param.nested);
  if (schema.is_discarded()) schema = json::object();
  AddBounds(param, &schema);
  if (!param.choices.empty()) {
    json* words = schema.contains("items") ? &schema["items"] : &schema;
    (*words)["enum"] = param.choices;
  }
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

// `- resize: {size: 256}`: a map of one key, the op.
json OpList(bool batch_ops) {
  const json fields = {{"anyOf",
                        {{{"type", "string"}},
                         {{"type", "array"}, {"items", {{"type", "string"}}}, {"minItems", 1}}}}};
  json properties = json::object(), bare = json::array();
  for (const std::string& name : Registry<OpEntry>::Get().Names()) {
    const OpEntry& op = *Registry<OpEntry>::Get().Find(name);
    if (op.is_batch_op != batch_ops) continue;
    json schema = MapSchema(op.params);
    schema["properties"]["in"] = fields;
    schema["properties"]["in"]["description"] = "Field or fields that the op reads.";
    schema["properties"]["out"] = fields;
    schema["properties"]["out"]["description"] =
        "Field or fields that the op writes; default: those that it reads.";
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
  return {{"type", "array"}, {"items", entry}};
}

// The parameters that a dataset has depend on its format.
json DatasetSchema() {
  json schema = {{"type", "object"}, {"required", json::array()}, {"properties", json::object()}};
  for (const ParamInfo& param : server::DatasetParams()) {
    schema["properties"][param.name] = ParamSchema(param);
    if (param.required) schema["required"].push_back(param.name);
  }
  schema["properties"]["format"]["enum"] = Registry<FormatEntry>::Get().Names();
  json cases = json::array();
  for (const std::string& name : Registry<FormatEntry>::Get().Names()) {
    json own = MapSchema(Registry<FormatEntry>::Get().Find(name)->params);
    for (const ParamInfo& param : server::DatasetParams())
      own["properties"][param.name] = json::object();
    cases.push_back({{"if", {{"properties", {{"format", {{"const", name}}}}}}}, {"then", own}});
  }
  schema["allOf"] = cases;
  return schema;
}

json Titled(const std::string& title, json schema) {
  json document = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                   {"$comment", "Generated by scripts/generate-reference; do not edit."},
                   {"title", title}};
  document.update(schema);
  return document;
}

json PipelineSchema() {
  json schema = MapSchema(server::PipelineParams());
  const auto put = [&](json* at, json with) {
    with["description"] = (*at)["description"];
    *at = std::move(with);
  };
  put(&schema["properties"]["dataset"], DatasetSchema());
  put(&schema["properties"]["graph"], OpList(/*batch_ops=*/false));
  put(&schema["properties"]["batch"]["properties"]["graph"], OpList(/*batch_ops=*/true));
  return Titled("A pipeline of Feedwater", schema);
}

json DaemonSchema() {
  json schema = MapSchema(server::ConfigSchema().params());
  // A count or a size may be written as a number where the key also takes words.
  for (const char* key : {"cpus", "memory", "numa_node"}) {
    schema["properties"][key]["type"] = {"string", "integer"};
  }
  schema["properties"]["cache"]["properties"]["ram"]["type"] = {"string", "integer"};
  return Titled("The configuration of feedwaterd", schema);
}

// --- Markdown
// ------------------------------------------------------------------------------------------------------

constexpr char kGenerated[] = "<!-- Generated by scripts/generate-reference; do not edit. -->\n\n";

std::string Cell(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}, {"\n", " "}});
}

std::string Range(const ParamInfo& param) {
  if (!param.choices.empty()) return absl::StrJoin(param.choices, ", ");
  if (param.low && param.high) return absl::StrCat(*param.low, " .. ", *param.high);
  if (param.low) return absl::StrCat("≥ ", *param.low);
  if (param.high) return absl::StrCat("≤ ", *param.high);
  return "";
}

void PrintParams(const std::vector<ParamInfo>& params, const std::string& prefix = "") {
  for (const ParamInfo& param : params) {
    const std::string name = absl::StrCat(prefix, param.name);
    if (!param.nested.empty()) {
      std::cout << "| **`" << name << "`** | " << param.type << " | "
                << (param.required ? "required" : "") << " | | " << Cell(param.doc) << " |\n";
      PrintParams(param.nested, absl::StrCat(name, "."));
      continue;
    }
    std::cout << "| `" << name << "` | " << Cell(param.type) << " | "
              << (param.required               ? "required"
                  : param.default_text.empty() ? ""
                                               : absl::StrCat("`", Cell(param.default_text), "`"))
              << " | " << Cell(Range(param)) << " | " << Cell(param.doc) << " |\n";
  }
}

void PrintTable(const std::vector<ParamInfo>& params) {
  if (params.empty()) {
    std::cout << "No parameters.\n";
    return;
  }
  std::cout << "| parameter | type | default | values | what |\n|---|---|---|---|---|\n";
  PrintParams(params);
}

void PrintOps() {
  std::cout << kGenerated
            << "# Ops\n\nThe steps of a pipeline's `graph:` and `batch: graph:`. Every op takes "
               "`in`, the field or fields "
               "that it reads, and `out`, what it writes (default: what it reads). `feedwater "
               "describe op NAME` prints the same.\n";
  for (const bool batch_ops : {false, true}) {
    std::cout << "\n## " << (batch_ops ? "On whole batches" : "On samples") << "\n";
    for (const std::string& name : Registry<OpEntry>::Get().Names()) {
      const OpEntry& op = *Registry<OpEntry>::Get().Find(name);
      if (op.is_batch_op != batch_ops) continue;
      std::cout << "\n### " << name << "\n\n" << op.summary << "\n\n";
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        std::cout << "* in" << (op.inputs.size() > 1 ? absl::StrCat(" ", i + 1) : "") << ": "
                  << op.InputText(i) << (op.is_repeated ? ", one or more of them" : "") << "\n";
      }
      std::cout << "* randomness: " << server::RandomnessText(op.randomness) << "\n\n```yaml\n"
                << op.example << "\n```\n\n";
      PrintTable(op.params);
    }
  }
}

void PrintFormats() {
  std::cout << kGenerated
            << "# Dataset formats\n\nA pipeline's `dataset:` has these keys, and those of its "
               "format.\n\n";
  PrintTable(server::DatasetParams());
  for (const std::string& name : Registry<FormatEntry>::Get().Names()) {
    const FormatEntry& format = *Registry<FormatEntry>::Get().Find(name);
    std::cout << "\n## " << name << "\n\n"
              << format.summary << "\n\n```yaml\n"
              << format.example << "\n```\n\n";
    PrintTable(format.params);
  }
}

void PrintPipeline() {
  std::cout << kGenerated
            << "# The pipeline file\n\nOne YAML file, read top to bottom. Unknown keys are errors; "
               "anchors, aliases and tags are refused. "
               "[Ops](ops.md) and [formats](formats.md) have pages of their own.\n\n";
  PrintTable(server::PipelineParams());
}

void PrintDaemon() {
  std::cout << kGenerated
            << "# feedwaterd's configuration\n\nThe same as `feedwaterd --print-config`, as a "
               "table. Sizes are written 512MiB or 8GiB, times 500ms "
               "or 60s. `--set KEY=VALUE` overrides one on the command line.\n\n";
  PrintTable(server::ConfigSchema().params());
}

const std::map<std::string, void (*)()>& Pages() {
  static const auto* pages = new std::map<std::string, void (*)()>{
      {"schema/pipeline.schema.json", [] { std::cout << PipelineSchema().dump(1) << "\n"; }},
      {"schema/feedwater.schema.json", [] { std::cout << DaemonSchema().dump(1) << "\n"; }},
      {"reference/ops.md", PrintOps},
      {"reference/formats.md", PrintFormats},
      {"reference/pipeline.md", PrintPipeline},
      {"reference/feedwater.md", PrintDaemon},
  };
  return *pages;
}

}  // namespace

void AddReference(CLI::App& app, Context& context) {
  static std::string page;
  CLI::App* command =
      AddCommand(app, context, "reference", "print a generated page of config/, or list them",
                 "  feedwater reference schema/pipeline.schema.json", []() -> absl::Status {
                   if (page.empty()) {
                     for (const auto& [name, print] : Pages()) std::cout << name << "\n";
                     return absl::OkStatus();
                   }
                   const auto found = Pages().find(page);
                   if (found == Pages().end())
                     return absl::InvalidArgumentError(absl::StrCat("no page '", page, "'"));
                   found->second();
                   return absl::OkStatus();
                 });
  command->group("");  // for scripts/generate-reference
  command->add_option("page", page, "which one")->type_name("PAGE");
}

}  // namespace feedwater::cli
