// Where the rows of text files are, as sections of an index: a row is a range of bytes from its
// beginning to the beginning of the next one, or to the end of its file's last row. 4 bytes a
// record; 8 with files of 4 GiB or more.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/source/column_format.h"
#include "server/source/file_patterns.h"
#include "server/source/shards.h"

namespace feedwater::server {

// Collects them while an index is built.
class RowList {
 public:
  static constexpr int64_t kMaxRowBytes = 64 << 20;

  // The next row of the file that is being read. `what`: file and line. InvalidArgument where what
  // stands between two rows makes them too large to be read at once.
  absl::Status Add(int64_t begin, int64_t end, const std::string& what, IndexBuilder* builder);
  void AddBlankLine() { ++blank_lines_; }
  // The rows since the last call are this file's.
  void EndFile(const FoundFile& file);
  int64_t rows() const { return static_cast<int64_t>(begins_.size()); }
  // Sets the builder's sections, number of records, digest and notes.
  void AddTo(absl::string_view format, const DatasetLocation& location,
             IndexBuilder* builder) const;

 private:
  ShardList shards_;
  std::vector<uint64_t> begins_, ends_;
  size_t first_ = 0;  // row of the file
  uint64_t end_ = 0;  // of the file's last row
  int64_t blank_lines_ = 0;
};

// The same from an index. Immutable.
struct RowPlaces {
  // DataLoss when the sections do not fit together.
  static absl::StatusOr<RowPlaces> Open(const IndexedParts& parts);

  Shards shards;
  NumberColumn begins, ends;
};

// Records that are rows.
class RowColumns : public ShardedColumns {
 public:
  void AddExtents(int64_t record, std::vector<Extent>* extents) const final;

 protected:
  explicit RowColumns(RowPlaces places)
      : ShardedColumns(std::move(places.shards)), begins_(places.begins), ends_(places.ends) {}

 private:
  const NumberColumn begins_, ends_;
};

}  // namespace feedwater::server
