// Which record stands where. An Order is a pure function of its configuration: it holds no state
// that moves, needs O(1) memory in the number of records (O(shards) for `block`), and every call is
// thread-safe. See sampler/README.md for the formulas.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/base/philox.h"
#include "server/base/schema.h"
#include "server/base/status.h"

namespace feedwater::server {

enum class Shuffle { kNone, kFull, kBlock };
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
  int64_t records = 0;     // N >= 1
  int64_t batch_size = 0;  // B, 1 to kMaxBatchSize, per rank
  int64_t world_size = 1;  // W, 1 to kMaxWorldSize
  uint64_t seed = 0;
  Shuffle shuffle = Shuffle::kNone;
  LastBatch last = LastBatch::kDrop;
  ShardMode shard = ShardMode::kBatch;
  int64_t block_records = 4096;
  std::vector<int64_t> shard_starts;  // as Dataset::shard_starts()
};
// Enum values from the spec's words. InvalidArgument for B, W or N out of range.
absl::StatusOr<OrderConfig> MakeOrderConfig(const SamplerSpec& spec, int64_t records,
                                            int64_t batch_size, int64_t world_size,
                                            std::vector<int64_t> shard_starts);

// InvalidArgument where the rank is none of the order's; where a whole epoch has no step (`last:
// drop`); where an epoch cannot begin at a position.
absl::Status CheckRank(const OrderConfig& config, int64_t rank);
absl::Status CheckSteps(const OrderConfig& config);
absl::Status CheckStart(const OrderConfig& config, uint64_t epoch, int64_t position);

absl::string_view LastBatchName(LastBatch last);  // the spec's word

// One place in a rank's batch.
struct Placement {
  int64_t position = 0;  // in the epoch's global order, [0, N)
  int64_t record = 0;    // pi_e(position)
  bool is_real = true;   // false for padding
};

// Where a record is used.
struct Use {
  int64_t step = 0, rank = 0, place = 0;  // in the rank's batch
  bool is_real = true;                    // false for padding
};

// The order of one epoch. Steps are counted from `start`, the global position at which the epoch's
// remaining part begins (0, or where a cursor resumes, possibly with another batch size or world
// size).
class EpochOrder {
 public:
  EpochOrder(std::shared_ptr<const OrderConfig> config, uint64_t epoch, int64_t start);

  uint64_t epoch() const { return epoch_; }
  int64_t start() const { return start_; }
  int64_t steps() const { return steps_; }  // the same for every rank
  int64_t BatchSamples(
      int64_t step, int64_t rank) const;  // places in this rank's batch: B, or fewer with `partial`
  Placement At(int64_t step, int64_t rank,
               int64_t k) const;  // REQUIRES: 0 <= k < BatchSamples(step, rank)
  int64_t NextPosition(
      int64_t step) const;  // the cursor after this step: min(start + (step+1)G, end)
  int64_t RecordAt(int64_t position) const;  // pi_e; REQUIRES position in [0, N)
  int64_t PositionOf(int64_t record) const;  // its inverse; REQUIRES record in [0, N)
  // The places at which At gives this record, O(1) each: none where it lies before `start` or is
  // dropped, more than one where it serves as padding, too; of those at most kMaxUses.
  static constexpr size_t kMaxUses = 16;
  std::vector<Use> UsesOf(int64_t record) const;
  PhiloxKey key() const { return key_; }

 private:
  // Who has the place `offset` of a step that begins at `step_start`.
  Use UseAt(int64_t step, int64_t offset) const;

  std::shared_ptr<const OrderConfig> config_;
  uint64_t epoch_;
  int64_t start_, steps_;
  PhiloxKey key_;
  struct Blocks;  // only for `block`
  std::shared_ptr<const Blocks> blocks_;
};

int64_t StepsPerEpoch(const OrderConfig& config);  // of a whole epoch
int64_t LeftOut(const OrderConfig& config);        // records of which an epoch gives no sample
// The first rank whose last batch of an epoch is empty, as are those after it; W: there is none.
int64_t FirstEmptyRank(const OrderConfig& config);
int64_t SamplesPerEpoch(const OrderConfig& config,
                        int64_t rank);  // this rank's share of a whole epoch, padding counted

}  // namespace feedwater::server
