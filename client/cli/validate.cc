// feedwater validate: checks a pipeline file without a daemon, and with --config also the data that
// it names.
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "client/cli/local_pipeline.h"
#include "server/base/escape.h"
#include "server/base/units.h"
#include "server/graph/advice.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;

// What is valid and will not work all the same, or is probably not meant.
absl::StatusOr<std::vector<std::string>> Warnings(const PlannedPipeline& result,
                                                  int64_t world_size) {
  std::vector<std::string> warnings = server::AdviceOn(result.spec);
  const int64_t batch_size = result.spec.batch_size;
  if (result.dataset == nullptr || batch_size == 0) return warnings;
  FW_ASSIGN_OR_RETURN(const server::OrderConfig order,
                      server::MakeOrderConfig(result.spec.sampler, result.records, batch_size,
                                              world_size, result.dataset->shard_starts()));
  const int64_t steps = server::StepsPerEpoch(order);
  const int64_t left_out = result.records - steps * batch_size * world_size;
  if (steps > 0 && left_out > 0 && order.shuffle == server::Shuffle::kNone) {
    warnings.push_back(absl::StrCat(
        "an epoch leaves out the last ", left_out, " of the ",
        server::FormatCount(result.records, "record"),
        ", always the same ones: with `last: drop` batches of ", batch_size, " x ",
        server::FormatCount(world_size, "rank"),
        " do not come out even; to see every record take `sampler: {last: pad}`, whose `is_real` "
        "says which samples count, or `partial`"));
  }
  if (steps > 0) return warnings;
  warnings.push_back(
      absl::StrCat("batch.size ", batch_size, " x ", server::FormatCount(world_size, "rank"),
                   " is more than the ", server::FormatCount(result.records, "record"),
                   ": with `last: drop` there is no full batch and no stream can be opened; take a "
                   "smaller size, or `sampler: {last: pad}` or `partial`"));
  return warnings;
}

json ToJson(const std::string& file, const PlannedPipeline& result,
            const std::vector<std::string>& warnings) {
  json fields = json::array();
  if (result.plan != nullptr) {
    for (const server::FieldSpec& field : result.plan->outputs()) {
      fields.push_back(
          {{"name", field.name},
           {"dtype", std::string(server::DTypeName(field.spec.dtype))},
           {"shape", std::vector<int64_t>(field.spec.shape.begin(), field.spec.shape.end())}});
    }
  }
  json document = {
      {"file", file},
      {"valid", true},
      {"pipeline", result.spec.name},
      {"digest", result.spec.digest},
      {"fields", fields},
      {"warnings", warnings},
      {"plan", result.plan != nullptr ? result.plan->Describe() : std::vector<std::string>()}};
  if (result.dataset != nullptr) {
    document["records"] = result.records;
    document["notes"] = result.dataset->notes();
  }
  return document;
}

void PrintText(const std::string& file, const PlannedPipeline& result,
               const std::vector<std::string>& warnings) {
  std::cout << server::Escaped(file) << ": " << Bold("valid");
  if (result.dataset != nullptr) {
    std::cout << ", " << server::FormatCount(result.records, "record");
  } else {
    std::cout << "; the dataset was not looked at (--config feedwater.yaml opens it, too)";
  }
  std::cout << "\n";
  if (result.dataset != nullptr && !result.dataset->notes().empty())
    std::cout << "  " << server::Escaped(result.dataset->notes()) << "\n";
  if (result.plan == nullptr) {
    std::cout
        << "  keys, ops and parameters were checked; types and shapes only the dataset's files "
           "tell\n";
  } else {
    for (const std::string& step : result.plan->Describe())
      std::cout << "  " << server::Escaped(step) << "\n";
    std::cout << "outputs, one sample:\n";
    for (const server::FieldSpec& field : result.plan->outputs())
      std::cout << "  " << field.name << "  " << field.spec.ToString() << "\n";
  }
  for (const std::string& warning : warnings)
    std::cerr << "warning: " << server::EscapedLines(warning) << "\n";
}

void AddValidate(CLI::App& app, Context& context) {
  static std::string file, config;
  static int64_t world_size = 1;
  CLI::App* command = AddCommand(
      app, context, "validate",
      "check a pipeline file: keys, ops, parameters, types and shapes; needs no daemon",
      "  feedwater validate pipelines/imagenet-train.yaml\n"
      "  feedwater validate pipelines/imagenet-train.yaml --config "
      "/etc/feedwater/feedwater.yaml   # and that its data is there",
      [&context]() -> absl::Status {
        absl::StatusOr<PlannedPipeline> result =
            PlanPipeline(file, {config, context.address}, /*needs_plan=*/false);
        // Whatever is wrong here is wrong with the input.
        if (!result.ok()) return absl::InvalidArgumentError(result.status().message());
        FW_ASSIGN_OR_RETURN(const std::vector<std::string> warnings, Warnings(*result, world_size));
        if (context.json) {
          std::cout << ToJson(file, *result, warnings).dump(2) << "\n";
        } else {
          PrintText(file, *result, warnings);
        }
        return absl::OkStatus();
      });
  command->add_option("file", file, "the pipeline file")->required()->type_name("FILE");
  command
      ->add_option("--config", config,
                   "the daemon's configuration: also opens the dataset below its roots")
      ->type_name("FILE");
  command
      ->add_option("--world-size", world_size,
                   "with --config: ranks that will share an epoch, to see whether it has a full "
                   "batch for all")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
}

const server::Registrar<CommandEntry> kRegistrar("validate",
                                                 {CommandEntry::kPipelines, AddValidate});

}  // namespace

}  // namespace feedwater::cli
