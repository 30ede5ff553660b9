// Makes the shards of `feedwater convert` and `feedwater materialize`. Threads read chunks of
// records and turn them into members; the calling thread takes them in order and writes shard after
// shard, so that what comes out does not depend on how many threads there are, and a shard closes
// at the very byte. At most one shard is unfinished at any moment.
//
// Memory: records that wait for their turn are bounded (kMostWaitingBytes), beside one record a
// thread and one chunk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cli/local_pipeline.h"
#include "client/cli/record_members.h"
#include "client/cli/shard_journal.h"
#include "client/cli/value_maker.h"

namespace feedwater::cli {

struct ShardMaker {
  const LocalPipeline* local = nullptr;
  const RecordMembers* members = nullptr;
  std::function<absl::StatusOr<std::unique_ptr<ValueMaker>>()> new_values;  // by each thread
  std::string what;                   // the progress bar's name
  int64_t shard_bytes = 256 << 20;    // of a shard at most, unless it is one record
  std::vector<int64_t> shard_starts;  // where not empty, what alone divides the records into shards
  std::optional<uint64_t> shuffle;    // the seed
  // The place of a bad record stays (AppendBadPlace), so that all have the numbers of the source's.
  bool keeps_bad_places = false;
  size_t jobs = 1;                       // threads
  size_t chunk_records = 32;             // that a thread takes at a time, at most kMostChunkRecords
  std::function<bool()> is_interrupted;  // asked ten times a second

  static constexpr size_t kMostChunkRecords = 32;

  // Goes on from the journal until every record was converted. Cancelled when interrupted; an error
  // of the machine, of storage or of a full disk. Whole shards stay in any case.
  absl::Status Run(ShardJournal* journal) const;
};

}  // namespace feedwater::cli
