// How a dataset's records would be read under a shuffle on a kind of storage, and what that takes
// by its cost model (server/storage/README.md). Looks at the index alone.
#pragma once

#include <cstdint>

#include "server/sampler/order.h"
#include "server/source/dataset.h"
#include "server/storage/storage_kind.h"

namespace feedwater::cli {

// Sizes and places of its records, of at most kMostLookedAt of them that are spread evenly.
struct RecordSizes {
  static constexpr int64_t kMostLookedAt = 100'000;

  int64_t looked_at = 0;
  int64_t bytes_median = 0, bytes_max = 0, record_max = 0;  // which has the most
  double bytes_mean = 0;
  double lone_share = 0;  // of records whose next one lies in another file or far away
};
RecordSizes SizesOf(const server::Dataset& dataset);

// For 1,000 samples.
struct ReadPattern {
  double reads = 0, bytes = 0, seeks = 0;
  bool is_ahead = false;  // windows are read ahead in large pieces

  double bytes_a_read() const { return reads <= 0 ? 0 : bytes / reads; }
};
// `block_records`: of `block` alone.
ReadPattern EstimateReads(const server::Dataset& dataset, const RecordSizes& sizes,
                          server::Shuffle shuffle, int64_t block_records, server::StorageKind kind);

// The most records of a window that is still read ahead.
int64_t MostBlockRecords(const RecordSizes& sizes);

}  // namespace feedwater::cli
