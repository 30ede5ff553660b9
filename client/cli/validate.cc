// feedwater validate: checks a pipeline file without a daemon, and with --config also the data that
// it names.
#include <iostream>

#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "client/cli/local_pipeline.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;

json ToJson(const std::string& file, const PlannedPipeline& result) {
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

void PrintText(const std::string& file, const PlannedPipeline& result) {
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
                   absl::StatusOr<PlannedPipeline> result = PlanPipeline(file, config);
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
