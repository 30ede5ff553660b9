// Compares the shards of a folder with the dataset that they were made from, record by record and
// field by field: what a daemon would read from them, with what is made anew of the source. Bytes,
// texts, numbers and arrays must be equal; images that were made baseline must have equal pixels,
// too. Every record of the source must be there once, or be listed as bad.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cli/every_record.h"
#include "client/cli/local_pipeline.h"
#include "client/cli/shard_journal.h"
#include "client/cli/shard_maker.h"
#include "client/cli/shard_section.h"
#include "server/base/mutex.h"

namespace feedwater::cli {

struct Difference {
  int64_t record = 0;  // of the source
  std::string field;   // "" where it is the whole record
  std::string reason;
};

class ShardComparison {
 public:
  // All outlive it. `section` was written; `maker` is how the shards were made.
  ShardComparison(const LocalPipeline& local, const ShardSection& section,
                  const ShardJournal& journal, const std::vector<server::FieldSpec>& fields,
                  const ShardMaker& maker);

  // An error tells of the machine, or of shards that cannot be opened.
  absl::Status Run(size_t jobs);

  // After Run.
  int64_t compared() const { return compared_; }  // records that were in both
  int64_t different() const;
  // By record; of many the first ones (kMostListed of each kind).
  std::vector<Difference> differences() const;
  // OK when nothing differs, else DataLoss with the number and the first one.
  absl::Status Result() const;

 private:
  static constexpr size_t kMostListed = 1000;
  struct Room;

  absl::StatusOr<EveryRecord::Look> MakeLook();
  absl::Status Look(const server::RecordBytes& bytes, Room& room);
  absl::Status Compare(int64_t record, const server::Record& written, Room& room);
  absl::Status ReadBadList();
  void FindMissing();
  void Note(Difference difference);

  const LocalPipeline& local_;
  const ShardSection& section_;
  const ShardJournal& journal_;
  const std::vector<server::FieldSpec>& fields_;
  const ShardMaker& maker_;
  std::shared_ptr<const server::Dataset> written_;
  LocalPipeline shards_;                    // local_ with written_ as its dataset
  std::vector<std::atomic<uint8_t>> seen_;  // by record of the source
  std::vector<int64_t> bad_;                // sorted
  std::atomic<int64_t> compared_{0};

  mutable server::Mutex mu_;
  std::vector<Difference> differences_ ABSL_GUARDED_BY(mu_);
  int64_t different_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace feedwater::cli
