// feedwater validate: checks pipeline files without a daemon, and with --config also the data that
// they name.
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "client/cli/json_text.h"
#include "client/cli/local_pipeline.h"
#include "client/cli/mix_text.h"
#include "client/cli/text.h"
#include "server/base/escape.h"
#include "server/base/units.h"
#include "server/graph/advice.h"
#include "server/pipeline/dataset_order.h"
#include "server/service/messages.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;

// What is said of a valid file.
struct Findings {
  std::optional<server::OrderConfig> order;  // where dataset and batch size are known
  std::vector<std::string> warnings;
  v1::DescribePipelineResponse
      epoch;  // its length, and a mix's sources, where the dataset is known
};

// What will not work all the same, or is probably not meant.
std::vector<std::string> WarningsOf(const server::OrderConfig& order) {
  std::vector<std::string> warnings;
  const int64_t steps = server::StepsPerEpoch(order), left_out = server::LeftOut(order);
  if (steps > 0 && left_out > 0 && order.shuffle == server::Shuffle::kNone) {
    warnings.push_back(absl::StrCat(
        "an epoch leaves out the last ", left_out, " of the ",
        server::FormatCount(order.positions(), order.mix == nullptr ? "record" : "sample"),
        ", always the same ones: with `last: drop` batches of ", order.batch_size, " x ",
        server::FormatCount(order.world_size, "rank"),
        " do not come out even; to see every record take `sampler: {last: pad}`, whose `is_real` "
        "says which samples count, or `partial`"));
  }
  if (steps == 0) {
    warnings.push_back(absl::StrCat(
        "batch.size ", order.batch_size, " x ", server::FormatCount(order.world_size, "rank"),
        " is more than the ",
        server::FormatCount(order.positions(), order.mix == nullptr ? "record" : "sample"),
        order.mix == nullptr ? "" : " of an epoch",
        ": with `last: drop` there is no full batch and no stream can be opened; take a "
        "smaller size, or `sampler: {last: pad}` or `partial`"));
  }
  if (std::string advice = server::AdviceOn(order); !advice.empty())
    warnings.push_back(std::move(advice));
  return warnings;
}

absl::StatusOr<Findings> LookAt(const PlannedPipeline& result, int64_t world_size) {
  Findings findings{std::nullopt, server::AdviceOn(result.spec), {}};
  if (result.dataset == nullptr) {
    // The file may be for another machine.
    for (const std::string& missing : MissingRoots(result.spec.dataset)) {
      findings.warnings.push_back(
          absl::StrCat(missing, "; right where the machine that trains has it, else correct it"));
    }
    return findings;
  }
  for (std::string& warning : server::AdviceOnMoves(result.spec, result.dataset->fields()))
    findings.warnings.push_back(std::move(warning));
  FW_RETURN_IF_ERROR(server::TellMix(*result.dataset, &findings.epoch));
  if (result.spec.batch_size == 0) return findings;
  FW_ASSIGN_OR_RETURN(findings.order, server::MakeOrderConfig(result.spec.sampler, *result.dataset,
                                                              result.spec.batch_size, world_size));
  for (std::string& warning : WarningsOf(*findings.order))
    findings.warnings.push_back(std::move(warning));
  return findings;
}

json ToJson(const std::string& file, const PlannedPipeline& result, const Findings& findings) {
  json fields = json::array();
  if (result.plan != nullptr) {
    for (const server::FieldSpec& field : result.plan->outputs()) {
      fields.push_back(
          {{"name", field.name},
           {"dtype", std::string(server::DTypeName(field.spec.dtype))},
           {"shape", std::vector<int64_t>(field.spec.shape.begin(), field.spec.shape.end())}});
      if (field.is_ragged()) fields.back()["max_rows"] = field.max_rows;
    }
  }
  json document = {
      {"file", file},
      {"valid", true},
      {"pipeline", result.spec.name},
      {"digest", result.spec.digest},
      {"fields", fields},
      {"warnings", findings.warnings},
      {"plan", result.plan != nullptr ? result.plan->Describe() : std::vector<std::string>()}};
  if (result.dataset != nullptr) {
    document["records"] = result.records;
    if (const json mix = MixJson(findings.epoch); !mix.is_null()) {
      document["mix"] = mix;
      document["positions_per_epoch"] = findings.epoch.positions_per_epoch();
    }
    document["notes"] = result.dataset->notes();
  }
  if (findings.order.has_value()) {
    document["steps_per_epoch"] = server::StepsPerEpoch(*findings.order);
    document["left_out"] = server::LeftOut(*findings.order);
  }
  return document;
}

void PrintText(const std::string& file, const PlannedPipeline& result, const Findings& findings) {
  std::cout << server::Escaped(file) << ": " << Bold("valid");
  if (result.dataset != nullptr) {
    std::cout << ", " << server::FormatCount(result.records, "record");
  } else {
    const bool is_alone = result.spec.files().empty();
    std::cout << "; the dataset" << (is_alone ? " was" : " and files of ops were")
              << " not looked at";
    // A root by its path is opened without, where it is here.
    if (MissingRoots(result.spec.dataset).empty()) {
      std::cout << " (--config feedwater.yaml opens " << (is_alone ? "it" : "them") << ", too)";
    }
  }
  std::cout << "\n";
  if (result.dataset != nullptr && !result.dataset->notes().empty())
    std::cout << "  " << server::Escaped(result.dataset->notes()) << "\n";
  if (findings.epoch.mix_size() > 0) {
    std::cout << "  a mix, " << server::FormatCount(findings.epoch.positions_per_epoch(), "sample")
              << " an epoch:\n";
    for (const std::string& line : MixLines(findings.epoch)) std::cout << "    " << line << "\n";
  }
  if (findings.order.has_value()) {
    std::cout << "  an epoch: "
              << server::FormatCount(server::StepsPerEpoch(*findings.order), "step") << ", "
              << server::LeftOut(*findings.order) << " of "
              << server::FormatCount(findings.order->positions(), "sample") << " left out\n";
  }
  if (result.plan == nullptr) {
    std::cout
        << "  keys, ops and parameters were checked; types and shapes only the dataset's files "
           "tell\n";
  } else {
    for (const std::string& step : result.plan->Describe())
      std::cout << StepLines("  ", server::Escaped(step));
    std::cout << "outputs, one sample:\n";
    for (const server::FieldSpec& field : result.plan->outputs())
      std::cout << "  " << field.name << "  " << field.ShapeText() << "\n";
  }
  for (const std::string& warning : findings.warnings)
    std::cerr << "warning: " << server::EscapedLines(warning) << "\n";
}

// Of one file: the document, or text on stdout.
absl::StatusOr<json> Validate(const std::string& file, const ConfigChoice& config,
                              int64_t world_size, bool as_json) {
  absl::StatusOr<PlannedPipeline> result = PlanPipeline(file, config, /*needs_plan=*/false);
  // Whatever is wrong here is wrong with the input.
  if (!result.ok()) return absl::InvalidArgumentError(result.status().message());
  FW_ASSIGN_OR_RETURN(const Findings findings, LookAt(*result, world_size));
  if (as_json) return ToJson(file, *result, findings);
  PrintText(file, *result, findings);
  return json();
}

void AddValidate(CLI::App& app, Context& context) {
  static std::vector<std::string> files;
  static std::string config;
  static int64_t world_size = 1;
  CLI::App* command =
      AddCommand(app, context, "validate",
                 "check pipeline files: keys, ops, parameters, types and shapes; needs no daemon",
                 "  feedwater validate pipelines/*.yaml\n"
                 "  feedwater validate pipelines/imagenet-train.yaml --config "
                 "/etc/feedwater/feedwater.yaml   # and that its data is there",
                 [&context]() -> absl::Status {
                   json documents = json::array();
                   for (const std::string& file : files) {
                     absl::StatusOr<json> document =
                         Validate(file, {config, context.address}, world_size, context.json);
                     if (!document.ok()) {
                       if (files.size() == 1) return document.status();
                       if (!context.json) context.Finish(document.status());
                       context.exit_status = 2;
                       document = {{"file", file},
                                   {"valid", false},
                                   {"error", std::string(document.status().message())}};
                     }
                     documents.push_back(*std::move(document));
                   }
                   if (context.json) PrintJson(files.size() == 1 ? documents[0] : documents);
                   return absl::OkStatus();
                 });
  command->add_option("file", files, "the pipeline file, or several")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--config", config,
                   "the daemon's configuration: also opens the dataset below its roots")
      ->type_name("FILE");
  command
      ->add_option("--world-size", world_size,
                   "with --config: ranks that will share an epoch, to see whether each has full "
                   "batches, and how many samples are left out")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
}

const server::Registrar<CommandEntry> kRegistrar("validate",
                                                 {CommandEntry::kPipelines, AddValidate});

}  // namespace

}  // namespace feedwater::cli
