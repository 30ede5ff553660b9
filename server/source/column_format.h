// The base of formats whose records have named columns: tar shards, TFRecord, CSV, LMDB, ... Such a
// format says where its records are and what columns they have; this class makes fields of them as
// `fields:` asks (field_requests.h), the same way for all: other names and types, classes of
// strings, files that a column names, optional columns.
//
//   class MyFormat final : public ColumnFormat {
//     explicit MyFormat(MyParams params);              // passes params.fields on
//     int64_t sections_version() const override;
//     absl::Status FindRecords(...) const override;    // looks at files; as Format::BuildIndex
//     absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenRecords(...) const override;
//   };
//
// Columns are found when the index is built and saved in it. So the fields of such a dataset are
// known when it is opened, not before.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/source/columns.h"
#include "server/source/field_reader.h"
#include "server/source/field_requests.h"
#include "server/source/format.h"
#include "server/source/shards.h"

namespace feedwater::server {

using RecordSpans = absl::Span<const absl::Span<const std::byte>>;

inline absl::string_view AsText(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The records of an opened index. Immutable and thread-safe.
class RecordColumns {
 public:
  virtual ~RecordColumns() = default;
  virtual int64_t objects() const = 0;
  virtual std::string ObjectPath(uint32_t object) const = 0;  // below the root
  virtual bool IsUnpacked(uint32_t) const { return false; }   // below that of the unpacked files
  virtual int64_t ObjectBytes(uint32_t object) const = 0;
  virtual std::vector<int64_t> shard_starts() const = 0;  // as Dataset::shard_starts
  // Adds the record's extents, always as many. REQUIRES: record in [0, size).
  virtual void AddExtents(int64_t record, std::vector<Extent>* extents) const = 0;
  virtual size_t extents_per_record() const { return 1; }
  // Where Read would do no more than to point at the column's value; nothing where it does more.
  virtual std::optional<StoredField> StoredAt(size_t /*column*/) const { return std::nullopt; }
  // The columns that are there, of the bytes of the record's extents. Pure; any bytes are safe.
  // `bytes` has extents_per_record() spans. InvalidArgument or DataLoss: the record is bad.
  virtual absl::Status Read(int64_t record, RecordSpans bytes, ColumnValues* values) const = 0;
};

// Records of the files of an index's shards (shards.h).
class ShardedColumns : public RecordColumns {
 public:
  int64_t objects() const final { return shards_.size(); }
  std::string ObjectPath(uint32_t object) const final { return shards_.path(object); }
  bool IsUnpacked(uint32_t object) const final { return shards_.is_unpacked(object); }
  int64_t ObjectBytes(uint32_t object) const final { return shards_.bytes(object); }
  std::vector<int64_t> shard_starts() const final { return shards_.FirstRecords(); }

 protected:
  explicit ShardedColumns(Shards shards) : shards_(std::move(shards)) {}
  const Shards& shards() const { return shards_; }

 private:
  const Shards shards_;
};

class ColumnFormat : public Format {
 public:
  explicit ColumnFormat(FieldRequests requests) : requests_(std::move(requests)) {}

  bool knows_fields() const final { return false; }
  std::vector<FieldSpec> fields() const final { return {}; }
  absl::Status BuildIndex(const DatasetLocation& location, IndexBuilder* builder) const final;
  absl::StatusOr<std::shared_ptr<const Dataset>> Open(IndexedParts parts) const final;

 protected:
  // Finds records and columns: sets the builder's records, digest and sections.
  virtual absl::Status FindRecords(const DatasetLocation& location, IndexBuilder* builder,
                                   std::vector<ColumnSpec>* columns) const = 0;
  // `wanted`: by column, which ones Read has to give; others may be left out.
  virtual absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenRecords(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) const = 0;
  // What `fields:` is when it is left out: every column under its own name.
  virtual std::vector<FieldRequest> DefaultFields(const std::vector<ColumnSpec>& columns) const;
  // Whether a column that `fields:` asks for is read of every record where the index needs some of
  // its columns. Not one that is no text and may be bad.
  virtual bool IsSurveyed(const ColumnSpec& /*column*/) const { return true; }
  // Whether its fields say where in a record they lie.
  virtual bool takes_offsets() const { return false; }
  // Class names by label that the format itself knows.
  virtual std::vector<std::string> ClassNames() const { return {}; }

  const FieldRequests& requests() const { return requests_; }

 private:
  absl::StatusOr<FieldReader> MakeReader(const DatasetLocation& location,
                                         const std::vector<ColumnSpec>& columns) const;
  // Reads every record once, for the classes and files that `fields:` asks for.
  absl::Status Survey(const DatasetLocation& location, const std::vector<ColumnSpec>& columns,
                      const FieldReader& reader, IndexBuilder* builder) const;

  const FieldRequests requests_;
};

inline constexpr size_t kMaxClasses = 1 << 20;

}  // namespace feedwater::server
