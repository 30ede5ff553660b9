// The daemon's configuration: what feedwater.yaml says (DaemonConfig), and what this machine makes
// of it (Settings).
//
// Every key is declared once, in ConfigSchema(), with its default in the member initialiser below
// and its description beside it; reading, messages and the sample file config/feedwater.yaml come
// from that. Every error is InvalidArgument "file:line:column: ...", or "--set KEY: ..." for a
// value that came from the command line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/base/cpus.h"
#include "server/base/schema.h"
#include "server/graph/pipeline_spec.h"
#include "server/service/access.h"
#include "server/storage/engine.h"
#include "server/storage/roots.h"

namespace feedwater::server {

inline constexpr int64_t kConfigVersion = 1;

struct StorageConfig {
  std::string engine = "auto";
  bool direct_io = false;
  Seconds retry_for{10};
};

struct CacheConfig {
  std::string ram = "auto";
  ByteCount disk{0};
  std::string seek_indexes = "auto";
};

struct StageConfig {
  ByteCount disk{int64_t{64} << 30};
};

struct AccessConfig {
  std::vector<std::string> users, groups;
};

struct LimitsConfig {
  int64_t sessions_per_uid = 32;  // 8 ranks, train and validation, twice
  int64_t connections_per_uid = 64;
  int64_t calls_per_uid = 64;
  int64_t max_connections = 1024;
  Seconds handshake_timeout{5};
  int64_t max_open_files = 1024;
  ByteCount max_slot{4LL << 30};
  ByteCount pipeline_bytes{256 << 10};
  ByteCount arena_bytes_per_uid{0};
  int64_t reads_per_uid = 0;
  // What a pipeline file may ask for.
  int64_t max_pixels = 256'000'000;
  int64_t max_scans = 1'000;
  int64_t max_decode_ms = 60'000;
  int64_t max_sample_ms = 60'000;
  int64_t max_ops = 256;
  int64_t max_outputs = 64;
};

struct DaemonConfig {
  int64_t version = 1;
  std::string runtime_dir;  // empty until LoadConfig has settled it
  std::string state_dir;
  std::vector<std::string> pipelines;
  StringMap roots;
  std::string cpus = "auto";
  bool pin_cpus = true;
  std::string memory = "auto";
  std::string numa_node = "auto";
  std::string isolation = "auto";
  StorageConfig storage;
  CacheConfig cache;
  StageConfig stage;
  AccessConfig access;
  LimitsConfig limits;
};

const Schema<DaemonConfig>& ConfigSchema();

PipelineCaps CapsOf(const LimitsConfig& limits);

// A configuration ready to run with.
struct Settings {
  std::string file;  // what it was read from, absolute
  std::vector<std::string> overrides;
  DaemonConfig config;  // all paths absolute, runtime_dir and state_dir settled
  std::vector<int> cpus;
  int numa_node = -1;  // -1: not bound
  int64_t memory_limit_bytes = 0;
  int64_t cache_memory_bytes = 0;  // part of it
  int64_t seek_index_bytes = 0;    // part of it
  std::shared_ptr<const Roots> roots;
  EngineChoice engine;
  AccessList access;
};

// Reads the file, puts each `KEY.PATH=VALUE` of `overrides` in its place (VALUE is YAML), and
// checks all of it against this machine: folders, CPUs, node, memory, storage engine, user and
// group names. Relative paths of the file start at its folder, those of an override at the working
// directory. Starts nothing and makes no folder.
absl::StatusOr<Settings> LoadSettings(const std::string& path,
                                      const std::vector<std::string>& overrides);

// The same for configuration text; `file_name` is used in messages and gives the folder for
// relative paths.
absl::StatusOr<Settings> ParseSettings(absl::string_view text, const std::string& file_name,
                                       const std::vector<std::string>& overrides);

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
