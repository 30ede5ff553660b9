// The keys of feedwater.yaml: each once, its member with its default, and below the members of its
// section its name, range and description. What a configuration resolves to on this machine is in
// config.h.
#pragma once

#include <climits>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/registry.h"
#include "server/base/schema.h"
#include "server/storage/engine.h"
#include "server/storage/storage_kind.h"

namespace feedwater::server {

inline constexpr int64_t kConfigVersion = 1;

// "auto", or what else the key takes.
inline Constraint AutoOr(const std::string& json, const std::string& form) {
  return As(form, absl::StrCat(R"({"anyOf":[{"const":"auto"},)", json, "]}"));
}
inline constexpr char kCpusJson[] =
    R"({"type":"integer","minimum":1},{"type":"string","pattern":"^[0-9]+( *[-,] *[0-9]+)*$"})";
inline constexpr char kNodeJson[] =
    R"({"const":"none"},{"type":"integer","minimum":0},{"type":"string","pattern":"^[0-9]+$"})";

inline std::vector<std::string> EngineNames() {
  std::vector<std::string> names = Registry<EngineEntry>::Get().Names();
  names.insert(names.begin(), "auto");
  return names;
}

struct StorageConfig {
  std::string engine = "auto";
  bool direct_io = false;
  std::string kind = "auto";
  Seconds retry_for{10};

  static Schema<StorageConfig> Keys() {
    return Schema<StorageConfig>()
        .Param("engine", &StorageConfig::engine,
               "How files are read. auto takes io_uring where this kernel and container allow it, "
               "and pread elsewhere; the bytes are the same. null gives zeros: to measure only; "
               "nothing is then cached on disk.",
               OneOf(EngineNames()))
        .Param("direct_io", &StorageConfig::direct_io,
               "Read past the page cache (O_DIRECT). Worth it for datasets much larger than memory "
               "on fast local disks; costs the second epoch's free reads everywhere else.")
        .Param("kind", &StorageConfig::kind,
               "The kind of storage below the datasets. It decides how large a gap between "
               "neighbouring records is read over, and whether the windows of shuffle: block are "
               "read ahead in large pieces (rotational, network). auto asks the kernel for each "
               "file's device and file system; virtual disks say that they are rotational whatever "
               "is below them.",
               OneOf(StorageKindChoices()))
        .Param("retry_for", &StorageConfig::retry_for,
               "How long opening or reading a file is retried after a transient error of the "
               "machine, such as EIO, ESTALE or ETIMEDOUT, before the job ends with that error. "
               "Such an error never makes a sample bad. 0: no retry.",
               Range(0, 3600));
  }
};

struct CacheConfig {
  std::string ram = "auto";
  ByteCount disk{0};
  std::string seek_indexes = "auto";

  static Schema<CacheConfig> Keys() {
    return Schema<CacheConfig>()
        .Param("ram", &CacheConfig::ram,
               "Memory for cached records: auto (a quarter of `memory`) or a size such as 16GiB; "
               "part of `memory`. 0 caches nothing. Taken as records arrive. Where other users may "
               "connect, one user's caches take half of it at most; the same holds for `disk` and "
               "`seek_indexes`.",
               AutoOr(ParamType<ByteCount>::kJson, "auto or a size such as 8GiB"))
        .Param("disk", &CacheConfig::disk,
               "Disk space below state_dir for cached records, such as 200GiB; survives restarts. "
               "Worth it "
               "on a local NVMe drive.")
        .Param("seek_indexes", &CacheConfig::seek_indexes,
               "Memory for JPEG seek indexes (entry points into the Huffman stream), about 1.3 % "
               "of the files' bytes. They speed up decoding of images that are not cached. auto (4 "
               "% of `memory`) or a size such as 2GiB; part of `memory`. 0 keeps none. Saved below "
               "state_dir; `feedwater index --seek` makes them ahead of time.",
               AutoOr(ParamType<ByteCount>::kJson, "auto or a size such as 2GiB"));
  }
};

struct StageConfig {
  ByteCount disk{int64_t{64} << 30};

  static Schema<StageConfig> Keys() {
    return Schema<StageConfig>().Param(
        "disk", &StageConfig::disk,
        "Disk space for them, of all datasets together; the least recently used are removed first, "
        "never one in use. A twentieth of the file system, 1GiB at most, stays free. 0 unpacks "
        "nothing.");
  }
};

struct AccessConfig {
  std::vector<std::string> users, groups;

  static Schema<AccessConfig> Keys() {
    return Schema<AccessConfig>()
        .Param("users", &AccessConfig::users,
               "Users, by name or number, who may connect besides the daemon's own user and root.")
        .Param("groups", &AccessConfig::groups,
               "Groups, by name or number, whose members may connect.");
  }
};

struct LimitsConfig {
  int64_t sessions_per_uid = 32;  // 8 ranks, train and validation, twice
  int64_t providers_per_uid = 64;
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

  static Schema<LimitsConfig> Keys() {
    return Schema<LimitsConfig>()
        .Param("sessions_per_uid", &LimitsConfig::sessions_per_uid,
               "Streams (ranks) that one user may have open at a time.", Range(1, 4096))
        .Param("providers_per_uid", &LimitsConfig::providers_per_uid,
               "Processes of one user that may serve sources and ops of its own at a time.",
               Range(0, 4096))
        .Param("connections_per_uid", &LimitsConfig::connections_per_uid,
               "Connections that one user may have open to each of the two sockets.",
               Range(1, 65536))
        .Param("calls_per_uid", &LimitsConfig::calls_per_uid,
               "Calls to control.sock that one user may have in progress at a time: ranks that "
               "wait for a dataset to open have one each.",
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
        .Param("max_slot", &LimitsConfig::max_slot, "Largest batch in shared memory.",
               AtLeast(4096))
        .Param("pipeline_bytes", &LimitsConfig::pipeline_bytes, "Largest pipeline file.",
               Range(1024, 1 << 20))
        .Param("arena_bytes_per_uid", &LimitsConfig::arena_bytes_per_uid,
               "Shared memory that one user may have, over all sessions, memory that a client "
               "keeps beyond its session included; 0: no limit of its own. Where other users may "
               "connect, one user's streams take half of `memory` at most in any case.")
        .Param("reads_per_uid", &LimitsConfig::reads_per_uid,
               "Samples of one user that may be read and decoded at a time, over all workers; "
               "further ones wait. Keeps storage that hangs for one user from taking all places of "
               "the workers, each of which has 32 to 256. 0: no limit.",
               Range(0, 1 << 20))
        .Param("max_pixels", &LimitsConfig::max_pixels,
               "Upper bound of a pipeline file's own limits.max_pixels; likewise max_scans, "
               "max_decode_ms and max_sample_ms. A file that asks for more is refused; one without "
               "the key gets its default or this bound, whichever is less.",
               Range(1, 1LL << 30))
        .Param("max_scans", &LimitsConfig::max_scans,
               "Upper bound of a pipeline file's limits.max_scans.", Range(1, INT_MAX))
        .Param("max_decode_ms", &LimitsConfig::max_decode_ms,
               "Upper bound of a pipeline file's limits.max_decode_ms.", Range(100, 3'600'000))
        .Param("max_sample_ms", &LimitsConfig::max_sample_ms,
               "Upper bound of a pipeline file's limits.max_sample_ms: how much CPU time one "
               "sample may take, "
               "whatever its ops are.",
               Range(100, 3'600'000))
        .Param("max_ops", &LimitsConfig::max_ops, "Ops in a pipeline's graphs.", Range(1, 1 << 20))
        .Param("max_outputs", &LimitsConfig::max_outputs, "Outputs that a pipeline may have.",
               Range(1, 1 << 20));
  }
};

struct DaemonConfig {
  int64_t version = 1;
  std::string runtime_dir;  // empty until LoadConfig has settled it
  std::string state_dir;
  std::vector<std::string> pipelines;
  std::vector<std::string> plugins;
  StringMap roots;
  bool absolute_roots = false;
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

  static Schema<DaemonConfig> Keys() {
    return Schema<DaemonConfig>()
        .Required("version", &DaemonConfig::version, "Version of this file's format.",
                  Range(1, kConfigVersion))
        .Param("runtime_dir", &DaemonConfig::runtime_dir,
               "Where control.sock and data.sock are made: the address of the daemon. Default: "
               "/run/feedwater/NODE for root, $XDG_RUNTIME_DIR/feedwater/NODE for other users "
               "(/tmp/feedwater-UID/NODE without that variable), where NODE is the NUMA node or 0; "
               "under systemd the unit's RuntimeDirectory.")
        .Param("state_dir", &DaemonConfig::state_dir,
               "Saved indexes and caches. What the daemon made there may be deleted while it is "
               "down; what others keep there is left alone. Default: "
               "/var/lib/feedwater/NODE for root, $XDG_STATE_HOME/feedwater/NODE "
               "(~/.local/state/feedwater/NODE) for other users; under systemd the unit's "
               "StateDirectory.")
        .Required("pipelines", &DaemonConfig::pipelines,
                  "Folders of pipeline files; NAME.yaml is the pipeline NAME (this file itself is "
                  "none). Relative paths start at this file's folder. A file is checked for "
                  "changes whenever its pipeline is opened.")
        .Reloadable()
        .Param("plugins", &DaemonConfig::plugins,
               "Shared libraries that offer ops beside the built-in ones, such as "
               "/usr/lib/feedwater/plugins/my.so: code that runs with all rights of the daemon. "
               "Each file and its folders must be owned by root or by the daemon's user, and be "
               "writable by nobody else. Loaded at the start.")
        .Required("roots", &DaemonConfig::roots,
                  "The only folders that datasets are read from: the name that a "
                  "pipeline's dataset.root uses, and the path.")
        .Reloadable()
        .Param("absolute_roots", &DaemonConfig::absolute_roots,
               "Let dataset.root also be an absolute path: every folder that the daemon's user may "
               "read is a root, and symbolic links below such a root are followed wherever they "
               "lead. For a daemon that serves its own user alone, such as the private one of a "
               "loader; refused where `access` admits others.")
        .Reloadable()
        .Param("cpus", &DaemonConfig::cpus,
               "Worker threads, one for each CPU: auto (the node's CPUs within the cgroup's quota; "
               "of every eight, one is left to the trainers, of fewer than eight none), a count, "
               "or a list such as \"0-3,8\".",
               AutoOr(kCpusJson, "auto, a count or a list of CPUs"))
        .Param("pin_cpus", &DaemonConfig::pin_cpus,
               "Bind each worker to its CPU. Switch it off where other daemons or tests share the "
               "same CPUs.")
        .Param("memory", &DaemonConfig::memory,
               "The limit of memory for arenas, buffers, indexes and caches together: auto (four "
               "fifths of what the machine or cgroup has) or a size such as 8GiB. What does not "
               "fit is refused, with the sum in the message.",
               AutoOr(ParamType<ByteCount>::kJson, "auto or a size such as 8GiB"))
        .Param("numa_node", &DaemonConfig::numa_node,
               "The NUMA node whose CPUs and memory are used: auto, none, or a number. --numa-node "
               "overrides it.",
               AutoOr(kNodeJson, "auto, none or a node's number"))
        .Param(
            "isolation", &DaemonConfig::isolation,
            "Where records are made into samples. none: in the daemon's own threads. process: in "
            "processes of their own, one for each worker and job, that can reach no file, no "
            "network and no other process; a record that crashes its decoder is a bad sample "
            "instead of the daemon's end. auto: in processes where `access` admits somebody and "
            "the graph decodes images, otherwise in the daemon's threads. The bytes are the same. "
            "Use process for data that others have made; deploy/README.md says what it costs.",
            OneOf({"auto", "none", "process"}))
        .Nested("storage", &DaemonConfig::storage, StorageConfig::Keys(), "Reading files.")
        .Nested("cache", &DaemonConfig::cache, CacheConfig::Keys(),
                "Records that are cached for the next epoch and the next job. A pipeline's "
                "`cache:` chooses their form; admitted records stay.")
        .Nested("stage", &DaemonConfig::stage, StageConfig::Keys(),
                "Files that are compressed as a whole (.gz, .tgz, .zst) are unpacked once, below "
                "state_dir/staged, and read there by all jobs.")
        .Nested("access", &DaemonConfig::access, AccessConfig::Keys(),
                "Who may connect, besides the daemon's own user and root.")
        .Reloadable()
        .Nested("limits", &DaemonConfig::limits, LimitsConfig::Keys(),
                "What one user, or a mistake, can take. A request over a limit is refused with the "
                "limit's name.");
  }
};

}  // namespace feedwater::server
