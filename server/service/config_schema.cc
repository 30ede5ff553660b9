// The configuration's keys: each once, with its description, its bounds and its place in the sample
// file. What a configuration resolves to on this machine is in config.cc.
#include <climits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/base/registry.h"
#include "server/service/config.h"

namespace feedwater::server {
namespace {

// "auto", or what else the key takes.
Constraint AutoOr(const std::string& json, const std::string& form) {
  return As(form, absl::StrCat(R"({"anyOf":[{"const":"auto"},)", json, "]}"));
}
constexpr char kCpusJson[] =
    R"({"type":"integer","minimum":1},{"type":"string","pattern":"^[0-9]+( *[-,] *[0-9]+)*$"})";
constexpr char kNodeJson[] =
    R"({"const":"none"},{"type":"integer","minimum":0},{"type":"string","pattern":"^[0-9]+$"})";

std::vector<std::string> EngineNames() {
  std::vector<std::string> names = Registry<EngineEntry>::Get().Names();
  names.insert(names.begin(), "auto");
  return names;
}

Schema<StorageConfig> StorageSchema() {
  return Schema<StorageConfig>()
      .Param("engine", &StorageConfig::engine,
             "How files are read. auto takes io_uring where this kernel and container allow it, "
             "and pread elsewhere; the "
             "bytes are the same.",
             OneOf(EngineNames()))
      .Param("direct_io", &StorageConfig::direct_io,
             "Read past the page cache (O_DIRECT). Worth it for datasets much larger than memory "
             "on fast local disks; costs "
             "the second epoch's free reads everywhere else.")
      .Param(
          "retry_for", &StorageConfig::retry_for,
          "How long opening or reading a file is tried again after an error of the machine that "
          "can pass, such as EIO, ESTALE or ETIMEDOUT, before the job ends with that error. Such "
          "an error never makes a sample bad. 0: not at all.",
          Range(0, 3600));
}

Schema<CacheConfig> CacheSchema() {
  return Schema<CacheConfig>()
      .Param("ram", &CacheConfig::ram,
             "Memory for records that are kept for the next epoch: auto (a quarter of `memory`) or "
             "a size such as 16GiB; part of `memory`. 0 keeps nothing. Taken as records come.",
             AutoOr(ParamType<ByteCount>::kJson, "auto or a size such as 8GiB"))
      .Param(
          "disk", &CacheConfig::disk,
          "Disk below state_dir for the same, such as 200GiB; lasts over restarts. Worth it on a "
          "local NVMe drive.")
      .Param(
          "seek_indexes", &CacheConfig::seek_indexes,
          "Memory for JPEG seek indexes (entry points into the Huffman stream), about 1.3 % of the "
          "files' bytes. They speed up decoding of images that are not cached. auto (4 % of "
          "`memory`) or a size such as 2GiB; part of `memory`. 0 keeps none. Saved below "
          "state_dir; `feedwater index --seek` makes them ahead of time.",
          AutoOr(ParamType<ByteCount>::kJson, "auto or a size such as 2GiB"));
}

Schema<StageConfig> StageSchema() {
  return Schema<StageConfig>().Param(
      "disk", &StageConfig::disk,
      "Most disk for them, of all datasets together; those that were unused for longest go first, "
      "never one in use. A twentieth of the file system stays free. 0 unpacks nothing.");
}

Schema<AccessConfig> AccessSchema() {
  return Schema<AccessConfig>()
      .Param("users", &AccessConfig::users,
             "Users, by name or number, who may connect besides the daemon's own user and root.")
      .Param("groups", &AccessConfig::groups,
             "Groups, by name or number, whose members may connect.");
}

Schema<LimitsConfig> LimitsSchema() {
  return Schema<LimitsConfig>()
      .Param("sessions_per_uid", &LimitsConfig::sessions_per_uid,
             "Streams (ranks) that one user may have open at a time.", Range(1, 4096))
      .Param("connections_per_uid", &LimitsConfig::connections_per_uid,
             "Connections that one user may have open to each of the two sockets.", Range(1, 65536))
      .Param("calls_per_uid", &LimitsConfig::calls_per_uid,
             "Calls to control.sock that one user may have in progress at a time: ranks that wait "
             "for a dataset to open have one each.",
             Range(1, 1024))
      .Param("max_connections", &LimitsConfig::max_connections,
             "Connections that all users together may have open to each of the two sockets.",
             Range(1, 65536))
      .Param("handshake_timeout", &LimitsConfig::handshake_timeout,
             "How long a new connection may take to say what it wants before it is closed.",
             Range(0.001, 3600))
      .Param("max_open_files", &LimitsConfig::max_open_files,
             "Dataset files kept open for reading. The process's own limit (ulimit -n) is raised "
             "as far as it goes; a quarter of it is the most that is used for them.",
             Range(16, 1048576))
      .Param("max_slot", &LimitsConfig::max_slot, "Largest batch in shared memory.", AtLeast(4096))
      .Param("pipeline_bytes", &LimitsConfig::pipeline_bytes, "Largest pipeline file.",
             Range(1024, 1 << 20))
      .Param("arena_bytes_per_uid", &LimitsConfig::arena_bytes_per_uid,
             "Shared memory that one user may have, over all sessions, memory that a client keeps "
             "beyond its session included; 0: no limit of its own. Where others than the daemon's "
             "user may connect, one user's streams take half of `memory` at most anyway.")
      .Param("reads_per_uid", &LimitsConfig::reads_per_uid,
             "Samples of one user that may be read and decoded at a time, over all workers; "
             "further ones wait. Keeps storage that stands still for one user from taking every "
             "worker's places, of which each has 32 to 256. 0: no limit.",
             Range(0, 1 << 20))
      .Param("max_pixels", &LimitsConfig::max_pixels,
             "The most that a pipeline file may set its own limits.max_pixels to; so with the "
             "five below. A file that asks for more is refused, one that says nothing gets its "
             "default or this, whichever is less.",
             Range(1, 1LL << 30))
      .Param("max_scans", &LimitsConfig::max_scans, "Of a pipeline file's limits.max_scans.",
             Range(1, INT_MAX))
      .Param("max_decode_ms", &LimitsConfig::max_decode_ms,
             "Of a pipeline file's limits.max_decode_ms.", Range(100, 3'600'000))
      .Param("max_sample_ms", &LimitsConfig::max_sample_ms,
             "Of a pipeline file's limits.max_sample_ms: how much CPU time one sample may take, "
             "whatever its ops are.",
             Range(100, 3'600'000))
      .Param("max_ops", &LimitsConfig::max_ops, "Ops in a pipeline's graphs.", Range(1, 1 << 20))
      .Param("max_outputs", &LimitsConfig::max_outputs, "Fields that a pipeline may give.",
             Range(1, 1 << 20));
}

// Keys whose default depends on the machine, or that have none, and what the sample shows for them.
std::string SampleValue(const ParamInfo& param) {
  if (param.name == "version") return absl::StrCat(kConfigVersion);
  if (param.name == "pipelines") return "[pipelines]";
  if (param.name == "roots") return "{photos: /data/photos}";
  if (param.name == "runtime_dir") return "/run/feedwater/0";
  if (param.name == "state_dir") return "/var/lib/feedwater/0";
  return param.default_text;
}

void AppendComment(const std::string& text, const std::string& indent, std::string* out) {
  constexpr size_t kWidth = 98;
  std::string line;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!line.empty() && indent.size() + 3 + line.size() + word.size() > kWidth) {
      absl::StrAppend(out, indent, "# ", line, "\n");
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? "" : " ", word);
  }
  if (!line.empty()) absl::StrAppend(out, indent, "# ", line, "\n");
}

void AppendParam(const ParamInfo& param, const std::string& indent, std::string* out) {
  std::string doc = param.doc;
  if (!param.choices.empty())
    absl::StrAppend(&doc, " One of: ", absl::StrJoin(param.choices, ", "), ".");
  if (param.low && param.high && *param.low != *param.high) {
    absl::StrAppend(&doc, " ", param.low_text, " to ", param.high_text, ".");
  } else if (param.low && !param.high) {
    absl::StrAppend(&doc, " At least ", param.low_text, ".");
  }
  if (param.required) absl::StrAppend(&doc, " Required.");
  AppendComment(doc, indent, out);
  if (param.nested.empty()) {
    absl::StrAppend(out, indent, param.required ? "" : "# ", param.name, ": ", SampleValue(param),
                    "\n");
    return;
  }
  absl::StrAppend(out, indent, param.name, ":\n");
  for (const ParamInfo& member : param.nested) AppendParam(member, indent + "  ", out);
}

}  // namespace

const Schema<DaemonConfig>& ConfigSchema() {
  static const auto* schema = new Schema<DaemonConfig>(
      Schema<DaemonConfig>()
          .Required("version", &DaemonConfig::version, "Version of this file's format.",
                    Range(1, kConfigVersion))
          .Param("runtime_dir", &DaemonConfig::runtime_dir,
                 "Where control.sock and data.sock are made: the address of the daemon. Default: "
                 "/run/feedwater/NODE for "
                 "root, $XDG_RUNTIME_DIR/feedwater/NODE for other users (/tmp/feedwater-UID/NODE "
                 "without that variable), "
                 "where NODE is the NUMA node or 0; under systemd the unit's RuntimeDirectory.")
          .Param("state_dir", &DaemonConfig::state_dir,
                 "Saved indexes and caches. May be deleted while the daemon is down. Default: "
                 "/var/lib/feedwater/NODE for "
                 "root, $XDG_STATE_HOME/feedwater/NODE (~/.local/state/feedwater/NODE) for other "
                 "users; under systemd the "
                 "unit's StateDirectory.")
          .Required(
              "pipelines", &DaemonConfig::pipelines,
              "Folders of pipeline files; NAME.yaml is the pipeline NAME, but for this very file. "
              "Relative paths start at this file's folder. A file is looked at whenever its "
              "pipeline is opened.")
          .Reloadable()
          .Required("roots", &DaemonConfig::roots,
                    "Folders below which datasets are read, and nowhere else: the name that a "
                    "pipeline's dataset.root uses, "
                    "and the path.")
          .Reloadable()
          .Param("cpus", &DaemonConfig::cpus,
                 "Worker threads, one for each CPU: auto (the node's CPUs within the cgroup's "
                 "quota; of every eight, one is left to the trainers, of fewer than eight none), "
                 "a count, or a list such as \"0-3,8\".",
                 AutoOr(kCpusJson, "auto, a count or a list of CPUs"))
          .Param("pin_cpus", &DaemonConfig::pin_cpus,
                 "Bind each worker to its CPU. Switch it off where other daemons or tests share "
                 "the same CPUs.")
          .Param("memory", &DaemonConfig::memory,
                 "Most memory for arenas, buffers, indexes and caches together: auto (four fifths "
                 "of what the machine or "
                 "cgroup has) or a size such as 8GiB. What would not fit is refused with the sum "
                 "in the message.",
                 AutoOr(ParamType<ByteCount>::kJson, "auto or a size such as 8GiB"))
          .Param("numa_node", &DaemonConfig::numa_node,
                 "The NUMA node whose CPUs and memory are used: auto, none, or a number. "
                 "--numa-node overrides it.",
                 AutoOr(kNodeJson, "auto, none or a node's number"))
          .Param(
              "isolation", &DaemonConfig::isolation,
              "Where records are made into samples. none: in the daemon's own threads. process: "
              "in processes of their own, one for each worker and job, that can reach no file, no "
              "network and no other process; a record that crashes its decoder is a bad sample "
              "instead of the daemon's end. auto: in processes where `access` admits somebody and "
              "the graph decodes images, otherwise in the daemon's threads. The bytes are the "
              "same. For data that others have made: process; what it costs is in "
              "deploy/README.md.",
              OneOf({"auto", "none", "process"}))
          .Nested("storage", &DaemonConfig::storage, StorageSchema(), "Reading files.")
          .Nested("cache", &DaemonConfig::cache, CacheSchema(),
                  "What is kept of datasets for the next epoch and the next job. A pipeline's own "
                  "`cache:` chooses what; admitted records stay.")
          .Nested("stage", &DaemonConfig::stage, StageSchema(),
                  "Files that are compressed as a whole (.gz, .tgz, .zst) are unpacked once, below "
                  "state_dir/staged, and read there by all jobs.")
          .Nested("access", &DaemonConfig::access, AccessSchema(),
                  "Who may connect, besides the daemon's own user and root.")
          .Reloadable()
          .Nested("limits", &DaemonConfig::limits, LimitsSchema(),
                  "What one user, or a mistake, can take. A request over a limit is refused with "
                  "the limit's name."));
  return *schema;
}

std::string SampleConfig() {
  std::string out =
      "# yaml-language-server: $schema=schema/feedwater.schema.json\n"
      "# feedwater.yaml: the configuration of feedwaterd. Written by `feedwaterd --print-config`: "
      "every key with its\n"
      "# description; a line that is commented out shows the default.\n"
      "#\n"
      "# Sizes are written 512MiB or 8GiB, times 500ms or 60s. An unknown key is an error. Check a "
      "file with\n"
      "#   feedwaterd --config feedwater.yaml --check\n";
  for (const ParamInfo& param : ConfigSchema().params()) {
    absl::StrAppend(&out, "\n");
    AppendParam(param, "", &out);
  }
  return out;
}

}  // namespace feedwater::server
