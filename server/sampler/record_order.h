// The order of the records of one dataset in one of its epochs: pi of the README. A pure function
// of its configuration and key; immutable and thread-safe. Constant memory and time, for `block`
// O(shards): tables that Prepare makes, or whoever needs them first.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "server/base/philox.h"

namespace feedwater::server {

enum class Shuffle { kNone, kFull, kBlock };

class RecordOrder {
 public:
  // `shard_starts` as Dataset::shard_starts(); must outlive the order. REQUIRES: records >= 1.
  RecordOrder(int64_t records, Shuffle shuffle, int64_t block_records,
              const std::vector<int64_t>& shard_starts, PhiloxKey key);

  // Makes the tables; others who need them wait meanwhile.
  void Prepare() const;
  bool is_prepared() const;

  PhiloxKey key() const { return key_; }
  // Of `block`: the places of a window, and the record at a place of C, in whose order shards are
  // read; a window's records are those at its places. 0 for other shuffles, which have neither.
  int64_t window_records() const;
  int64_t RecordAtPlace(int64_t place) const;  // REQUIRES: `block`; place in [0, records)
  int64_t records() const { return records_; }
  // What an order with these shards takes in memory.
  static int64_t Bytes(int64_t records, Shuffle shuffle, int64_t block_records, size_t shards);
  int64_t RecordAt(int64_t position) const;             // REQUIRES: position in [0, records)
  void RecordsAt(absl::Span<int64_t> positions) const;  // each becomes what RecordAt gives for it
  int64_t PositionOf(int64_t record) const;  // RecordAt's inverse; REQUIRES: record in [0, records)

 private:
  struct Blocks;
  class LazyBlocks;

  int64_t records_;
  Shuffle shuffle_;
  PhiloxKey key_;
  std::shared_ptr<LazyBlocks> blocks_;  // only for `block`
};

}  // namespace feedwater::server
