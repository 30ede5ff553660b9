// A pipeline opened in this process, for commands that work without a daemon: the file or name a
// user typed, the daemon's configuration with its roots, the dataset through its saved index, and
// the plan. Reading goes through the same engines, and below the same roots, as in the daemon.
//
// Everything is immutable once opened and shared by threads; a RecordReader belongs to the thread
// that made it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/decoder/decoder_host.h"
#include "server/decoder/decoder_setup.h"
#include "server/decoder/sample_maker.h"
#include "server/pipeline/job_files.h"
#include "server/pipeline/record_reader.h"
#include "server/pipeline/runtime.h"
#include "server/service/config.h"

namespace feedwater::cli {

// What --config says in every command's help.
inline constexpr const char* kConfigHelp =
    "the daemon's configuration, for its roots and pipelines; default $FEEDWATER_CONFIG, else that "
    "of the daemon that runs, else /etc/feedwater/feedwater.yaml";

// How a user chooses a configuration.
struct ConfigChoice {
  std::string given, address;  // --config and --address, or ""
  std::string state_dir = "";  // in place of the configuration's; "": that
};
struct ConfigSource {
  std::string file;  // "": a private daemon's, which admits absolute roots and declares none
  std::vector<std::string> overrides;
};
// The given file, else $FEEDWATER_CONFIG, else that of the daemon that runs (where this user can
// read it), else /etc/feedwater/feedwater.yaml. InvalidArgument with the cure when there is none,
// and where an address names a daemon, or one runs that does not answer, whose file cannot be had:
// another file knows other data by the same names.
absl::StatusOr<ConfigSource> FindConfig(const ConfigChoice& choice);
// The same; a private daemon's where there is none and the dataset of this pipeline's file names
// its root by an absolute path.
absl::StatusOr<ConfigSource> FindConfigFor(const std::string& pipeline_file,
                                           const ConfigChoice& choice);
absl::StatusOr<server::Settings> LoadConfig(const ConfigSource& source);
// Loads its plug-ins: from then on this program knows their ops. One that only the daemon's user
// may load is left out, which is told on stderr where an op is missing.
absl::Status LoadPluginsHere(const server::Settings& settings);
// Both.
absl::StatusOr<server::Settings> ReadConfig(const ConfigSource& source);
// Whether the configuration, the one that commands take when none is given too, has brought ops of
// plug-ins that were not known before. Where none was given, what is wrong with it is a warning on
// stderr.
absl::StatusOr<bool> FindMoreOps(const ConfigChoice& choice);

// Whether a dataset, or a source of a mix, names its root by an absolute path, as pipelines for
// private daemons do.
bool HasAbsoluteRoot(const server::YamlNode& dataset);
// Each absolute root of a dataset that this user cannot read here: "FILE:LINE:COLUMN: the root".
std::vector<std::string> MissingRoots(const server::YamlNode& dataset);

// Whether PIPELINE, as a user typed it, is the path of a file and no name.
bool IsPipelineFile(const std::string& pipeline);

// PIPELINE as users type it: the path of a .yaml file, or a name that the `pipelines` folders of
// the configuration know, which is only looked at for a name.
absl::StatusOr<std::string> FindPipelineFile(const std::string& pipeline,
                                             const ConfigChoice& config);

// A pipeline that was read and planned. Without a given configuration the data stays untouched:
// `records` is -1 and the number of classes, which only settles the width of one-hot labels, is
// assumed. Where only the data tells which fields there are, there is no plan without it: an error,
// unless the caller can do without.
struct PlannedPipeline {
  std::string file;
  server::PipelineSpec spec;
  std::shared_ptr<const server::Plan> plan;        // null: see above
  std::shared_ptr<const server::Dataset> dataset;  // null without a configuration
  int64_t records = -1;
};
absl::StatusOr<PlannedPipeline> PlanPipeline(const std::string& pipeline,
                                             const ConfigChoice& config, bool needs_plan = true);

// Whether the folder is there and belongs to this user. What root writes into the daemon's state
// folder, the daemon could neither read nor replace.
bool IsOwnFolder(const std::string& folder);

struct LocalOptions {
  ConfigChoice config;
  server::IndexProgress progress;  // while an index is built; may be null
  bool rebuild = false;            // ignore the saved index
  bool reads_images = false;       // also where the graph decodes none
  // An index that cannot be saved for the daemon is not built: an error before the work. The
  // state_dir is made where it is missing.
  bool must_save_index = false;
};

struct LocalPipeline {
  std::string file;
  server::Settings settings;
  std::shared_ptr<server::MemoryBudget> budget;
  std::shared_ptr<server::FileCache> files;
  std::shared_ptr<server::StagingArea> staging;  // of its unpacked files; may be null
  std::shared_ptr<const server::LoadedPipeline> loaded;
  std::shared_ptr<server::JobFiles> job;          // what its files are: others are not read
  std::shared_ptr<server::DecoderHost> decoders;  // null: its images are not isolated
  // Whether an index that had to be built was saved for the daemon, too: only where the state_dir
  // belongs to this user, or the daemon could not replace the file.
  bool saves_index = false;

  const server::Dataset& dataset() const { return *loaded->dataset; }
  const server::Plan& plan() const { return *loaded->plan; }
  // FailedPrecondition: the configured engine gives something else than the files' bytes.
  absl::Status CheckEngine() const;
  // Reads records with the configured engine, which are started with `job`; for the calling thread
  // alone. The pipeline outlives it. The error is CheckEngine's, too.
  absl::StatusOr<std::unique_ptr<server::RecordReader>> NewReader() const;
  // Who makes samples of `plan`, which is PlanOf(setup): a process of its own where the daemon
  // would take one, so that a file made to abuse an image library meets nothing here either. For
  // one thread; the plan and `indexes`, where seek indexes are found and kept (null: nowhere),
  // outlive it.
  std::unique_ptr<server::SampleMaker> NewMaker(std::shared_ptr<const server::Plan> plan,
                                                server::DecoderSetup setup,
                                                server::SeekIndexes* indexes = nullptr) const;
  // As a runtime of this pipeline would be set up, with a worker on each of the first `workers`
  // CPUs (0: all).
  server::RuntimeOptions ForRuntime(size_t workers = 0) const;
};
// A pipeline whose dataset names its root by an absolute path is opened as a private daemon would
// do it, with this user's rights, where no configuration is given or found; where one is,
// `absolute_roots` of it decides.
absl::StatusOr<LocalPipeline> OpenLocalPipeline(const std::string& pipeline,
                                                const LocalOptions& options);
PlannedPipeline PlannedOf(const LocalPipeline& local);
// A pipeline of this text over a dataset that is open already, to make samples of records that
// somebody else reads. Limits and isolation are those of the configuration that is given or found,
// else a private daemon's.
absl::StatusOr<LocalPipeline> OpenOver(std::shared_ptr<const server::Dataset> dataset,
                                       const std::string& text, const ConfigChoice& config);

// Reads and parses single records, one after the other.
class RecordLoader {
 public:
  static absl::StatusOr<RecordLoader> Create(const LocalPipeline& pipeline);
  RecordLoader(RecordLoader&&) noexcept;
  ~RecordLoader();

  // The record's fields: valid until the next call.
  absl::StatusOr<const server::Record*> Load(int64_t record);
  // Of the last record that was loaded.
  const server::RecordBytes& bytes() const;

 private:
  RecordLoader();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace feedwater::cli
