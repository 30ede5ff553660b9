// Which record stands where. An Order is a pure function of its configuration: it holds no state
// that moves, needs O(1) memory in the number of records (O(shards) for `block`), and every call is
// thread-safe. The records are those of one dataset, or of the sources of a mix (mix.h). See
// sampler/README.md for the formulas.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/base/philox.h"
#include "server/base/schema.h"
#include "server/base/status.h"
#include "server/sampler/mix.h"
#include "server/sampler/mix_epoch.h"
#include "server/sampler/record_order.h"

namespace feedwater::server {

enum class LastBatch { kDrop, kPad, kPartial };
enum class ShardMode { kBatch, kInterleave };

// The pipeline's `sampler:` map.
struct SamplerSpec {
  std::string shuffle = "none";
  uint64_t seed = 0;
  std::string last = "auto";
  std::string shard = "batch";
  int64_t block_records = 4096;
};
const Schema<SamplerSpec>& SamplerSchema();
// What `last: auto` is for this sampler, where the samples say whether they are real or do not.
LastBatch ResolveLast(const SamplerSpec& spec, bool says_is_real);

inline constexpr int64_t kMaxBatchSize = 1 << 20, kMaxWorldSize = 1 << 20;

struct OrderConfig {
  int64_t records = 0;     // N >= 1, of the dataset, or of all sources of the mix
  int64_t batch_size = 0;  // B, 1 to kMaxBatchSize, per rank
  int64_t world_size = 1;  // W, 1 to kMaxWorldSize
  uint64_t seed = 0;
  Shuffle shuffle = Shuffle::kNone;
  LastBatch last = LastBatch::kDrop;
  ShardMode shard = ShardMode::kBatch;
  int64_t block_records = 4096;
  std::vector<int64_t> shard_starts;  // as Dataset::shard_starts(); a mix's sources have theirs
  std::shared_ptr<const Mix> mix;     // null: one dataset

  int64_t positions() const { return mix == nullptr ? records : mix->positions(); }  // of an epoch
};
// What one epoch's order takes in memory; what the configuration itself does.
int64_t OrderBytes(const OrderConfig& config);
int64_t ConfigBytes(const OrderConfig& config);
// Enum values from the spec's words. InvalidArgument for B, W or N out of range.
absl::StatusOr<OrderConfig> MakeOrderConfig(const SamplerSpec& spec, int64_t records,
                                            int64_t batch_size, int64_t world_size,
                                            std::vector<int64_t> shard_starts);
absl::StatusOr<OrderConfig> MakeOrderConfig(const SamplerSpec& spec, std::shared_ptr<const Mix> mix,
                                            int64_t batch_size, int64_t world_size);

// InvalidArgument where the rank is none of the order's; where a whole epoch has no step (`last:
// drop`); where an epoch cannot begin at a position.
absl::Status CheckRank(const OrderConfig& config, int64_t rank);
absl::Status CheckSteps(const OrderConfig& config);
absl::Status CheckStart(const OrderConfig& config, uint64_t epoch, int64_t position);

absl::string_view LastBatchName(LastBatch last);  // the spec's word

// One place in a rank's batch.
struct Placement {
  int64_t position = 0;  // in the epoch's global order, [0, positions())
  int64_t record = 0;    // pi_e(position)
  bool is_real = true;   // false for padding
  PhiloxKey key{};       // of the draws of sample ops
};

// Where a record is used.
struct Use {
  int64_t step = 0, rank = 0, place = 0;  // in the rank's batch
  bool is_real = true;                    // false for padding
  int64_t position = 0;                   // in the epoch's global order
};

// The order of one epoch. Steps are counted from `start`, the global position at which the epoch's
// remaining part begins (0, or where a cursor resumes, possibly with another batch size or world
// size).
class EpochOrder {
 public:
  EpochOrder(std::shared_ptr<const OrderConfig> config, uint64_t epoch, int64_t start);

  // What takes time to make of an order; it is made by whoever needs it first. A mix makes that of
  // its sources as it comes to them.
  void Prepare() const {
    if (records_) records_->Prepare();
  }
  bool is_prepared() const { return !records_ || records_->is_prepared(); }

  uint64_t epoch() const { return epoch_; }
  int64_t start() const { return start_; }
  int64_t steps() const { return steps_; }  // the same for every rank
  int64_t BatchSamples(
      int64_t step, int64_t rank) const;  // places in this rank's batch: B, or fewer with `partial`
  Placement At(int64_t step, int64_t rank,
               int64_t k) const;  // REQUIRES: 0 <= k < BatchSamples(step, rank)
  // What At gives for k = first, first + 1, ..., in a fraction of its time.
  void Fill(int64_t step, int64_t rank, int64_t first, std::vector<Placement>* places) const;
  int64_t NextPosition(
      int64_t step) const;              // the cursor after this step: min(start + (step+1)G, end)
  Pick PickAt(int64_t position) const;  // REQUIRES: position in [0, positions())
  int64_t RecordAt(int64_t position) const;  // pi_e, PickAt's record
  // Its inverse. In a mix the first of several, -1 where there is none. REQUIRES record in [0, N)
  int64_t PositionOf(int64_t record) const;
  // The places at which At gives this record: none where it lies before `start` or is dropped, more
  // than one where it serves as padding, too, or where its source is seen more than once; of those
  // at most kMaxUses. Takes constant time for each.
  static constexpr size_t kMaxUses = 16;
  std::vector<Use> UsesOf(int64_t record) const;
  PhiloxKey key() const { return key_; }  // of the draws of batch ops
  const RecordOrder* records() const { return records_ ? &*records_ : nullptr; }  // null: a mix's

 private:
  std::vector<int64_t> PositionsOf(int64_t record, int64_t from, size_t most) const;
  // At, but for record and key.
  Placement PlaceAt(int64_t step, int64_t rank, int64_t k) const;
  // Who has the place `offset` of a step that begins at `step_start`.
  Use UseAt(int64_t step, int64_t offset) const;

  std::shared_ptr<const OrderConfig> config_;
  uint64_t epoch_;
  int64_t start_, steps_;
  PhiloxKey key_;
  std::optional<RecordOrder> records_;   // of one dataset
  std::shared_ptr<const MixEpoch> mix_;  // of a mix
};

int64_t StepsPerEpoch(const OrderConfig& config);  // of a whole epoch
int64_t LeftOut(const OrderConfig& config);        // positions of which an epoch gives no sample
// The first rank whose last batch of an epoch is empty, as are those after it; W: there is none.
int64_t FirstEmptyRank(const OrderConfig& config);
int64_t SamplesPerEpoch(const OrderConfig& config,
                        int64_t rank);  // this rank's share of a whole epoch, padding counted

}  // namespace feedwater::server
