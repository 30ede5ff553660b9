// What the files were that the records of shards were made from: inodes, sizes and times, which say
// of a file that was written in place what no digest of a large dataset looks at. A run that goes
// on behind whole shards looks at their files again, and finds the one that is another by now.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/local_pipeline.h"
#include "client/cli/shard_journal.h"
#include "server/sampler/permutation.h"
#include "server/source/digest.h"

namespace feedwater::cli {

// Which record stands at which position of the shards. Immutable.
class WritingOrder {
 public:
  // `shuffle`: the seed.
  WritingOrder(int64_t records, std::optional<uint64_t> shuffle);
  int64_t At(int64_t position) const { return order_ ? order_->At(position) : position; }

 private:
  std::optional<server::Permutation> order_;
};

// Belongs to one thread.
class SourceFiles {
 public:
  enum class Of { kJob, kNow };  // the files as the pipeline's job reads them, or as they are

  // The pipeline outlives it.
  explicit SourceFiles(const LocalPipeline& local);

  // A number of what the record's files are; another one where one of them was written, exchanged
  // or given other rights. 0: nothing needs to be known of them. FailedPrecondition: a file is
  // another one than the job has read. The file system's number is left out, which may be another
  // one when it is mounted again.
  absl::StatusOr<uint64_t> StateOf(int64_t record, Of what);

  // The last change of the files since the last call, and the file.
  struct Change {
    int64_t at_ns = 0;
    std::string file;
  };
  Change TakeLastChange();

 private:
  absl::StatusOr<uint64_t> StateOfObject(uint32_t object, Of what);

  const LocalPipeline& local_;
  const bool is_needed_;
  const std::vector<const server::Root*> roots_;
  std::vector<server::Extent> extents_, one_;  // scratch
  int64_t last_object_ = -1;                   // several records may lie in it
  uint64_t last_state_ = 0;
  int64_t changed_ns_ = 0, changed_object_ = -1;
};

// The states of the records of one shard, in their order.
class ShardState {
 public:
  void Add(uint64_t state) {
    is_known_ |= state != 0;
    digest_.Add(state);
  }
  std::string Text() const { return is_known_ ? digest_.Hex() : ""; }  // ""; nothing to be known

 private:
  server::Digest digest_;
  bool is_known_ = false;
};

// Looks at the files of all whole shards, in up to `jobs` threads. What is said of the first shard
// of which one is another than it was: which shard, and the file that was changed last, most likely
// that one. "" where there is none. Shards whose journal does not tell are let pass.
absl::StatusOr<std::string> FindChangedSource(const LocalPipeline& local,
                                              const ShardJournal& journal,
                                              const WritingOrder& order, size_t jobs,
                                              const std::string& what);

}  // namespace feedwater::cli
