// The files of a dataset whose files hold many records each: their paths, sizes and first records,
// as sections of an index. What a format with shards needs besides is where a record lies in its
// file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/base/status.h"
#include "server/source/digest.h"
#include "server/source/file_patterns.h"
#include "server/source/format.h"
#include "server/source/index_file.h"

namespace feedwater::server {

// Collects them while an index is built.
class ShardList {
 public:
  // A file with so many records, which may be none. Records are numbered through all files.
  void Add(const FoundFile& file, int64_t records);
  int64_t records() const { return static_cast<int64_t>(starts_.back()); }
  // Adds the sections, the number of records, and to `digest` names, sizes and numbers of records.
  void AddTo(const DatasetLocation& location, IndexBuilder* builder, Digest* digest) const;

 private:
  std::vector<FoundFile> files_;
  std::vector<uint64_t> starts_ = {0};
};

// The same from an index. Immutable.
class Shards {
 public:
  // DataLoss when the sections do not fit together.
  static absl::StatusOr<Shards> Open(const Index& index, int64_t records);

  uint32_t size() const { return static_cast<uint32_t>(paths_.size()); }
  // Below the dataset's root, or that of its unpacked files.
  std::string path(uint32_t shard) const { return std::string(paths_[shard]); }
  bool is_unpacked(uint32_t shard) const { return unpacked_[shard] != 0; }
  int64_t bytes(uint32_t shard) const { return static_cast<int64_t>(bytes_[shard]); }
  int64_t first(uint32_t shard) const { return static_cast<int64_t>(starts_[shard]); }
  int64_t records(uint32_t shard) const { return first(shard + 1) - first(shard); }
  uint32_t Of(int64_t record) const {  // REQUIRES: record in [0, records)
    return static_cast<uint32_t>(starts_.RangeOf(static_cast<uint64_t>(record)));
  }
  std::vector<int64_t> FirstRecords() const;  // of shards that have any

  // So many bytes of a shard from `begin` on, or as many of them as it has: numbers of a damaged
  // index may be any.
  Extent Part(uint32_t shard, uint64_t begin, uint64_t bytes) const;
  // A record that ends where the next one begins; the last one of a shard ends where `ends` says of
  // the shard, or with it where that is null. REQUIRES: `begins` has every record.
  Extent Record(int64_t record, const NumberColumn& begins, const NumberColumn* ends) const;

 private:
  TextColumn paths_;
  NumberColumn bytes_, starts_, unpacked_;
};

}  // namespace feedwater::server
