// Batches that nobody will see: of a stream that is sent elsewhere or ends, or behind one that
// failed. They are marked under the scheduler's lock, and their slots are given up without it.
#pragma once

#include <memory>
#include <vector>

#include "server/pipeline/stream.h"

namespace feedwater::server {

// Declare it before the lock: its destructor gives the slots up. REQUIRES, in all calls: the
// scheduler's lock.
class DroppedBatches {
 public:
  DroppedBatches() = default;
  DroppedBatches(const DroppedBatches&) = delete;
  DroppedBatches& operator=(const DroppedBatches&) = delete;
  ~DroppedBatches();

  void DropAll(Stream& stream);                          // all that are open
  void DropBehind(const std::shared_ptr<Batch>& batch);  // those that are open behind this one
  // Of a batch that had writers when it was dropped.
  void LastWriterLeft(const std::shared_ptr<Batch>& batch);

 private:
  void Drop(const std::shared_ptr<Batch>& batch);

  std::vector<std::shared_ptr<Batch>> batches_;
};

}  // namespace feedwater::server
