#include "server/sampler/order.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "server/base/units.h"
#include "server/sampler/permutation.h"

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
                 "drop where records are shuffled; else pad where `is_real` is one of the outputs, "
                 "and partial where it is not.",
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

absl::Status CheckRank(const OrderConfig& config, int64_t rank) {
  if (rank >= 0 && rank < config.world_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " is not in [0, ",
                                                 config.world_size, "): ranks of a world of ",
                                                 config.world_size, " count from 0"));
}

absl::Status CheckSteps(const OrderConfig& config) {
  if (StepsPerEpoch(config) > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "an epoch of ", FormatCount(config.records, "record"), " has no whole step of batch_size ",
      config.batch_size, " * world_size ", config.world_size, " = ", GlobalBatch(config),
      " samples, and `last: drop` leaves the remainder out: take a smaller batch, "
      "or `last: pad` or `last: partial` in the pipeline's sampler"));
}

absl::Status CheckStart(const OrderConfig& config, uint64_t epoch, int64_t position) {
  if (position < 0 || position > config.records) {
    return absl::InvalidArgumentError(absl::StrCat("position ", position, " is not in [0, ",
                                                   config.records, "]: the dataset has ",
                                                   config.records, " records"));
  }
  if (epoch > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return absl::InvalidArgumentError(absl::StrCat("epoch ", epoch, " is larger than 2^63 - 1"));
  }
  return absl::OkStatus();
}

// The concatenation of the permuted shards, and the windows on it.
struct EpochOrder::Blocks {
  struct Shard {
    int64_t end;    // the first place after it, in the concatenation
    int64_t first;  // its first record
  };

  Blocks(const OrderConfig& config, PhiloxKey key)
      : records(config.records),
        window_records(config.block_records),
        shard_starts(config.shard_starts),
        shard_order(config.shard_starts.empty() ? (records - 1) / window_records + 1
                                                : static_cast<int64_t>(config.shard_starts.size()),
                    key, ShuffleUse::kShards) {
    const std::vector<int64_t>& starts = config.shard_starts;
    if (starts.empty()) {
      if (shard_order.size() <= kMaxRunTable) {
        for (int64_t i = 0; i < shard_order.size(); ++i) run_table.push_back(shard_order.At(i));
      }
      short_shard_at = shard_order.IndexOf(shard_order.size() - 1);
      return;
    }
    shards.reserve(starts.size());
    int64_t end = 0;
    for (int64_t i = 0; i < shard_order.size(); ++i) {
      const auto shard = static_cast<size_t>(shard_order.At(i));
      end += (shard + 1 < starts.size() ? starts[shard + 1] : records) - starts[shard];
      shards.push_back({end, starts[shard]});
    }
  }

  // The record at a place of the concatenation.
  int64_t RecordAtPlace(int64_t place) const {
    if (shards.empty()) {
      // Shards are runs of window_records; only the last run may be shorter, and stands at
      // short_shard_at.
      const int64_t short_records = records - (shard_order.size() - 1) * window_records;
      const int64_t short_end = short_shard_at * window_records + short_records;
      const int64_t shifted = place < short_end ? place : place + (window_records - short_records);
      const int64_t at = shifted / window_records;
      const int64_t run =
          run_table.empty() ? shard_order.At(at) : run_table[static_cast<size_t>(at)];
      return run * window_records + shifted % window_records;
    }
    const auto shard =
        std::upper_bound(shards.begin(), shards.end(), place,
                         [](int64_t wanted, const Shard& entry) { return wanted < entry.end; });
    const int64_t begin = shard == shards.begin() ? 0 : std::prev(shard)->end;
    return shard->first + (place - begin);
  }

  // Its inverse.
  int64_t PlaceOf(int64_t record) const {
    if (shards.empty()) {
      const int64_t at = shard_order.IndexOf(record / window_records);
      const int64_t shifted = at * window_records + record % window_records;
      const int64_t short_records = records - (shard_order.size() - 1) * window_records;
      return at <= short_shard_at ? shifted : shifted - (window_records - short_records);
    }
    // The last shard that begins at or before the record; empty ones begin where the next one does.
    const auto after = std::upper_bound(shard_starts.begin(), shard_starts.end(), record);
    const auto at = static_cast<size_t>(shard_order.IndexOf(after - shard_starts.begin() - 1));
    const int64_t begin = at == 0 ? 0 : shards[at - 1].end;
    return begin + (record - shards[at].first);
  }

  int64_t PositionOf(int64_t record, PhiloxKey key) const {
    const int64_t place = PlaceOf(record);
    const int64_t window = place / window_records;
    const int64_t start = window * window_records;
    return start + Window(window, key).IndexOf(place - start);
  }

  int64_t RecordAt(int64_t position, PhiloxKey key) const {
    const int64_t window = position / window_records;
    const int64_t start = window * window_records;
    return RecordAtPlace(start + Window(window, key).At(position - start));
  }

  // The order within a window.
  Permutation Window(int64_t window, PhiloxKey key) const {
    const PhiloxCounter words =
        Philox4x32({static_cast<uint32_t>(window), static_cast<uint32_t>(window >> 32),
                    kShuffleInstance + static_cast<uint32_t>(ShuffleUse::kWindowKey), 0},
                   key);
    return Permutation(std::min(window_records, records - window * window_records),
                       {words[0], words[1]}, ShuffleUse::kWindow);
  }

  // Permutations of few values walk long cycles, so those of few runs are kept; of many, computed.
  static constexpr int64_t kMaxRunTable = 4096;

  const int64_t records, window_records;
  const std::vector<int64_t>& shard_starts;  // the configuration's, which the order keeps
  const Permutation shard_order;
  std::vector<int64_t> run_table;  // only without shard starts
  int64_t short_shard_at = 0;      // only without shard starts
  std::vector<Shard> shards;       // in permuted order; empty without shard starts
};

EpochOrder::EpochOrder(std::shared_ptr<const OrderConfig> config, uint64_t epoch, int64_t start)
    : config_(std::move(config)),
      epoch_(epoch),
      start_(std::clamp<int64_t>(start, 0, config_->records)),
      steps_(StepsFor(*config_, config_->records - start_)),
      key_(EpochKey(config_->seed, epoch)) {
  if (config_->shuffle == Shuffle::kBlock) blocks_ = std::make_shared<const Blocks>(*config_, key_);
}

int64_t EpochOrder::BatchSamples(int64_t step, int64_t rank) const {
  const int64_t global_batch = GlobalBatch(*config_);
  const int64_t left = config_->records - start_ - step * global_batch;
  if (config_->last != LastBatch::kPartial || left >= global_batch) return config_->batch_size;
  return Share(left, config_->world_size, rank);
}

Placement EpochOrder::At(int64_t step, int64_t rank, int64_t k) const {
  const int64_t global_batch = GlobalBatch(*config_);
  const int64_t step_start = start_ + step * global_batch;
  const int64_t left = config_->records - step_start;
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
      placement.is_real ? step_start + place : (step_start + place) % config_->records;
  placement.record = RecordAt(placement.position);
  return placement;
}

int64_t EpochOrder::NextPosition(int64_t step) const {
  // The next step's start, which `pad` and a partial step would put beyond the last record.
  return std::min(start_ + (step + 1) * GlobalBatch(*config_), config_->records);
}

int64_t EpochOrder::RecordAt(int64_t position) const {
  switch (config_->shuffle) {
    case Shuffle::kNone:
      return position;
    case Shuffle::kFull:
      return Permutation(config_->records, key_, ShuffleUse::kRecords).At(position);
    case Shuffle::kBlock:
      return blocks_->RecordAt(position, key_);
  }
  return position;
}

int64_t EpochOrder::PositionOf(int64_t record) const {
  switch (config_->shuffle) {
    case Shuffle::kNone:
      return record;
    case Shuffle::kFull:
      return Permutation(config_->records, key_, ShuffleUse::kRecords).IndexOf(record);
    case Shuffle::kBlock:
      return blocks_->PositionOf(record, key_);
  }
  return record;
}

Use EpochOrder::UseAt(int64_t step, int64_t offset) const {
  const int64_t world_size = config_->world_size;
  Use use;
  use.step = step;
  const int64_t left = config_->records - start_ - step * GlobalBatch(*config_);
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
  const int64_t global_batch = GlobalBatch(*config_);
  const int64_t position = PositionOf(record);
  if (position >= start_ && (position - start_) / global_batch < steps_)
    uses.push_back(UseAt((position - start_) / global_batch, (position - start_) % global_batch));
  if (config_->last != LastBatch::kPad || steps_ == 0) return uses;
  // The last step goes on from the epoch's own beginning, over and over.
  const int64_t step_start = start_ + (steps_ - 1) * global_batch;
  const int64_t end = step_start + global_batch;
  for (int64_t at = position + config_->records; at < end && uses.size() < kMaxUses;
       at += config_->records)
    uses.push_back(UseAt(steps_ - 1, at - step_start));
  return uses;
}

int64_t StepsPerEpoch(const OrderConfig& config) { return StepsFor(config, config.records); }

int64_t LeftOut(const OrderConfig& config) {
  return std::max<int64_t>(0, config.records - StepsPerEpoch(config) * GlobalBatch(config));
}

int64_t FirstEmptyRank(const OrderConfig& config) {
  const int64_t rest = config.records % GlobalBatch(config);
  const bool some_are_empty =
      config.last == LastBatch::kPartial && rest > 0 && rest < config.world_size;
  return some_are_empty ? rest : config.world_size;
}

int64_t SamplesPerEpoch(const OrderConfig& config, int64_t rank) {
  if (config.last != LastBatch::kPartial) return StepsPerEpoch(config) * config.batch_size;
  const int64_t global_batch = GlobalBatch(config);
  return config.records / global_batch * config.batch_size +
         Share(config.records % global_batch, config.world_size, rank);
}

}  // namespace feedwater::server
