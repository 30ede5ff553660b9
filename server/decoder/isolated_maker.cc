#include "server/decoder/isolated_maker.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/escape.h"
#include "server/base/units.h"
#include "server/graph/op_spec.h"
#include "server/storage/engine.h"  // kReadPadding
#include "spdlog/spdlog.h"

namespace feedwater::server {
namespace {

// How long a decoder that works may keep a worker, by its CPU time: others have the CPU, too.
constexpr int64_t kGraceNs = 20'000'000, kBusyMachine = 4;

constexpr absl::string_view kNoLongerNeeded = "the sample is no longer needed";
// A process is killed for the machine's sake, not for the record's: another one tries again.
constexpr int kTries = 5;
constexpr int kTriesStandingStill = 2;  // each holds a worker up for long
// Counted into `memory` for each process: code that is not shared, heap, what stays of the region;
// twice what one has that decodes photos (Private_Dirty in /proc/PID/smaps_rollup).
constexpr int64_t kCountedBytes = 8 << 20;
// Of its own memory at most, beside what its plan says of a sample.
constexpr int64_t kOwnMemoryBytes = 512 << 20;
// A record on which the kernel has killed so many for want of memory is at fault.
constexpr int kKillsForMemory = 2;
// CPU time is bounded in the decoder (max_sample_ms); this is for one that does not obey, and far
// enough away for no honest one to get there: an op that is not looked into takes some seconds.
constexpr double kPatiencePerLimit = 3, kWorkPerLimit = 3;

// Each process has the files of ops for itself.
uint64_t MemoryBytes(const Plan& plan, const std::vector<OpFile>& files) {
  const int64_t most =
      std::max(plan.memory(SampleWay::kWhole).most, plan.memory(SampleWay::kKeeping).most);
  return static_cast<uint64_t>(kOwnMemoryBytes + OpFileMemory(files) + most);
}

bool IsJpeg(const Tensor& field) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(field.data);
  return field.spec.layout == Layout::kEncoded && field.bytes() > 2 && bytes[0] == 0xff &&
         bytes[1] == 0xd8;
}

bool IsNotOfTheRecord(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         absl::IsCancelled(status);
}

bool RunsGraph(DecoderCommand command) {
  return command == DecoderCommand::kRun || command == DecoderCommand::kRunKeeping ||
         command == DecoderCommand::kRunFromPrefix;
}

// The error when it is not a record's fault, again and again; `when`: " on one record".
absl::Status NotItsFault(DecoderProcess::Outcome outcome, int tries, absl::string_view when,
                         absl::string_view how) {
  if (outcome == DecoderProcess::Outcome::kStoodStill) {
    return absl::ResourceExhaustedError(
        absl::StrCat("decoder processes hang (", tries, " times", when, "; the last one ", how,
                     "): are they stopped or frozen, or do they wait for the machine?"));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "decoder processes are killed again and again (SIGKILL, ", tries, " times", when,
      "): too little memory for them? See the kernel's log; cure: a larger limit for the daemon's "
      "cgroup, or a smaller `memory`"));
}

}  // namespace

// What the process says: by now it may be anybody.
std::string Said(const Answer& answer) {
  return Escaped(absl::string_view(answer.message, answer.message_bytes));
}

IsolatedMaker::IsolatedMaker(std::shared_ptr<DecoderHost> host, std::shared_ptr<const Plan> plan,
                             DecoderSetup setup, const ImageLimits& limits)
    : host_(std::move(host)),
      plan_(std::move(plan)),
      setup_(std::move(setup)),
      identity_(PlanIdentity(*plan_)),
      patience_seconds_(host_->patience_seconds +
                        kPatiencePerLimit * static_cast<double>(limits.max_decode_ms) / 1000),
      working_seconds_(kWorkPerLimit *
                       static_cast<double>(std::max(limits.max_decode_ms, limits.max_sample_ms)) /
                       1000),
      area_(SampleArea::Of(*plan_)) {
  options_.memory_bytes = MemoryBytes(*plan_, setup_.files);
  if (!area_.ok()) return;
  options_.input_bytes = area_->input_bytes();
  options_.output_bytes = area_->output_bytes();
}

int64_t IsolatedMaker::ProcessBytes(const Plan& plan, const std::vector<OpFile>& files) {
  const absl::StatusOr<SampleArea> area = SampleArea::Of(plan);
  return kCountedBytes + OpFileMemory(files) + (area.ok() ? static_cast<int64_t>(area->bytes) : 0);
}

IsolatedMaker::~IsolatedMaker() { End(/*is_death=*/false); }

void IsolatedMaker::End(bool is_death) {
  if (process_ == nullptr) return;
  cost_.cpu_ns += process_->TakeCpuNs();
  host_->Leave(process_.get());
  process_.reset();
  reservation_.Release();
  if (is_death) ++host_->deaths;
}

absl::Status IsolatedMaker::Launch() {
  FW_RETURN_IF_ERROR(area_.status());
  if (host_->budget != nullptr) {
    FW_ASSIGN_OR_RETURN(reservation_,
                        host_->budget->Reserve(
                            "decoders", ProcessBytes(*plan_, setup_.files) + plan_->table_bytes()));
  }
  FW_ASSIGN_OR_RETURN(process_, DecoderProcess::Start(*host_->program, options_));
  FW_RETURN_IF_ERROR(host_->Enter(process_.get()));
  ++host_->started;
  limited_to_ = -1;
  oom_kills_ = host_->oom_kills();
  process_->SetWatch([this] {
    if (clock_ != nullptr) clock_->Beat();  // also for one that stands still: patience has an end
    return gone_ == nullptr || !gone_->load(std::memory_order_relaxed);
  });
  made_ = area_->At(process_->region().output());

  const std::string text = EncodeSetup(setup_);
  Tensor field;
  field.spec.shape = {static_cast<int64_t>(text.size())};
  field.data = reinterpret_cast<std::byte*>(const_cast<char*>(text.data()));
  FW_RETURN_IF_ERROR(Fill(DecoderCommand::kSetUp, SampleInput(), {&field, 1}, 0));
  return absl::OkStatus();
}

DecoderProcess::Outcome IsolatedMaker::Exchange(std::string* how) {
  const int64_t start = MonotonicNs();
  const DecoderProcess::Outcome outcome = process_->Exchange(how);
  waited_ns_ += MonotonicNs() - start;
  return outcome;
}

absl::Status IsolatedMaker::Start() {
  std::string how;
  for (int tries = 0; process_ == nullptr; ++tries) {
    const absl::Status launched = Launch();
    if (!launched.ok()) {
      reservation_.Release();
      End(/*is_death=*/false);
      return launched;
    }
    const DecoderProcess::Outcome outcome = Exchange(&how);
    if (outcome != DecoderProcess::Outcome::kAnswered) {
      End(/*is_death=*/outcome != DecoderProcess::Outcome::kUnwanted);
      if (outcome == DecoderProcess::Outcome::kUnwanted)
        return absl::CancelledError(kNoLongerNeeded);
      if (outcome == DecoderProcess::Outcome::kKilled && tries + 1 < kTries) continue;
      if (outcome != DecoderProcess::Outcome::kDied) {
        return NotItsFault(outcome, tries + 1, " at their start", how);
      }
      return absl::ResourceExhaustedError(
          absl::StrCat("a decoder process (", host_->program->path(), ") ", how, " at its start"));
    }
    const absl::Status status = ReadAnswer();
    const std::string told = Said(answer_);
    if (status.ok() && told == identity_) {
      process_->SetPatience(patience_seconds_, working_seconds_);
      cost_.cpu_ns += process_->TakeCpuNs();
      break;
    }
    End(/*is_death=*/false);
    return absl::UnavailableError(absl::StrCat(
        "a decoder process (", host_->program->path(),
        ") cannot work: ", status.ok() ? "it is not of this daemon's version" : status.message()));
  }
  return absl::OkStatus();
}

// Puts a request into the region.
absl::Status IsolatedMaker::Fill(DecoderCommand command, const SampleInput& input,
                                 absl::Span<const Tensor> fields, int64_t max_field_bytes) {
  const Region& region = process_->region();
  if (fields.size() > kMaxRegionFields)
    return absl::InvalidArgumentError(absl::StrCat("a record of ", fields.size(),
                                                   " fields; a decoder process takes ",
                                                   kMaxRegionFields, " at most (isolation)"));
  Request request = {};
  request.command = static_cast<uint32_t>(command);
  request.fields = static_cast<uint32_t>(fields.size());
  request.sample_id = input.sample_id;
  request.position = input.position;
  request.stands_for = input.stands_for;
  request.is_real = input.is_real;
  request.key[0] = input.key[0];
  request.key[1] = input.key[1];
  request.max_field_bytes = max_field_bytes;
  std::memcpy(region.at(kRequestAt), &request, sizeof(request));

  hashes_.assign(fields.size(), ContentHash());
  input_used_ = input_most_ = output_used_ = 0;
  for (size_t i = 0; i < fields.size(); ++i) {
    const Tensor& field = fields[i];
    RegionField at;
    uint64_t offset = 0;
    if (!Describe(field.spec, 0, field.bytes(), &at) ||
        !PutInput(field.data, field.bytes(), kRecordBytes, &offset)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a field of ", field.spec.ToString(), ": a decoder process takes records of ",
          FormatBytes(static_cast<int64_t>(kRecordBytes)), " at most (isolation)"));
    }
    at.offset = offset;
    if (seek_indexes_ != nullptr && command != DecoderCommand::kSetUp && IsJpeg(field)) {
      const XXH128_hash_t hash = XXH3_128bits(field.data, field.bytes());
      hashes_[i] = {hash.low64, hash.high64};
      at.hash_low = hash.low64;
      at.hash_high = hash.high64;
      if (seek_indexes_->Find(hashes_[i], &index_) &&
          PutInput(index_.data(), index_.size(), kRecordBytes, &at.index_offset)) {
        at.index_bytes = index_.size();
      }
    }
    std::memcpy(region.at(kRequestAt + sizeof(request) + i * sizeof(at)), &at, sizeof(at));
  }
  return absl::OkStatus();
}

// Behind what is there. False: there is no room.
bool IsolatedMaker::PutInput(const std::byte* data, size_t bytes, uint64_t room, uint64_t* offset) {
  std::byte* const input = process_->region().input();
  const uint64_t end = input_used_ + RoundUpToUnit(bytes) + kReadPadding;
  if (bytes > room || end > room) return false;
  *offset = input_used_;
  if (bytes > 0) std::memcpy(input + input_used_, data, bytes);
  std::memset(input + input_used_ + bytes, 0, end - input_used_ - bytes);
  input_used_ = end;
  input_most_ = std::max(input_most_, end);
  return true;
}

// Copies the answer out and checks it: nothing below looks at the region's control page again.
absl::Status IsolatedMaker::ReadAnswer() {
  const Region& region = process_->region();
  answer_ = CopyIn<Answer>(region.at(kAnswerAt));
  answered_.clear();
  const auto broken = [](absl::string_view how) {
    return absl::DataLossError(
        absl::StrCat("the decoder process broke its protocol on this record: ", how));
  };
  if (answer_.message_bytes > sizeof(answer_.message)) {
    answer_.message_bytes = 0;
    return broken("a message longer than its place");
  }
  if (answer_.fields > kMaxRegionFields || answer_.indexes > kMaxRegionFields ||
      answer_.fields + answer_.indexes > kMaxRegionFields) {
    return broken("too many fields");
  }
  uint8_t counted[sizeof(answer_.decoded)];
  std::memcpy(counted, answer_.decoded, sizeof(counted));
  cost_.decoded.from_coefficients += counted[0];
  cost_.decoded.own_decoder += counted[1];
  cost_.decoded.with_seek_index += std::min(counted[2], counted[1]);
  for (int i = 0; i < jpeg::kUncoveredKinds; ++i) cost_.decoded.libjpeg[i] += counted[3 + i];

  if (answer_.code != static_cast<uint32_t>(absl::StatusCode::kOk)) {
    const std::string text = Said(answer_);
    switch (static_cast<absl::StatusCode>(answer_.code)) {
      case absl::StatusCode::kInvalidArgument:
        return absl::InvalidArgumentError(text);
      case absl::StatusCode::kInternal:
        return absl::InternalError(text);
      case absl::StatusCode::kResourceExhausted:  // its own bound, which is the same everywhere
        return absl::DataLossError(absl::StrCat(
            text, " (in a decoder process that may have ",
            FormatBytes(allowed_bytes_ < 0 ? static_cast<int64_t>(options_.memory_bytes)
                                           : allowed_bytes_),
            " for a sample)"));
      default:
        return absl::DataLossError(text);
    }
  }
  for (uint32_t i = 0; i < answer_.fields + answer_.indexes; ++i) {
    const auto field =
        CopyIn<RegionField>(region.at(kAnswerAt + sizeof(Answer) + i * sizeof(RegionField)));
    if (const auto spec = CheckField(field, options_.output_bytes); !spec.ok())
      return broken(spec.status().message());
    answered_.push_back(field);
    output_used_ = std::max(output_used_, field.offset + field.bytes);
  }
  return absl::OkStatus();
}

absl::Status IsolatedMaker::Ask(DecoderCommand command, const SampleInput& input,
                                absl::Span<const Tensor> fields, int64_t max_field_bytes,
                                bool* died) {
  std::string how;
  int kills_for_memory = 0;
  for (int tries = 1;; ++tries) {
    if (gone_ != nullptr && gone_->load(std::memory_order_relaxed))
      return absl::CancelledError(kNoLongerNeeded);
    FW_RETURN_IF_ERROR(Start());
    if (limited_to_ != allowed_bytes_) process_->LimitMemory(limited_to_ = allowed_bytes_);
    FW_RETURN_IF_ERROR(Fill(command, input, fields, max_field_bytes));
    DecoderProcess::Outcome outcome;
    absl::Status answered;
    for (size_t calls = 0; (outcome = Exchange(&how)) == DecoderProcess::Outcome::kAnswered;
         ++calls) {
      answered = ReadAnswer();
      if (!answered.ok() || answer_.call_inputs == 0) break;
      if (calls == kMaxOps || !RunsGraph(command)) {
        End(/*is_death=*/true);
        return absl::DataLossError("the decoder process broke its protocol on this record: calls");
      }
      if (const absl::Status called = RunCall(input); !called.ok()) {
        End(/*is_death=*/false);
        return called;
      }
    }
    if (outcome == DecoderProcess::Outcome::kAnswered) {
      cost_.cpu_ns += process_->TakeCpuNs();
      const Region& region = process_->region();
      region.GiveBack(region.input(), input_most_);
      answered.ok() ? TakeIndexes() : TakeBack(options_.output_bytes);
      return answered;
    }
    End(/*is_death=*/outcome != DecoderProcess::Outcome::kUnwanted);
    if (outcome == DecoderProcess::Outcome::kUnwanted) return absl::CancelledError(kNoLongerNeeded);
    const bool for_memory =
        outcome == DecoderProcess::Outcome::kKilled && host_->oom_kills() > oom_kills_;
    if (for_memory && ++kills_for_memory == kKillsForMemory) {
      if (host_->admits_line()) {
        spdlog::warn("the kernel killed {} decoder processes for want of memory on record {}",
                     kills_for_memory, input.sample_id);
      }
      if (died != nullptr) *died = true;
      return absl::DataLossError(absl::StrCat(
          "the kernel killed the decoder process for want of memory (SIGKILL), ", kills_for_memory,
          " times on this record; if it is good: a larger limit for the daemon's cgroup, or a "
          "smaller `memory`"));
    }
    if (outcome == DecoderProcess::Outcome::kDied) {
      if (host_->admits_line())
        spdlog::warn("a decoder process {} on record {}", how, input.sample_id);
      if (died != nullptr) *died = true;
      return absl::DataLossError(absl::StrCat("the decoder process ", how, " on this record"));
    }
    if (outcome == DecoderProcess::Outcome::kStoodStill && host_->admits_line())
      spdlog::warn("a decoder process {} on record {}: it hung", how, input.sample_id);
    const bool holds_up = outcome == DecoderProcess::Outcome::kStoodStill;
    if (tries == (holds_up ? kTriesStandingStill : kTries))
      return NotItsFault(outcome, tries, " on one record", how);
  }
}

void IsolatedMaker::TakeBack(uint64_t used) {
  const Region& region = process_->region();
  region.GiveBack(region.output(), used);
  const auto control = static_cast<int64_t>(kControlBytes);
  if (region.held_bytes() <= ProcessBytes(*plan_, setup_.files) + control) return;
  if (host_->admits_line())
    spdlog::warn("a decoder process wrote more into its memory than any sample takes: ended");
  End(/*is_death=*/true);
}

void IsolatedMaker::TakeIndexes() {
  if (seek_indexes_ == nullptr) return;
  for (uint32_t i = answer_.fields; i < answered_.size(); ++i) {
    const RegionField& at = answered_[i];
    if (at.field >= hashes_.size() || hashes_[at.field] == ContentHash()) continue;
    const std::byte* const document = process_->region().output() + at.offset;
    index_.assign(document, document + at.bytes);
    seek_indexes_->Put(hashes_[at.field], index_);
    hashes_[at.field] = ContentHash();  // one for each image
  }
}

// Takes the finished sample over.
absl::Status IsolatedMaker::Finish(const SampleInput& input, int64_t k, const BatchMemory& memory) {
  const absl::Status copied = plan_->CopySample(input, made_, 0, memory, k);
  TakeBack(std::max(output_used_, area_->bytes));
  return Annotate(copied, "the decoder process broke its protocol on this record");
}

absl::Status IsolatedMaker::Run(const SampleInput& input, int64_t k, const BatchMemory& memory) {
  FW_RETURN_IF_ERROR(Ask(DecoderCommand::kRun, input, input.record->fields, 0));
  return Finish(input, k, memory);
}

absl::Status IsolatedMaker::RunFromPrefix(const SampleInput& input, int64_t k,
                                          const BatchMemory& memory) {
  FW_RETURN_IF_ERROR(Ask(DecoderCommand::kRunFromPrefix, input, input.record->fields, 0));
  return Finish(input, k, memory);
}

absl::Status IsolatedMaker::RunKeeping(const SampleInput& input, int64_t k,
                                       const BatchMemory& memory, int64_t max_field_bytes,
                                       absl::FunctionRef<void(const Record&)> keep) {
  bool died = false;
  const absl::Status status =
      Ask(DecoderCommand::kRunKeeping, input, input.record->fields, max_field_bytes, &died);
  if (died) return Run(input, k, memory);  // as if there were no cache
  FW_RETURN_IF_ERROR(status);
  const std::vector<FieldSpec>& planned = plan_->prefix().fields;
  bool is_kept = answer_.is_kept == 1 && answer_.fields == planned.size();
  kept_.fields.resize(planned.size());
  for (size_t i = 0; i < planned.size() && is_kept; ++i) {
    const RegionField& at = answered_[i];
    FW_ASSIGN_OR_RETURN(kept_.fields[i].spec, CheckField(at, options_.output_bytes));
    kept_.fields[i].data = process_->region().output() + at.offset;
    const TensorSpec &spec = kept_.fields[i].spec, &expected = planned[i].spec;
    is_kept = spec.dtype == expected.dtype && spec.layout == expected.layout &&
              spec.shape.size() == expected.shape.size();
    for (size_t axis = 0; is_kept && axis < spec.shape.size(); ++axis)
      is_kept = expected.shape[axis] < 0 || expected.shape[axis] == spec.shape[axis];
  }
  if (is_kept) keep(kept_);
  return Finish(input, k, memory);
}

absl::Status IsolatedMaker::Pack(absl::Span<const std::byte> encoded, const ImageLimits&,
                                 std::vector<std::byte>* document) {
  document->clear();
  Tensor field;
  field.spec.shape = {static_cast<int64_t>(encoded.size())};
  field.data = const_cast<std::byte*>(encoded.data());
  const absl::Status status = Ask(DecoderCommand::kPack, SampleInput(), {&field, 1}, 0);
  if (IsNotOfTheRecord(status)) return status;
  if (!status.ok()) return absl::OkStatus();  // it stays as it is
  if (answer_.fields == 1) {
    const std::byte* const data = process_->region().output() + answered_[0].offset;
    document->assign(data, data + answered_[0].bytes);
  }
  TakeBack(output_used_);
  return absl::OkStatus();
}

// They come back as those of samples do: TakeIndexes.
absl::Status IsolatedMaker::MakeSeekIndexes(const Record& record) {
  jpegs_.clear();
  for (const Tensor& field : record.fields) {
    if (IsJpeg(field)) jpegs_.push_back(field);
  }
  if (seek_indexes_ == nullptr || jpegs_.empty()) return absl::OkStatus();
  const absl::Status status = Ask(DecoderCommand::kIndex, SampleInput(), jpegs_, 0);
  if (IsNotOfTheRecord(status)) return status;
  if (!status.ok()) return absl::OkStatus();  // whoever decodes the image says what is wrong
  TakeBack(output_used_);
  return absl::OkStatus();
}

MakingCost IsolatedMaker::TakeCost() {
  const int64_t honest_ns = kGraceNs + kBusyMachine * cost_.cpu_ns;
  cost_.held_ns =
      std::max<int64_t>(0, std::exchange(waited_ns_, 0) - honest_ns) + caller_.TakeHeldNs();
  return std::exchange(cost_, MakingCost());
}

}  // namespace feedwater::server
