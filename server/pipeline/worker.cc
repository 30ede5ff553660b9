#include "server/pipeline/worker.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/no_throw.h"
#include "server/base/units.h"
#include "server/pipeline/kept_fields.h"

namespace feedwater::server {
namespace {

constexpr int64_t kMaxSamples = 256;           // on the way in one worker, with and without reads
constexpr int64_t kLookAroundNs = 10'000'000;  // then a worker looks for tickets of other jobs

// Samples that cost little are timed one in so many, or the clock would be a good part of what it
// measures.
constexpr int64_t kCheapTicket = 8;  // places; tickets are long when samples are cheap
constexpr int64_t kCheapTimedOneIn = 16;

// Looking at CPU time is a system call: a sample that took less wall time than this has its
// ticket's estimate.
constexpr int64_t kShortNs = 200'000;

constexpr size_t kFilesHeld = 8;  // by a ticket, beyond those of the samples that it works on
// What is packed of a JPEG stands in memory a few times: the packer's (twice while it grows), the
// document, the payload. It takes four bytes a block at least, and three blocks stand for 64
// pixels.
constexpr int64_t kPackedCopies = 5, kPixelsPerPackedByte = 5;
// A larger buffer of what was made for a cache is given back: nobody has reserved it for long.
constexpr size_t kKeptScratchBytes = 4 << 20;
// Records that go to a decoder process are there, and between, once more; small ones do not count.
constexpr int64_t kCountedRecordBytes = 4 << 20;

std::string NameOf(const BadSample& bad) {
  return absl::StrCat("record ", bad.record, " (", bad.path, ")");
}

BatchFailure RecordFailure(const BadSample& bad, int64_t tries) {
  std::string reason = bad.reason;
  if (tries > 0)
    absl::StrAppend(&reason, "; none of the ", tries, " records after it can stand in");
  return {absl::Status(bad.code, reason), bad.record, bad.path};
}

// The machine could not read it: the message names the record, but nothing is wrong with that.
BatchFailure MachineFailure(const BadSample& unread, const absl::Status& status) {
  return {Annotate(status, NameOf(unread)), -1, ""};
}

}  // namespace

Worker::Worker(Parts parts)
    : number_(parts.number),
      scheduler_(parts.scheduler),
      parking_(parts.parking),
      stop_(parts.stop),
      reader_(std::move(parts.reader)),
      rooms_(std::move(parts.rooms)),
      bad_samples_(parts.bad_samples),
      crumb_(parts.crumb),
      decoders_(std::move(parts.decoders)),
      clock_(parts.clock),
      turns_([this](const Turns::Sample& sample) {
        return IsPointless(static_cast<const Sample&>(sample));
      }) {
  reader_->SetOwner(this);
  in_process_.workspace().UseClock(clock_);
}

void Worker::Run() {
  for (;;) {
    const uint64_t seen = parking_->generation();
    if (!rooms_->IsSettled(number_)) {
      GiveBackMemory();
      reader_->FreeIdleBuffers();
      rooms_->Settle(number_);
    }
    if (!no_tickets_ || no_tickets_since_ != seen) {
      no_tickets_ = false;
      no_tickets_since_ = seen;
      TakeTickets();
    }
    if (Sample* sample = NextSample(); sample != nullptr) {
      const std::shared_ptr<Job>& job = sample->work->ticket.batch->stream().shared_job();
      WorkFor(job);
      usage_.wait_ns += reader_->TakeWaitNs();
      usage_.read_ns += reader_->TakeReadNs();
      turns_.several() ? ProcessInTurn(sample) : Process(sample);
      continue;
    }
    WorkFor(nullptr);
    if (reader_->in_flight() > 0) {  // storage holds up everything; there may be other tickets
      reader_->TakeWaitNs();         // nobody's else than the job's that waits
      scheduler_->Beat();
      continue;
    }
    // Nothing is on its way here.
    if (stop_->load(std::memory_order_acquire)) return;
    if (no_tickets_) parking_->Sleep(no_tickets_since_);
  }
}

SampleMaker& Worker::MakerFor(const Batch& batch) {
  const std::shared_ptr<Job>& job = batch.stream().shared_job();
  const LoadedPipeline& pipeline = *job->config().pipeline;
  SeekIndexes* const indexes = pipeline.seek_indexes.get();
  if (!job->config().isolated) {
    in_process_.Use(pipeline.plan.get(), indexes, &batch.dropped_flag());
    return in_process_;
  }
  for (const Seat& seat : seats_) {
    if (seat.job != job) continue;
    seat.maker->UseClock(clock_, &batch.dropped_flag());
    return *seat.maker;
  }
  seats_.push_back({job, std::make_unique<IsolatedMaker>(decoders_, pipeline.plan,
                                                         SetupOf(pipeline.spec, *pipeline.dataset),
                                                         pipeline.spec.limits)});
  seats_.back().maker->UseSeekIndexes(indexes);
  seats_.back().maker->UseClock(clock_, &batch.dropped_flag());
  return *seats_.back().maker;
}

// Ends the decoder processes of jobs that are over.
void Worker::LeaveEndedJobs() {
  seats_.erase(std::remove_if(seats_.begin(), seats_.end(),
                              [](const Seat& seat) { return seat.job->ended(); }),
               seats_.end());
}

void Worker::TakeTickets() {
  if (!seats_.empty()) LeaveEndedJobs();
  turns_.ForgetEmptyHands();
  while (reader_->wants_more() &&
         static_cast<int64_t>(reader_->in_flight()) + turns_.queued() - held_up_ < kMaxSamples) {
    const Turns::Whose whose = turns_.MayTake();
    if (whose.nobody) return;
    turns_.Asked();
    std::optional<Ticket> ticket = scheduler_->Take(number_, whose.only_user, &cpu_counted_ns_);
    if (!ticket.has_value()) {
      no_tickets_ = !whose.only_user.has_value();
      return;
    }
    StartTicket(*std::move(ticket));
  }
}

void Worker::StartTicket(Ticket ticket) {
  const Batch& batch = *ticket.batch;
  Job& job = batch.job();
  WorkFor(batch.stream().shared_job());
  if (ticket.first_of_epoch) scheduler_->PrepareEpoch(job, batch.order().epoch() + 1);

  Work* work = works_.Get();
  work->ticket = std::move(ticket);
  work->result = TicketResult();
  work->left = work->ticket.count;
  if (work->left == 0) return Complete(work);
  const int64_t start = MonotonicNs();
  const uint32_t user = job.config().owner_uid;
  turns_.Take(user, work->ticket.is_slow, work->ticket.count);
  for (int64_t i = 0; i < work->ticket.count; ++i) {
    Sample* sample = samples_.Get();
    sample->user = user;
    sample->slow = work->ticket.is_slow;
    sample->work = work;
    sample->place = work->ticket.first + i;
    sample->placement = batch.order().At(batch.step(), batch.stream().rank(), sample->place);
    sample->tries = 0;
    sample->bad = BadSample();
    sample->bad.record = -1;
    sample->bytes.user = sample;
    if (sample->placement.is_real) ++work->result.real;
    reader_->Start(job.dataset(), sample->placement.record, &sample->bytes, job.files(),
                   job.cache());
  }
  usage_.read_ns += MonotonicNs() - start;
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
    RecordBytes* const bytes = reader_->Collect(kLookAroundNs);
    if (bytes == nullptr) return nullptr;
    auto* const sample = static_cast<Sample*>(bytes->user);
    if (!several) return sample;
    turns_.Queue(sample);
  }
}

// Its user pays for it with the next turns.
void Worker::ProcessInTurn(Sample* sample) {
  const Turns::Sample turn = *sample;  // which is somebody else's afterwards
  const Ticket& ticket = sample->work->ticket;
  if (ticket.count < kCheapTicket) {
    CountCpu();
    const int64_t before = used_ns_;
    Process(sample);
    CountCpu();
    return turns_.Made(turn, used_ns_ - before);
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
  if (IsPointless(*sample)) return Done(sample);

  absl::Status status = sample->bytes.status();
  if (work.files.size() > kFilesHeld) ProveFiles(&work);
  RecordReader::AddFiles(sample->bytes, &work.files);
  if (sample->bytes.origin() != RecordBytes::Origin::kDataset) {
    // Whatever is wrong with what was kept, the record itself may be good.
    if (status.ok()) status = OpenKept(*sample);
    if (!status.ok()) return ReadAnew(sample);
  }
  if (status.ok()) {
    status = RunSample(*sample);
    usage_.bytes_read += sample->bytes.size();
    if (IsTransient(status) && !batch.dropped() && reader_->TryAnew(&sample->bytes, &status))
      return;
  }
  if (!status.ok() && batch.dropped()) return Done(sample);  // perhaps for that reason
  const bool machine = TellsOfTheMachine(status, sample->bytes);
  const BadSamplePolicy policy = batch.job().config().pipeline->spec.on_bad_sample;
  const bool is_own = sample->tries == 0;
  if (status.ok()) {
    if (!is_own) sample->bad.stood_in = sample->bytes.record();
  } else if (machine) {
    return GiveUp(sample, MachineFailure(Bad(*sample, status), status));
  } else {
    if (is_own) sample->bad = Bad(*sample, status);
    if (policy != BadSamplePolicy::kFail && StartSubstitute(sample)) return;
    if (policy != BadSamplePolicy::kSkipWithCount)
      return GiveUp(sample, RecordFailure(sample->bad, sample->tries));
    batch.job().plan()->RunBlank(InputOf(*sample), sample->place, batch.memory());
  }
  if (sample->bad.record >= 0) {
    if (policy == BadSamplePolicy::kSkipWithCount && sample->placement.is_real) --work.result.real;
    work.result.bad.push_back(std::move(sample->bad));
  }
  Done(sample);
}

// The place, and with it the batch, cannot be filled.
void Worker::GiveUp(Sample* sample, BatchFailure failure) {
  TicketResult& result = sample->work->result;
  if (sample->bad.record >= 0) result.bad.push_back(std::move(sample->bad));
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
      sample.bad.record >= 0 &&
      batch.job().config().pipeline->spec.on_bad_sample == BadSamplePolicy::kSkipWithCount;
  SampleInput input;
  input.sample_id = sample.bytes.record();
  input.position = sample.placement.position;
  input.is_real = sample.placement.is_real && !is_skipped;
  if (is_skipped) input.stands_for = sample.placement.record;
  input.key = batch.order().key();
  return input;
}

// Only cheap samples come so fast that the name of their file would show; the number of their
// record has to do for them.
void Worker::EnterCrumb(const Sample& sample) {
  if (crumb_ == nullptr) return;
  const Ticket& ticket = sample.work->ticket;
  const Dataset& dataset = ticket.batch->job().dataset();
  if (ticket.count >= kCheapTicket)
    return crumb_->Enter(dataset.digest(), sample.bytes.record(), 0, sample.bytes.size(), "");
  extents_.clear();
  dataset.Extents(sample.bytes.record(), &extents_);
  if (extents_.empty()) return crumb_->Enter(dataset.digest(), sample.bytes.record(), 0, 0, "");
  crumb_->Enter(dataset.digest(), sample.bytes.record(), extents_[0].offset, sample.bytes.size(),
                dataset.ObjectPath(extents_[0].object));
}

absl::Status Worker::RunSample(const Sample& sample) {
  const Ticket& ticket = sample.work->ticket;
  const Batch& batch = *ticket.batch;
  const int64_t every = ticket.count >= kCheapTicket ? kCheapTimedOneIn : 1;
  const bool timed = ++stage_clock_ % every == 0;
  if (bad_samples_ != nullptr && bad_samples_->quarantined() > 0) {
    const std::string why =
        bad_samples_->WhyQuarantined(batch.job().dataset().digest(), sample.bytes.record());
    if (!why.empty()) return absl::DataLossError(why);
  }
  EnterCrumb(sample);

  SampleInput input = InputOf(sample);
  SampleMaker* maker = nullptr;
  const int64_t start = timed ? MonotonicNs() : 0;
  int64_t parse_ns = 0;
  bool keep = false;
  const absl::Status status = NoThrow([&] {
    maker = &MakerFor(batch);
    return MakeSample(sample, *maker, &input, timed ? &parse_ns : nullptr, &keep);
  });
  if (maker != nullptr) {
    const MakingCost cost = maker->TakeCost();
    usage_.cpu_ns += cost.cpu_ns;
    usage_.held_ns += cost.held_ns;
    used_ns_ += cost.cpu_ns + cost.held_ns;
    usage_.decoded.AddSince({}, cost.decoded);
  }
  if (crumb_ != nullptr) crumb_->Leave();
  if (status.ok() && keep) {
    NoThrow([&] {
      // Another job may take it from the cache before this one has noticed that the file changed.
      OpenedFiles files;
      RecordReader::AddFiles(sample.bytes, &files);
      for (const auto& file : files) FW_RETURN_IF_ERROR(ProveUnchanged(*file));
      batch.job().cache()->Put(sample.bytes.record(), sample.bytes.stamp(), payload_);
      return absl::OkStatus();
    }).IgnoreError();
  }
  LeaveRoom();
  if (payload_.capacity() > kKeptScratchBytes) std::vector<std::byte>().swap(payload_);
  if (timed) {
    usage_.parse_ns += every * parse_ns;
    usage_.run_ns += every * (MonotonicNs() - start - parse_ns);
  }
  return status;
}

// From a record's bytes, or from what was kept of it, to its place in the batch. `keep` becomes
// true when payload_ is to be kept of it.
absl::Status Worker::MakeSample(const Sample& sample, SampleMaker& maker, SampleInput* input,
                                int64_t* parse_ns, bool* keep) {
  const Batch& batch = *sample.work->ticket.batch;
  const Job& job = batch.job();
  const bool is_kept = sample.bytes.origin() != RecordBytes::Origin::kDataset;
  bool wanted = !is_kept && job.cache() != nullptr && RecordReader::IsSettled(sample.bytes) &&
                job.cache()->Wants(input->sample_id, sample.bytes.stamp());
  const bool decoded = job.config().pipeline->cache_kind == CacheKind::kDecoded;
  if (decoded && is_kept) {
    input->record = &kept_record_;
    FW_RETURN_IF_ERROR(EnterRoom(sample, *input, SampleWay::kFromPrefix, false, maker));
    return maker.RunFromPrefix(*input, sample.place, batch.memory());
  }

  const int64_t start = parse_ns != nullptr ? MonotonicNs() : 0;
  input->record = &record_;
  FW_RETURN_IF_ERROR(job.dataset().Parse(
      input->sample_id, is_kept ? absl::MakeConstSpan(kept_) : sample.bytes.extents(), &record_));
  if (parse_ns != nullptr) *parse_ns = MonotonicNs() - start;

  bool packs = wanted && !decoded;
  const SampleWay way = wanted && decoded ? SampleWay::kKeeping : SampleWay::kWhole;
  absl::Status entered = EnterRoom(sample, *input, way, packs, maker);
  // What cannot be kept is a sample all the same.
  if (wanted && !entered.ok() && !absl::IsCancelled(entered)) {
    wanted = packs = false;
    entered = EnterRoom(sample, *input, SampleWay::kWhole, packs, maker);
  }
  FW_RETURN_IF_ERROR(entered);
  if (packs) {
    FW_ASSIGN_OR_RETURN(*keep, PackRecord(sample, maker));
    if (*keep) FW_RETURN_IF_ERROR(job.dataset().Parse(input->sample_id, kept_, &record_));
  }
  if (!wanted || !decoded) return maker.Run(*input, sample.place, batch.memory());
  // What cannot be kept may be a good sample all the same: a prefix decodes all of an image, the
  // whole graph perhaps a part that is not damaged.
  return maker.RunKeeping(
      *input, sample.place, batch.memory(), kMaxKeptFieldBytes,
      [&](const Record& kept) { *keep = PackFields(job.plan()->prefix(), kept, &payload_); });
}

// Makes sure that the memory which the sample takes is in the budget: the job's own claim, or more
// for a large image. `packs`: the record is packed for the cache, too.
absl::Status Worker::EnterRoom(const Sample& sample, const SampleInput& input, SampleWay way,
                               bool packs, SampleMaker& maker) {
  const Batch& batch = *sample.work->ticket.batch;
  const Job& job = batch.job();
  const Plan& plan = *job.plan();
  const bool isolated = job.config().isolated;
  int64_t more_bytes = 0;  // beside what the plan says
  // In the decoder's region, and on its way there.
  if (isolated && sample.bytes.size() > kCountedRecordBytes) more_bytes += 2 * sample.bytes.size();
  const SampleMemory& memory = plan.memory(way);
  SampleNeed need{memory.fixed, {}};
  const bool fits = isolated || fitted_plan_ == &plan;
  if (memory.depends_on_images || !fits) need = plan.NeedOf(input, way, in_process_.workspace());
  if (packs) {
    const bool unpacks = job.config().pipeline->cache_kind == CacheKind::kCoefficients;
    const int64_t pixels = static_cast<int64_t>(need.largest.width) * need.largest.height;
    more_bytes +=
        kPackedCopies * (sample.bytes.size() + (unpacks ? pixels / kPixelsPerPackedByte : 0));
  }
  const int64_t extra = need.bytes + more_bytes - job.claimed_bytes();
  if (extra > 0) {
    usage_.is_large = true;
    absl::StatusOr<SampleRooms::Room> room =
        rooms_->Enter(job.config().owner_uid, extra, &batch.dropped_flag(),
                      sample.bytes.size() > kCountedRecordBytes,
                      /*waits=*/way != SampleWay::kKeeping && !packs);
    if (!room.ok()) {
      const bool is_image = need.largest.width > 0;
      return Annotate(
          room.status(),
          absl::StrCat("a sample of ",
                       is_image ? absl::StrCat("an image of ", need.largest.width, "x",
                                               need.largest.height, " pixels")
                                : absl::StrCat("a record of ", FormatBytes(sample.bytes.size())),
                       " takes ", FormatBytes(need.bytes + more_bytes), " while it is made, and ",
                       FormatBytes(job.claimed_bytes()), " are there for it",
                       is_image ? " (a smaller max_pixels in the pipeline's `limits` would make it "
                                  "a bad sample)"
                                : ""));
    }
    room_ = *std::move(room);
  }
  if (job.claimed_bytes() < INT64_MAX / 2)
    maker.Allow(job.claimed_bytes() + std::max<int64_t>(extra, 0));
  if (isolated || (fits && !memory.depends_on_images)) return absl::OkStatus();
  in_process_.workspace().Fit(
      std::max(rooms_->OfWorker(number_), std::min(job.claimed_bytes(), INT64_MAX / 2)) +
      std::max<int64_t>(extra, 0));
  fitted_plan_ = &plan;
  return absl::OkStatus();
}

// The large sample is made: its memory goes before its room does.
void Worker::LeaveRoom() {
  if (room_.bytes() == 0) return;
  GiveBackMemory();
  room_.Release();
}

void Worker::GiveBackMemory() {
  in_process_.workspace().GiveBack();
  fitted_plan_ = nullptr;
  std::vector<std::byte>().swap(payload_);
  documents_.clear();
  documents_.shrink_to_fit();
  kept_.clear();
  LeaveEndedJobs();
}

// Fills kept_, or kept_record_, with what the cache has kept.
absl::Status Worker::OpenKept(const Sample& sample) {
  const RecordBytes& bytes = sample.bytes;
  const Job& job = sample.work->ticket.batch->job();
  absl::Span<const std::byte> payload = bytes.extents()[0];
  if (bytes.origin() == RecordBytes::Origin::kDisk) {
    FW_ASSIGN_OR_RETURN(
        const BlockView block,
        job.cache()->TakeFromDisk(bytes.record(), bytes.stamp(), bytes.kept_at(), payload));
    payload = block.payload;
  }
  if (job.config().pipeline->cache_kind == CacheKind::kDecoded)
    return UnpackFields(job.plan()->prefix(), payload, &kept_record_);
  return UnpackExtents(payload, &kept_);
}

void Worker::ReadAnew(Sample* sample) { reader_->StartAnew(&sample->bytes); }

// Makes payload_ what is to be kept of a record that was read, and kept_ its extents: the sample is
// made from them, so that a JPEG is decoded once although all of it is kept and only a part is
// looked at. False when it cannot be kept.
absl::StatusOr<bool> Worker::PackRecord(const Sample& sample, SampleMaker& maker) {
  const Job& job = sample.work->ticket.batch->job();
  const RecordBytes& bytes = sample.bytes;
  kept_.assign(bytes.extents().begin(), bytes.extents().end());
  if (job.config().pipeline->cache_kind == CacheKind::kCoefficients) {
    const ImageLimits& limits = job.config().pipeline->spec.limits;
    documents_.resize(kept_.size());
    for (size_t i = 0; i < kept_.size(); ++i) {
      FW_RETURN_IF_ERROR(maker.Pack(kept_[i], limits, &documents_[i]));
      if (!documents_[i].empty()) kept_[i] = documents_[i];
    }
  }
  return PackExtents(kept_, &payload_) && UnpackExtents(payload_, &kept_).ok();
}

// A bad record's place goes to the next position of the epoch's global order that has a good one: a
// rule that looks at nothing but the order and the records.
bool Worker::StartSubstitute(Sample* sample) {
  Job& job = sample->work->ticket.batch->job();
  const int64_t records = job.dataset().size();
  if (sample->tries >= std::min(kMaxSubstitutes, records - 1)) return false;
  ++sample->tries;
  const int64_t position = (sample->placement.position + sample->tries) % records;
  const int64_t record = sample->work->ticket.batch->order().RecordAt(position);
  reader_->Release(&sample->bytes);
  reader_->Start(job.dataset(), record, &sample->bytes, job.files(), job.cache());
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
  turns_.Done(*sample);
  samples_.Put(sample);
  ++usage_.samples;
  if (--work->left == 0) Complete(work);
}

void Worker::Complete(Work* work) {
  ProveFiles(work);
  CountCpu();
  const Usage usage = std::exchange(usage_, Usage());
  if (scheduler_->Complete(work->ticket, work->result, usage)) {
    scheduler_->Finish(work->ticket.batch, RunBatchOps(*work->ticket.batch));
  }
  work->ticket.batch = nullptr;  // or an idle worker would keep a closed stream's memory
  works_.Put(work);
}

absl::Status Worker::RunBatchOps(const Batch& batch) {
  const Plan* plan = batch.job().plan();
  if (batch.samples() == 0 || !plan->has_batch_ops() || batch.dropped()) return absl::OkStatus();
  const int64_t start = MonotonicNs();
  absl::Status status = NoThrow([&] {
    in_process_.workspace().clock().Begin(batch.samples() * plan->limits().max_sample_ms,
                                          &batch.dropped_flag());
    return plan->FinishBatch(batch.samples(), batch.number(), batch.order().key(), batch.memory(),
                             in_process_.workspace());
  });
  usage_.batch_ns += MonotonicNs() - start;
  return Annotate(status,
                  absl::StrCat("batch ", batch.meta().step, " of epoch ", batch.meta().epoch));
}

void Worker::WorkFor(const std::shared_ptr<Job>& job) {
  if (job == job_) return;
  CountCpu();
  const Usage usage = std::exchange(usage_, Usage());
  if (job_ != nullptr) scheduler_->Charge(*job_, usage);
  job_ = job;
}

void Worker::CountCpu() {
  const int64_t now = ThreadCpuNs();
  usage_.cpu_ns += now - cpu_counted_ns_;
  used_ns_ += now - cpu_counted_ns_;
  cpu_counted_ns_ = now;
}

}  // namespace feedwater::server
