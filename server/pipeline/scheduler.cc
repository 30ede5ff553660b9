#include "server/pipeline/scheduler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/pipeline/same_job.h"

namespace feedwater::server {
namespace {

// A ticket is so much work that the lock around taking one does not show, and so little that
// workers share a batch evenly.
constexpr double kTicketNs = 100'000;
constexpr int64_t kTicketPlaces = 64;

}  // namespace

OrderCursor MakeCursor(const std::shared_ptr<const OrderConfig>& config, uint64_t epoch,
                       int64_t position) {
  OrderCursor cursor{std::make_shared<EpochOrder>(config, epoch, position), 0};
  if (cursor.order->steps() == 0) {
    cursor.order = std::make_shared<EpochOrder>(config, epoch + 1, 0);
  }
  return cursor;
}

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
  while (stream == nullptr) {
    const std::shared_ptr<Job> running = RunningJob(rank.job);
    // Without the lock: they may have a million classes.
    if (running != nullptr) FW_RETURN_IF_ERROR(CheckSameJob(*running, rank.job, rank.layout));
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
                                  std::move(rank.files), std::move(rank.claim));
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
  Leaving leaving;
  MutexLock lock(&mu_);
  auto& state = Guarded(*stream);
  if (!state.attached) return;
  state.attached = false;
  DropAll(*stream, &leaving);
  auto& streams = Guarded(stream->job()).streams;
  streams.erase(std::find(streams.begin(), streams.end(), stream));
  if (!streams.empty()) return;
  jobs_.erase(std::find(jobs_.begin(), jobs_.end(), stream->shared_job()));
  fair_.JobEnds(stream->job().config().owner_uid);
  stream->job().ended_.store(true, std::memory_order_release);
  parking_->WakeAll();  // workers end what they keep for a job, also those that sleep
}

absl::Status Scheduler::Seek(const std::shared_ptr<Stream>& stream, uint32_t serial,
                             OrderCursor start) {
  {
    Leaving leaving;
    MutexLock lock(&mu_);
    auto& state = Guarded(*stream);
    if (!state.attached) return absl::FailedPreconditionError("the stream is closed");
    DropAll(*stream, &leaving);
    state.producing = true;
    state.serial = serial;
    state.began_epoch = state.published_epoch = start.order->epoch();
    state.began_at = start.order->start();
    state.began_step = state.published_step = stream->job().StepNumber(start) - 1;
    state.bad_in_epoch = 0;
    state.next = std::move(start);
  }
  WakeFor(stream->job());
  return absl::OkStatus();
}

void Scheduler::Stop() {
  {
    Leaving leaving;
    MutexLock lock(&mu_);
    stopping_ = true;
    for (const std::shared_ptr<Job>& job : jobs_) {
      for (const std::shared_ptr<Stream>& stream : Guarded(*job).streams) {
        Guarded(*stream).attached = false;
        DropAll(*stream, &leaving);
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
  for (std::shared_ptr<Stream> at_end; !ticket.has_value(); at_end = nullptr) {
    {
      MutexLock lock(&mu_);
      while (Stream* stream = stopping_ ? nullptr : Pick(worker, only_user)) {
        if (Guarded(*stream).filling == nullptr) {
          if (!BeginEpoch(*stream)) {
            at_end = stream->shared_from_this();
            break;
          }
          if (!OpenBatch(*stream)) continue;
        }
        ticket = Cut(*stream, worker);
        if (parking_->parked() > 0) more = WhomToWake();
        break;
      }
    }
    if (at_end == nullptr) break;
    const int64_t cpu_ns = MakeNextOrder(*at_end);
    if (charged_ns != nullptr) *charged_ns += cpu_ns;
  }
  if (more == Waking::kOne) parking_->Wake();
  if (more == Waking::kAll) parking_->WakeAll();
  return ticket;
}

int64_t Scheduler::RoomForReads(const Job& job) const {
  if (reads_per_uid_ == 0) return INT64_MAX;
  const auto of_uid = reads_of_uid_.find(job.config().owner_uid);
  return of_uid == reads_of_uid_.end() ? reads_per_uid_ : reads_per_uid_ - of_uid->second;
}

bool Scheduler::IsSlow(const Job& job) const {
  const auto& state = Guarded(job);
  return !state.is_measured || state.slow_samples > 0;
}

bool Scheduler::MayWork(const Job& job, int worker) const {
  if (worker >= job.workers()) return false;
  if (!IsSlow(job)) return true;
  const auto& state = Guarded(job);
  if (!state.is_measured && !state.slow_on.empty() && state.slow_on.count(worker) == 0)
    return false;
  return shares_.MayTake(job.config().owner_uid, worker, fair_.users());
}

void Scheduler::BeginSlow(Job& job, int worker) {
  ++Guarded(job).slow_on[worker];
  shares_.Taken(job.config().owner_uid, worker);
}

void Scheduler::EndSlow(Job& job, int worker) {
  auto& slow_on = Guarded(job).slow_on;
  if (--slow_on[worker] == 0) slow_on.erase(worker);
  shares_.Done(job.config().owner_uid, worker);
}

Stream* Scheduler::FirstReady(Job& job, int worker) const {
  if (job.held_up() || !MayWork(job, worker) || RoomForReads(job) <= 0) return nullptr;
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
  FairShares::Place least;
  for (const std::shared_ptr<Job>& job : jobs_) {
    Stream* stream = FirstReady(*job, worker);
    if (stream == nullptr) continue;
    const FairShares::Place place = fair_.PlaceOf(job->config().owner_uid, &Guarded(*job).used_ns);
    if (picked == nullptr || place < least) {
      picked = stream;
      least = place;
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

bool Scheduler::BeginEpoch(Stream& stream) {
  OrderCursor& next = Guarded(stream).next;
  if (next.step < next.order->steps()) return true;
  const auto order = KnownOrder(stream.job(), next.order->epoch() + 1);
  if (order == nullptr) return false;
  next = {order, 0};
  return true;
}

bool Scheduler::AwaitsOrder(const Stream& stream) const {
  const OrderCursor& next = Guarded(stream).next;
  if (next.step < next.order->steps()) return false;
  const auto& making = Guarded(stream.job()).being_made;
  return std::find(making.begin(), making.end(), next.order->epoch() + 1) != making.end();
}

int64_t Scheduler::MakeNextOrder(Stream& stream) {
  const int64_t start_ns = ThreadCpuNs();
  OrderCursor ended;
  {
    MutexLock lock(&mu_);
    ended = Guarded(stream).next;
  }
  const auto order = PrepareEpoch(stream.job(), ended.order->epoch() + 1);
  const int64_t cpu_ns = ThreadCpuNs() - start_ns;
  MutexLock lock(&mu_);
  OrderCursor& next = Guarded(stream).next;
  // Unless somebody else makes it, or the stream has been told to go elsewhere.
  if (order != nullptr && next.order == ended.order && next.step == next.order->steps())
    next = {order, 0};
  Use(stream.job(), static_cast<double>(cpu_ns));
  return cpu_ns;
}

std::shared_ptr<const EpochOrder> Scheduler::KnownOrder(const Job& job, uint64_t epoch) const {
  const auto& orders = Guarded(job).next_orders;
  const auto order = std::find_if(orders.begin(), orders.end(),
                                  [&](const auto& one) { return one->epoch() == epoch; });
  return order == orders.end() ? nullptr : *order;
}

std::shared_ptr<const EpochOrder> Scheduler::PrepareEpoch(Job& job, uint64_t epoch) {
  constexpr size_t kKept = 4;  // ranks may stand in different epochs
  {
    MutexLock lock(&mu_);
    if (auto known = KnownOrder(job, epoch); known != nullptr) return known;
    auto& making = Guarded(job).being_made;
    if (std::find(making.begin(), making.end(), epoch) != making.end()) return nullptr;
    making.push_back(epoch);
  }
  auto order = std::make_shared<const EpochOrder>(job.order_config(), epoch, 0);
  {
    MutexLock lock(&mu_);
    auto& making = Guarded(job).being_made;
    making.erase(std::find(making.begin(), making.end(), epoch));
    auto& orders = Guarded(job).next_orders;
    if (orders.size() == kKept) orders.erase(orders.begin());
    orders.push_back(order);
  }
  WakeFor(job);  // workers that found its streams waiting for it
  return order;
}

Ticket Scheduler::Cut(Stream& stream, int worker) {
  auto& state = Guarded(stream);
  auto& job = Guarded(stream.job());
  Ticket ticket;
  ticket.batch = state.filling;
  auto& batch = Guarded(*ticket.batch);

  // A job's first ticket is one sample, which tells what the others will cost.
  int64_t count = 1;
  if (job.sample_cost_ns > 0) {
    count =
        static_cast<int64_t>(std::clamp(kTicketNs / job.sample_cost_ns, 1.0, 1.0 * kTicketPlaces));
  }
  ticket.first = batch.next_place;
  count = std::min(count, RoomForReads(stream.job()));
  ticket.count = std::min(count, ticket.batch->samples() - ticket.first);
  if (reads_per_uid_ > 0 && ticket.count > 0)
    reads_of_uid_[stream.job().config().owner_uid] += ticket.count;
  ticket.estimate_ns = job.sample_cost_ns * static_cast<double>(ticket.count);
  ticket.worker = worker;
  ticket.is_slow = IsSlow(stream.job());
  if (ticket.is_slow) BeginSlow(stream.job(), worker);
  ticket.first_of_epoch = ticket.first == 0 && ticket.batch->step() == 0;
  Use(stream.job(), ticket.estimate_ns);

  batch.next_place += ticket.count;
  ++batch.writers;
  if (batch.next_place == ticket.batch->samples()) state.filling = nullptr;
  return ticket;
}

void Scheduler::GiveReadsBack(const Ticket& ticket) {
  bool was_full = false;
  {
    MutexLock lock(&mu_);
    const auto of_uid = reads_of_uid_.find(ticket.batch->job().config().owner_uid);
    if (of_uid == reads_of_uid_.end()) return;
    was_full = of_uid->second >= reads_per_uid_;
    if ((of_uid->second -= ticket.count) == 0) reads_of_uid_.erase(of_uid);
  }
  if (was_full) parking_->WakeAll();  // any of the user's jobs may have waited for it
}

bool Scheduler::Complete(const Ticket& ticket, const TicketResult& result, const Usage& usage) {
  progress_.fetch_add(1, std::memory_order_relaxed);
  const std::shared_ptr<Batch>& batch = ticket.batch;
  if (reads_per_uid_ > 0 && ticket.count > 0) GiveReadsBack(ticket);
  // Others may go on where this worker stood in their way; they look once the lock is gone.
  const auto wake = absl::MakeCleanup([&] {
    if (ticket.is_slow) parking_->WakeAll();
  });
  {
    Leaving leaving;
    MutexLock lock(&mu_);
    Job& job = batch->job();
    Use(job, -ticket.estimate_ns);
    if (ticket.is_slow) EndSlow(job, ticket.worker);
    Account(job, usage);

    auto& state = Guarded(*batch);
    --state.writers;
    if (batch->dropped()) {
      if (state.writers == 0) leaving.Add(batch);
      return false;
    }
    state.real += result.real;
    state.bad.Add(result.bad);
    if (result.failed_place >= 0) Fail(batch, result.failed_place, result.failure, &leaving);
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
    Leaving leaving;
    MutexLock lock(&mu_);
    auto& state = Guarded(*batch);
    state.writers = 0;
    std::swap(bad, state.bad);
    if (ends_slow = state.slow_worker >= 0; ends_slow) EndSlow(batch->job(), state.slow_worker);
    if (batch->dropped()) {
      leaving.Add(batch);
      return;
    }
    if (!status.ok()) Fail(batch, -1, BatchFailure{status, -1, ""}, &leaving);
    state.done = true;
  }
  PublishInOrder(batch->shared_stream());
}

// The count is of one rank's places, in the order of its batches: which batch fails is as much a
// function of order and records as its bytes are, whatever the other ranks and the workers do.
std::optional<BatchFailure> Scheduler::CheckBadSamples(Stream& stream, const BatchMeta& meta,
                                                       BadPlaces* bad) {
  auto& state = Guarded(stream);
  if (state.bad_epoch != meta.epoch) {
    state.bad_epoch = meta.epoch;
    state.bad_in_epoch = 0;
  }
  const Job& job = stream.job();
  const double fraction = job.config().pipeline->spec.max_bad_fraction;
  const int64_t samples = SamplesPerEpoch(*job.order_config(), stream.rank());
  const int64_t left = AllowedBadSamples(fraction, samples) - state.bad_in_epoch;
  const auto found = static_cast<int64_t>(bad->places().size());
  if (fraction >= 1 || found <= left) {
    state.bad_in_epoch += found;
    return std::nullopt;
  }
  bad->KeepFirst(static_cast<size_t>(left) + 1);
  state.bad_in_epoch += left + 1;
  return TooManyBadSamples(fraction, state.bad_in_epoch, samples, meta.epoch,
                           bad->At(job.dataset(), bad->places().back()));
}

void Scheduler::PublishInOrder(const std::shared_ptr<Stream>& stream) {
  const PipelineSpec& spec = stream->job().config().pipeline->spec;
  for (bool our_turn = false;; our_turn = true) {
    std::shared_ptr<Batch> batch;
    BatchMeta meta;
    std::optional<BatchFailure> failure;
    BadPlaces bad;
    {
      Leaving leaving;
      MutexLock lock(&mu_);
      auto& state = Guarded(*stream);
      if (state.publishing && !our_turn) return;  // whoever has the turn will see this batch
      state.publishing = !state.open.empty() && Guarded(*state.open.front()).done;
      if (!state.publishing) return;
      batch = std::move(state.open.front());
      state.open.pop_front();
      auto& result = Guarded(*batch);
      meta = batch->meta();
      auto& job = Guarded(stream->job());
      std::swap(bad, result.bad);
      if (result.failed) {
        failure = result.failure;
        // What else was found in this batch depends on who was faster.
        bad.KeepOnly(failure->record < 0 ? -1 : result.failed_place);
        if (failure->record >= 0) ++job.bad_samples;
      } else if (failure = CheckBadSamples(*stream, meta, &bad); failure.has_value()) {
        job.bad_samples += bad.places().size();
        state.producing = false;
        DropAll(*stream, &leaving);
      } else {
        meta.real_samples = static_cast<uint32_t>(result.real);
        meta.substituted = static_cast<uint32_t>(bad.places().size());
        meta.skipped = spec.on_bad_sample == BadSamplePolicy::kSkipWithCount;
        job.samples += meta.samples;
        job.bad_samples += meta.substituted;
        job.substituted += meta.substituted;
        if (meta.skipped) job.skipped += meta.substituted;
        ++job.batches;
        state.published_epoch = meta.epoch;
        state.published_step = meta.step;
      }
    }
    if (bad_samples_ != nullptr) {
      const Dataset& dataset = stream->job().dataset();
      for (const BadPlaces::Place& place : bad.places())
        bad_samples_->Add(dataset.digest(), spec, bad.At(dataset, place),
                          stream->job().config().owner_uid);
    }
    if (failure.has_value()) {
      stream->slots().Abandon(batch->slot());
      stream->slots().Fail(meta, *failure);
    } else {
      stream->slots().Publish(batch->slot(), meta);
    }
  }
}

void Scheduler::Fail(const std::shared_ptr<Batch>& batch, int64_t place,
                     const BatchFailure& failure, Leaving* leaving) {
  auto& state = Guarded(*batch);
  if (!state.failed || place < state.failed_place) {
    state.failed_place = place;
    state.failure = failure;
  }
  state.failed = true;
  // Places are handed out in their order, so all that could fail before `place` are being worked on
  // already.
  state.next_place = batch->samples();
  auto& stream = Guarded(*batch->shared_stream());
  stream.producing = false;
  stream.filling = nullptr;
  while (stream.open.back() != batch) {
    Drop(stream.open.back(), leaving);
    stream.open.pop_back();
  }
}

void Scheduler::Drop(const std::shared_ptr<Batch>& batch, Leaving* leaving) {
  batch->dropped_.store(true, std::memory_order_relaxed);
  if (Guarded(*batch).writers == 0) leaving->Add(batch);  // else the last writer gives the slot up
}

void Scheduler::DropAll(Stream& stream, Leaving* leaving) {
  auto& state = Guarded(stream);
  for (const std::shared_ptr<Batch>& batch : state.open) Drop(batch, leaving);
  state.open.clear();
  state.filling = nullptr;
}

void Scheduler::Use(Job& job, double ns) {
  fair_.Use(job.config().owner_uid, ns, &Guarded(job).used_ns);
}

void Scheduler::Account(Job& job, const Usage& usage) {
  auto& state = Guarded(job);
  state.usage.Add(usage);
  Use(job, static_cast<double>(usage.used_ns()));
  // Whether or not a sample has come of it: bad ones that others stand in for, and batch ops, keep
  // workers busy, too.
  if (usage.used_ns() > WorkerShares::kSlowNs || usage.is_large) {
    state.slow_samples = WorkerShares::kSlowSamples;
  } else {
    state.slow_samples = std::max<int64_t>(0, state.slow_samples - usage.samples);
  }
  if (usage.samples == 0) return;
  state.is_measured = true;
  const double cost = static_cast<double>(usage.used_ns()) / static_cast<double>(usage.samples);
  double& mean = state.sample_cost_ns;
  mean = mean == 0 ? cost : mean + (cost - mean) / 8;
}

void Scheduler::HeldUp(Job& job, int change) {
  const int held_up = job.held_up_.fetch_add(change, std::memory_order_relaxed) + change;
  if (held_up == 0) WakeFor(job);
  if (held_up > 0 && held_up == change) parking_->WakeAll();  // its workers are free for others
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
