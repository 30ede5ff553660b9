#include "server/pipeline/runtime.h"

#include <numa.h>
#include <pthread.h>

#include <atomic>
#include <climits>
#include <limits>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/cpus.h"
#include "server/base/log_limiter.h"
#include "server/base/units.h"
#include "server/pipeline/dataset_order.h"
#include "server/pipeline/parking.h"
#include "server/pipeline/scheduler.h"
#include "server/pipeline/worker.h"
#include "spdlog/spdlog.h"

namespace feedwater::server {
namespace {

constexpr int64_t kSmallBytes = 64 << 10;  // less makes no term of the sum

absl::StatusOr<Staging> MakeStaging(const Plan& plan, int64_t batch_size, int slots,
                                    MemoryBudget* budget) {
  Staging staging;
  const int64_t per_sample = plan.staging_bytes_per_sample();
  int64_t bytes = 0;
  if (per_sample < 0 || slots < 0 ||
      __builtin_mul_overflow(per_sample, batch_size, &staging.bytes_per_slot) ||
      __builtin_mul_overflow(staging.bytes_per_slot, slots, &bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the memory of the batch's graph overflows: ", per_sample, " bytes * ",
                     batch_size, " samples * ", slots, " slots"));
  }
  const int64_t bad_bytes = slots * BadPlaces::MostBytes(batch_size);
  if (budget != nullptr && bad_bytes > kSmallBytes) {
    FW_ASSIGN_OR_RETURN(staging.bad_places, budget->Reserve("bad samples", bad_bytes));
  }
  if (bytes == 0) return staging;
  if (budget != nullptr) {
    FW_ASSIGN_OR_RETURN(staging.reservation, budget->Reserve("staging", bytes));
  }
  staging.data.reset(new (std::nothrow) std::byte[static_cast<size_t>(bytes)]);
  if (staging.data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes of staging"));
  }
  return staging;
}

// Orders of `shuffle: block` have an entry for each shard. A rank has the one that it began with,
// and another one after a seek; its job those that its ranks come to next.
constexpr int64_t kOrdersOfRank = 2;
constexpr int64_t kOrdersOfJob = static_cast<int64_t>(EpochOrders::kMost) + 1;

absl::StatusOr<MemoryReservation> ReserveOrders(int64_t bytes, MemoryBudget* budget) {
  if (budget == nullptr || bytes <= kSmallBytes) return MemoryReservation();
  absl::StatusOr<MemoryReservation> reserved = budget->Reserve("orders", bytes);
  if (reserved.ok()) return reserved;
  return Annotate(reserved.status(),
                  "the order of `shuffle: block` has an entry for each of the dataset's shards: "
                  "larger shards take less");
}

absl::Status CheckLayout(const JobConfig& job, const SlotLayout& layout) {
  // Samples are written where the plan's outputs stand, whatever the slots are.
  FW_ASSIGN_OR_RETURN(const SlotLayout planned,
                      SlotLayout::Create(job.pipeline->plan->outputs(), job.batch_size,
                                         std::numeric_limits<int64_t>::max()));
  const std::string difference = layout.DifferenceFrom(planned);
  if (difference.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the slots are not laid out as the pipeline's outputs are: ", difference));
}

absl::StatusOr<std::shared_ptr<const SampleRooms::Claim>> ClaimMemory(const JobConfig& job,
                                                                      SampleRooms* rooms) {
  const LoadedPipeline& pipeline = *job.pipeline;
  const SampleMemory& memory = pipeline.sample_memory();
  const std::string name = absl::StrCat(job.name.size(), " ", job.name, pipeline.spec.name);
  const bool has_calls = job.isolated && !memory.calls.are_open;
  auto claim = rooms->Admit(
      job.owner_uid, name, memory.Claim() + (has_calls ? memory.calls.bytes() : 0),
      job.isolated ? IsolatedMaker::ProcessBytes(*pipeline.plan, pipeline.spec.files()) +
                         pipeline.plan->table_bytes()
                   : 0);
  if (claim.ok() && (*claim)->workers() < INT_MAX &&
      ClientLog().Admits("jobs on few workers", job.owner_uid)) {
    spdlog::info("job {}: memory is there for its samples on {} workers only; one sample takes {}",
                 job.name, (*claim)->workers(), memory.Sum());
  }
  if (claim.ok() || memory.Claim() == 0) return claim;
  return Annotate(claim.status(),
                  absl::StrCat("one sample of pipeline '", pipeline.spec.name, "' takes ",
                               memory.Sum(), " while it is made, ", FormatBytes(memory.fixed),
                               " of it for every sample (fewer and smaller fields between its ops "
                               "take less)"));
}

absl::StatusOr<std::shared_ptr<const OrderConfig>> MakeConfig(const JobConfig& job, int64_t rank) {
  FW_ASSIGN_OR_RETURN(OrderConfig made,
                      MakeOrderConfig(job.pipeline->spec.sampler, *job.pipeline->dataset,
                                      job.batch_size, job.world_size));
  made.seed = job.seed;  // the job's, not the file's
  FW_RETURN_IF_ERROR(CheckRank(made, rank));
  FW_RETURN_IF_ERROR(CheckSteps(made));
  return std::make_shared<const OrderConfig>(std::move(made));
}

}  // namespace

struct Runtime::Impl {
  explicit Impl(const RuntimeOptions& with)
      : options(with),
        budget(with.shares == nullptr ? nullptr : with.shares->whole()),
        calls(std::make_shared<StorageCalls>()),
        files(std::make_shared<FileCache>(with.max_open_files, with.direct_io, calls)),
        parking(std::make_shared<Parking>()),
        rooms(MakeRooms(with, parking)),
        scheduler(parking, with.reads_per_uid, with.bad_samples,
                  static_cast<int>(with.cpus.size())),
        clocks(with.cpus.size()) {}

  static std::shared_ptr<SampleRooms> MakeRooms(const RuntimeOptions& with,
                                                const std::shared_ptr<Parking>& parking) {
    SampleRooms::Options rooms;
    rooms.shares = with.shares;
    rooms.workers = static_cast<int>(with.cpus.size());
    rooms.changed = [parking] { parking->WakeAll(); };
    rooms.make_room = with.make_room;
    return SampleRooms::Create(std::move(rooms));
  }

  ~Impl() {
    stop.store(true, std::memory_order_release);
    scheduler.Stop();
    if (options.decoders != nullptr) options.decoders->Stop();  // a worker may wait for one of them
    for (std::thread& thread : threads) thread.join();
    calls->Stop();
  }

  // What a worker thread does: sets itself up, says how that went, and works.
  void WorkerMain(size_t index, absl::Status* started) {
    absl::StatusOr<std::unique_ptr<RecordReader>> reader = SetUp(index);
    {
      MutexLock lock(&mu);
      *started = reader.status();
      --starting;
      all_started.Signal();
    }
    if (!reader.ok()) return;
    Breadcrumb* const crumb =
        options.breadcrumbs == nullptr ? nullptr : options.breadcrumbs->crumb(index);
    const CrumbOfThisThread noted(crumb);
    Worker::Parts parts;
    parts.number = static_cast<int>(index);
    parts.scheduler = &scheduler;
    parts.parking = parking.get();
    parts.stop = &stop;
    parts.reader = *std::move(reader);
    parts.rooms = rooms;
    parts.clock = &clocks[index];
    parts.bad_samples = options.bad_samples.get();
    parts.crumb = crumb;
    parts.decoders = options.decoders;
    Worker(std::move(parts)).Run();
  }

  absl::StatusOr<std::unique_ptr<RecordReader>> SetUp(size_t index) {
    const int cpu = options.cpus[index];
    pthread_setname_np(pthread_self(), absl::StrFormat("fw-worker-%d", cpu).substr(0, 15).c_str());
    if (options.pin) {
      FW_RETURN_IF_ERROR(PinThisThread(cpu));
    } else if (options.numa_node >= 0 && numa_available() >= 0 &&
               numa_run_on_node(options.numa_node) != 0) {
      return ErrnoStatus(errno,
                         absl::StrCat("cannot run a worker on NUMA node ", options.numa_node));
    }
    if (options.numa_node >= 0 && numa_available() >= 0) numa_set_localalloc();
    const EngineOptions engine_options;
    absl::StatusOr<std::unique_ptr<ReadEngine>> engine =
        CreateEngine(options.engine.name, engine_options);
    if (!engine.ok() && !options.engine.fallback.empty()) {
      spdlog::warn("the worker of CPU {} reads with {}: {}", cpu, options.engine.fallback,
                   std::string(engine.status().message()));
      engine = CreateEngine(options.engine.fallback, engine_options);
    }
    if (!engine.ok()) return engine.status();
    return std::make_unique<RecordReader>(*std::move(engine), engine_options.depth, files, budget,
                                          options.retry_for_ns, calls, options.storage_kind, counts,
                                          options.make_room);
  }

  // What a job of this user takes is reserved there; null: nowhere.
  std::shared_ptr<MemoryBudget> ShareOf(uint32_t user) const {
    return options.shares == nullptr ? nullptr : options.shares->Of(user);
  }

  const RuntimeOptions options;
  const std::shared_ptr<MemoryBudget> budget;  // may be null
  MemoryReservation base_buffers;
  const std::shared_ptr<StorageCalls> calls;
  const std::shared_ptr<FileCache> files;
  const std::shared_ptr<ReadCounts> counts = std::make_shared<ReadCounts>();
  std::atomic<bool> stop{false};
  const std::shared_ptr<Parking> parking;
  const std::shared_ptr<SampleRooms> rooms;
  Scheduler scheduler;
  std::vector<WorkClock> clocks;  // one a worker
  std::vector<std::thread> threads;

  Mutex mu;
  CondVar all_started;
  size_t starting ABSL_GUARDED_BY(mu) = 0;
};

Runtime::Runtime() = default;
Runtime::~Runtime() = default;

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Create(const RuntimeOptions& options) {
  if (options.cpus.empty()) return absl::InvalidArgumentError("no CPUs for workers");
  std::unique_ptr<Runtime> runtime(new Runtime);
  runtime->impl_ = std::make_unique<Impl>(options);
  Impl& impl = *runtime->impl_;
  const size_t workers = options.cpus.size();
  if (impl.budget != nullptr) {
    FW_ASSIGN_OR_RETURN(impl.base_buffers,
                        impl.budget->Reserve("read buffers", static_cast<int64_t>(workers) *
                                                                 ReadBuffers::kBaseBytes));
  }
  std::vector<absl::Status> started(workers);
  {
    MutexLock lock(&impl.mu);
    impl.starting = workers;
  }
  for (size_t i = 0; i < workers; ++i) {
    try {
      impl.threads.emplace_back([&impl, i, status = &started[i]] { impl.WorkerMain(i, status); });
    } catch (const std::system_error& e) {
      started[i] = absl::ResourceExhaustedError(e.what());
      MutexLock lock(&impl.mu);
      --impl.starting;
    }
  }
  {
    MutexLock lock(&impl.mu);
    while (impl.starting > 0) impl.all_started.Wait(&impl.mu);
  }
  for (const absl::Status& status : started)
    FW_RETURN_IF_ERROR(Annotate(status, "cannot start a worker"));
  return runtime;
}

absl::StatusOr<std::shared_ptr<Stream>> Runtime::Attach(const JobConfig& job, int64_t rank, int pid,
                                                        uint64_t epoch, int64_t position,
                                                        const SlotLayout& layout,
                                                        std::shared_ptr<SlotPool> slots) {
  if (job.pipeline == nullptr || job.pipeline->dataset == nullptr ||
      job.pipeline->plan == nullptr) {
    return absl::InvalidArgumentError("the job has no pipeline");
  }
  Scheduler::NewRank added;
  FW_ASSIGN_OR_RETURN(added.order_config, MakeConfig(job, rank));
  FW_RETURN_IF_ERROR(CheckLayout(job, layout));
  FW_RETURN_IF_ERROR(CheckStart(*added.order_config, epoch, position));
  const std::shared_ptr<MemoryBudget> share = impl_->ShareOf(job.owner_uid);
  const int64_t order_bytes = OrderBytes(*added.order_config);
  FW_ASSIGN_OR_RETURN(
      MemoryReservation orders,
      ReserveOrders(kOrdersOfRank * order_bytes + ConfigBytes(*added.order_config), share.get()));
  added.reserve_orders = [share, bytes = kOrdersOfJob * order_bytes] {
    return ReserveOrders(bytes, share.get());
  };
  FW_ASSIGN_OR_RETURN(
      added.staging, MakeStaging(*job.pipeline->plan, job.batch_size, slots->slots(), share.get()));
  added.staging.orders = std::move(orders);
  added.files = JobFiles::Create(job.pipeline->dataset, impl_->files, share);
  if (!impl_->options.direct_io) {
    added.ahead = ReadAhead::Create({.pipeline = job.pipeline,
                                     .files = added.files,
                                     .calls = impl_->calls,
                                     .counts = impl_->counts,
                                     .user = job.owner_uid,
                                     .kind = impl_->options.storage_kind,
                                     .advise = nullptr},
                                    *added.order_config);
  }
  const bool is_back = job.files.as_of_ns > 0;
  if (is_back) FW_RETURN_IF_ERROR(added.files->KeepSince(job.files));  // before anything is read
  FW_ASSIGN_OR_RETURN(added.claim, ClaimMemory(job, impl_->rooms.get()));
  added.job = job;
  added.rank = rank;
  added.pid = pid;
  added.start = MakeCursor(added.order_config, epoch, position);
  added.layout = layout;
  added.slots = std::move(slots);
  FW_ASSIGN_OR_RETURN(std::shared_ptr<Stream> stream, impl_->scheduler.Attach(std::move(added)));
  // The job's own: those of a rank that joins it are not needed.
  JobFiles& files = *stream->job().files();
  absl::Status prepared = files.Prepare();
  if (prepared.ok() && is_back) prepared = files.KeepSince(job.files);
  if (prepared.ok()) return stream;
  Detach(stream);
  return prepared;
}

void Runtime::Detach(const std::shared_ptr<Stream>& stream) { impl_->scheduler.Detach(stream); }

absl::Status Runtime::Seek(const std::shared_ptr<Stream>& stream, uint32_t serial, uint64_t epoch,
                           int64_t position) {
  const std::shared_ptr<const OrderConfig>& config = stream->job().order_config();
  FW_RETURN_IF_ERROR(CheckStart(*config, epoch, position));
  return impl_->scheduler.Seek(stream, serial, MakeCursor(config, epoch, position));
}

FilesMark MarkOfFiles(const Stream& stream) { return stream.job().files()->mark(); }

void Runtime::AdmitOthers(bool admits_others) { impl_->scheduler.AdmitOthers(admits_others); }

void Runtime::ChargeUser(uint32_t uid, int64_t cpu_ns) { impl_->scheduler.ChargeUser(uid, cpu_ns); }

void Runtime::UseRoom() { impl_->rooms->UseRoom(); }

Counters Runtime::counters() const { return impl_->counts->counters(); }

std::vector<JobStats> Runtime::Snapshot() const { return impl_->scheduler.Snapshot(); }
int Runtime::workers() const { return static_cast<int>(impl_->threads.size()); }
int Runtime::active_workers() const { return workers() - impl_->parking->parked(); }
uint64_t Runtime::progress() const {
  uint64_t progress = impl_->scheduler.progress();
  for (const WorkClock& clock : impl_->clocks) progress += clock.beats();
  return progress;
}

}  // namespace feedwater::server
