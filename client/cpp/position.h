// The rules of position: epochs, cursors, skipped steps. No input or output. How steps count is
// written in client/python/feedwater/position.py.
//
// tests/conformance/positions.json is the table of cases that this class and the Python client's
// (client/python/feedwater/position.py) both pass.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/cursor.h"

namespace feedwater {

struct EpochShape {
  int64_t records = 0, steps = 0;
  bool drop_last = false;
};

class Position {
 public:
  Position() = default;
  // At `cursor`, whose world size and batch size make the steps. `resumed`: as after Load.
  Position(Cursor cursor, EpochShape shape, bool resumed);

  const Cursor& cursor() const { return cursor_; }     // what a saved state tells
  bool at_epoch_end() const { return at_epoch_end_; }  // the epoch's last batch was taken
  bool resumed() const { return resumed_; }  // loaded; since then nothing taken, no epoch chosen

  // Where the next batch begins: behind what is left out.
  EpochPosition Wanted() const;
  // The epoch of the next batch, or of the last one where that ended its epoch.
  uint64_t epoch() const;
  uint64_t next_epoch() const { return epoch() + (at_epoch_end_ ? 1 : 0); }
  bool HasRest() const;  // a batch of this epoch is still to come
  // Where a step of an epoch begins, or would if it was not left out. InvalidArgument: there is no
  // such step.
  absl::StatusOr<int64_t> BeginOf(uint64_t epoch, int64_t step) const;

  // Counts a batch of an epoch, behind which the next one begins at `next_position`.
  void Take(uint64_t epoch, int64_t next_position, bool is_last, int64_t substituted);
  void BeginEpoch(uint64_t epoch);
  // BeginEpoch, unless nothing of that epoch has been taken since the position was moved there.
  // Returns whether it has moved.
  bool ChooseEpoch(uint64_t epoch);
  // Goes where a state was saved. FailedPrecondition: it is of another dataset, pipeline or seed;
  // InvalidArgument: its epoch has no such position.
  absl::Status Load(const Cursor& saved);
  // Leaves out steps of an epoch, both included. InvalidArgument: no such steps, or too many
  // ranges.
  absl::Status Skip(int64_t first, int64_t last, uint64_t epoch);

 private:
  int64_t GlobalBatch() const { return cursor_.batch_size * cursor_.world_size; }
  void Stand();                       // where the cursor was moved
  void ForgetRanges(uint64_t epoch);  // those of the epochs before
  int64_t PlaceOf(uint64_t epoch, int64_t step) const;

  Cursor cursor_;
  EpochShape shape_;
  int64_t counted_from_ = 0;          // the place that the steps of this epoch count from
  std::vector<SkippedRange> ranges_;  // of the state: behind each of them they count from its end
  bool at_epoch_end_ = false;
  bool fresh_ = true;  // nothing was taken since the position was moved
  bool resumed_ = false;
};

}  // namespace feedwater
