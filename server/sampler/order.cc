#include "server/sampler/order.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "server/base/units.h"

namespace feedwater::server {
namespace {

// Keeps every sum of a position and a global batch inside 64 bits.
constexpr int64_t kMaxPosition = int64_t{1} << 62;

template <typename Enum>
struct Word {
  absl::string_view word;
  Enum value;
};
constexpr Word<Shuffle> kShuffles[] = {
    {"none", Shuffle::kNone}, {"full", Shuffle::kFull}, {"block", Shuffle::kBlock}};
constexpr Word<LastBatch> kLasts[] = {
    {"drop", LastBatch::kDrop}, {"pad", LastBatch::kPad}, {"partial", LastBatch::kPartial}};
constexpr Word<ShardMode> kShards[] = {{"batch", ShardMode::kBatch},
                                       {"interleave", ShardMode::kInterleave}};

template <typename Enum, size_t N>
std::vector<std::string> Words(const Word<Enum> (&table)[N]) {
  std::vector<std::string> words;
  for (const auto& entry : table) words.emplace_back(entry.word);
  return words;
}

template <typename Enum, size_t N>
absl::Status FromWord(absl::string_view key, absl::string_view word, const Word<Enum> (&table)[N],
                      Enum* value) {
  for (const auto& entry : table) {
    if (entry.word == word) {
      *value = entry.value;
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown ", key, " '", Printable(word), "'", Suggest(word, Words(table))));
}

constexpr char kAuto[] = "auto";

std::vector<std::string> LastWords() {
  std::vector<std::string> words = Words(kLasts);
  words.insert(words.begin(), kAuto);
  return words;
}

absl::Status CheckShardStarts(const std::vector<int64_t>& starts, int64_t records) {
  if (starts.empty()) return absl::OkStatus();
  if (starts.front() != 0 || starts.back() > records ||
      !std::is_sorted(starts.begin(), starts.end())) {
    return absl::InvalidArgumentError(
        "shard starts must begin with 0, rise, and end within the dataset");
  }
  return absl::OkStatus();
}

int64_t GlobalBatch(const OrderConfig& config) { return config.batch_size * config.world_size; }

int64_t StepsFor(const OrderConfig& config, int64_t remaining) {
  const int64_t global_batch = GlobalBatch(config);
  const int64_t whole = remaining / global_batch;
  return config.last == LastBatch::kDrop || remaining % global_batch == 0 ? whole : whole + 1;
}

// Rank r's part of `samples` that are shared as evenly as possible: the first `samples mod W` ranks
// get one more.
int64_t Share(int64_t samples, int64_t world_size, int64_t rank) {
  return samples / world_size + (rank < samples % world_size);
}
int64_t ShareStart(int64_t samples, int64_t world_size, int64_t rank) {
  return samples / world_size * rank + std::min(rank, samples % world_size);
}

}  // namespace

const Schema<SamplerSpec>& SamplerSchema() {
  static const auto* schema = new Schema<SamplerSpec>(
      Schema<SamplerSpec>()
          .Param("shuffle", &SamplerSpec::shuffle,
                 "Order of the records in an epoch. none: as stored. full: a new permutation of "
                 "the whole dataset every "
                 "epoch. block: shards in a new order every epoch and records permuted inside "
                 "windows of `block_records`, "
                 "so that reading stays nearly sequential; for disks and network storage.",
                 OneOf(Words(kShuffles)))
          .Param("seed", &SamplerSpec::seed,
                 "Seed of the job: the only source of every random number, shuffling and "
                 "augmentation alike. Another seed "
                 "gives another, equally good order; the same seed gives the same bytes on any "
                 "machine.")
          .Param("last", &SamplerSpec::last,
                 "What happens to the samples that do not fill the last step. drop: left out; for "
                 "training. pad: filled "
                 "up from the epoch's own beginning, marked by `is_real`; for validation with "
                 "equal batches. partial: "
                 "shared as evenly as possible, so that batches are smaller in the last step and a "
                 "rank may get none (an empty batch, so that all ranks have as many steps). auto: "
                 "drop where records are shuffled; else pad where `is_real` is one of the outputs "
                 "or an op on batches takes it, and partial where neither is.",
                 OneOf(LastWords()))
          .Param("shard", &SamplerSpec::shard,
                 "How a step's samples are given to the ranks. batch: each rank gets consecutive "
                 "ones. interleave: rank r "
                 "gets every W-th one from r on, as PyTorch's DistributedSampler does.",
                 OneOf(Words(kShards)))
          .Param("block_records", &SamplerSpec::block_records,
                 "Records of a window of `shuffle: block`. Larger windows shuffle better and need "
                 "more reads in flight.",
                 Range(1, 1e9)));
  return *schema;
}

LastBatch ResolveLast(const SamplerSpec& spec, bool says_is_real) {
  if (spec.shuffle != "none") return LastBatch::kDrop;
  return says_is_real ? LastBatch::kPad : LastBatch::kPartial;
}

absl::string_view LastBatchName(LastBatch last) {
  return absl::c_find_if(kLasts, [last](const auto& entry) { return entry.value == last; })->word;
}

absl::StatusOr<OrderConfig> MakeOrderConfig(const SamplerSpec& spec, int64_t records,
                                            int64_t batch_size, int64_t world_size,
                                            std::vector<int64_t> shard_starts) {
  OrderConfig config;
  FW_RETURN_IF_ERROR(FromWord("shuffle", spec.shuffle, kShuffles, &config.shuffle));
  if (spec.last == kAuto) {
    config.last = ResolveLast(spec, /*says_is_real=*/false);
  } else {
    FW_RETURN_IF_ERROR(FromWord("last", spec.last, kLasts, &config.last));
  }
  FW_RETURN_IF_ERROR(FromWord("shard", spec.shard, kShards, &config.shard));
  if (records < 1) return absl::InvalidArgumentError("the dataset has no records");
  if (records > kMaxPosition)
    return absl::InvalidArgumentError(absl::StrCat("too many records: ", records));
  if (batch_size < 1 || batch_size > kMaxBatchSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch_size is ", batch_size, "; it must be 1 to ", kMaxBatchSize));
  }
  if (world_size < 1 || world_size > kMaxWorldSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("world_size is ", world_size, "; it must be 1 to ", kMaxWorldSize));
  }
  if (spec.block_records < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("block_records must be at least 1, not ", spec.block_records));
  }
  FW_RETURN_IF_ERROR(CheckShardStarts(shard_starts, records));
  config.records = records;
  config.batch_size = batch_size;
  config.world_size = world_size;
  config.seed = spec.seed;
  config.block_records = spec.block_records;
  config.shard_starts = std::move(shard_starts);
  return config;
}

absl::StatusOr<OrderConfig> MakeOrderConfig(const SamplerSpec& spec, std::shared_ptr<const Mix> mix,
                                            int64_t batch_size, int64_t world_size) {
  FW_ASSIGN_OR_RETURN(OrderConfig config,
                      MakeOrderConfig(spec, mix->records(), batch_size, world_size, {}));
  for (const Mix::Source& source : mix->sources())
    FW_RETURN_IF_ERROR(CheckShardStarts(source.shard_starts, source.records));
  config.mix = std::move(mix);
  return config;
}

absl::Status CheckRank(const OrderConfig& config, int64_t rank) {
  if (rank >= 0 && rank < config.world_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " is not in [0, ",
                                                 config.world_size, "): ranks of a world of ",
                                                 config.world_size, " count from 0"));
}

absl::Status CheckSteps(const OrderConfig& config) {
  if (StepsPerEpoch(config) > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "an epoch of ", FormatCount(config.positions(), config.mix == nullptr ? "record" : "sample"),
      " has no whole step of batch_size ", config.batch_size, " * world_size ", config.world_size,
      " = ", GlobalBatch(config),
      " samples, and `last: drop` leaves the remainder out: take a smaller batch, "
      "or `last: pad` or `last: partial` in the pipeline's sampler"));
}

absl::Status CheckStart(const OrderConfig& config, uint64_t epoch, int64_t position) {
  const int64_t positions = config.positions();
  if (position < 0 || position > positions) {
    return absl::InvalidArgumentError(
        absl::StrCat("position ", position, " is not in [0, ", positions,
                     "]: ", config.mix == nullptr ? "the dataset has " : "an epoch of the mix has ",
                     positions, config.mix == nullptr ? " records" : " samples"));
  }
  if (epoch > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return absl::InvalidArgumentError(absl::StrCat("epoch ", epoch, " is larger than 2^63 - 1"));
  }
  return absl::OkStatus();
}

int64_t OrderBytes(const OrderConfig& config) {
  if (config.mix == nullptr) {
    return RecordOrder::Bytes(config.records, config.shuffle, config.block_records,
                              config.shard_starts.size());
  }
  int64_t bytes = 0;
  for (const Mix::Source& source : config.mix->sources()) {
    bytes += MixEpoch::kKept * RecordOrder::Bytes(source.records, config.shuffle,
                                                  config.block_records, source.shard_starts.size());
  }
  return bytes;
}

int64_t ConfigBytes(const OrderConfig& config) {
  size_t starts = config.shard_starts.size();
  if (config.mix != nullptr) {
    for (const Mix::Source& source : config.mix->sources()) starts += source.shard_starts.size();
  }
  return static_cast<int64_t>(starts * sizeof(int64_t));
}

EpochOrder::EpochOrder(std::shared_ptr<const OrderConfig> config, uint64_t epoch, int64_t start)
    : config_(std::move(config)),
      epoch_(epoch),
      start_(std::clamp<int64_t>(start, 0, config_->positions())),
      steps_(StepsFor(*config_, config_->positions() - start_)),
      key_(EpochKey(config_->seed, epoch)) {
  if (config_->mix != nullptr) {
    mix_ = std::make_shared<const MixEpoch>(config_->mix, config_->shuffle, config_->block_records,
                                            config_->seed, epoch);
  } else {
    records_.emplace(config_->records, config_->shuffle, config_->block_records,
                     config_->shard_starts, key_);
  }
}

int64_t EpochOrder::BatchSamples(int64_t step, int64_t rank) const {
  const int64_t global_batch = GlobalBatch(*config_);
  const int64_t left = config_->positions() - start_ - step * global_batch;
  if (config_->last != LastBatch::kPartial || left >= global_batch) return config_->batch_size;
  return Share(left, config_->world_size, rank);
}

Placement EpochOrder::At(int64_t step, int64_t rank, int64_t k) const {
  Placement placement = PlaceAt(step, rank, k);
  const Pick pick = PickAt(placement.position);
  placement.record = pick.record;
  placement.key = pick.key;
  return placement;
}

void EpochOrder::Fill(int64_t step, int64_t rank, int64_t first,
                      std::vector<Placement>* places) const {
  const auto count = static_cast<int64_t>(places->size());
  if (mix_ != nullptr) {
    for (int64_t i = 0; i < count; ++i) (*places)[i] = At(step, rank, first + i);
    return;
  }
  absl::InlinedVector<int64_t, 256> records(places->size());
  for (int64_t i = 0; i < count; ++i) {
    (*places)[i] = PlaceAt(step, rank, first + i);
    (*places)[i].key = key_;
    records[i] = (*places)[i].position;
  }
  records_->RecordsAt(absl::MakeSpan(records));
  for (int64_t i = 0; i < count; ++i) (*places)[i].record = records[i];
}

Placement EpochOrder::PlaceAt(int64_t step, int64_t rank, int64_t k) const {
  const int64_t global_batch = GlobalBatch(*config_);
  const int64_t step_start = start_ + step * global_batch;
  const int64_t left = config_->positions() - step_start;
  int64_t place;
  if (config_->shard == ShardMode::kInterleave) {
    place = k * config_->world_size + rank;
  } else if (config_->last == LastBatch::kPartial && left < global_batch) {
    place = ShareStart(left, config_->world_size, rank) + k;
  } else {
    place = rank * config_->batch_size + k;
  }
  Placement placement;
  placement.is_real = place < left;
  placement.position =
      placement.is_real ? step_start + place : (step_start + place) % config_->positions();
  return placement;
}

int64_t EpochOrder::NextPosition(int64_t step) const {
  // The next step's start, which `pad` and a partial step would put beyond the last position.
  return std::min(start_ + (step + 1) * GlobalBatch(*config_), config_->positions());
}

Pick EpochOrder::PickAt(int64_t position) const {
  return mix_ != nullptr ? mix_->PickAt(position) : Pick{records_->RecordAt(position), key_};
}

int64_t EpochOrder::RecordAt(int64_t position) const { return PickAt(position).record; }

std::vector<int64_t> EpochOrder::PositionsOf(int64_t record, int64_t from, size_t most) const {
  if (mix_ != nullptr) return mix_->PositionsOf(record, from, most);
  const int64_t position = records_->PositionOf(record);
  return position < from ? std::vector<int64_t>() : std::vector<int64_t>{position};
}

int64_t EpochOrder::PositionOf(int64_t record) const {
  const std::vector<int64_t> first = PositionsOf(record, 0, 1);
  return first.empty() ? -1 : first.front();
}

Use EpochOrder::UseAt(int64_t step, int64_t offset) const {
  const int64_t world_size = config_->world_size;
  Use use;
  use.step = step;
  const int64_t left = config_->positions() - start_ - step * GlobalBatch(*config_);
  use.is_real = offset < left;
  if (config_->shard == ShardMode::kInterleave) {
    use.rank = offset % world_size;
    use.place = offset / world_size;
  } else if (config_->last == LastBatch::kPartial && left < GlobalBatch(*config_)) {
    // The first ranks have one sample more than the others.
    const int64_t share = left / world_size, longer = left % world_size;
    const int64_t in_longer = longer * (share + 1);
    use.rank = offset < in_longer ? offset / (share + 1) : longer + (offset - in_longer) / share;
    use.place = offset - ShareStart(left, world_size, use.rank);
  } else {
    use.rank = offset / config_->batch_size;
    use.place = offset % config_->batch_size;
  }
  return use;
}

std::vector<Use> EpochOrder::UsesOf(int64_t record) const {
  std::vector<Use> uses;
  if (steps_ == 0) return uses;
  const int64_t global_batch = GlobalBatch(*config_);
  for (const int64_t position : PositionsOf(record, start_, kMaxUses)) {
    const int64_t step = (position - start_) / global_batch;
    if (step >= steps_) break;
    uses.push_back(UseAt(step, (position - start_) % global_batch));
    uses.back().position = position;
  }
  if (config_->last != LastBatch::kPad) return uses;
  // The last step goes on from the epoch's own beginning, over and over.
  const int64_t step_start = start_ + (steps_ - 1) * global_batch;
  const int64_t end = step_start + global_batch, positions = config_->positions();
  if (end <= positions) return uses;
  const std::vector<int64_t> all = PositionsOf(record, 0, kMaxUses);
  for (int64_t wrapped = positions; !all.empty() && wrapped < end; wrapped += positions) {
    for (const int64_t position : all) {
      if (position + wrapped >= end || uses.size() >= kMaxUses) return uses;
      uses.push_back(UseAt(steps_ - 1, position + wrapped - step_start));
      uses.back().position = position;
    }
  }
  return uses;
}

int64_t StepsPerEpoch(const OrderConfig& config) { return StepsFor(config, config.positions()); }

int64_t LeftOut(const OrderConfig& config) {
  return std::max<int64_t>(0, config.positions() - StepsPerEpoch(config) * GlobalBatch(config));
}

int64_t FirstEmptyRank(const OrderConfig& config) {
  const int64_t rest = config.positions() % GlobalBatch(config);
  const bool some_are_empty =
      config.last == LastBatch::kPartial && rest > 0 && rest < config.world_size;
  return some_are_empty ? rest : config.world_size;
}

int64_t SamplesPerEpoch(const OrderConfig& config, int64_t rank) {
  if (config.last != LastBatch::kPartial) return StepsPerEpoch(config) * config.batch_size;
  const int64_t global_batch = GlobalBatch(config);
  return config.positions() / global_batch * config.batch_size +
         Share(config.positions() % global_batch, config.world_size, rank);
}

}  // namespace feedwater::server
