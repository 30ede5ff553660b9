// feedwater validate: checks a pipeline file without a daemon, and with --config also the data that
// it names.
#include <iostream>

#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "server/graph/plan.h"
#include "server/service/config.h"
#include "server/source/dataset.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;

// Without data the number of classes is unknown; it only settles the width of one-hot labels.
constexpr int64_t kAssumedClasses = 1000;

struct Validated {
  server::PipelineSpec spec;
  std::shared_ptr<const server::Plan> plan;
  int64_t records = -1;  // -1: the data was not looked at
};

absl::StatusOr<Validated> Validate(const std::string& file, const std::string& config) {
  Validated result;
  FW_ASSIGN_OR_RETURN(result.spec, server::ReadPipelineFile(file));
  FW_ASSIGN_OR_RETURN(std::vector<server::FieldSpec> fields,
                      server::DescribeDataset(result.spec.dataset));
  int64_t classes = kAssumedClasses;
  if (!config.empty()) {
    FW_ASSIGN_OR_RETURN(const server::Settings settings, server::LoadSettings(config, {}));
    server::DatasetOptions options;
    options.roots = settings.roots;
    FW_ASSIGN_OR_RETURN(const std::shared_ptr<const server::Dataset> dataset,
                        server::OpenDataset(result.spec.dataset, options));
    fields = dataset->fields();
    classes = static_cast<int64_t>(dataset->classes().size());
    result.records = dataset->size();
  }
  FW_ASSIGN_OR_RETURN(result.plan, server::Plan::Create(result.spec, fields, classes));
  return result;
}

json ToJson(const std::string& file, const Validated& result) {
  json fields = json::array();
  for (const server::FieldSpec& field : result.plan->outputs()) {
    fields.push_back(
        {{"name", field.name},
         {"dtype", std::string(server::DTypeName(field.spec.dtype))},
         {"shape", std::vector<int64_t>(field.spec.shape.begin(), field.spec.shape.end())}});
  }
  json document = {{"file", file},
                   {"valid", true},
                   {"pipeline", result.spec.name},
                   {"digest", result.spec.digest},
                   {"fields", fields},
                   {"plan", result.plan->Describe()}};
  if (result.records >= 0) document["records"] = result.records;
  return document;
}

void PrintText(const std::string& file, const Validated& result) {
  std::cout << file << ": " << Bold("valid");
  if (result.records >= 0) std::cout << ", " << result.records << " records";
  std::cout << "\n";
  for (const std::string& step : result.plan->Describe()) std::cout << "  " << step << "\n";
  std::cout << "outputs, one sample:\n";
  for (const server::FieldSpec& field : result.plan->outputs()) {
    std::cout << "  " << field.name << "  " << field.spec.ToString() << "\n";
  }
}

}  // namespace

void AddValidate(CLI::App& app, Context& context) {
  static std::string file, config;
  CLI::App* command =
      AddCommand(app, context, "validate",
                 "check a pipeline file: keys, ops, parameters, types and shapes; needs no daemon",
                 "  feedwater validate pipelines/imagenet-train.yaml\n"
                 "  feedwater validate pipelines/imagenet-train.yaml --config "
                 "/etc/feedwater/feedwater.yaml   # and that its data is there",
                 [&context]() -> absl::Status {
                   absl::StatusOr<Validated> result = Validate(file, config);
                   // Whatever is wrong here is wrong with the input.
                   if (!result.ok()) return absl::InvalidArgumentError(result.status().message());
                   if (context.json) {
                     std::cout << ToJson(file, *result).dump(2) << "\n";
                   } else {
                     PrintText(file, *result);
                   }
                   return absl::OkStatus();
                 });
  command->add_option("file", file, "the pipeline file")->required()->type_name("FILE");
  command
      ->add_option("--config", config,
                   "the daemon's configuration: also opens the dataset below its roots")
      ->type_name("FILE");
}

}  // namespace feedwater::cli
