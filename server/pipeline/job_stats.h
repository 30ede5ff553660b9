// What a running job has done so far, as `feedwater status` shows it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/batch/slot_pool.h"
#include "server/cache/record_cache.h"
#include "server/cache/seek_index_store.h"
#include "server/codec/image.h"
#include "server/pipeline/loaded_pipeline.h"
#include "server/sampler/order.h"

namespace feedwater::server {

// What a job has published. `bad_samples`: places whose own record was bad. `substituted`: of them
// with something else in its place; `skipped`: of those not real.
struct PublishedCounts {
  uint64_t samples = 0, bad_samples = 0, substituted = 0, skipped = 0, batches = 0;

  void Add(const BatchMeta& batch) {
    samples += batch.samples;
    bad_samples += batch.substituted;
    substituted += batch.substituted;
    if (batch.skipped) skipped += batch.substituted;
    ++batches;
  }
};

struct RankStats {
  int64_t rank = 0;
  int pid = 0;
  uint64_t epoch = 0;
  int64_t step =
      0;  // last published; before the first one, the step before the start (-1 at position 0)
  uint64_t began_epoch = 0;  // of the first one, or of the last seek
  int64_t began_step = 0;    // before that one
  // Filled by the service, which knows what the client has taken and released; so are then `epoch`
  // and `step` of the last batch that was taken.
  int slots = 0, slots_ready = 0, slots_lent = 0;
};

struct JobStats : PublishedCounts {
  std::string job, pipeline;
  uint32_t owner_uid = 0;
  int64_t held_up = 0;  // reads that storage holds up
  uint64_t epoch = 0;   // the least advanced rank's
  int64_t step = 0;
  int64_t world_size = 0;
  uint64_t bytes_read = 0;
  double cpu_seconds = 0, read_wait_seconds = 0;
  // Elapsed time of all workers by stage, beside read_wait_seconds: opening files and starting
  // reads (with the pread engine, reading), splitting bytes into fields, the graph, the batch's
  // graph. Samples that were thrown away count too.
  double read_seconds = 0, parse_seconds = 0, run_seconds = 0, batch_seconds = 0;
  DecodeCounts decoded;
  int workers = 0;  // that have memory for its samples; more than there are: all
  std::string cache_kind, cache_reason;
  int64_t records = 0;  // of the dataset
  RecordCache::Counts cache;
  SeekIndexStore::Counts seek_indexes;
  std::vector<RankStats> ranks;
  // What the job's order is made of: for the ledger.
  std::shared_ptr<const LoadedPipeline> loaded;
  std::shared_ptr<const OrderConfig> order;
  // Where the least advanced rank began, or was sent last. Epochs after that one begin at 0.
  uint64_t start_epoch = 0;
  int64_t start = 0;
};

class Job;
JobStats Describe(const Job& job);  // REQUIRES: the scheduler's lock

}  // namespace feedwater::server
