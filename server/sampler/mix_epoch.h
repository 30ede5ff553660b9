// The order of one epoch of a mix: which record of which source stands where, and in which of the
// source's own epochs. Thread-safe; constant memory, for `block` that of the orders of a few own
// epochs of each source.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"
#include "server/sampler/mix.h"
#include "server/sampler/record_order.h"

namespace feedwater::server {

// A record of the concatenation, and the key of its draws.
struct Pick {
  int64_t record = 0;
  PhiloxKey key{};
};

class MixEpoch {
 public:
  static constexpr int64_t kKept =
      2;  // orders of a source: the present own epoch, and the next one

  MixEpoch(std::shared_ptr<const Mix> mix, Shuffle shuffle, int64_t block_records, uint64_t seed,
           uint64_t epoch);

  Pick PickAt(int64_t position) const;  // REQUIRES: position in [0, positions())
  // Where a record stands at or behind a position of the epoch, rising: so many at most. None where
  // it has no turn.
  std::vector<int64_t> PositionsOf(int64_t record, int64_t from, size_t most) const;

 private:
  struct Kept {
    uint64_t own_epoch = 0;
    std::shared_ptr<const RecordOrder> order;  // null: none
  };
  struct Source {
    uint64_t own_epoch = 0;  // at the epoch's beginning
    int64_t own_position = 0;
    mutable Mutex mu;
    mutable std::array<Kept, static_cast<size_t>(kKept)> kept ABSL_GUARDED_BY(mu);
    mutable size_t oldest ABSL_GUARDED_BY(mu) = 0;
  };

  // The order of a source's own epoch, counted from the one at the epoch's beginning.
  std::shared_ptr<const RecordOrder> OrderOf(size_t source, int64_t own_epochs) const;

  const std::shared_ptr<const Mix> mix_;
  const Shuffle shuffle_;
  const int64_t block_records_;
  const uint64_t seed_;
  const std::unique_ptr<Source[]> sources_;
};

}  // namespace feedwater::server
