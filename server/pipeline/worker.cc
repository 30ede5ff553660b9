#include "server/pipeline/worker.h"

#include <utility>
#include <vector>

#include "server/base/clock.h"
#include "server/source/given_records.h"

namespace feedwater::server {
namespace {

constexpr int64_t kMaxSamples = 256;           // on the way in one worker, with and without reads
constexpr int64_t kLookAroundNs = 10'000'000;  // then a worker looks for tickets of other jobs

constexpr int64_t kCheapTicket = 8;  // places; tickets are long when samples are cheap

// Looking at CPU time is a system call: a sample that took less wall time than this has its
// ticket's estimate.
constexpr int64_t kShortNs = 200'000;

constexpr size_t kPrefetchAhead = 8;  // records, of what is loaded from memory before it is used

// How long a call may wait for a user's program where others have work.
constexpr int64_t kCallNs = 100'000'000;

constexpr size_t kFilesHeld = 8;  // by a ticket, beyond those of the samples that it works on

}  // namespace

Worker::Worker(Parts parts)
    : number_(parts.number),
      scheduler_(parts.scheduler),
      parking_(parts.parking),
      stop_(parts.stop),
      reader_(std::move(parts.reader)),
      rooms_(parts.rooms),
      bad_samples_(parts.bad_samples),
      runner_({parts.number, std::move(parts.rooms), parts.clock, parts.bad_samples, parts.crumb,
               std::move(parts.decoders), &turn_}),
      account_(parts.scheduler),
      turns_([this](const Turns::Sample& sample) {
        return IsPointless(static_cast<const Sample&>(sample));
      }) {
  reader_->SetOwner(this);
}

void Worker::Run() {
  for (;;) {
    const uint64_t seen = parking_->generation();
    if (!rooms_->IsSettled(number_)) {
      runner_.GiveBackMemory();
      reader_->FreeIdleBuffers();
      rooms_->Settle(number_);
    }
    made_directly_ = false;
    if (!no_tickets_ || no_tickets_since_ != seen) {
      no_tickets_ = false;
      no_tickets_since_ = seen;
      TakeTickets();
    }
    while (Sample* ready = Resume(/*any=*/false)) turns_.Queue(ready);
    if (Sample* sample = NextSample(); sample != nullptr) {
      const std::shared_ptr<Job>& job = sample->work->ticket.batch->stream().shared_job();
      account_.WorkFor(job);
      account_.usage().wait_ns += reader_->TakeWaitNs();
      account_.usage().read_ns += reader_->TakeReadNs();
      turns_.several() ? ProcessInTurn(sample) : Process(sample);
      continue;
    }
    account_.WorkFor(nullptr);
    if (made_directly_) continue;    // there may be more of that
    if (reader_->in_flight() > 0) {  // storage holds up everything; there may be other tickets
      reader_->TakeWaitNs();         // nobody's else than the job's that waits
      scheduler_->Beat();
      continue;
    }
    // Nothing is on its way here.
    if (Sample* suspended = Resume(/*any=*/true); suspended != nullptr) {
      account_.WorkFor(suspended->work->ticket.batch->stream().shared_job());
      Process(suspended);
      continue;
    }
    if (stop_->load(std::memory_order_acquire)) return;
    if (no_tickets_) parking_->Sleep(no_tickets_since_);
  }
}

void Worker::TakeTickets() {
  runner_.LeaveEndedJobs();
  turns_.DropIdleUsers();
  while (reader_->wants_more() &&
         static_cast<int64_t>(reader_->in_flight()) + turns_.queued() - held_up_ < kMaxSamples) {
    const Turns::Whose whose = turns_.MayTake();
    if (whose.nobody) return;
    turns_.Asked();
    std::optional<Ticket> ticket =
        scheduler_->Take(number_, whose.only_user, account_.counted_ns());
    if (!ticket.has_value()) {
      no_tickets_ = !whose.only_user.has_value();
      return;
    }
    // To look around, and come back.
    made_directly_ = StartTicket(*std::move(ticket));
    if (made_directly_) return;
  }
}

bool Worker::StartTicket(Ticket ticket) {
  const Batch& batch = *ticket.batch;
  Job& job = batch.job();
  account_.WorkFor(batch.stream().shared_job());
  if (ticket.first_of_epoch) scheduler_->PrepareEpoch(job, batch.order().epoch() + 1);

  Work* work = works_.Get();
  work->ticket = std::move(ticket);
  work->result = TicketResult();
  work->left = work->ticket.count;
  if (work->left == 0) {
    Complete(work);
    return false;
  }
  const int64_t start = MonotonicNs();
  placements_.resize(static_cast<size_t>(work->ticket.count));
  batch.order().Fill(batch.step(), batch.stream().rank(), work->ticket.first, &placements_);
  if (MakeDirectly(work)) {
    account_.usage().run_ns += MonotonicNs() - start;
    Complete(work);
    return true;
  }
  const uint32_t user = job.config().owner_uid;
  turns_.Take(user, work->ticket.is_slow, work->ticket.count);
  const RecordCache* const cache = job.cache();
  const bool is_ahead = IsReadAhead(work->ticket);
  starting_.clear();
  for (int64_t i = 0; i < work->ticket.count; ++i) {
    Sample* sample = starting_.emplace_back(samples_.Get());
    sample->user = user;
    sample->slow = work->ticket.is_slow;
    sample->job = &job;
    sample->work = work;
    sample->place = work->ticket.first + i;
    sample->placement = placements_[static_cast<size_t>(i)];
    sample->key = sample->placement.key;
    sample->substitution.Begin();
    sample->bytes.user = sample;
    sample->bytes.is_ahead = is_ahead;
    PrepareGiven(sample, sample->placement.record);
    if (sample->placement.is_real) ++work->result.real;
    if (cache != nullptr) cache->PrefetchPlace(sample->placement.record);
  }
  for (size_t i = 0; i < starting_.size() + kPrefetchAhead; ++i) {
    if (cache != nullptr && i < starting_.size())
      cache->PrefetchBlock(starting_[i]->placement.record);
    if (i < kPrefetchAhead) continue;
    Sample* const sample = starting_[i - kPrefetchAhead];
    reader_->Start(job.dataset(), sample->placement.record, &sample->bytes, job.files(), cache);
  }
  account_.usage().read_ns += MonotonicNs() - start;
  return false;
}

// Of a record that a program gives.
void Worker::PrepareGiven(Sample* sample, int64_t record) {
  const Job& job = sample->work->ticket.batch->job();
  const RecordGiver* const giver = job.dataset().giver();
  if (giver == nullptr) return;
  const uint64_t of = giver->is_in_order() ? 0 : static_cast<uint64_t>(record);
  sample->bytes.seed = SeedOf(Draws(sample->key, of, kGivenInstance));
  // The epoch's own number, so that the program may shuffle by it.
  if (giver->is_in_order()) sample->bytes.seed[1] = sample->work->ticket.batch->order().epoch();
  sample->bytes.in_place = job.reads_in_place();
}

// Where it is one copy of bytes, and nobody else's samples wait for it.
bool Worker::MakeDirectly(Work* work) {
  const Batch& batch = *work->ticket.batch;
  Job& job = batch.job();
  const uint32_t user = job.config().owner_uid;
  if (job.direct() == nullptr || !turns_.MayHaveAll(user)) return false;
  if (job.ahead() != nullptr && !job.ahead()->is_off()) return false;
  if (bad_samples_ != nullptr && bad_samples_->quarantined() > 0) return false;
  const DirectCopies::Source source{&job.dataset(), job.files(), job.cache(), user};
  const std::optional<DirectCopies::Made> made = job.direct()->Make(
      source, placements_, work->ticket.first, batch.memory(), &work->files, &direct_);
  reader_->CountDirect(direct_.reader.TakeCalls(), made.has_value() ? made->bytes : 0);
  if (!made.has_value()) {
    work->files.clear();
    return false;
  }
  for (const Placement& placement : placements_) work->result.real += placement.is_real ? 1 : 0;
  account_.usage().bytes_read += made->bytes;
  account_.usage().samples += work->ticket.count;
  return true;
}

bool Worker::IsReadAhead(const Ticket& ticket) {
  const Batch& batch = *ticket.batch;
  Job& job = batch.job();
  if (job.ahead() == nullptr || job.ahead()->is_off()) return false;
  const auto at = [&](int64_t place) {
    return batch.order().At(batch.step(), batch.stream().rank(), place);
  };
  const Placement last = at(ticket.first + ticket.count - 1);
  if (!last.is_real) return false;  // padding is of the epoch's beginning
  return job.ahead()->Reach(batch.shared_order(), at(ticket.first).position, last.position,
                            job.attached(), job.config().world_size);
}

// As they are read, where one user has all of them.
Worker::Sample* Worker::NextSample() {
  const bool several = turns_.several();
  for (;;) {
    while (several) {
      RecordBytes* const bytes = reader_->CollectReady();
      if (bytes == nullptr) break;
      turns_.Queue(static_cast<Sample*>(bytes->user));
    }
    if (Turns::Sample* next = turns_.Next(); next != nullptr) return static_cast<Sample*>(next);
    RecordBytes* const bytes =
        made_directly_ ? reader_->CollectReady() : reader_->Collect(kLookAroundNs);
    if (bytes == nullptr) return nullptr;
    auto* const sample = static_cast<Sample*>(bytes->user);
    if (!several) return sample;
    turns_.Queue(sample);
  }
}

// Its user pays for it with the next turns.
void Worker::ProcessInTurn(Sample* sample) {
  Turns::Sample turn;  // the sample is somebody else's afterwards
  turn.user = sample->user;
  turn.slow = sample->slow;
  const Ticket& ticket = sample->work->ticket;
  if (ticket.count < kCheapTicket) {
    account_.Count();
    const int64_t before = account_.used_ns();
    Process(sample);
    account_.Count();
    return turns_.Made(turn, account_.used_ns() - before);
  }
  const auto estimate = static_cast<int64_t>(ticket.estimate_ns) / ticket.count;
  const int64_t start = MonotonicNs();
  Process(sample);
  const int64_t elapsed = MonotonicNs() - start;
  turns_.Made(turn, elapsed < kShortNs ? estimate : elapsed);
}

void Worker::Process(Sample* sample) {
  Work& work = *sample->work;
  const Batch& batch = *work.ticket.batch;
  if (sample->finishes) return FinishBatch(&work, sample);
  if (IsPointless(*sample)) return Done(sample);
  // Its call would wait where that one does.
  if (sample->calls.empty() && turns_.HasSuspended(*sample) && OthersWait(sample->user))
    return Suspend(sample);

  absl::Status status = sample->bytes.status();
  if (work.files.size() > kFilesHeld) ProveFiles(&work);
  RecordReader::AddFiles(sample->bytes, &work.files);
  if (sample->bytes.origin() != RecordBytes::Origin::kDataset) {
    // Whatever is wrong with what was kept, the record itself may be good.
    if (status.ok()) {
      status = runner_.OpenCached(batch.job(), sample->bytes);
    } else if (!absl::IsResourceExhausted(status)) {  // not for want of memory or handles
      batch.job().cache()->ReadFailed(sample->bytes.record(), sample->bytes.kept_at(), status);
    }
    if (!status.ok()) return reader_->StartAnew(&sample->bytes);
  }
  if (status.ok()) {
    turn_.Begin(sample);
    status = Make(*sample);
    if (turn_.TakeLeft() && !status.ok() && !batch.dropped()) return Suspend(sample);
    account_.usage().bytes_read += sample->bytes.size();
    if (IsTransient(status) && !batch.dropped() && reader_->TryAnew(&sample->bytes, &status))
      return;
  }
  if (!status.ok() && batch.dropped()) return Done(sample);  // perhaps for that reason
  const BadSamplePolicy policy = batch.job().config().pipeline->spec.on_bad_sample;
  Substitution& substitution = sample->substitution;
  if (status.ok()) {
    substitution.FoundGood(sample->bytes.record());
  } else if (TellsOfTheMachine(status, sample->bytes)) {
    return GiveUp(sample, MachineFailure(Bad(*sample, status), status));
  } else {
    substitution.FoundBad(Bad(*sample, status));
    if (policy != BadSamplePolicy::kFail && StartSubstitute(sample)) return;
    if (policy != BadSamplePolicy::kSkipWithCount)
      return GiveUp(sample, substitution.Failure(policy, WorkersOf(batch.job().dataset())));
    batch.job().plan()->RunBlank(InputOf(*sample), sample->place, batch.memory());
  }
  if (substitution.has_bad()) {
    if (policy == BadSamplePolicy::kSkipWithCount && sample->placement.is_real) --work.result.real;
    work.result.bad.push_back(substitution.TakeBad());
  }
  Done(sample);
}

// The place, and with it the batch, cannot be filled.
void Worker::GiveUp(Sample* sample, BatchFailure failure) {
  TicketResult& result = sample->work->result;
  if (sample->substitution.has_bad()) result.bad.push_back(sample->substitution.TakeBad());
  Fail(sample->work, sample->place, std::move(failure));
  Done(sample);
}

bool Worker::IsUnwanted(const RecordBytes& bytes) {
  const Sample& sample = *static_cast<const Sample*>(bytes.user);
  return IsPointless(sample);
}

void Worker::HeldUp(const RecordBytes& bytes, int change) {
  const Sample& sample = *static_cast<const Sample*>(bytes.user);
  held_up_ += change;
  turns_.HeldUp(sample, change);
  scheduler_->HeldUp(sample.work->ticket.batch->job(), change);
}

uint32_t Worker::UserOf(const RecordBytes& bytes) {
  return static_cast<const Sample*>(bytes.user)->user;
}

// Nobody will see what becomes of it.
bool Worker::IsPointless(const Sample& sample) const {
  const Work& work = *sample.work;
  return work.ticket.batch->dropped() ||
         (work.result.failed_place >= 0 && work.result.failed_place < sample.place);
}

void Worker::Fail(Work* work, int64_t place, BatchFailure failure) {
  TicketResult& result = work->result;
  if (result.failed_place >= 0 && result.failed_place <= place) return;
  result.failed_place = place;
  result.failure = std::move(failure);
}

// What was read is of the files as the job knows them only if they are so still: whoever writes
// into a file changes its times before its bytes. Records that were taken for bad are covered, too:
// this is then what the batch failed of.
void Worker::ProveFiles(Work* work) {
  for (const std::shared_ptr<const OpenedFile>& file : work->files) {
    const absl::Status same = ProveUnchanged(*file);
    if (same.ok()) continue;
    work->result.failed_place = work->ticket.first;
    work->result.failure = {same, -1, ""};
  }
  work->files.clear();
}

SampleInput Worker::InputOf(const Sample& sample) const {
  const Batch& batch = *sample.work->ticket.batch;
  const bool is_skipped =
      sample.substitution.has_bad() &&
      batch.job().config().pipeline->spec.on_bad_sample == BadSamplePolicy::kSkipWithCount;
  SampleInput input;
  input.sample_id = sample.bytes.record();
  input.position = sample.placement.position;
  input.is_real = sample.placement.is_real && !is_skipped;
  if (is_skipped) input.stands_for = sample.placement.record;
  input.key = sample.key;
  return input;
}

absl::Status Worker::Make(const Sample& sample) {
  const Ticket& ticket = sample.work->ticket;
  const int64_t before = account_.usage().used_ns();
  const absl::Status status =
      runner_.Run({*ticket.batch, sample.bytes, sample.place, ticket.count >= kCheapTicket},
                  InputOf(sample), &account_.usage());
  account_.AddUsed(account_.usage().used_ns() - before);
  return status;
}

bool Worker::StartSubstitute(Sample* sample) {
  Job& job = sample->work->ticket.batch->job();
  const std::optional<Pick> next =
      sample->substitution.Next(sample->placement.position, sample->work->ticket.batch->order(),
                                job.order_config()->positions(), WorkersOf(job.dataset()));
  if (!next.has_value()) return false;
  sample->key = next->key;
  reader_->Release(&sample->bytes);
  sample->bytes.is_ahead = false;
  PrepareGiven(sample, next->record);
  reader_->Start(job.dataset(), next->record, &sample->bytes, job.files(), job.cache());
  return true;
}

BadSample Worker::Bad(const Sample& sample, const absl::Status& status) const {
  BadSample bad = BadRecord(sample.work->ticket.batch->job().dataset(), sample.bytes.record());
  bad.place = sample.place;
  bad.code = status.code();
  bad.reason = std::string(status.message());
  return bad;
}

void Worker::Done(Sample* sample) {
  Work* work = sample->work;
  reader_->Release(&sample->bytes);
  sample->calls.Clear();
  turns_.Done(*sample);
  samples_.Put(sample);
  ++account_.usage().samples;
  if (--work->left == 0) Complete(work);
}

void Worker::Complete(Work* work) {
  ProveFiles(work);
  if (scheduler_->Complete(work->ticket, work->result, account_.Take())) {
    work->ops_done = 0;
    return FinishBatch(work, nullptr);
  }
  work->ticket.batch = nullptr;  // or an idle worker would keep a closed stream's memory
  works_.Put(work);
}

// `sample`: what stands for the batch's ops in turns; null: they begin.
void Worker::FinishBatch(Work* work, Sample* sample) {
  const std::shared_ptr<Batch> batch = work->ticket.batch;
  if (sample == nullptr && batch->job().calls_out()) {
    sample = samples_.Get();
    sample->user = batch->job().config().owner_uid;
    sample->slow = sample->finishes = true;
    sample->job = &batch->job();
    sample->work = work;
    turns_.Take(sample->user, sample->slow, 1);
  }
  turn_.Begin(sample);
  const absl::Status status = runner_.FinishBatch(*batch, &work->ops_done, &account_.usage());
  if (turn_.TakeLeft() && !status.ok() && !batch->dropped()) return Suspend(sample);
  scheduler_->Finish(batch, status);
  if (sample != nullptr) {
    sample->calls.Clear();
    sample->finishes = false;
    turns_.Done(*sample);
    samples_.Put(sample);
  }
  work->ticket.batch = nullptr;
  works_.Put(work);
}

bool Worker::OthersWait(uint32_t user) const {
  return turns_.OthersWait(user) || scheduler_->HasOthersWork(number_, user);
}

void Worker::Suspend(Sample* sample) {
  if (!sample->finishes) reader_->SetAside(&sample->bytes, true);
  turns_.Suspend(sample);
  scheduler_->Suspended(sample->work->ticket.batch->job(), number_, +1);
}

Worker::Sample* Worker::Resume(bool any) {
  auto* const sample = static_cast<Sample*>(turns_.Resume(any));
  if (sample == nullptr) return nullptr;
  if (!sample->finishes) reader_->SetAside(&sample->bytes, false);
  scheduler_->Suspended(sample->work->ticket.batch->job(), number_, -1);
  return sample;
}

bool Worker::Turn::IsOver(int64_t waited_ns) {
  if (sample_ == nullptr || waited_ns < kCallNs || !worker_.OthersWait(sample_->user)) return false;
  return has_left_ = true;
}

}  // namespace feedwater::server
