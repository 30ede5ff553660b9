// feedwater doctor: what of this host slows a daemon down or stands in its way, each with its cure.
// Of a dataset: doctor_dataset.h.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/cli/command.h"
#include "client/cli/doctor_dataset.h"
#include "client/cli/finding.h"
#include "client/cli/json_text.h"
#include "client/cli/local_pipeline.h"
#include "client/cli/status_document.h"
#include "client/cpp/address.h"
#include "server/base/cgroup.h"
#include "server/base/cpus.h"
#include "server/base/escape.h"
#include "server/base/fd.h"
#include "server/base/status.h"
#include "server/base/units.h"
#include "server/codec/image.h"
#include "server/storage/mounts.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;
using server::FormatBytes;
using State = Finding::State;

// The machine as the checks see it. Files come from below `root`, so that a copy of another host's
// /proc and /sys can be looked at.
class Host {
 public:
  explicit Host(std::string root) : root_(std::move(root)) {}

  // The file's text without the newline at its end; "" when there is none.
  std::string Read(const std::string& path) const {
    std::string text;
    if (!server::ReadSmallFile(root_ + path, &text)) return "";
    return std::string(absl::StripTrailingAsciiWhitespace(text));
  }
  std::vector<std::string> List(const std::string& folder) const {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(root_ + folder, error))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  bool Exists(const std::string& path) const {
    std::error_code error;
    return std::filesystem::exists(root_ + path, error);
  }
  server::FileReader reader() const {
    return [root = root_](const std::string& path, std::string* text) {
      return server::ReadSmallFile(root + path, text);
    };
  }

 private:
  const std::string root_;
};

// --- kernel

std::pair<int, int> KernelVersion(const Host& host) {
  std::pair<int, int> version{0, 0};
  std::sscanf(host.Read("/proc/sys/kernel/osrelease").c_str(), "%d.%d", &version.first,
              &version.second);
  return version;
}

Finding CheckKernel(const Host& host) {
  const std::string release = host.Read("/proc/sys/kernel/osrelease");
  if (KernelVersion(host) < std::pair(6, 5)) {
    return Warning("kernel", release.empty() ? "unknown version" : release,
                   "from 6.5 on the daemon sees the death of trainers in other PID namespaces at "
                   "once (SO_PEERPIDFD); "
                   "with this one it relies on their sockets and on pids");
  }
  return Good("kernel", release);
}

Finding CheckIoUring(const Host& host) {
  const std::string disabled = host.Read("/proc/sys/kernel/io_uring_disabled");
  if (disabled == "1" || disabled == "2") {
    return Warning(
        "io_uring",
        absl::StrCat("kernel.io_uring_disabled = ", disabled, "; reads go through pread"),
        "sysctl -w kernel.io_uring_disabled=0, or with 1 put the daemon's group into "
        "kernel.io_uring_group");
  }
  const auto engine = server::ChooseEngine("auto");
  if (!engine.ok())
    return Failure("io_uring", std::string(engine.status().message()), "see the message");
  if (engine->name == "io_uring") return Good("io_uring", engine->reason);
  return Warning("io_uring", absl::StrCat(engine->reason, "; reads go through ", engine->name),
                 "in a container use deploy/container/seccomp.json, which allows io_uring; the "
                 "bytes are the same without it");
}

Finding CheckMemfd() {
  const server::Fd fd(memfd_create("feedwater-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE) != 0) {
    return Failure("shared memory", "memfd_create or its seals are refused",
                   "a seccomp filter forbids it: use deploy/container/seccomp.json");
  }
  return Good("shared memory", "memfd with seals; /dev/shm is not used");
}

Finding CheckClock(const Host& host) {
  const std::string source =
      host.Read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  const std::set<std::string> fast = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page",
                                      "arch_sys_counter"};
  if (source.empty() || fast.count(source) > 0)
    return Good("clock", source.empty() ? "source unknown" : source);
  return Warning("clock",
                 absl::StrCat("clock source ", source, " takes a system call for every look"),
                 "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource, if "
                 "the machine has it");
}

// --- CPUs and memory

Finding CheckCpus(const Host& host) {
  const server::CgroupLimits limits = server::ReadCgroupLimits(host.reader());
  const auto cpus = server::ChooseCpus("auto", -1);
  if (!cpus.ok()) return Failure("CPUs", std::string(cpus.status().message()), "see the message");
  const std::string found = absl::StrCat(
      cpus->size(), " workers on ", server::FormatCpuList(*cpus), ", ", server::SimdTarget(),
      limits.cpu_quota > 0 ? absl::StrCat(", cgroup quota of ", limits.cpu_quota, " CPUs") : "");
  if (limits.cpu_quota > 0 && limits.cpu_quota < 1.5) {
    return Warning("CPUs", found,
                   "raise the container's or unit's CPU quota (CPUQuota=, --cpus): one worker "
                   "decodes a few hundred images a second");
  }
  return Good("CPUs", found);
}

Finding CheckGovernor(const Host& host) {
  std::set<std::string> governors;
  for (const std::string& name : host.List("/sys/devices/system/cpu")) {
    const std::string governor =
        host.Read(absl::StrCat("/sys/devices/system/cpu/", name, "/cpufreq/scaling_governor"));
    if (!governor.empty()) governors.insert(governor);
  }
  if (governors.empty())
    return Good("governor", "not adjustable here (a virtual machine, or the firmware decides)");
  if (governors == std::set<std::string>{"performance"}) return Good("governor", "performance");
  return Warning("governor", absl::StrJoin(governors, ", "),
                 "cpupower frequency-set -g performance");
}

// Where the packages or an administrator put the unit, below the root of the host that is looked
// at.
bool HasUnit(const Host& host) {
  for (const char* folder :
       {"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system",
        "/usr/lib/systemd/system", "/lib/systemd/system"}) {
    if (host.Exists(absl::StrCat(folder, "/feedwaterd@.service"))) return true;
  }
  return false;
}

Finding CheckNuma(const Host& host) {
  std::vector<std::string> nodes;
  for (const std::string& name : host.List("/sys/devices/system/node")) {
    if (!absl::StartsWith(name, "node") || name.size() < 5 || !absl::ascii_isdigit(name[4]))
      continue;
    std::string total = host.Read(absl::StrCat("/sys/devices/system/node/", name, "/meminfo"));
    total = total.substr(0, total.find('\n'));
    const size_t colon = total.find(':');
    int64_t kib = 0;
    if (colon != std::string::npos) std::sscanf(total.c_str() + colon + 1, "%ld", &kib);
    nodes.push_back(absl::StrCat(name, " ", FormatBytes(kib * 1024)));
  }
  if (nodes.size() <= 1) return Good("NUMA", nodes.empty() ? "one node" : nodes[0]);
  return Warning("NUMA", absl::StrJoin(nodes, ", "),
                 absl::StrCat("run one daemon a node: ",
                              HasUnit(host) ? "systemctl start feedwaterd@0 feedwaterd@1, or " : "",
                              "--numa-node N"));
}

Finding CheckMemory(const Host& host) {
  const server::CgroupLimits limits = server::ReadCgroupLimits(host.reader());
  const std::string found = absl::StrCat(
      FormatBytes(server::MemoryLimitBytes()), " for daemon and trainers of this cgroup",
      limits.memory_bytes > 0
          ? absl::StrCat(" (cgroup limit ", FormatBytes(limits.memory_bytes), ")")
          : "");
  if (limits.memory_bytes > 0 && limits.memory_bytes < (1LL << 30)) {
    return Warning("memory", found,
                   "raise MemoryMax= or the container's memory: a slot of 256 float32 images is "
                   "147 MiB, a rank has four");
  }
  return Good("memory", found);
}

Finding CheckHugePages(const Host& host) {
  const std::string setting = host.Read("/sys/kernel/mm/transparent_hugepage/enabled");
  if (setting.empty()) return Good("huge pages", "not built into this kernel; not needed");
  const size_t open = setting.find('['), close = setting.find(']');
  return Good(
      "huge pages",
      absl::StrCat("transparent: ",
                   open == std::string::npos ? setting : setting.substr(open + 1, close - open - 1),
                   "; not needed"));
}

// --- limits of this user's processes

Finding CheckOpenFiles() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string found = absl::StrCat(limit.rlim_max, " open files");
  if (limit.rlim_max < 4096) {
    return Warning("open files", found,
                   "LimitNOFILE=65536 in the unit, or ulimit -Hn 65536: image folders open a file "
                   "for each image");
  }
  return Good("open files", found);
}

Finding CheckMemlock(const Host& host) {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const bool unlimited = limit.rlim_cur == RLIM_INFINITY;
  const std::string found =
      unlimited ? "unlimited" : FormatBytes(static_cast<int64_t>(limit.rlim_cur));
  // From 5.12 on rings are charged to the memory cgroup and no longer to this limit.
  if (!unlimited && limit.rlim_cur < (8u << 20) && KernelVersion(host) < std::pair(5, 12)) {
    return Warning("locked memory", found,
                   "LimitMEMLOCK=infinity in the unit, or ulimit -l 65536: this kernel charges "
                   "io_uring to it");
  }
  return Good("locked memory", found);
}

// --- folders

Finding CheckFolder(const std::string& what, const std::string& path, bool is_state) {
  struct statfs info;
  // A state folder that is not there yet is made by the daemon: what is above it says on which
  // disk.
  std::string at = path;
  int looked = statfs(at.c_str(), &info);
  while (is_state && looked != 0 && errno == ENOENT && at.size() > 1) {
    at = std::filesystem::path(at).parent_path();
    looked = statfs(at.c_str(), &info);
  }
  if (looked != 0 && errno == EACCES) {
    return {what, State::kSkipped, absl::StrCat(path, ": this user may not look at it"),
            "run this as the daemon's user (runuser -u feedwater -- feedwater doctor)"};
  }
  if (looked != 0) {
    return Failure(what, absl::StrCat(path, ": ", std::strerror(errno)),
                   "correct the configuration, or mount it");
  }
  const server::Fd folder(open(at.c_str(), O_PATH | O_CLOEXEC));
  const std::shared_ptr<const server::MountFacts> mount = server::FactsOfMount(folder.get());
  const server::Storage& storage = mount->storage;
  const int64_t free_bytes = static_cast<int64_t>(info.f_bavail) * info.f_bsize;
  const std::string found =
      absl::StrCat(path, ": ", at == path ? "" : "made at the first start, on ",
                   mount->mount.type.empty() ? "a file system of no known type" : mount->mount.type,
                   storage.kind == server::StorageKind::kUnknown
                       ? ""
                       : absl::StrCat(" (", server::StorageKindName(storage.kind), ")"),
                   ", ", FormatBytes(free_bytes), " free");
  if (is_state && storage.kind == server::StorageKind::kMemory)
    return Warning(what, found,
                   "indexes and caches are lost at every boot: set state_dir to a local disk");
  if (is_state && storage.kind == server::StorageKind::kNetwork)
    return Warning(what, found, "saved indexes and caches belong on a local disk: set state_dir");
  if (is_state && free_bytes < (1LL << 30))
    return Warning(what, found, "free some space: indexes and caches are saved here");
  if (!is_state && storage.kind == server::StorageKind::kNetwork)
    return Warning(what, found,
                   "reads over the network: let cache.disk keep records on a local NVMe drive, or "
                   "use `shuffle: block` with shards");
  return Good(what, found);
}

std::vector<Finding> CheckConfig(const ConfigChoice& choice) {
  const auto source = FindConfig(choice);
  if (!source.ok())
    return {{"configuration", State::kSkipped,
             "none named: its roots and state_dir were not looked at",
             "feedwater doctor --config FILE"}};
  const auto settings = ReadConfig(*source);
  if (!settings.ok()) {
    return {Failure("configuration", std::string(settings.status().message()),
                    "feedwaterd --config FILE --check")};
  }
  std::vector<Finding> findings = {Good("configuration", source->file)};
  for (const auto& [name, path] : settings->config.roots)
    findings.push_back(CheckFolder(absl::StrCat("root ", name), path, false));
  findings.push_back(CheckFolder("state_dir", settings->config.state_dir, true));
  return findings;
}

Finding CheckDaemon(const Context& context, const Host& host) {
  const auto address = FindAddress(context.address);
  if (absl::IsPermissionDenied(address.status()))
    return Failure("daemon", std::string(address.status().message()), "as it says");
  if (!address.ok()) {
    return Warning("daemon", "none runs here",
                   HasUnit(host)
                       ? "systemctl start feedwaterd@0, or feedwaterd --config feedwater.yaml"
                       : "feedwaterd --config feedwater.yaml; a loader without one starts a "
                         "private daemon");
  }
  const auto status = GetStatus(*ConnectControl(*address));
  if (!status.ok()) {
    const absl::Status why = ExplainNoAnswer(status.status(), *address);
    return Failure("daemon", absl::StrCat(*address, ": ", std::string(why.message())),
                   "put this user into `access:` of its configuration, or start it again");
  }
  return Good("daemon", absl::StrCat("feedwaterd ", status->version(), " at ", *address,
                                     ", engine ", status->engine_name()));
}

// --- the command

std::string Mark(State state) {
  const char* word = state == State::kGood      ? "good"
                     : state == State::kSkipped ? "skip"
                     : state == State::kWarning ? "warn"
                                                : "FAIL";
  if (!UseColor()) return word;
  const char* color = state == State::kGood      ? "32"
                      : state == State::kSkipped ? "36"
                      : state == State::kWarning ? "33"
                                                 : "31";
  return absl::StrCat("\033[", color, "m", word, "\033[0m");
}

std::vector<Finding> CheckHost(const Context& context, const DatasetQuestion& question,
                               const std::string& root) {
  const Host host(root);
  std::vector<Finding> findings = {CheckKernel(host), CheckIoUring(host),   CheckMemfd(),
                                   CheckCpus(host),   CheckGovernor(host),  CheckNuma(host),
                                   CheckMemory(host), CheckHugePages(host), CheckClock(host),
                                   CheckOpenFiles(),  CheckMemlock(host)};
  for (Finding& finding : CheckConfig({question.config, context.address}))
    findings.push_back(std::move(finding));
  findings.push_back(CheckDaemon(context, host));
  return findings;
}

absl::Status Doctor(Context& context, const DatasetQuestion& question, const std::string& root) {
  std::vector<Finding> findings;
  if (question.name.empty()) {
    findings = CheckHost(context, question, root);
  } else {
    FW_ASSIGN_OR_RETURN(findings, CheckDataset(context, question));
  }
  json checks = json::array();
  int warnings = 0, failures = 0;
  for (const Finding& finding : findings) {
    warnings += finding.state == State::kWarning;
    failures += finding.state == State::kFailure;
    if (context.json) {
      checks.push_back({{"check", finding.check},
                        {"state", finding.state == State::kGood      ? "good"
                                  : finding.state == State::kSkipped ? "skipped"
                                  : finding.state == State::kWarning ? "warning"
                                                                     : "failure"},
                        {"found", finding.found},
                        {"cure", finding.cure}});
      continue;
    }
    std::cout << Mark(finding.state) << "  " << Bold(finding.check) << ": "
              << server::EscapedLines(finding.found) << "\n";
    if (!finding.cure.empty())
      std::cout << "      cure: " << server::EscapedLines(finding.cure) << "\n";
  }
  if (context.json) {
    PrintJson(json{{"checks", checks}, {"warnings", warnings}, {"failures", failures}});
  } else {
    std::cout << server::FormatCount(static_cast<int64_t>(findings.size()), "check") << ", "
              << server::FormatCount(warnings, "warning") << ", "
              << server::FormatCount(failures, "failure") << "\n";
  }
  if (failures > 0) context.exit_status = 1;
  return absl::OkStatus();
}

void AddDoctor(CLI::App& app, Context& context) {
  static DatasetQuestion question;
  static std::string root;
  CLI::App* command = AddCommand(
      app, context, "doctor",
      "find what slows down a daemon on this host, or the reads of a dataset; each with its cure",
      "  feedwater doctor\n"
      "  feedwater doctor --config /etc/feedwater/feedwater.yaml   # its roots and folders, too\n"
      "  feedwater doctor ./train.yaml      # its dataset: records, storage, reads under its "
      "shuffle\n"
      "  feedwater doctor /data/photos      # data without a pipeline\n"
      "  feedwater doctor --json | jq '.checks[] | select(.state != \"good\")'\n"
      "Exit status 1 when something fails; a warning is no failure.",
      [&context] { return Doctor(context, question, root); });
  command
      ->add_option("dataset", question.name,
                   "a pipeline's name or .yaml file, or a folder or file of data: look at it "
                   "instead of the host")
      ->type_name("DATASET");
  command->add_option("--config", question.config, kConfigHelp)->type_name("FILE");
  // For tests, which show it made-up hosts: not listed.
  command->add_option("--root", root, "read /proc and /sys below this folder")->group("");
}

const server::Registrar<CommandEntry> kRegistrar("doctor", {CommandEntry::kDaemons, AddDoctor});

}  // namespace

}  // namespace feedwater::cli
