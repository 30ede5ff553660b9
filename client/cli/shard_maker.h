// Makes the shards of `feedwater convert`. Threads read chunks of records and turn them into
// members; the calling thread takes them in order and writes shard after shard, so that what comes
// out does not depend on how many threads there are, and a shard closes at the very byte. At most
// one shard is unfinished at any moment.
//
// Memory: records that wait for their turn are bounded (kMostWaitingBytes), beside one chunk a
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "client/cli/convert_options.h"
#include "client/cli/local_pipeline.h"
#include "client/cli/record_members.h"
#include "client/cli/shard_journal.h"

namespace feedwater::cli {

struct ShardMaker {
  const LocalPipeline* local = nullptr;
  const RecordMembers* members = nullptr;
  ConvertOptions options;
  size_t jobs = 1;                       // threads
  std::function<bool()> is_interrupted;  // asked ten times a second

  // Goes on from the journal until every record was converted. Cancelled when interrupted; an error
  // of the machine, of storage or of a full disk. Whole shards stay in any case.
  absl::Status Run(ShardJournal* journal) const;
};

}  // namespace feedwater::cli
