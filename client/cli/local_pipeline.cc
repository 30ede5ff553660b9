#include "client/cli/local_pipeline.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/status_document.h"
#include "client/cpp/address.h"
#include "server/base/escape.h"
#include "server/base/no_throw.h"
#include "server/base/yaml.h"
#include "server/decoder/in_process_maker.h"
#include "server/decoder/isolated_maker.h"
#include "server/graph/plugin_file.h"
#include "server/graph/verified_record.h"
#include "server/pipeline/cache_choice.h"
#include "server/pipeline/dataset_order.h"
#include "server/service/batch_check.h"
#include "server/service/catalogue.h"
#include "server/service/runtime_dir.h"

namespace feedwater::cli {
namespace {

using server::Annotate;

constexpr const char* kInstalledConfig = "/etc/feedwater/feedwater.yaml";
constexpr const char* kPrivateConfig =
    "{version: 1, pipelines: [], roots: {}, absolute_roots: true}";
constexpr const char* kConfigVariable = "FEEDWATER_CONFIG";
constexpr int64_t kAssumedClasses = 1000;
constexpr size_t kEngineDepth = 64;
constexpr std::chrono::seconds kPatience(2);  // with a daemon whose configuration would be taken

absl::StatusOr<std::string> FindByName(const std::string& name, const server::Settings& settings) {
  const auto files = server::FindPipelineFiles({settings.config.pipelines, settings.file});
  const auto found = files.find(name);
  if (found != files.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, file] : files) names.push_back(known);
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown pipeline '", server::Printable(name), "'", server::Suggest(name, names),
      "; looked in ", absl::StrJoin(settings.config.pipelines, ", "),
      " (a pipeline's file is given by its path, such as ./", server::Printable(name), ".yaml)"));
}

// A file or folder that is not there was named by somebody who can name another one.
absl::Status AsInvalidInput(const absl::Status& status) {
  return absl::IsNotFound(status) ? absl::InvalidArgumentError(status.message()) : status;
}

// What is wrong, for this user, with plug-ins that the daemon may have: worth saying where an op is
// missing, and only there.
std::set<std::string>& PluginsLeftOut() {
  static auto* left_out = new std::set<std::string>;
  return *left_out;
}

void TellOfPluginsLeftOut() {
  for (const std::string& why : std::exchange(PluginsLeftOut(), {}))
    std::cerr << "warning: this command has none of its ops: " << server::EscapedLines(why) << "\n";
}

// `roots`: where files that ops name are read; null: they are not.
absl::StatusOr<server::PipelineSpec> ReadSpec(const std::string& file,
                                              const server::Roots* roots = nullptr) {
  std::optional<server::RootFiles> files;
  if (roots != nullptr) files.emplace(*roots, nullptr);
  absl::StatusOr<server::PipelineSpec> spec =
      server::ReadPipelineFile(file, {}, files.has_value() ? &*files : nullptr);
  if (!spec.ok()) {
    TellOfPluginsLeftOut();
    return AsInvalidInput(spec.status());
  }
  return spec;
}

// What the running daemon was started with. DeadlineExceeded where one listens that does not
// answer.
absl::StatusOr<ConfigSource> DaemonConfig(const std::string& address) {
  FW_ASSIGN_OR_RETURN(const std::string folder, FindAddress(address));
  const auto status = GetStatus(*ConnectControl(folder), kPatience);
  if (absl::IsDeadlineExceeded(status.status())) {
    return absl::DeadlineExceededError(absl::StrCat(
        "the daemon at ", folder, " has not answered within ", kPatience.count(), " seconds"));
  }
  if (!status.ok()) return ExplainNoAnswer(status.status(), folder);
  if (access(status->config_file().c_str(), R_OK) != 0) {
    const int error = errno;
    return absl::PermissionDeniedError(
        absl::StrCat("the daemon at ", folder, " was started with ", status->config_file(),
                     ", which cannot be read here: ", std::strerror(error)));
  }
  const auto& overrides = status->config_overrides();
  return ConfigSource{status->config_file(), {overrides.begin(), overrides.end()}};
}

// None: none is there. InvalidArgument where that of a certain daemon was to be taken, and cannot
// be had: another one knows other data by the same names.
absl::StatusOr<std::optional<ConfigSource>> LookForConfig(const ConfigChoice& choice) {
  if (!choice.given.empty()) return ConfigSource{choice.given, {}};
  const char* variable = std::getenv(kConfigVariable);
  if (variable != nullptr && variable[0] != '\0') return ConfigSource{variable, {}};
  const absl::StatusOr<ConfigSource> of_daemon = DaemonConfig(choice.address);
  if (of_daemon.ok()) return *of_daemon;
  const bool is_named = !choice.address.empty() || !AddressOfEnvironment().empty();
  if (is_named || absl::IsDeadlineExceeded(of_daemon.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat("no configuration: that of ",
                     !is_named                ? "the daemon that runs"
                     : choice.address.empty() ? "the daemon that $FEEDWATER_ADDRESS names"
                                              : "the daemon that --address names",
                     " is taken, and cannot be had: ", of_daemon.status().message(),
                     ". Give --config FILE, or $", kConfigVariable));
  }
  if (access(kInstalledConfig, F_OK) == 0) return ConfigSource{kInstalledConfig, {}};
  return std::nullopt;
}

// The absolute roots of a dataset, or of the sources of a mix.
std::vector<const server::YamlNode*> AbsoluteRoots(const server::YamlNode& dataset) {
  std::vector<const server::YamlNode*> roots;
  if (!dataset.is_map()) return roots;
  if (const server::YamlNode* mix = dataset.Find("mix"); mix != nullptr) {
    for (const server::YamlNode& source : mix->items) {
      for (const server::YamlNode* root : AbsoluteRoots(source)) roots.push_back(root);
    }
    return roots;
  }
  const server::YamlNode* root = dataset.Find("root");
  if (root != nullptr && root->is_scalar() && absl::StartsWith(root->scalar, "/"))
    roots.push_back(root);
  return roots;
}

// A configuration decides what is read, with its limits and its isolation, also where it was only
// found: the caller's own rights are taken where there is none.
absl::Status RefusedRoot(const std::string& file, const ConfigSource& source,
                         const ConfigChoice& choice) {
  const char* variable = choice.given.empty() ? std::getenv(kConfigVariable) : nullptr;
  const bool is_of_variable = variable != nullptr && source.file == variable;
  return absl::InvalidArgumentError(absl::StrCat(
      file, ": the dataset's root is an absolute path, and ", source.file,
      is_of_variable ? absl::StrCat(" ($", kConfigVariable, ")") : "",
      " does not admit such roots (`absolute_roots: false`). To read it with your own rights, as a "
      "private daemon does, ",
      is_of_variable ? absl::StrCat("unset ", kConfigVariable, " or ") : "",
      "give its path and, with --config, a file of your own that says `", kPrivateConfig, "`"));
}

absl::StatusOr<std::shared_ptr<const server::Plan>> PlanOver(const server::PipelineSpec& spec,
                                                             const server::Dataset& dataset) {
  return server::Plan::Create(spec, dataset.fields(),
                              static_cast<int64_t>(dataset.classes().size()));
}

absl::StatusOr<std::shared_ptr<const server::LoadedPipeline>> Load(
    server::PipelineSpec spec, const server::DatasetOptions& options) {
  // A broken graph is found before the dataset is indexed.
  FW_RETURN_IF_ERROR(server::Plan::Validate(spec));
  auto loaded = std::make_shared<server::LoadedPipeline>();
  loaded->spec = std::move(spec);
  absl::StatusOr<std::shared_ptr<const server::Dataset>> dataset =
      server::OpenDataset(loaded->spec.dataset, options);
  if (!dataset.ok()) return AsInvalidInput(dataset.status());
  loaded->dataset = *std::move(dataset);
  FW_RETURN_IF_ERROR(server::MixOrderOf(*loaded->dataset).status());
  FW_ASSIGN_OR_RETURN(loaded->plan, PlanOver(loaded->spec, *loaded->dataset));
  return loaded;
}

ConfigSource WithStateDir(ConfigSource source, const ConfigChoice& choice) {
  if (choice.state_dir.empty()) return source;
  const nlohmann::json folder = choice.state_dir;  // as YAML takes it
  source.overrides.push_back(absl::StrCat(
      "state_dir=", folder.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  return source;
}

// That an index can be saved where the daemon finds it. What this user makes within a folder of
// somebody else, the daemon might neither read nor replace.
absl::Status MakeStateDir(const std::string& state_dir) {
  std::filesystem::path there = state_dir;
  std::error_code error;
  while (!std::filesystem::exists(there, error) && !error && there.has_relative_path())
    there = there.parent_path();
  if (!IsOwnFolder(there)) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the index could not be saved in state_dir = ", server::Printable(state_dir), ": ",
        there == state_dir ? "that" : absl::StrCat("it is not there yet, and ", there.string()),
        " is not a folder of this user. Run this as the daemon's user (runuser -u feedwater -- "
        "feedwater index ...), and give --state-dir DIR where the daemon's is another one"));
  }
  return there == state_dir ? absl::OkStatus() : server::MakeFolder(state_dir);
}

// What the file gives the daemon, but no more than this process has.
std::shared_ptr<server::MemoryBudget> NewBudget(const server::Settings& settings) {
  return server::MemoryBudget::Create(
      std::min(settings.memory_limit_bytes, server::MemoryLimitBytes()));
}

// Where the daemon would isolate images, so does this program.
absl::Status FindDecodersFor(LocalPipeline* local, bool reads_images) {
  if (!reads_images || !IsolatesImages(local->settings.config, local->settings.access))
    return absl::OkStatus();
  FW_ASSIGN_OR_RETURN(local->decoders, server::FindDecoders(local->budget));
  return absl::OkStatus();
}

}  // namespace

bool HasAbsoluteRoot(const server::YamlNode& dataset) { return !AbsoluteRoots(dataset).empty(); }

std::vector<std::string> MissingRoots(const server::YamlNode& dataset) {
  std::vector<std::string> missing;
  for (const server::YamlNode* root : AbsoluteRoots(dataset)) {
    std::error_code error;
    if (std::filesystem::is_directory(root->scalar, error)) {
      if (access(root->scalar.c_str(), R_OK | X_OK) == 0) continue;
      error = std::error_code(errno, std::generic_category());
    }
    missing.push_back(
        absl::StrCat(root->Where(), ": the root '", server::Printable(root->scalar),
                     "' cannot be read here: ", error ? error.message() : "it is no folder"));
  }
  return missing;
}

bool IsOwnFolder(const std::string& folder) {
  struct stat info;
  return stat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

bool IsPipelineFile(const std::string& pipeline) {
  return absl::StrContains(pipeline, '/') || absl::EndsWith(pipeline, ".yaml") ||
         absl::EndsWith(pipeline, ".yml");
}

absl::StatusOr<ConfigSource> FindConfig(const ConfigChoice& choice) {
  FW_ASSIGN_OR_RETURN(std::optional<ConfigSource> found, LookForConfig(choice));
  if (found.has_value()) return *std::move(found);
  return absl::InvalidArgumentError(absl::StrCat(
      "no configuration: the dataset is opened below the roots that feedwater.yaml declares. Name "
      "it with --config FILE or $FEEDWATER_CONFIG; no daemon runs whose file could be taken, and "
      "there is no ",
      kInstalledConfig, " (`feedwaterd --print-config` writes one to start from)"));
}

absl::StatusOr<ConfigSource> FindConfigFor(const std::string& pipeline_file,
                                           const ConfigChoice& choice) {
  const absl::StatusOr<ConfigSource> source = FindConfig(choice);
  if (source.ok()) return source;
  // What is wrong with the pipeline is worth saying even without a configuration.
  FW_ASSIGN_OR_RETURN(const server::PipelineSpec spec, ReadSpec(pipeline_file));
  if (!HasAbsoluteRoot(spec.dataset)) return source.status();
  return ConfigSource();
}

absl::StatusOr<server::Settings> LoadConfig(const ConfigSource& source) {
  if (!source.file.empty())
    return server::LoadSettings(source.file, source.overrides, server::Purpose::kCommand);
  return server::ParseSettings(kPrivateConfig, "the configuration of a private daemon",
                               source.overrides, server::Purpose::kCommand);
}

absl::Status LoadPluginsHere(const server::Settings& settings) {
  std::vector<std::string> left_out;
  FW_RETURN_IF_ERROR(server::LoadPlugins(settings, &left_out));
  PluginsLeftOut().insert(left_out.begin(), left_out.end());
  return absl::OkStatus();
}

absl::StatusOr<server::Settings> ReadConfig(const ConfigSource& source) {
  absl::StatusOr<server::Settings> settings = LoadConfig(source);
  if (!settings.ok()) return AsInvalidInput(settings.status());
  FW_RETURN_IF_ERROR(LoadPluginsHere(*settings));
  return settings;
}

absl::StatusOr<bool> FindMoreOps(const ConfigChoice& choice) {
  const size_t before = server::LoadedPlugins().size();
  const absl::StatusOr<std::optional<ConfigSource>> source = LookForConfig(choice);
  // A daemon that nobody named here, and that is not there, has no more ops.
  const bool is_named = !choice.given.empty() || !choice.address.empty();
  if (source.ok() ? !source->has_value() : !is_named) return false;
  const absl::Status read = source.ok() ? ReadConfig(**source).status() : source.status();
  if (!read.ok() && !choice.given.empty()) return read;
  if (!read.ok()) std::cerr << "warning: " << server::EscapedLines(read.message()) << "\n";
  TellOfPluginsLeftOut();
  return server::LoadedPlugins().size() > before;
}

absl::StatusOr<std::string> FindPipelineFile(const std::string& pipeline,
                                             const ConfigChoice& config) {
  if (IsPipelineFile(pipeline)) return pipeline;
  FW_ASSIGN_OR_RETURN(const std::optional<ConfigSource> source, LookForConfig(config));
  if (!source.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", server::Printable(pipeline),
                     "' is a pipeline's name and needs a configuration that knows it: give "
                     "--config FILE, or the path of the pipeline's .yaml file"));
  }
  FW_ASSIGN_OR_RETURN(const server::Settings settings, ReadConfig(*source));
  return FindByName(pipeline, settings);
}

namespace {

// Whether the configuration that is found, if any is, lets pipelines name folders by their paths.
absl::StatusOr<bool> AdmitsAbsoluteRoots(const ConfigChoice& config) {
  const absl::StatusOr<ConfigSource> source = FindConfig(config);
  if (!source.ok()) return true;  // as a private daemon does
  FW_ASSIGN_OR_RETURN(const server::Settings settings, ReadConfig(*source));
  return settings.config.absolute_roots;
}

}  // namespace

PlannedPipeline PlannedOf(const LocalPipeline& local) {
  PlannedPipeline planned;
  planned.file = local.file;
  planned.spec = local.loaded->spec;
  planned.plan = local.loaded->plan;
  planned.dataset = local.loaded->dataset;
  planned.records = planned.dataset->size();
  return planned;
}

absl::StatusOr<PlannedPipeline> PlanPipeline(const std::string& pipeline,
                                             const ConfigChoice& config, bool needs_plan) {
  PlannedPipeline result;
  LocalOptions options;
  options.config = config;
  if (!config.given.empty()) {
    FW_ASSIGN_OR_RETURN(const LocalPipeline local, OpenLocalPipeline(pipeline, options));
    FW_RETURN_IF_ERROR(server::CheckBatchFits(local.loaded->spec, local.settings));
    return PlannedOf(local);
  }
  FW_ASSIGN_OR_RETURN(result.file, FindPipelineFile(pipeline, config));
  absl::StatusOr<server::PipelineSpec> spec = ReadSpec(result.file);
  // Its ops may be those of plug-ins that the daemon has.
  if (!spec.ok() && FindMoreOps(config).value_or(false)) spec = ReadSpec(result.file);
  FW_ASSIGN_OR_RETURN(result.spec, std::move(spec));
  // No configuration need be named to find this data, where it is here and may be read.
  if (HasAbsoluteRoot(result.spec.dataset) && MissingRoots(result.spec.dataset).empty()) {
    FW_ASSIGN_OR_RETURN(const bool admits, AdmitsAbsoluteRoots(config));
    if (admits) {
      FW_ASSIGN_OR_RETURN(const LocalPipeline local, OpenLocalPipeline(pipeline, options));
      FW_RETURN_IF_ERROR(server::CheckBatchFits(local.loaded->spec, local.settings));
      return PlannedOf(local);
    }
  }
  FW_ASSIGN_OR_RETURN(const auto fields, server::DescribeDataset(result.spec.dataset));
  if (!fields && !needs_plan) return result;
  if (!fields) {
    return absl::InvalidArgumentError(
        absl::StrCat(result.file,
                     ": its files tell which fields this dataset has; name the configuration that "
                     "declares its root with --config FILE"));
  }
  FW_ASSIGN_OR_RETURN(result.plan, server::Plan::Create(result.spec, *fields, kAssumedClasses,
                                                        {.classes_are_known = false}));
  return result;
}

absl::StatusOr<LocalPipeline> OpenLocalPipeline(const std::string& pipeline,
                                                const LocalOptions& options) {
  LocalPipeline local;
  FW_ASSIGN_OR_RETURN(const ConfigSource source, IsPipelineFile(pipeline)
                                                     ? FindConfigFor(pipeline, options.config)
                                                     : FindConfig(options.config));
  FW_ASSIGN_OR_RETURN(local.settings, ReadConfig(WithStateDir(source, options.config)));
  local.file = pipeline;
  if (!IsPipelineFile(pipeline)) {
    FW_ASSIGN_OR_RETURN(local.file, FindByName(pipeline, local.settings));
  }
  FW_ASSIGN_OR_RETURN(server::PipelineSpec spec, ReadSpec(local.file));
  if (HasAbsoluteRoot(spec.dataset) && !local.settings.config.absolute_roots)
    return RefusedRoot(local.file, source, options.config);
  // Again, now that it is known where files that ops name lie.
  FW_ASSIGN_OR_RETURN(spec, ReadSpec(local.file, local.settings.roots.get()));

  const server::DaemonConfig& config = local.settings.config;
  local.budget = NewBudget(local.settings);
  local.files = std::make_shared<server::FileCache>(
      static_cast<size_t>(config.limits.max_open_files), config.storage.direct_io);
  if (options.must_save_index) FW_RETURN_IF_ERROR(MakeStateDir(config.state_dir));
  local.saves_index = IsOwnFolder(config.state_dir);
  server::DatasetOptions dataset;
  dataset.roots = local.settings.roots;
  dataset.state_dir = config.state_dir;
  dataset.save = local.saves_index;
  dataset.budget = local.budget;
  // What this user unpacks, the daemon could not remove.
  if (local.saves_index)
    dataset.staging = server::StagingArea::Below(config.state_dir, config.stage.disk.bytes);
  local.staging = dataset.staging;
  dataset.progress = options.progress;
  dataset.rebuild = options.rebuild;
  FW_ASSIGN_OR_RETURN(local.loaded, Load(std::move(spec), dataset));
  local.job = server::JobFiles::Create(local.loaded->dataset, local.files, local.budget);
  FW_RETURN_IF_ERROR(FindDecodersFor(
      &local,
      local.plan().decodes() || (options.reads_images && server::HasImages(local.dataset()))));
  return local;
}

absl::StatusOr<LocalPipeline> OpenOver(std::shared_ptr<const server::Dataset> dataset,
                                       const std::string& text, const ConfigChoice& config) {
  LocalPipeline local;
  const absl::StatusOr<ConfigSource> source = FindConfig(config);
  FW_ASSIGN_OR_RETURN(local.settings, ReadConfig(source.ok() ? *source : ConfigSource()));
  local.budget = NewBudget(local.settings);
  auto loaded = std::make_shared<server::LoadedPipeline>();
  FW_ASSIGN_OR_RETURN(loaded->spec, server::ParsePipeline(text, "pipeline"));
  FW_ASSIGN_OR_RETURN(loaded->plan, PlanOver(loaded->spec, *dataset));
  loaded->dataset = std::move(dataset);
  local.loaded = std::move(loaded);
  FW_RETURN_IF_ERROR(FindDecodersFor(&local, local.plan().decodes()));
  return local;
}

std::unique_ptr<server::SampleMaker> LocalPipeline::NewMaker(
    std::shared_ptr<const server::Plan> plan, server::DecoderSetup setup,
    server::SeekIndexes* indexes) const {
  if (decoders != nullptr) {
    auto maker = std::make_unique<server::IsolatedMaker>(decoders, std::move(plan),
                                                         std::move(setup), loaded->spec.limits);
    maker->UseSeekIndexes(indexes);
    return maker;
  }
  auto maker = std::make_unique<server::InProcessMaker>();
  maker->Use(plan.get(), indexes);
  return maker;
}

absl::Status LocalPipeline::CheckEngine() const {
  if (settings.engine.gives_bytes) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(settings.file, ": storage.engine: ", settings.engine.name,
                   " gives zeros instead of what files hold; cure: storage: {engine: auto}, or "
                   "another configuration with --config FILE"));
}

absl::StatusOr<std::unique_ptr<server::RecordReader>> LocalPipeline::NewReader() const {
  FW_RETURN_IF_ERROR(CheckEngine());
  FW_ASSIGN_OR_RETURN(std::unique_ptr<server::ReadEngine> engine,
                      server::CreateEngine(settings.engine.name, {kEngineDepth}));
  const double retry_s = settings.config.storage.retry_for.seconds;
  return std::make_unique<server::RecordReader>(
      std::move(engine), kEngineDepth, files, budget, static_cast<int64_t>(1e9 * retry_s),
      /*calls=*/nullptr, server::StorageKindOf(settings.config.storage.kind));
}

server::RuntimeOptions LocalPipeline::ForRuntime(size_t workers) const {
  server::RuntimeOptions runtime;
  runtime.cpus = settings.cpus;
  if (workers > 0 && workers < runtime.cpus.size()) runtime.cpus.resize(workers);
  runtime.pin = settings.config.pin_cpus;
  runtime.engine = settings.engine;
  runtime.direct_io = settings.config.storage.direct_io;
  runtime.storage_kind = server::StorageKindOf(settings.config.storage.kind);
  runtime.max_open_files = static_cast<size_t>(settings.config.limits.max_open_files);
  runtime.numa_node = settings.numa_node;
  runtime.shares = std::make_shared<server::UserShares>(budget);
  return runtime;
}

struct RecordLoader::Impl {
  const server::Dataset* dataset = nullptr;
  server::JobFiles* job = nullptr;
  std::unique_ptr<server::RecordReader> reader;
  server::RecordBytes bytes;
  server::Record record;
  bool holds_bytes = false;

  void Release() {
    if (std::exchange(holds_bytes, false)) reader->Release(&bytes);
  }
};

RecordLoader::RecordLoader() = default;
RecordLoader::RecordLoader(RecordLoader&&) noexcept = default;
RecordLoader::~RecordLoader() {
  if (impl_ != nullptr) impl_->Release();
}

absl::StatusOr<RecordLoader> RecordLoader::Create(const LocalPipeline& pipeline) {
  RecordLoader loader;
  loader.impl_ = std::make_unique<Impl>();
  loader.impl_->dataset = &pipeline.dataset();
  loader.impl_->job = pipeline.job.get();
  FW_ASSIGN_OR_RETURN(loader.impl_->reader, pipeline.NewReader());
  return loader;
}

absl::StatusOr<const server::Record*> RecordLoader::Load(int64_t record) {
  Impl& impl = *impl_;
  impl.Release();
  impl.reader->Start(*impl.dataset, record, &impl.bytes, impl.job);
  impl.reader->Collect();
  impl.holds_bytes = true;
  FW_RETURN_IF_ERROR(impl.bytes.status());
  FW_RETURN_IF_ERROR(server::NoThrow([&] {
    return server::ParseVerified(*impl.dataset, record, impl.bytes.extents(), &impl.record);
  }));
  return &impl.record;
}

const server::RecordBytes& RecordLoader::bytes() const { return impl_->bytes; }

}  // namespace feedwater::cli
