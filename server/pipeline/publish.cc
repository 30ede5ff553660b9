// What becomes of the scheduler's tickets and batches: done, failed, published or dropped.
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "server/pipeline/scheduler.h"

namespace feedwater::server {

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
    Leaving leaving;
    MutexLock lock(&mu_);
    Job& job = batch->job();
    wakes |= reads_.End(job.config().owner_uid, ticket.count);
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

std::optional<Scheduler::Publication> Scheduler::TakeDone(Stream& stream, bool our_turn,
                                                          Leaving* leaving) {
  auto& state = Guarded(stream);
  if (state.publishing && !our_turn) return std::nullopt;  // who has the turn will see this batch
  state.publishing = !state.open.empty() && Guarded(*state.open.front()).done;
  if (!state.publishing) return std::nullopt;
  Publication next;
  next.batch = std::move(state.open.front());
  state.open.pop_front();
  next.meta = next.batch->meta();
  auto& result = Guarded(*next.batch);
  std::swap(next.bad, result.bad);
  const Job& job = stream.job();
  const PipelineSpec& spec = job.config().pipeline->spec;
  PublishedCounts& published = Guarded(stream.job()).published;
  if (result.failed) {
    next.failure = result.failure;
    // What else was found in this batch depends on who was faster.
    next.bad.KeepOnly(result.failure.record < 0 ? -1 : result.failed_place);
    if (result.failure.record >= 0) ++published.bad_samples;
    return next;
  }
  next.failure = state.bad.Add(job.dataset(), spec.max_bad_fraction,
                               SamplesPerEpoch(*job.order_config(), stream.rank()), next.meta.epoch,
                               &next.bad);
  if (next.failure.has_value()) {
    published.bad_samples += next.bad.places().size();
    state.producing = false;
    DropAll(stream, leaving);
    return next;
  }
  next.meta.real_samples = static_cast<uint32_t>(result.real);
  next.meta.substituted = static_cast<uint32_t>(next.bad.places().size());
  next.meta.skipped = spec.on_bad_sample == BadSamplePolicy::kSkipWithCount;
  published.Add(next.meta);
  state.published_epoch = next.meta.epoch;
  state.published_step = next.meta.step;
  return next;
}

void Scheduler::LogBadSamples(const Stream& stream, const BadPlaces& bad) const {
  if (bad_samples_ == nullptr) return;
  const JobConfig& job = stream.job().config();
  const Dataset& dataset = stream.job().dataset();
  for (const BadPlaces::Place& place : bad.places()) {
    bad_samples_->Add(dataset.digest(), job.pipeline->spec, bad.At(dataset, place), job.owner_uid);
  }
}

void Scheduler::PublishInOrder(const std::shared_ptr<Stream>& stream) {
  for (bool our_turn = false;; our_turn = true) {
    std::optional<Publication> next;
    {
      Leaving leaving;
      MutexLock lock(&mu_);
      next = TakeDone(*stream, our_turn, &leaving);
    }
    if (!next.has_value()) return;
    LogBadSamples(*stream, next->bad);
    if (next->failure.has_value()) {
      stream->slots().Abandon(next->batch->slot());
      stream->slots().Fail(next->meta, *next->failure);
    } else {
      stream->slots().Publish(next->batch->slot(), next->meta);
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

}  // namespace feedwater::server
