#include "server/pipeline/scheduler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/pipeline/publication.h"
#include "server/pipeline/same_job.h"
#include "server/source/given_records.h"

namespace feedwater::server {
namespace {

// A ticket is so much work that the lock around taking one does not show, and so little that
// workers share a batch evenly.
constexpr double kTicketNs = 100'000;
constexpr int64_t kTicketPlaces = 64;

}  // namespace

std::shared_ptr<Job> Scheduler::FindJob(const JobConfig& config) const {
  for (const std::shared_ptr<Job>& job : jobs_) {
    if (job->config().owner_uid == config.owner_uid && job->config().name == config.name &&
        job->config().pipeline->spec.name == config.pipeline->spec.name) {
      return job;
    }
  }
  return nullptr;
}

std::shared_ptr<Job> Scheduler::RunningJob(const JobConfig& config) const {
  MutexLock lock(&mu_);
  return FindJob(config);
}

absl::StatusOr<std::shared_ptr<Stream>> Scheduler::Attach(NewRank rank) {
  const std::shared_ptr<SlotPool> slots = rank.slots;
  std::shared_ptr<Stream> stream;
  std::optional<MemoryReservation> orders;
  while (stream == nullptr) {
    const std::shared_ptr<Job> running = RunningJob(rank.job);
    // Without the lock: they may have a million classes, and caches may have to make room.
    if (running != nullptr) {
      FW_RETURN_IF_ERROR(CheckSameJob(*running, rank.job, rank.layout));
    } else if (rank.reserve_orders != nullptr && !orders.has_value()) {
      FW_ASSIGN_OR_RETURN(orders, rank.reserve_orders());
    }
    MutexLock lock(&mu_);
    if (stopping_) return absl::UnavailableError("the daemon is stopping");
    std::shared_ptr<Job> job = FindJob(rank.job);
    if (job != running) continue;
    if (job != nullptr) {
      for (const std::shared_ptr<Stream>& other : Guarded(*job).streams) {
        if (other->rank() != rank.rank) continue;
        return absl::AlreadyExistsError(absl::StrCat(
            "rank ", rank.rank, " of job '", rank.job.name, "' is attached already, by process ",
            other->pid(), ": end that process, or give this one another rank or job name"));
      }
    } else {
      job = std::make_shared<Job>(std::move(rank.job), std::move(rank.order_config), rank.layout,
                                  std::move(rank.files), std::move(rank.claim),
                                  std::exchange(orders, std::nullopt).value_or(MemoryReservation()),
                                  std::move(rank.ahead));
      Guarded(*job).used_ns = fair_.JobBegins(job->config().owner_uid);
      jobs_.push_back(job);
    }
    stream = std::make_shared<Stream>(job, rank.rank, rank.pid, std::move(rank.layout),
                                      std::move(rank.slots), std::move(rank.staging));
    auto& state = Guarded(*stream);
    state.began_epoch = state.published_epoch = rank.start.order->epoch();
    state.began_at = rank.start.order->start();
    state.began_step = state.published_step = job->StepNumber(rank.start) - 1;
    state.next = std::move(rank.start);
    auto& streams = Guarded(*job).streams;
    const auto after = std::find_if(streams.begin(), streams.end(), [&](const auto& other) {
      return other->rank() > stream->rank();
    });
    streams.insert(after, stream);
    job->attached_.store(static_cast<int>(streams.size()), std::memory_order_relaxed);
  }
  // From here on the stream has slots. The pool may outlive stream and scheduler, and the callback
  // with it.
  slots->OnSlotFree([weak = std::weak_ptr<Stream>(stream), parking = parking_] {
    if (const std::shared_ptr<Stream> owner = weak.lock()) {
      owner->may_have_slot.store(true, std::memory_order_release);
      owner->job().workers() == INT_MAX ? parking->Wake() : parking->WakeAll();
    }
  });
  stream->may_have_slot.store(true, std::memory_order_release);
  WakeFor(stream->job());
  return stream;
}

void Scheduler::Detach(const std::shared_ptr<Stream>& stream) {
  DroppedBatches dropped;
  MutexLock lock(&mu_);
  auto& state = Guarded(*stream);
  if (!state.attached) return;
  state.attached = false;
  dropped.DropAll(*stream);
  auto& streams = Guarded(stream->job()).streams;
  streams.erase(std::find(streams.begin(), streams.end(), stream));
  stream->job().attached_.store(static_cast<int>(streams.size()), std::memory_order_relaxed);
  if (!streams.empty()) return;
  jobs_.erase(std::find(jobs_.begin(), jobs_.end(), stream->shared_job()));
  fair_.JobEnds(stream->job().config().owner_uid);
  stream->job().ended_.store(true, std::memory_order_release);
  parking_->WakeAll();  // workers end what they keep for a job, also those that sleep
}

absl::Status Scheduler::Seek(const std::shared_ptr<Stream>& stream, uint32_t serial,
                             OrderCursor start) {
  {
    DroppedBatches dropped;
    MutexLock lock(&mu_);
    auto& state = Guarded(*stream);
    if (!state.attached) return absl::FailedPreconditionError("the stream is closed");
    dropped.DropAll(*stream);
    state.producing = true;
    state.serial = serial;
    state.began_epoch = state.published_epoch = start.order->epoch();
    state.began_at = start.order->start();
    state.began_step = state.published_step = stream->job().StepNumber(start) - 1;
    state.bad.Reset();
    state.next = std::move(start);
  }
  WakeFor(stream->job());
  return absl::OkStatus();
}

void Scheduler::Stop() {
  {
    DroppedBatches dropped;
    MutexLock lock(&mu_);
    stopping_ = true;
    for (const std::shared_ptr<Job>& job : jobs_) {
      for (const std::shared_ptr<Stream>& stream : Guarded(*job).streams) {
        Guarded(*stream).attached = false;
        dropped.DropAll(*stream);
      }
      Guarded(*job).streams.clear();
    }
    jobs_.clear();
    fair_ = FairShares();
  }
  parking_->WakeAll();
}

std::optional<Ticket> Scheduler::Take(int worker, std::optional<uint32_t> only_user,
                                      int64_t* charged_ns) {
  std::optional<Ticket> ticket;
  Waking more = Waking::kNobody;
  for (std::shared_ptr<Stream> unready; !ticket.has_value(); unready = nullptr) {
    {
      MutexLock lock(&mu_);
      while (Stream* stream = stopping_ ? nullptr : Pick(worker, only_user)) {
        if (Guarded(*stream).filling == nullptr) {
          if (!BeginEpoch(*stream) || !Guarded(*stream).next.order->is_prepared()) {
            Guarded(*stream).makes_order = true;
            unready = stream->shared_from_this();
            break;
          }
          if (!OpenBatch(*stream)) continue;
        }
        ticket = Cut(*stream, worker);
        if (parking_->parked() > 0) more = WhomToWake();
        break;
      }
    }
    if (unready == nullptr) break;
    const int64_t cpu_ns = MakeOrder(*unready);
    if (charged_ns != nullptr) *charged_ns += cpu_ns;
  }
  if (more == Waking::kOne) parking_->Wake();
  if (more == Waking::kAll) parking_->WakeAll();
  return ticket;
}

void Scheduler::AdmitOthers(bool admits_others) {
  {
    MutexLock lock(&mu_);
    shares_.AdmitOthers(admits_others);
  }
  parking_->WakeAll();
}

bool Scheduler::MayWork(const Job& job, int worker) const {
  if (worker >= job.workers()) return false;
  const JobPace& pace = Guarded(job).pace;
  return !(pace.is_slow() || job.calls_out()) ||
         (pace.MayTake(worker) &&
          shares_.MayTake(job.config().owner_uid, worker, fair_.users(), job.calls_out()));
}

void Scheduler::BeginSlow(Job& job, int worker) {
  Guarded(job).pace.BeginSlow(worker);
  shares_.Taken(job.config().owner_uid, worker, job.calls_out());
}

void Scheduler::EndSlow(Job& job, int worker) {
  Guarded(job).pace.EndSlow(worker);
  shares_.Done(job.config().owner_uid, worker, job.calls_out());
}

Stream* Scheduler::FirstReady(Job& job, int worker) const {
  if (job.held_up() || !MayWork(job, worker) || reads_.Room(job.config().owner_uid) <= 0)
    return nullptr;
  Stream* first = nullptr;
  std::pair<uint64_t, int64_t> least;
  for (const std::shared_ptr<Stream>& stream : Guarded(job).streams) {  // by rank
    const auto& state = Guarded(*stream);
    std::pair<uint64_t, int64_t> place;
    if (state.filling != nullptr) {
      place = {state.filling->meta().epoch, state.filling->meta().step};
    } else if (state.producing && stream->may_have_slot.load(std::memory_order_acquire) &&
               !AwaitsOrder(*stream)) {
      place = {state.next.order->epoch(), job.StepNumber(state.next)};
    } else {
      continue;
    }
    if (first == nullptr || place < least) {
      first = stream.get();
      least = place;
    }
  }
  return first;
}

Scheduler::Waking Scheduler::WhomToWake() const {
  Waking waking = Waking::kNobody;
  for (const std::shared_ptr<Job>& job : jobs_) {
    if (FirstReady(*job, WorkerShares::kAnyWorker) == nullptr) continue;
    if (job->workers() < INT_MAX) return Waking::kAll;  // or somebody may wake who cannot take it
    waking = Waking::kOne;
  }
  return waking;
}

Stream* Scheduler::Pick(int worker, std::optional<uint32_t> only_user) {
  Stream* picked = nullptr;
  FairShares::Used least;
  for (const std::shared_ptr<Job>& job : jobs_) {
    Stream* stream = FirstReady(*job, worker);
    if (stream == nullptr) continue;
    const FairShares::Used used = fair_.UsedBy(job->config().owner_uid, &Guarded(*job).used_ns);
    if (picked == nullptr || used < least) {
      picked = stream;
      least = used;
    }
  }
  if (picked == nullptr) return nullptr;
  // It takes nothing then, or that user's next tickets would stand in the way for ever.
  if (only_user.has_value() && picked->job().config().owner_uid != *only_user) return nullptr;
  fair_.Picked(picked->job().config().owner_uid, least);
  return picked;
}

bool Scheduler::OpenBatch(Stream& stream) {
  // In this order: a slot that becomes free after Acquire looked sets the mark again.
  stream.may_have_slot.store(false, std::memory_order_release);
  const int slot = stream.slots().Acquire();
  if (slot < 0) return false;
  stream.may_have_slot.store(true, std::memory_order_release);

  auto& state = Guarded(stream);
  const OrderCursor& at = state.next;
  BatchMeta meta;
  meta.serial = state.serial;
  meta.epoch = at.order->epoch();
  meta.step = stream.job().StepNumber(at);
  meta.next_position = at.order->NextPosition(at.step);
  meta.samples = static_cast<uint32_t>(at.order->BatchSamples(at.step, stream.rank()));
  meta.last_in_epoch = at.step + 1 == at.order->steps();
  state.filling = std::make_shared<Batch>(stream.shared_from_this(), at, meta, slot);
  state.open.push_back(state.filling);
  ++state.next.step;
  BeginEpoch(stream);  // or the stream would seem to stand in the old one
  return true;
}

Ticket Scheduler::Cut(Stream& stream, int worker) {
  auto& state = Guarded(stream);
  auto& job = Guarded(stream.job());
  Ticket ticket;
  ticket.batch = state.filling;
  auto& batch = Guarded(*ticket.batch);

  // A job's first ticket is one sample, which tells what the others will cost.
  const double cost_ns = job.pace.sample_cost_ns();
  int64_t count = 1;
  if (cost_ns > 0)
    count = static_cast<int64_t>(std::clamp(kTicketNs / cost_ns, 1.0, 1.0 * kTicketPlaces));
  const uint32_t user = stream.job().config().owner_uid;
  ticket.first = batch.next_place;
  count = std::min(count, reads_.Room(user));
  ticket.count = std::min(count, ticket.batch->samples() - ticket.first);
  reads_.Begin(user, ticket.count);
  ticket.estimate_ns = cost_ns * static_cast<double>(ticket.count);
  ticket.worker = worker;
  ticket.is_slow = job.pace.is_slow() || stream.job().calls_out();
  if (ticket.is_slow) BeginSlow(stream.job(), worker);
  ticket.first_of_epoch = ticket.first == 0 && ticket.batch->step() == 0;
  Use(stream.job(), ticket.estimate_ns);

  batch.next_place += ticket.count;
  ++batch.writers;
  if (batch.next_place == ticket.batch->samples()) state.filling = nullptr;
  return ticket;
}

bool Scheduler::Complete(const Ticket& ticket, const TicketResult& result, const Usage& usage) {
  progress_.fetch_add(1, std::memory_order_relaxed);
  const std::shared_ptr<Batch>& batch = ticket.batch;
  // Others may go on where this worker stood in their way, or the reads of their user; they look
  // once the lock is gone.
  bool wakes = ticket.is_slow;
  const auto wake = absl::MakeCleanup([&] {
    if (wakes) parking_->WakeAll();
  });
  {
    DroppedBatches dropped;
    MutexLock lock(&mu_);
    Job& job = batch->job();
    wakes |= reads_.End(job.config().owner_uid, ticket.count);
    Use(job, -ticket.estimate_ns);
    if (ticket.is_slow) EndSlow(job, ticket.worker);
    Account(job, usage);

    auto& state = Guarded(*batch);
    --state.writers;
    if (batch->dropped()) {
      if (state.writers == 0) dropped.LastWriterLeft(batch);
      return false;
    }
    state.real += result.real;
    state.bad.Add(result.bad);
    if (result.failed_place >= 0) Fail(batch, result.failed_place, result.failure, &dropped);
    if (state.writers > 0 || state.next_place < batch->samples()) return false;
    if (!state.failed) {
      state.writers = 1;  // the caller, with the batch ops
      if (ticket.is_slow) BeginSlow(job, state.slow_worker = ticket.worker);
      return true;
    }
    state.done = true;
  }
  PublishInOrder(batch->shared_stream());
  return false;
}

void Scheduler::Finish(const std::shared_ptr<Batch>& batch, const absl::Status& status) {
  progress_.fetch_add(1, std::memory_order_relaxed);
  BadPlaces bad;
  {
    MutexLock lock(&mu_);
    std::swap(bad, Guarded(*batch).bad);
  }
  bad.Sort();  // perhaps a million of them
  bool ends_slow = false;
  const auto wake = absl::MakeCleanup([&] {
    if (ends_slow) parking_->WakeAll();
  });
  {
    DroppedBatches dropped;
    MutexLock lock(&mu_);
    auto& state = Guarded(*batch);
    state.writers = 0;
    std::swap(bad, state.bad);
    if (ends_slow = state.slow_worker >= 0; ends_slow) EndSlow(batch->job(), state.slow_worker);
    if (batch->dropped()) {
      dropped.LastWriterLeft(batch);
      return;
    }
    if (!status.ok()) Fail(batch, -1, BatchFailure{status, -1, ""}, &dropped);
    state.done = true;
  }
  PublishInOrder(batch->shared_stream());
}

void Scheduler::PublishInOrder(const std::shared_ptr<Stream>& stream) {
  for (bool our_turn = false;; our_turn = true) {
    std::optional<Publication> next;
    {
      DroppedBatches dropped;
      MutexLock lock(&mu_);
      next = TakeDone(*stream, our_turn);
      if (next.has_value() && next->ends_stream) dropped.DropAll(*stream);
    }
    if (!next.has_value()) return;
    HandOver(*next, bad_samples_.get());
  }
}

void Scheduler::Fail(const std::shared_ptr<Batch>& batch, int64_t place,
                     const BatchFailure& failure, DroppedBatches* dropped) {
  auto& state = Guarded(*batch);
  if (!state.failed || place < state.failed_place) {
    state.failed_place = place;
    state.failure = failure;
    if (IsNotServed(failure.status)) state.failure.reason = wire::FailReason::kNotServed;
  }
  state.failed = true;
  // Places are handed out in their order, so all that could fail before `place` are being worked on
  // already.
  state.next_place = batch->samples();
  Guarded(*batch->shared_stream()).producing = false;
  dropped->DropBehind(batch);
}

std::vector<JobStats> Scheduler::Snapshot() const {
  std::vector<JobStats> all;
  MutexLock lock(&mu_);
  for (const std::shared_ptr<Job>& job : jobs_) all.push_back(Describe(*job));
  return all;
}

void Scheduler::Use(Job& job, double ns) {
  fair_.Use(job.config().owner_uid, ns, &Guarded(job).used_ns);
}

void Scheduler::Account(Job& job, const Usage& usage) {
  auto& state = Guarded(job);
  state.usage.Add(usage);
  Use(job, static_cast<double>(usage.used_ns()));
  state.pace.Account(usage);
}

void Scheduler::HeldUp(Job& job, int change) {
  const int held_up = job.held_up_.fetch_add(change, std::memory_order_relaxed) + change;
  if (held_up == 0) WakeFor(job);
  if (held_up > 0 && held_up == change) parking_->WakeAll();  // its workers are free for others
}

void Scheduler::Suspended(Job& job, int worker, int change) {
  MutexLock lock(&mu_);
  Guarded(job).pace.Suspend(worker, change);
}

bool Scheduler::HasOthersWork(int worker, uint32_t uid) const {
  MutexLock lock(&mu_);
  return std::any_of(jobs_.begin(), jobs_.end(), [&](const std::shared_ptr<Job>& job) {
    mu_.AssertHeld();
    return job->config().owner_uid != uid && FirstReady(*job, worker) != nullptr;
  });
}

void Scheduler::ChargeUser(uint32_t uid, int64_t cpu_ns) {
  MutexLock lock(&mu_);
  fair_.Charge(uid, static_cast<double>(cpu_ns));
}

void Scheduler::Charge(Job& job, const Usage& usage) {
  MutexLock lock(&mu_);
  Account(job, usage);
}

}  // namespace feedwater::server
