#include "server/daemon.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/clock.h"
#include "server/base/cpus.h"
#include "server/base/heap.h"
#include "server/base/log_limiter.h"
#include "server/base/thread.h"
#include "server/base/units.h"
#include "server/decoder/decoder_host.h"
#include "server/graph/plugin_file.h"
#include "server/process.h"

namespace feedwater::server {
namespace {

constexpr double kIdlePipelineSeconds = 60;
constexpr auto kHousekeepingEvery = absl::Seconds(5);
// What the program itself takes is a term of the sum, but never so much of a small one.
constexpr int64_t kLeastPartForWork = 4;
// Where several users are served, what one of them causes takes no more than this part of memory.
constexpr int64_t kLeastUsers = 2;
// gRPC has no account of its own; behind the gate no flood makes it take more than some 7 MiB
// (tests/integration/test_control_floods.py), beside large answers, which are a term of their own.
constexpr int64_t kControlMemory = 16 << 20;
constexpr int64_t kLeastPartForControl = 32;
constexpr int64_t kStuckNs = 60'000'000'000;
constexpr size_t kRequestBytesBesideText = 64 << 10;  // a call's other fields

std::string NodeText(int node) { return node < 0 ? "none" : absl::StrCat(node); }

// Dataset files are kept open to save time; the descriptors are needed for clients and their
// memory.
size_t DatasetFilesToKeep(int64_t wanted) {
  constexpr int64_t kLeast = 8;
  const int64_t limit = OpenFileLimit();
  const int64_t kept = std::min(wanted, std::max(kLeast, limit / 4));
  if (kept < wanted) {
    spdlog::warn(
        "limits.max_open_files: {} instead of {}: this process may open {} files; cure: "
        "raise LimitNOFILE=",
        kept, wanted, limit);
  }
  return static_cast<size_t>(kept);
}

// What the daemon's own work needs is out of clients' reach: dataset files (see above), the files
// of arenas being made, decoders' sockets.
int DescriptorsForClients() {
  constexpr int64_t kFew = 256, kOthers = 64;
  const int64_t limit = OpenFileLimit();
  const int64_t reserved = limit / 4 + (limit < kFew ? 0 : kOthers);
  return static_cast<int>(std::min<int64_t>(kNoDescriptorLimit, limit - reserved));
}

ConnectionLimits ConnectionsOf(const LimitsConfig& limits) {
  ConnectionLimits connections;
  connections.max_connections = static_cast<int>(limits.max_connections);
  connections.connections_per_uid = static_cast<int>(limits.connections_per_uid);
  connections.calls_per_uid = static_cast<int>(limits.calls_per_uid);
  connections.handshake_seconds = limits.handshake_timeout.seconds;
  connections.max_descriptor = DescriptorsForClients();
  return connections;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(Settings settings, ActivatedSockets sockets) {
  std::unique_ptr<Daemon> daemon(new Daemon(std::move(settings)));
  FW_RETURN_IF_ERROR(daemon->Build(sockets));
  return daemon;
}

absl::Status Daemon::Build(ActivatedSockets sockets) {
  sockets_are_systemds_ = sockets.given();
  Fd control_fd(sockets.control),
      data_fd(sockets.data);  // closed if something fails before they have an owner
  const DaemonConfig& config = settings_.config;
  const LimitsConfig& limits = config.limits;
  FW_ASSIGN_OR_RETURN(runtime_dir_, RuntimeDir::Claim(config.runtime_dir));
  WarnUnlessAt(sockets.control, runtime_dir_->control_socket());
  WarnUnlessAt(sockets.data, runtime_dir_->data_socket());
  FW_RETURN_IF_ERROR(MakeFolder(config.state_dir));
  access_.Replace(settings_.access);
  isolates_images_ = IsolatesImages(config, settings_.access);
  subordinate_users_.Refresh();
  subordinate_users_.AwaitNames();
  budget_ = MemoryBudget::Create(settings_.memory_limit_bytes);
  shares_ = std::make_shared<UserShares>(budget_);

  spdlog::info("CPUs {} ({} workers{}), NUMA node {}", FormatCpuList(settings_.cpus),
               settings_.cpus.size(), config.pin_cpus ? ", pinned" : "",
               NodeText(settings_.numa_node));
  const bool gives_bytes = settings_.engine.gives_bytes;
  spdlog::info("storage engine {}: {}", settings_.engine.name, settings_.engine.reason);
  if (!gives_bytes) {
    spdlog::warn(
        "storage engine {} gives zeros instead of what files hold: to measure only, and nothing is "
        "cached on disk; cure: storage: {{engine: auto}}",
        settings_.engine.name);
  }
  RuntimeOptions runtime;
  runtime.cpus = settings_.cpus;
  runtime.pin = config.pin_cpus;
  runtime.engine = settings_.engine;
  runtime.direct_io = config.storage.direct_io;
  runtime.storage_kind = StorageKindOf(config.storage.kind);
  runtime.max_open_files = DatasetFilesToKeep(limits.max_open_files);
  runtime.retry_for_ns = static_cast<int64_t>(1e9 * config.storage.retry_for.seconds);
  runtime.reads_per_uid = limits.reads_per_uid;
  runtime.numa_node = settings_.numa_node;
  cache_ = std::make_shared<Cache>(
      Cache::Options{settings_.cache_memory_bytes, gives_bytes ? config.cache.disk.bytes : 0,
                     config.state_dir, budget_, settings_.seek_index_bytes});
  runtime.shares = shares_;
  bad_samples_ = BadSampleLog::Open(config.state_dir);
  runtime.breadcrumbs = FindCrashes();
  if (!gives_bytes) bad_samples_ = BadSampleLog::Open("");  // zeros say nothing of the records
  runtime.bad_samples = bad_samples_;
  if (config.isolation != "none") {
    decoders_ = std::make_shared<DecoderHost>();
    decoders_->admits_line = [] {
      return ClientLog().Admits("decoder processes that ended", LogLimiter::kNoSource,
                                LogLimiter::kOpenLines);
    };
  }
  if (IsolatesImages(config, settings_.access)) FW_RETURN_IF_ERROR(FindDecoderProgram());
  runtime.decoders = decoders_;
  runtime.make_room = [this](uid_t user, const absl::Status& refusal) {
    std::shared_ptr<Catalogue> catalogue;  // room may take long to make: without the lock
    {
      MutexLock lock(&room_mu_);
      catalogue = makes_room_.lock();
    }
    return catalogue != nullptr && catalogue->MakeRoomFor(user, refusal);
  };
  FW_ASSIGN_OR_RETURN(runtime_, Runtime::Create(runtime));
  LimitUsers(settings_.access);

  const auto charge = [runtime = runtime_.get()](uid_t user, int64_t cpu_ns) {
    runtime->ChargeUser(user, cpu_ns);
  };
  FW_ASSIGN_OR_RETURN(providers_,
                      Providers::Create({shares_, limits.providers_per_uid, runtime.make_room}));
  catalogue_ = std::make_shared<Catalogue>(Catalogue::Options{
      config.state_dir, shares_, static_cast<size_t>(limits.pipeline_bytes.bytes), CapsOf(limits),
      cache_, StagingArea::Below(config.state_dir, config.stage.disk.bytes), providers_,
      runtime.retry_for_ns, charge});
  catalogue_->Reload({config.pipelines, settings_.file}, settings_.roots);
  {
    MutexLock lock(&room_mu_);
    makes_room_ = catalogue_;
  }

  auto access = [this](const PeerIdentity& peer) { return access_.Check(peer); };
  DataServer::Options data;
  data.socket_path = runtime_dir_->data_socket();
  data.listen_fd = data_fd.release();
  data.access = access;
  data.account_of = account_of_;
  data.limits = ConnectionsOf(limits);
  FW_ASSIGN_OR_RETURN(data_, DataServer::Create(data));

  ControlService::Parts parts;
  parts.data = data_.get();
  parts.runtime = runtime_.get();
  parts.catalogue = catalogue_.get();
  parts.providers = providers_.get();
  parts.shares = shares_;
  parts.settings = &settings_;
  parts.bad_samples = bad_samples_;
  parts.decoders = decoders_;
  parts.isolates = [this](const Plan& plan) {
    return settings_.config.isolation == "process" || (isolates_images_ && plan.decodes());
  };
  parts.more_counters = [this] { return control_->counters(); };
  const auto answers = std::make_shared<Answers>(shares_);
  parts.answers = answers;
  parts.caller = [this](const std::string& peer) { return control_->WhoIs(peer); };
  parts.access = [this](const std::string& peer) { return control_->CheckAccess(peer); };
  service_ = std::make_unique<ControlService>(parts);

  ControlListener::Options control;
  control.socket_path = runtime_dir_->control_socket();
  control.listen_fd = control_fd.release();
  control.access = access;
  control.account_of = account_of_;
  control.limits = data.limits;
  ControlGate::Options gate;
  gate.limits = data.limits;
  gate.charge = charge;
  FW_ASSIGN_OR_RETURN(
      control_, ControlServer::Create(
                    control, gate, service_.get(), answers.get(),
                    kRequestBytesBesideText + static_cast<size_t>(limits.pipeline_bytes.bytes)));
  access_.directory().Listen([this] {
    data_->Reconsider();
    control_->Reconsider();
  });
  data_->Reconsider();  // of what was looked up before there was a listener
  if (!sockets_are_systemds_) runtime_dir_->Admit(settings_.access);

  FW_ASSIGN_OR_RETURN(
      program_memory_,
      budget_->Reserve(
          "program", std::min(ResidentBytes(), settings_.memory_limit_bytes / kLeastPartForWork)));
  FW_ASSIGN_OR_RETURN(
      control_memory_,
      budget_->Reserve("control", std::min(kControlMemory,
                                           settings_.memory_limit_bytes / kLeastPartForControl)));
  spdlog::info("memory: {}", budget_->Sum());
  spdlog::info("pipelines: {}", catalogue_->files().Describe());
  FW_ASSIGN_OR_RETURN(housekeeper_, StartThread("housekeeping", [this] { RunHousekeeping(); }));
  FW_RETURN_IF_ERROR(control_->Start());
  spdlog::info("serving at {}", config.runtime_dir);
  return absl::OkStatus();
}

// Where somebody else than the daemon's own user may come, nobody takes all of `memory`, or of
// the caches.
void Daemon::LimitUsers(const AccessList& access) {
  const bool admits_others = AdmitsOthers(access);
  shares_->Limit(admits_others ? settings_.memory_limit_bytes / kLeastUsers : 0);
  cache_->LimitUsers(admits_others ? kLeastUsers : 1);
  runtime_->AdmitOthers(admits_others);
}

absl::Status Daemon::FindDecoderProgram() {
  if (decoders_->program != nullptr) return absl::OkStatus();
  FW_ASSIGN_OR_RETURN(const std::shared_ptr<DecoderHost> found, FindDecoders(/*budget=*/nullptr));
  decoders_->program = found->program;
  spdlog::info("samples are made in processes of their own ({})", decoders_->program->path());
  return absl::OkStatus();
}

// Reads on which samples the daemon before this one died, and makes room for the crumbs of this
// one.
std::shared_ptr<const Breadcrumbs> Daemon::FindCrashes() {
  std::vector<Breadcrumbs::Crash> crashes;
  auto crumbs = Breadcrumbs::Open(settings_.config.state_dir, settings_.cpus.size(), &crashes);
  std::set<std::pair<std::string, int64_t>> blamed;  // once each: two workers may die together
  for (const Breadcrumbs::Crash& crash : crashes) {
    if (!blamed.emplace(crash.dataset, crash.record).second) continue;
    bad_samples_->AddCrash(crash.dataset, crash.record, crash.path, crash.offset, crash.length,
                           crash.signal);
  }
  bad_samples_->Flush();  // before a sample can crash this one
  if (crumbs.ok()) return *std::move(crumbs);
  spdlog::warn("a sample that crashes the daemon will not be found out: {}",
               crumbs.status().ToString());
  return nullptr;
}

void Daemon::Stop() {
  if (control_ != nullptr) control_->Refuse();
  if (service_ != nullptr) service_->Drain();
  {
    MutexLock lock(&mu_);
    stop_ = true;
  }
  stopping_.SignalAll();
  if (housekeeper_.joinable()) housekeeper_.join();
  access_.directory().Listen(nullptr);
  if (control_ != nullptr) control_->Stop();  // calls in progress still ask control_
  control_.reset();
  data_.reset();  // ends the sessions: their events reach service_ and runtime_
  service_.reset();
  // Its thread must not be the last to hold the catalogue, which would end it with itself.
  if (providers_ != nullptr) providers_->StopGrowing();
  catalogue_.reset();  // what it opens is charged to users of runtime_
  runtime_.reset();
  providers_.reset();
  decoders_.reset();
  bad_samples_.reset();
  cache_.reset();
  runtime_dir_.reset();
}

void Daemon::Reload(const Settings& settings) {
  const std::vector<std::string> fixed =
      ConfigSchema().FixedDifferences(settings_.config, settings.config);
  if (!fixed.empty()) {
    spdlog::warn("these keys changed and take effect after a restart only: {}",
                 absl::StrJoin(fixed, ", "));
  }
  if (const std::vector<std::string> changed = ChangedPlugins(); !changed.empty()) {
    spdlog::warn(
        "these plug-ins changed and need a restart: {}; until then samples are made with "
        "what was loaded, and no decoder process can be started",
        absl::StrJoin(changed, ", "));
  }
  const bool isolates = IsolatesImages(settings_.config, settings.access);
  const absl::Status found = isolates ? FindDecoderProgram() : absl::OkStatus();
  if (!found.ok()) {
    spdlog::error("`access` stays as it was, for with isolation: auto it needs decoders: {}",
                  std::string(found.message()));
  } else {
    LimitUsers(settings.access);
    // Whoever is admitted now must not meet a job that is not isolated yet.
    if (isolates) isolates_images_ = true;
    // Nor may the users of one list meet the roots of the other: reading the pipelines takes time.
    access_.Narrow(settings.access);
    control_->AccessHasChanged();
  }
  catalogue_->Reload({settings.config.pipelines, settings.file}, settings.roots);
  if (found.ok()) {
    access_.Replace(settings.access);
    control_->AccessHasChanged();
    isolates_images_ = isolates;
    data_->Reconsider();
    control_->Reconsider();
    if (!sockets_are_systemds_) runtime_dir_->Admit(settings.access);
  }
  spdlog::info("reloaded; pipelines: {}", catalogue_->files().Describe());
}

bool Daemon::Healthy() {
  const uint64_t progress = runtime_->progress();
  const int64_t now_ns = MonotonicNs();
  MutexLock lock(&mu_);
  if (progress != last_progress_ || runtime_->active_workers() == 0) {
    last_progress_ = progress;
    last_progress_ns_ = now_ns;
  }
  return now_ns - last_progress_ns_ < kStuckNs;
}

std::string Daemon::Summary() const {
  const std::vector<std::string> silent = catalogue_->SilentRoots();
  return absl::StrCat(
      "serving ", catalogue_->files().Names().size(), " pipelines at ",
      settings_.config.runtime_dir, ", storage engine ", settings_.engine.name, ", ",
      settings_.cpus.size(), " workers",
      silent.empty() ? "" : absl::StrCat("; no answer from ", absl::StrJoin(silent, ", ")));
}

void Daemon::RunHousekeeping() {
  pthread_setname_np(pthread_self(), "fw-house");
  bool was_healthy = true;
  uint64_t calls_before = 0;
  for (;;) {
    {
      MutexLock lock(&mu_);
      if (!stop_) stopping_.WaitWithTimeout(&mu_, kHousekeepingEvery);
      if (stop_) return;
    }
    catalogue_->DropIdle(kIdlePipelineSeconds);
    runtime_->UseRoom();
    // What a flood of calls made gRPC and the readers of texts take goes back to the kernel.
    const uint64_t calls = control_->calls();
    if (calls != calls_before) ReturnFreeMemory();
    calls_before = calls;
    bad_samples_->Flush();
    subordinate_users_.Refresh();
    for (const std::string& line : ClientLog().Summaries()) spdlog::info("{}", line);
    const bool healthy = Healthy();
    if (was_healthy && !healthy) {
      spdlog::error(
          "no worker has got on for {} although there is work: is the storage standing still?",
          FormatSeconds(static_cast<double>(kStuckNs) / 1e9));
    }
    was_healthy = healthy;
  }
}

}  // namespace feedwater::server
