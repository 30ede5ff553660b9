// The daemon's configuration: what feedwater.yaml says (DaemonConfig, config_keys.h), and what this
// machine makes of it (Settings).
//
// Reading, messages and the sample file config/feedwater.yaml come from the keys. Every error is
// InvalidArgument "file:line:column: ...", or "--set KEY: ..." for a value that came from the
// command line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/base/cpus.h"
#include "server/base/schema.h"
#include "server/base/yaml.h"
#include "server/graph/pipeline_spec.h"
#include "server/service/access.h"
#include "server/service/config_keys.h"
#include "server/storage/engine.h"
#include "server/storage/roots.h"

namespace feedwater::server {

const Schema<DaemonConfig>& ConfigSchema();

PipelineCaps CapsOf(const LimitsConfig& limits);

// Who reads it. A daemon has to have all that the file names. A command does without what its own
// process lacks, for it runs as another user, in another control group or container: a root that
// cannot be opened fails where it is used, a folder of pipelines that may not be looked into has
// none, `memory` may be more than there is, and CPUs, node and engine are those that there are.
// Mistakes of the file are errors for both.
enum class Purpose { kDaemon, kCommand };

// A configuration ready to run with.
struct Settings {
  std::string file;  // what it was read from, absolute
  std::vector<std::string> overrides;
  DaemonConfig config;                  // all paths absolute, runtime_dir and state_dir settled
  std::vector<YamlNode> plugin_places;  // of config.plugins
  std::vector<int> cpus;
  int numa_node = -1;  // -1: not bound
  int64_t memory_limit_bytes = 0;
  int64_t cache_memory_bytes = 0;  // part of it
  int64_t seek_index_bytes = 0;    // part of it
  std::shared_ptr<const Roots> roots;
  EngineChoice engine;
  AccessList access;
  // What a command's process lacks of cpus, numa_node and storage.engine: what a daemon would be
  // refused with.
  std::vector<std::string> lacking;
};

// Reads the file, puts each `KEY.PATH=VALUE` of `overrides` in its place (VALUE is YAML), and
// checks all of it against this machine: folders, CPUs, node, memory, storage engine, user and
// group names. Relative paths of the file start at its folder, those of an override at the working
// directory. Starts nothing and makes no folder.
absl::StatusOr<Settings> LoadSettings(const std::string& path,
                                      const std::vector<std::string>& overrides,
                                      Purpose purpose = Purpose::kDaemon);

// The same for configuration text; `file_name` is used in messages and gives the folder for
// relative paths.
absl::StatusOr<Settings> ParseSettings(absl::string_view text, const std::string& file_name,
                                       const std::vector<std::string>& overrides,
                                       Purpose purpose = Purpose::kDaemon);

// Loads the plug-ins that are not loaded yet: their ops are known from then on. InvalidArgument
// with the place in the configuration. To be called before the first thread that looks for an op.
// With `left_out`: one that this process's user may not load, which may be right for the daemon's
// user, is no error and stands there.
absl::Status LoadPlugins(const Settings& settings, std::vector<std::string>* left_out = nullptr);

// With its file, what gives the same paths in a process of another environment and working
// directory: the overrides, as `KEY.PATH=VALUE`.
std::vector<std::string> SettledOverrides(const Settings& settings);

// Whether somebody else than the daemon's own user and root may connect.
bool AdmitsOthers(const AccessList& access);

// Whether images are decoded in processes of their own: isolation: process, or auto where `access`
// admits others than the daemon's own user and root.
bool IsolatesImages(const DaemonConfig& config, const AccessList& access);

// feedwater.yaml with every key, its default and its description: what `feedwaterd --print-config`
// prints.
std::string SampleConfig();

}  // namespace feedwater::server
