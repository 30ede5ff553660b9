// A batch that leaves its stream: in its slot, or as a failure. It is taken under the scheduler's
// lock and handed over without it, so that the order of batches costs nobody the lock.
#pragma once

#include <memory>
#include <optional>

#include "server/batch/slot_pool.h"
#include "server/pipeline/bad_sample.h"
#include "server/pipeline/bad_sample_log.h"
#include "server/pipeline/stream.h"

namespace feedwater::server {

struct Publication {
  std::shared_ptr<Batch> batch;
  BatchMeta meta;
  std::optional<BatchFailure> failure;
  BadPlaces bad;
  bool ends_stream = false;  // too many bad samples: the batches behind it are not worth working on
};

// The next batch to publish. Nothing: it is not done, or another thread has the turn, which keeps
// the order; `our_turn`: the caller has it. REQUIRES: the scheduler's lock.
std::optional<Publication> TakeDone(Stream& stream, bool our_turn);

// Logs the bad samples and gives the slot to the client, or up. `log` may be null.
void HandOver(const Publication& publication, BadSampleLog* log);

}  // namespace feedwater::server
