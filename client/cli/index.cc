// feedwater index: builds the indexes of datasets ahead of time, so that the first trainer does not
// wait for them.
#include <filesystem>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "client/cli/local_pipeline.h"
#include "client/cli/progress.h"
#include "server/base/clock.h"
#include "server/base/units.h"
#include "server/service/catalogue.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;

struct Indexed {
  std::string pipeline;
  LocalPipeline local;
  bool built = false;  // else the saved one was good
  double seconds = 0;
};

absl::StatusOr<Indexed> Index(const std::string& pipeline, const std::string& config, bool force) {
  Indexed result;
  Progress progress("index", "records");
  LocalOptions options;
  options.config = config;
  options.rebuild = force;
  options.progress = [&](int64_t done, int64_t total) {
    result.built = true;
    progress.Update(done, total);
  };
  const int64_t start_ns = server::MonotonicNs();
  FW_ASSIGN_OR_RETURN(result.local, OpenLocalPipeline(pipeline, options));
  result.seconds = static_cast<double>(server::MonotonicNs() - start_ns) * 1e-9;
  result.pipeline = result.local.loaded->spec.name;
  if (result.built && !result.local.saves_index) {
    return absl::PermissionDeniedError(
        absl::StrCat("the index of ", result.pipeline,
                     " was built but not saved: ", result.local.settings.config.state_dir,
                     " is not a folder of this user; run this as the daemon's user (sudo -u "
                     "feedwater feedwater index ...)"));
  }
  return result;
}

json Document(const Indexed& indexed) {
  const server::Dataset& dataset = indexed.local.dataset();
  return {{"pipeline", indexed.pipeline}, {"state", indexed.built ? "built" : "fresh"},
          {"records", dataset.size()},    {"classes", dataset.classes().size()},
          {"digest", dataset.digest()},   {"index_bytes", dataset.memory_bytes()},
          {"notes", dataset.notes()},     {"seconds", indexed.seconds}};
}

void Print(const Indexed& indexed) {
  const server::Dataset& dataset = indexed.local.dataset();
  std::cout << Bold(indexed.pipeline) << ": " << (indexed.built ? "built" : "fresh already") << ", "
            << dataset.size() << " records, " << dataset.classes().size() << " classes, index of "
            << server::FormatBytes(dataset.memory_bytes()) << ", digest " << dataset.digest()
            << ", in " << server::FormatSeconds(indexed.seconds) << "\n";
  if (!dataset.notes().empty()) std::cout << "  left out: " << dataset.notes() << "\n";
}

absl::Status IndexAll(const Context& context, std::vector<std::string> pipelines, bool all,
                      const std::string& given, bool force) {
  FW_ASSIGN_OR_RETURN(const std::string config, FindConfig(given));
  if (all) {
    FW_ASSIGN_OR_RETURN(const server::Settings settings, server::LoadSettings(config, {}));
    for (const auto& [name, file] : server::PipelineFiles(settings.config.pipelines))
      pipelines.push_back(name);
  }
  if (pipelines.empty()) return absl::InvalidArgumentError("name one or more pipelines, or --all");
  json documents = json::array();
  for (const std::string& pipeline : pipelines) {
    FW_ASSIGN_OR_RETURN(const Indexed indexed, Index(pipeline, config, force));
    if (context.json) {
      documents.push_back(Document(indexed));
    } else {
      Print(indexed);
    }
  }
  if (context.json) std::cout << json{{"indexes", documents}}.dump(2) << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddIndex(CLI::App& app, Context& context) {
  static std::vector<std::string> pipelines;
  static std::string config;
  static bool all = false, force = false;
  CLI::App* command = AddCommand(
      app, context, "index",
      "build or refresh the saved indexes of pipelines' datasets ahead of time; needs no daemon",
      "  feedwater index imagenet-train --config feedwater.yaml\n"
      "  feedwater index --all\n"
      "  feedwater index imagenet-train --force      # even when the saved one looks good\n"
      "The daemon finds them below its state_dir, also while it runs. Run it as the daemon's user.",
      [&context] { return IndexAll(context, pipelines, all, config, force); });
  command->add_option("pipelines", pipelines, "names that the configuration knows, or .yaml files")
      ->type_name("PIPELINE");
  command->add_flag("--all", all, "all pipelines of the configuration");
  command->add_option("--config", config, kConfigHelp)->type_name("FILE");
  command->add_flag("--force", force, "build anew even when the saved index fits");
}

}  // namespace feedwater::cli
