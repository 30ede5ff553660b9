#include "server/pipeline/sample_runner.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/no_throw.h"
#include "server/base/units.h"
#include "server/graph/verified_record.h"
#include "server/pipeline/kept_fields.h"
#include "server/source/given_records.h"

namespace feedwater::server {
namespace {

// Cheap samples are timed one in so many, or the clock would be a good part of what it measures.
constexpr int64_t kCheapTimedOneIn = 16;
// What is packed of a record stands in memory a few times: the packer's (twice while it grows), the
// document, the payload.
constexpr int64_t kPackedCopies = 5;
// Records that go to a decoder process are there, and between, once more; small ones do not count.
constexpr int64_t kCountedRecordBytes = 4 << 20;

}  // namespace

SampleRunner::SampleRunner(Parts parts)
    : worker_(parts.worker),
      rooms_(std::move(parts.rooms)),
      clock_(parts.clock),
      bad_samples_(parts.bad_samples),
      crumb_(parts.crumb),
      decoders_(std::move(parts.decoders)),
      turn_(parts.turn) {
  in_process_.UseTurn(turn_);
  in_process_.workspace().UseClock(clock_);
}

SampleMaker& SampleRunner::MakerFor(const Batch& batch) {
  const std::shared_ptr<Job>& job = batch.stream().shared_job();
  const LoadedPipeline& pipeline = *job->config().pipeline;
  SeekIndexes* const indexes = pipeline.seek_indexes.get();
  if (!job->config().isolated) {
    in_process_.Use(pipeline.plan.get(), indexes, &batch.dropped_flag(), pipeline.op_caller.get());
    return in_process_;
  }
  for (const JobMaker& maker : job_makers_) {
    if (maker.job != job) continue;
    maker.maker->UseClock(clock_, &batch.dropped_flag());
    return *maker.maker;
  }
  job_makers_.push_back(
      {job, std::make_unique<IsolatedMaker>(decoders_, pipeline.plan,
                                            SetupOf(pipeline.spec, *pipeline.dataset),
                                            pipeline.spec.limits)});
  job_makers_.back().maker->UseSeekIndexes(indexes);
  job_makers_.back().maker->UseCaller(pipeline.op_caller.get(), turn_);
  job_makers_.back().maker->UseClock(clock_, &batch.dropped_flag());
  return *job_makers_.back().maker;
}

void SampleRunner::LeaveEndedJobs() {
  if (job_makers_.empty()) return;
  job_makers_.erase(std::remove_if(job_makers_.begin(), job_makers_.end(),
                                   [](const JobMaker& maker) { return maker.job->ended(); }),
                    job_makers_.end());
}

// Only cheap samples come so fast that the name of their file would show; the number of their
// record has to do for them.
void SampleRunner::EnterCrumb(const Making& sample) {
  if (crumb_ == nullptr) return;
  const Dataset& dataset = sample.batch.job().dataset();
  const std::string& contents = ContentsOf(sample.batch);
  if (sample.is_cheap)
    return crumb_->Enter(contents, sample.bytes.record(), 0, sample.bytes.size(), "");
  extents_.clear();
  dataset.Extents(sample.bytes.record(), &extents_);
  if (extents_.empty()) return crumb_->Enter(contents, sample.bytes.record(), 0, 0, "");
  const Extent& naming = extents_[dataset.NamingExtent(sample.bytes.record())];
  crumb_->Enter(contents, sample.bytes.record(), naming.offset, sample.bytes.size(),
                dataset.PathText(naming.object));
}

// As ContentsIn, without a copy where records are the same in each epoch.
const std::string& SampleRunner::ContentsOf(const Batch& batch) {
  const Dataset& dataset = batch.job().dataset();
  if (WorkersOf(dataset) == 0) return dataset.contents();
  contents_ = ContentsIn(dataset, batch.meta().epoch);
  return contents_;
}

absl::Status SampleRunner::Run(const Making& sample, SampleInput input, Usage* usage) {
  const Batch& batch = sample.batch;
  const int64_t every = sample.is_cheap ? kCheapTimedOneIn : 1;
  const bool timed = ++stage_clock_ % every == 0;
  if (bad_samples_ != nullptr && bad_samples_->quarantined() > 0) {
    const std::string why = bad_samples_->WhyQuarantined(ContentsOf(batch), sample.bytes.record());
    if (!why.empty()) return absl::DataLossError(why);
  }
  EnterCrumb(sample);

  SampleMaker* maker = nullptr;
  const int64_t start = timed ? MonotonicNs() : 0;
  int64_t parse_ns = 0;
  cached_.Begin();
  const absl::Status status = NoThrow([&] {
    maker = &MakerFor(batch);
    return Make(sample, *maker, &input, usage, timed ? &parse_ns : nullptr);
  });
  if (maker != nullptr) {
    const MakingCost cost = maker->TakeCost();
    usage->cpu_ns += cost.cpu_ns;
    usage->held_ns += cost.held_ns;
    usage->decoded.AddSince({}, cost.decoded);
  }
  if (crumb_ != nullptr) crumb_->Leave();
  if (status.ok()) cached_.Put(batch.job(), sample.bytes);
  LeaveRoom();
  cached_.GiveBackLargeMemory();
  if (timed) {
    usage->parse_ns += every * parse_ns;
    usage->run_ns += every * (MonotonicNs() - start - parse_ns);
  }
  return status;
}

// From a record's bytes, or from what was kept of it, to its place in the batch.
absl::Status SampleRunner::Make(const Making& sample, SampleMaker& maker, SampleInput* input,
                                Usage* usage, int64_t* parse_ns) {
  const Batch& batch = sample.batch;
  const Job& job = batch.job();
  const bool is_kept = sample.bytes.origin() != RecordBytes::Origin::kDataset;
  bool wanted = CachedRecord::IsWanted(job, sample.bytes);
  const bool decoded = job.config().pipeline->cache_kind == CacheKind::kDecoded;
  if (is_kept) {
    input->record = &cached_.fields();
    const SampleWay way = decoded ? SampleWay::kFromPrefix : SampleWay::kWhole;
    FW_RETURN_IF_ERROR(EnterRoom(sample, *input, way, false, maker, usage));
    return decoded ? maker.RunFromPrefix(*input, sample.place, batch.memory())
                   : maker.Run(*input, sample.place, batch.memory());
  }

  const int64_t start = parse_ns != nullptr ? MonotonicNs() : 0;
  input->record = &record_;
  FW_RETURN_IF_ERROR(
      ParseVerified(job.dataset(), input->sample_id, sample.bytes.extents(), &record_));
  if (parse_ns != nullptr) *parse_ns = MonotonicNs() - start;

  bool packs = wanted && !decoded;
  const SampleWay way = wanted && decoded ? SampleWay::kKeeping : SampleWay::kWhole;
  absl::Status entered = EnterRoom(sample, *input, way, packs, maker, usage);
  // What cannot be kept is a sample all the same.
  if (wanted && !entered.ok() && !absl::IsCancelled(entered)) {
    wanted = packs = false;
    entered = EnterRoom(sample, *input, SampleWay::kWhole, packs, maker, usage);
  }
  FW_RETURN_IF_ERROR(entered);
  if (packs) {
    FW_RETURN_IF_ERROR(cached_.Pack(job, record_, maker));
    if (cached_.is_packed()) input->record = &cached_.fields();
  }
  if (!wanted || !decoded) return maker.Run(*input, sample.place, batch.memory());
  // What cannot be kept may be a good sample all the same: a prefix decodes all of an image, the
  // whole graph perhaps a part that is not damaged.
  return maker.RunKeeping(*input, sample.place, batch.memory(), kMaxKeptFieldBytes,
                          [&](const Record& fields) { cached_.PackFields(job, fields); });
}

// Makes sure that the memory which the sample takes is in the budget: the job's own claim, or more
// for a large image. `packs`: the record is packed for the cache, too.
absl::Status SampleRunner::EnterRoom(const Making& sample, const SampleInput& input, SampleWay way,
                                     bool packs, SampleMaker& maker, Usage* usage) {
  const Batch& batch = sample.batch;
  const Job& job = batch.job();
  const Plan& plan = *job.plan();
  const bool isolated = job.config().isolated;
  // Beside what the plan says: what the record's fields were made of beside its bytes.
  const auto made_bytes = static_cast<int64_t>(record_.scratch.capacity());
  int64_t more_bytes = made_bytes > kCountedRecordBytes ? made_bytes : 0;
  // In the decoder's region, and on its way there.
  if (isolated && sample.bytes.size() > kCountedRecordBytes) more_bytes += 2 * sample.bytes.size();
  const SampleMemory& memory = plan.memory(way);
  SampleNeed need{memory.fixed, memory.calls.bytes(), {}};
  const bool fits = isolated || fitted_plan_ == plan.id();
  if (memory.depends_on_record || !fits || (isolated && memory.calls.are_open))
    need = plan.NeedOf(input, way, in_process_.workspace());
  if (isolated) more_bytes += need.calls;
  if (packs) {
    const CachedRecord::Need packing = CachedRecord::NeedOf(job, record_);
    more_bytes +=
        kPackedCopies * std::max({sample.bytes.size(), made_bytes, packing.packed_bytes}) +
        packing.coefficient_bytes;
  }
  const int64_t extra = need.bytes + more_bytes - job.claimed_bytes();
  if (extra > 0) {
    usage->is_large = true;
    absl::StatusOr<SampleRooms::Room> room =
        rooms_->Enter(job.config().owner_uid, extra, &batch.dropped_flag(),
                      std::max(sample.bytes.size(), made_bytes) > kCountedRecordBytes,
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
  if (isolated || (fits && !memory.depends_on_record)) return absl::OkStatus();
  in_process_.workspace().Fit(
      std::max(rooms_->OfWorker(worker_), std::min(job.claimed_bytes(), INT64_MAX / 2)) +
      std::max<int64_t>(extra, 0));
  fitted_plan_ = plan.id();
  return absl::OkStatus();
}

// The large sample is made: its memory goes before its room does.
void SampleRunner::LeaveRoom() {
  if (room_.bytes() == 0 &&
      record_.scratch.capacity() <= static_cast<size_t>(kCountedRecordBytes)) {
    return;
  }
  GiveBackMemory();
  room_.Release();
}

void SampleRunner::GiveBackMemory() {
  in_process_.workspace().GiveBack();
  if (record_.scratch.capacity() > kCountedRecordBytes)
    std::vector<std::byte>().swap(record_.scratch);
  fitted_plan_ = 0;
  cached_.GiveBackMemory();
  LeaveEndedJobs();
}

absl::Status SampleRunner::FinishBatch(const Batch& batch, size_t* ops_done, Usage* usage) {
  const Plan* plan = batch.job().plan();
  if (!plan->finishes_batches() || batch.dropped()) return absl::OkStatus();
  const int64_t start = MonotonicNs();
  const LoadedPipeline& pipeline = *batch.job().config().pipeline;
  absl::Status status = NoThrow([&] {
    in_process_.UseCaller(pipeline.op_caller.get(), &batch.dropped_flag());
    in_process_.workspace().clock().Begin(batch.samples() * plan->limits().max_sample_ms,
                                          &batch.dropped_flag());
    return plan->FinishBatch(batch.samples(), batch.number(), batch.order().key(), batch.memory(),
                             in_process_.workspace(), ops_done);
  });
  usage->batch_ns += MonotonicNs() - start;
  usage->held_ns += in_process_.TakeCost().held_ns;
  return Annotate(status,
                  absl::StrCat("batch ", batch.meta().step, " of epoch ", batch.meta().epoch));
}

}  // namespace feedwater::server
