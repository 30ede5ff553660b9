// feedwater describe: ops and formats from the registries of this program, pipelines from a daemon.
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/command.h"
#include "server/base/registry.h"
#include "server/graph/op_schema.h"
#include "server/source/format.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;
using server::FormatEntry;
using server::OpEntry;
using server::ParamInfo;
using server::Registry;

// --- parameters, shared by ops and formats
// -----------------------------------------------------------------------------------

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
  if (!param.choices.empty()) return absl::StrJoin(param.choices, "|");
  if (param.low && param.high) return absl::StrCat(*param.low, "..", *param.high);
  if (param.low) return absl::StrCat(">= ", *param.low);
  if (param.high) return absl::StrCat("<= ", *param.high);
  return "";
}

void PrintParams(const std::vector<ParamInfo>& params) {
  if (!params.empty()) std::cout << "\nparameters:\n";
  for (const ParamInfo& param : params) {
    const std::string range = RangeText(param);
    std::cout << "  " << Bold(param.name) << "  " << param.type
              << (param.required
                      ? ", required"
                      : absl::StrCat(", default ",
                                     param.default_text.empty() ? "none" : param.default_text))
              << (range.empty() ? "" : absl::StrCat(", ", range)) << "\n      " << param.doc
              << "\n";
  }
}

// --- ops and formats
// ---------------------------------------------------------------------------------------------------------

std::string PortsText(const std::vector<server::Port>& ports) {
  std::vector<std::string> names;
  for (const server::Port& port : ports)
    names.push_back(port.field.empty() ? "(like its input)" : port.field);
  return absl::StrJoin(names, ", ");
}

json OpJson(const std::string& name, const OpEntry& op) {
  return {{"op", name},
          {"summary", op.summary},
          {"inputs", PortsText(op.inputs)},
          {"outputs", PortsText(op.outputs)},
          {"randomness", server::RandomnessText(op.randomness)},
          {"batch_op", op.is_batch_op},
          {"params", ParamsJson(op.params)},
          {"example", op.example}};
}

void PrintOp(const std::string& name, const OpEntry& op) {
  std::cout << Bold(name) << (op.is_batch_op ? " (in batch: graph:)" : "") << ": " << op.summary
            << "\n"
            << "  in: " << PortsText(op.inputs) << "   out: " << PortsText(op.outputs)
            << "   randomness: " << server::RandomnessText(op.randomness) << "\n";
  PrintParams(op.params);
  std::cout << "\nexample:\n  " << op.example << "\n";
}

json FormatJson(const std::string& name, const FormatEntry& format) {
  return {{"format", name},
          {"summary", format.summary},
          {"params", ParamsJson(format.params)},
          {"example", format.example}};
}

void PrintFormat(const std::string& name, const FormatEntry& format) {
  std::cout << Bold(name) << ": " << format.summary << "\n";
  PrintParams(format.params);
  std::cout << "\nexample:\n  " << format.example << "\n";
}

// --- pipelines of a daemon
// -----------------------------------------------------------------------------------------------------

std::string FieldText(const v1::Field& field) {
  std::string name = v1::DType_Name(field.dtype());
  name = name.substr(name.find('_') + 1);
  for (char& c : name) c = static_cast<char>(std::tolower(c));
  return absl::StrCat(name, "[", absl::StrJoin(field.shape(), ","), "]",
                      field.layout() == "plain" ? "" : " " + field.layout());
}

json PipelineJson(const v1::DescribePipelineResponse& pipeline) {
  json fields = json::array();
  for (const v1::Field& field : pipeline.fields()) {
    fields.push_back({{"name", field.name()},
                      {"dtype", FieldText(field).substr(0, FieldText(field).find('['))},
                      {"shape", std::vector<int64_t>(field.shape().begin(), field.shape().end())},
                      {"layout", field.layout()},
                      {"doc", field.doc()}});
  }
  return {
      {"pipeline", pipeline.name()},
      {"records", pipeline.records()},
      {"batch_size", pipeline.batch_size()},
      {"seed", pipeline.seed()},
      {"fields", fields},
      {"classes", std::vector<std::string>(pipeline.classes().begin(), pipeline.classes().end())},
      {"plan", std::vector<std::string>(pipeline.plan().begin(), pipeline.plan().end())},
      {"dataset_digest", pipeline.dataset_digest()},
      {"pipeline_digest", pipeline.pipeline_digest()},
      {"notes", pipeline.dataset_notes()}};
}

void PrintPipeline(const v1::DescribePipelineResponse& pipeline) {
  std::cout << Bold(pipeline.name()) << ": " << pipeline.records() << " records, "
            << pipeline.classes_size() << " classes, batch size "
            << (pipeline.batch_size() > 0 ? absl::StrCat(pipeline.batch_size())
                                          : "left to the trainer")
            << ", seed " << pipeline.seed() << "\n";
  if (!pipeline.dataset_notes().empty())
    std::cout << "  left out: " << pipeline.dataset_notes() << "\n";
  std::cout << "outputs, one sample:\n";
  for (const v1::Field& field : pipeline.fields()) {
    std::cout << "  " << field.name() << "  " << FieldText(field)
              << (field.doc().empty() ? "" : "  " + field.doc()) << "\n";
  }
  std::cout << "plan:\n";
  for (const std::string& step : pipeline.plan()) std::cout << "  " << step << "\n";
  std::cout << "digests:\n  dataset " << pipeline.dataset_digest() << "\n  pipeline "
            << pipeline.pipeline_digest() << "\n";
}

absl::Status DescribePipeline(const Context& context, const std::string& name) {
  auto control = context.Control();
  if (!control.ok()) return control.status();
  grpc::ClientContext call;
  v1::DescribePipelineRequest request;
  request.mutable_pipeline()->set_name(name);
  v1::DescribePipelineResponse pipeline;
  const grpc::Status got = (*control)->DescribePipeline(&call, request, &pipeline);
  if (!got.ok()) return FromGrpc(got);
  if (context.json) {
    std::cout << PipelineJson(pipeline).dump(2) << "\n";
  } else {
    PrintPipeline(pipeline);
  }
  return absl::OkStatus();
}

// The names of the daemon's pipelines; empty when no daemon answers.
std::vector<std::string> PipelineNames(const Context& context) {
  auto control = context.Control();
  if (!control.ok()) return {};
  grpc::ClientContext call;
  v1::ListPipelinesResponse pipelines;
  if (!(*control)->ListPipelines(&call, {}, &pipelines).ok()) return {};
  return {pipelines.names().begin(), pipelines.names().end()};
}

// --- the command
// ---------------------------------------------------------------------------------------------------------------

absl::Status DescribeAll(const Context& context) {
  const std::vector<std::string> pipelines = PipelineNames(context);
  if (context.json) {
    json document = {{"ops", json::array()}, {"formats", json::array()}, {"pipelines", pipelines}};
    for (const std::string& name : Registry<OpEntry>::Get().Names()) {
      document["ops"].push_back(OpJson(name, *Registry<OpEntry>::Get().Find(name)));
    }
    for (const std::string& name : Registry<FormatEntry>::Get().Names()) {
      document["formats"].push_back(FormatJson(name, *Registry<FormatEntry>::Get().Find(name)));
    }
    std::cout << document.dump(2) << "\n";
    return absl::OkStatus();
  }
  std::cout << Bold("ops") << "\n";
  for (const std::string& name : Registry<OpEntry>::Get().Names()) {
    std::cout << "  " << name << ": " << Registry<OpEntry>::Get().Find(name)->summary << "\n";
  }
  std::cout << Bold("formats") << "\n";
  for (const std::string& name : Registry<FormatEntry>::Get().Names()) {
    std::cout << "  " << name << ": " << Registry<FormatEntry>::Get().Find(name)->summary << "\n";
  }
  std::cout << Bold("pipelines of the daemon") << "\n";
  for (const std::string& name : pipelines) std::cout << "  " << name << "\n";
  if (pipelines.empty()) std::cout << "  none (or no daemon answers)\n";
  return absl::OkStatus();
}

template <typename Entry>
absl::Status DescribeEntry(const Context& context, const std::string& name,
                           json (*to_json)(const std::string&, const Entry&),
                           void (*print)(const std::string&, const Entry&)) {
  const Entry* entry = Registry<Entry>::Get().Find(name);
  if (entry == nullptr) return absl::InvalidArgumentError(Registry<Entry>::Get().Unknown(name));
  if (context.json) {
    std::cout << to_json(name, *entry).dump(2) << "\n";
  } else {
    print(name, *entry);
  }
  return absl::OkStatus();
}

absl::Status Describe(const Context& context, std::string kind, std::string name) {
  if (kind.empty()) return DescribeAll(context);
  if (name.empty()) {  // `describe resize`: the kind is found by the name
    name = kind;
    kind = Registry<OpEntry>::Get().Find(name) != nullptr       ? "op"
           : Registry<FormatEntry>::Get().Find(name) != nullptr ? "format"
                                                                : "pipeline";
  }
  if (kind == "op") return DescribeEntry<OpEntry>(context, name, OpJson, PrintOp);
  if (kind == "format") return DescribeEntry<FormatEntry>(context, name, FormatJson, PrintFormat);
  if (kind == "pipeline") return DescribePipeline(context, name);
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown kind '", kind, "'", server::Suggest(kind, {"op", "format", "pipeline"})));
}

}  // namespace

void AddDescribe(CLI::App& app, Context& context) {
  static std::string kind, name;
  CLI::App* command =
      AddCommand(app, context, "describe",
                 "explain an op, a format, or a pipeline of the daemon; without a name list all",
                 "  feedwater describe\n"
                 "  feedwater describe op random_resized_crop\n"
                 "  feedwater describe format image_folder\n"
                 "  feedwater describe pipeline imagenet-train --json",
                 [&context] { return Describe(context, kind, name); });
  command
      ->add_option("kind", kind, "op, format or pipeline; may be left out where the name says it")
      ->type_name("KIND");
  command->add_option("name", name, "which one")->type_name("NAME");
}

}  // namespace feedwater::cli
