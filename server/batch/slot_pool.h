// Where finished batches go. The pipeline fills slots through this interface; transport/ implements
// it over shared memory, tests over plain memory.
//
// A slot is in exactly one state:  FREE -Acquire-> FILLING -Publish-> LENT -(the client's
// release)-> FREE
//                                                  FILLING -Abandon-> FREE
// Thread safety: all calls may come from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "proto/shm/wire.h"

namespace feedwater::server {

// Travels with a batch. See proto/shm/wire.h for its form on the wire.
struct BatchMeta {
  uint32_t serial = 0;  // of the client's last seek: batches of an older one are stale
  uint64_t epoch = 0;
  int64_t step = 0;           // within the epoch, counted from the epoch's first position
  int64_t next_position = 0;  // the cursor after this batch
  uint32_t samples = 0;       // places filled
  uint32_t real_samples = 0;  // of them neither padding nor skipped
  uint32_t substituted = 0;   // of them standing in for a bad sample
  bool skipped = false;       // those that stand in are not real
  bool last_in_epoch = false;
};

// Why a batch could not be made, as the client's BadSample wants it.
struct BatchFailure {
  absl::Status status;  // its message: what is wrong, without the record's name
  int64_t record = -1;  // -1: not about one record
  std::string path;
  wire::FailReason reason = wire::FailReason::kOther;
};

class SlotPool {
 public:
  virtual ~SlotPool() = default;
  virtual int slots() const = 0;
  virtual int Acquire() = 0;              // -1 when none is free, or the session is gone
  virtual std::byte* data(int slot) = 0;  // valid while this pool lives
  virtual void Publish(int slot, const BatchMeta& meta) = 0;  // in order; never blocks
  virtual void Abandon(int slot) = 0;
  virtual void Fail(const BatchMeta& meta,
                    const BatchFailure& failure) = 0;  // in the batch's place
  virtual void OnSlotFree(
      std::function<void()> wake) = 0;  // called whenever a slot becomes free; set once, before use
};

}  // namespace feedwater::server
