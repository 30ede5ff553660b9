// feedwater describe: ops and formats from the registries of this program, pipelines from their
// files or from a daemon.
#include <algorithm>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/command.h"
#include "client/cli/cost_text.h"
#include "client/cli/describe_dataset.h"
#include "client/cli/describe_pipeline.h"
#include "client/cli/json_text.h"
#include "client/cli/local_pipeline.h"
#include "client/cli/text.h"
#include "server/base/escape.h"
#include "server/base/registry.h"
#include "server/base/yaml.h"
#include "server/graph/op_schema.h"
#include "server/source/format.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;
using server::FormatEntry;
using server::OpEntry;
using server::ParamInfo;
using server::Registry;

struct Arguments {
  std::string kind, name, config;
  bool guess = false, cost = false;
  int64_t samples = 32;  // to measure the cost of
};

// --- parameters, shared by ops and formats

json ParamJson(const ParamInfo& param) {
  json document = {
      {"name", param.name}, {"type", param.type}, {"required", param.required}, {"doc", param.doc}};
  if (!param.required) document["default"] = param.default_text;
  if (param.low) document["minimum"] = *param.low;
  if (param.high) document["maximum"] = *param.high;
  if (!param.choices.empty()) document["choices"] = param.choices;
  return document;
}

json ParamsJson(const std::vector<ParamInfo>& params) {
  json list = json::array();
  for (const ParamInfo& param : params) list.push_back(ParamJson(param));
  return list;
}

std::string RangeText(const ParamInfo& param) {
  if (!param.choices.empty()) return absl::StrJoin(param.choices, " | ");
  if (param.low && param.high) return absl::StrCat(param.low_text, "..", param.high_text);
  if (param.low) return absl::StrCat(">= ", param.low_text);
  if (param.high) return absl::StrCat("<= ", param.high_text);
  return "";
}

std::string ParamLine(const ParamInfo& param) {
  const std::string range = RangeText(param);
  return absl::StrCat(
      param.type,
      param.required
          ? ", required"
          : absl::StrCat(", default ", param.default_text.empty() ? "none" : param.default_text),
      range.empty() ? "" : absl::StrCat(", ", range));
}

void PrintParams(const std::vector<ParamInfo>& params, const char* head = "parameters") {
  if (params.empty()) return;
  std::cout << "\n" << Bold(head) << "\n";
  for (const ParamInfo& param : params) {
    // The line hangs beside the name.
    const size_t indent = param.name.size() + 4;
    std::cout << "  " << Bold(param.name) << ": "
              << Wrapped(ParamLine(param), indent).substr(indent) << Wrapped(param.doc, 6);
  }
}

// Below its head, and as it is when the indent is taken away: it may be several lines.
void PrintExample(const std::string& example) {
  std::cout << "\n"
            << Bold("example") << "\n  " << absl::StrReplaceAll(example, {{"\n", "\n  "}}) << "\n";
}

// --- ops and formats

std::string PortsText(const std::vector<server::Port>& ports) {
  std::vector<std::string> names;
  for (const server::Port& port : ports)
    names.push_back(port.field.empty() ? "(like its input)" : port.field);
  return absl::StrJoin(names, ", ");
}

json OpJson(const std::string& name, const OpEntry& op) {
  json document = {{"op", name},
                   {"summary", op.summary},
                   {"inputs", PortsText(op.inputs)},
                   {"outputs", PortsText(op.outputs)},
                   {"randomness", server::RandomnessText(op.randomness)},
                   {"fused", server::FusionText(op.fusion)},
                   {"cost", op.cost},
                   {"batch_op", op.is_batch_op},
                   {"params", ParamsJson(op.params)},
                   {"example", op.example}};
  json others = json::array();
  for (const server::OtherName& other : op.other_names)
    others.push_back(
        {{"library", other.library}, {"name", other.name}, {"nearest", other.is_nearest}});
  document["other_names"] = others;
  if (!op.plugin.empty()) {
    document["plugin"] = op.plugin;
    document["version"] = op.version;
  }
  return document;
}

void PrintOp(const std::string& name, const OpEntry& op) {
  std::cout << Bold(name) << (op.is_batch_op ? "   (an op of `batch: graph:`)" : "") << "\n"
            << Wrapped(op.summary, 2) << "\n"
            << Bold("fields") << "\n";
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    std::cout << Wrapped(
        absl::StrCat("in ", op.inputs[i].field, ": ", op.InputText(i), ". ", op.inputs[i].doc,
                     op.is_joint      ? " Masks, boxes, keypoints and labels move with it."
                     : op.is_repeated ? " Takes several fields alike."
                                      : ""),
        2);
  }
  for (const server::Port& port : op.outputs) {
    const std::string name_of = port.field.empty() ? ", named like its input" : " " + port.field;
    std::cout << Wrapped(absl::StrCat("out", name_of, ": ", port.doc), 2);
  }
  std::cout << "  randomness: " << server::RandomnessText(op.randomness) << "\n"
            << Wrapped(absl::StrCat("fused: ", server::FusionText(op.fusion)), 2)
            << Wrapped(absl::StrCat("cost: ", op.cost), 2);
  if (!op.other_names.empty())
    std::cout << Wrapped(absl::StrCat("elsewhere: ", server::OtherNamesText(op)), 2);
  if (!op.plugin.empty()) {
    std::cout << Wrapped(
        server::Escaped(absl::StrCat("of the plug-in ", op.plugin, ", version ", op.version)), 2);
  }
  PrintParams(op.params);
  PrintExample(op.example);
}

bool TakesFields(const FormatEntry& format) {
  return std::any_of(format.params.begin(), format.params.end(), server::IsFields);
}

json FormatJson(const std::string& name, const FormatEntry& format) {
  json document = {{"format", name},
                   {"summary", format.summary},
                   {"dataset_params", ParamsJson(server::DatasetParams())},
                   {"params", ParamsJson(format.params)},
                   {"example", format.example}};
  if (!TakesFields(format)) return document;
  for (const server::FieldKey& key : server::FieldKeys()) {
    document["field_params"].push_back(ParamJson(key.param));
    document["field_params"].back()["example"] = key.example;
  }
  return document;
}

void PrintFields() {
  std::cout << "\n" << Bold("a field of `fields`") << "\n" << Wrapped(server::kFieldsText, 2);
  std::vector<ParamInfo> params;
  for (const server::FieldKey& key : server::FieldKeys()) {
    params.push_back(key.param);
    absl::StrAppend(&params.back().doc, " Example: `", key.example, "`");
  }
  PrintParams(params, "keys");
}

void PrintFormat(const std::string& name, const FormatEntry& format) {
  std::cout << Bold(name) << "\n" << Wrapped(format.summary, 2);
  std::vector<ParamInfo> params = server::DatasetParams();
  params.insert(params.end(), format.params.begin(), format.params.end());
  PrintParams(params);
  if (TakesFields(format)) PrintFields();
  PrintExample(format.example);
}

// --- the command

// The names of the daemon's pipelines; empty when no daemon answers.
std::vector<std::string> PipelineNames(const Context& context) {
  auto control = context.Control();
  if (!control.ok()) return {};
  grpc::ClientContext call;
  v1::ListPipelinesResponse pipelines;
  if (!(*control)->ListPipelines(&call, {}, &pipelines).ok()) return {};
  return {pipelines.names().begin(), pipelines.names().end()};
}

template <typename Entry>
json ListJson(json (*to_json)(const std::string&, const Entry&)) {
  json list = json::array();
  for (const std::string& name : Registry<Entry>::Get().Names()) {
    list.push_back(to_json(name, *Registry<Entry>::Get().Find(name)));
  }
  return list;
}

template <typename Entry>
void PrintList(const std::string& title) {
  const std::vector<std::string> names = Registry<Entry>::Get().Names();
  size_t width = 0;
  for (const std::string& name : names) width = std::max(width, name.size());
  std::cout << Bold(title) << "\n";
  for (const std::string& name : names) {
    // The summary hangs beside the name.
    const std::string summary =
        Wrapped(Registry<Entry>::Get().Find(name)->summary, width + 4).substr(width + 4);
    std::cout << "  " << Padded(name, width + 2) << summary;
  }
}

void PrintPipelineNames(const std::vector<std::string>& names) {
  std::cout << Bold("pipelines of the daemon") << "\n";
  for (const std::string& name : names) std::cout << "  " << server::Escaped(name) << "\n";
  if (names.empty()) std::cout << "  none, or no daemon answers\n";
}

// What there is, of one kind or, with "", of all.
absl::Status List(const Context& context, const std::string& kind, const std::string& config) {
  const bool all = kind.empty();
  if (all || kind == "op") FW_RETURN_IF_ERROR(FindMoreOps({config, context.address}).status());
  std::vector<std::string> pipelines;
  if (all || kind == "pipeline") pipelines = PipelineNames(context);
  if (context.json) {
    json document = json::object();
    if (all || kind == "op") document["ops"] = ListJson<OpEntry>(OpJson);
    if (all || kind == "format") document["formats"] = ListJson<FormatEntry>(FormatJson);
    if (all || kind == "pipeline") document["pipelines"] = pipelines;
    PrintJson(document);
    return absl::OkStatus();
  }
  if (all || kind == "op") PrintList<OpEntry>("ops");
  if (all) std::cout << "\n";
  if (all || kind == "format") PrintList<FormatEntry>("formats");
  if (all) std::cout << "\n";
  if (all || kind == "pipeline") PrintPipelineNames(pipelines);
  if (all) std::cout << "\n`feedwater describe NAME` explains one of them.\n";
  return absl::OkStatus();
}

template <typename Entry>
absl::Status DescribeEntry(const Context& context, const std::string& name,
                           json (*to_json)(const std::string&, const Entry&),
                           void (*print)(const std::string&, const Entry&)) {
  const Entry* entry = Registry<Entry>::Get().Find(name);
  if (entry == nullptr) return absl::InvalidArgumentError(Registry<Entry>::Get().Unknown(name));
  if (context.json) {
    PrintJson(to_json(name, *entry));
  } else {
    print(name, *entry);
  }
  return absl::OkStatus();
}

// A name that another library has for an op, or for something that comes near to one.
absl::Status DescribeOtherName(const Context& context,
                               const std::vector<server::OpOfOtherName>& found) {
  for (const server::OpOfOtherName& one : found)
    if (!context.json) std::cout << Wrapped(one.Text() + ".", 0);
  if (!context.json) std::cout << "\n";
  return DescribeEntry<OpEntry>(context, found[0].op->name, OpJson, PrintOp);
}

// A name that is no op's and no format's: perhaps a pipeline's, perhaps misspelt.
absl::Status DescribePipelineOrSuggest(const Context& context, const std::string& name,
                                       const std::string& config) {
  const absl::Status status = DescribePipeline(context, name, config);
  if (status.ok() || IsPipelineFile(name)) return status;
  std::vector<std::string> known = Registry<OpEntry>::Get().Names();
  const std::vector<std::string> formats = Registry<FormatEntry>::Get().Names();
  known.insert(known.end(), formats.begin(), formats.end());
  const std::string near = server::DidYouMean(name, known);
  if (near.empty()) {
    return {status.code(),
            absl::StrCat("no op, no format and no file is called '", server::Printable(name),
                         "'. As a pipeline's name: ", status.message())};
  }
  return absl::InvalidArgumentError(absl::StrCat("no op and no format is called '",
                                                 server::Printable(name), "'", near,
                                                 " As a pipeline's name: ", status.message()));
}

absl::Status Describe(const Context& context, const Arguments& arguments) {
  std::string kind = arguments.kind, name = arguments.name;
  const std::string& config = arguments.config;
  const bool guess = arguments.guess;
  const std::vector<std::string> kinds = {"op", "format", "pipeline", "dataset"};
  if (kind == "dataset") return DescribeDatasetOf(context, {name, config, guess});
  if (guess) return absl::InvalidArgumentError("--guess goes with `describe dataset FOLDER`");
  if (arguments.cost) {
    if (kind == "pipeline") std::swap(kind, name);
    if (kind.empty() || (!name.empty() && name != "pipeline"))
      return absl::InvalidArgumentError("--cost goes with `describe PIPELINE`");
    return DescribeCost(context, kind, {config, context.address}, arguments.samples);
  }
  const bool is_kind = std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  if (kind.empty() || (is_kind && name.empty())) return List(context, kind, config);
  const bool names_kind = !name.empty();
  if (!names_kind) name = kind;
  // What is not built in may be of a plug-in.
  const bool may_be_op = names_kind ? kind == "op" : !IsPipelineFile(name);
  const bool is_known = Registry<OpEntry>::Get().Find(name) != nullptr ||
                        Registry<FormatEntry>::Get().Find(name) != nullptr;
  if (may_be_op && (!is_known || !config.empty()))
    FW_RETURN_IF_ERROR(FindMoreOps({config, context.address}).status());
  if (may_be_op && !is_known && Registry<OpEntry>::Get().Find(name) == nullptr) {
    const std::vector<server::OpOfOtherName> found = server::FindByOtherName(name);
    if (!found.empty()) return DescribeOtherName(context, found);
    if (kind == "op") return absl::InvalidArgumentError(server::UnknownOp(name));
  }
  if (!names_kind) {  // `describe resize`: the kind is found by the name
    kind = Registry<OpEntry>::Get().Find(name) != nullptr       ? "op"
           : Registry<FormatEntry>::Get().Find(name) != nullptr ? "format"
                                                                : "";
  }
  if (kind == "op") return DescribeEntry<OpEntry>(context, name, OpJson, PrintOp);
  if (kind == "format") return DescribeEntry<FormatEntry>(context, name, FormatJson, PrintFormat);
  if (kind == "pipeline") return DescribePipeline(context, name, config);
  if (kind.empty()) return DescribePipelineOrSuggest(context, name, config);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown kind '", kind, "'", server::Suggest(kind, kinds)));
}

void AddDescribe(CLI::App& app, Context& context) {
  static Arguments arguments;
  CLI::App* command = AddCommand(
      app, context, "describe",
      "explain an op, a format, a pipeline or a dataset; without a name, list them",
      "  feedwater describe\n"
      "  feedwater describe op\n"
      "  feedwater describe op random_resized_crop\n"
      "  feedwater describe format image_folder\n"
      "  feedwater describe pipeline imagenet-train --json   # as the daemon has it\n"
      "  feedwater describe pipelines/mnist.yaml --config feedwater.yaml   # without one\n"
      "  feedwater describe pipelines/mnist.yaml --config feedwater.yaml --cost   # what takes the "
      "time\n"
      "  feedwater describe dataset imagenet-train --config feedwater.yaml   # its fields, its "
      "first "
      "records\n"
      "  feedwater describe dataset /data/shards --guess   # what it is, and how to read it",
      [&context] { return Describe(context, arguments); });
  command
      ->add_option("kind", arguments.kind,
                   "op, format, pipeline or dataset; may be left out where the name says it")
      ->type_name("KIND");
  command
      ->add_option("name", arguments.name, "which one; a pipeline by its name or by its .yaml file")
      ->type_name("NAME");
  command->add_flag("--guess", arguments.guess,
                    "with dataset: NAME is a folder or file of data; find out its format");
  command
      ->add_option(
          "--config", arguments.config,
          "the daemon's configuration: describe the pipeline and its data without a daemon, and "
          "ops of the daemon's plug-ins")
      ->type_name("FILE");
  AddCostOptions(command, &arguments.cost, &arguments.samples,
                 "of a pipeline: run its graph over some records on one CPU, up to a minute long; "
                 "what each op takes of a sample, and what would make it cheaper");
}

const server::Registrar<CommandEntry> kRegistrar("describe",
                                                 {CommandEntry::kPipelines, AddDescribe});

}  // namespace

}  // namespace feedwater::cli
