// The order of the records of one dataset in one of its epochs: pi of the README. A pure function
// of its configuration and key; immutable and thread-safe. Constant memory, for `block`
// O(shards).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "server/base/philox.h"

namespace feedwater::server {

enum class Shuffle { kNone, kFull, kBlock };

class RecordOrder {
 public:
  // `shard_starts` as Dataset::shard_starts(); must outlive the order. REQUIRES: records >= 1.
  RecordOrder(int64_t records, Shuffle shuffle, int64_t block_records,
              const std::vector<int64_t>& shard_starts, PhiloxKey key);

  PhiloxKey key() const { return key_; }
  int64_t RecordAt(int64_t position) const;  // REQUIRES: position in [0, records)
  int64_t PositionOf(int64_t record) const;  // its inverse; REQUIRES: record in [0, records)

 private:
  struct Blocks;  // only for `block`

  int64_t records_;
  Shuffle shuffle_;
  PhiloxKey key_;
  std::shared_ptr<const Blocks> blocks_;
};

}  // namespace feedwater::server
