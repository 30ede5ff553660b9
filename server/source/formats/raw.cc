// Format `raw`: files of records that all have the same number of bytes, behind a header. Each
// field is a range of the record with a dtype and a shape, little-endian. The index holds nothing
// for a record.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/units.h"
#include "server/source/column_format.h"

namespace feedwater::server {
namespace {

constexpr absl::string_view kSuffixes[] = {""};
constexpr double kMaxRecordBytes = 256 << 20;  // as the pipeline's reader

struct RawParams {
  std::vector<std::string> files;
  int64_t record_bytes = 0, header_bytes = 0;
  FieldRequests fields;
};

class RawColumns final : public ShardedColumns {
 public:
  struct Column {
    int64_t offset = 0;
    size_t bytes = 0;
    Shape shape;
  };
  RawColumns(Shards shards, const RawParams& params, std::vector<Column> columns)
      : ShardedColumns(std::move(shards)),
        record_bytes_(params.record_bytes),
        header_bytes_(params.header_bytes),
        columns_(std::move(columns)) {}

  void AddExtents(int64_t record, std::vector<Extent>* extents) const override {
    const uint32_t shard = shards().Of(record);
    extents->push_back(
        {shard, header_bytes_ + (record - shards().first(shard)) * record_bytes_, record_bytes_});
  }
  std::optional<StoredField> StoredAt(size_t column) const override {
    return StoredField{0, columns_[column].offset};
  }
  absl::Status Read(int64_t, RecordSpans bytes, ColumnValues* values) const override {
    if (bytes[0].size() != static_cast<size_t>(record_bytes_))
      return absl::DataLossError(absl::StrCat("a record has ", record_bytes_, " bytes"));
    for (size_t i = 0; i < columns_.size(); ++i) {
      const Column& column = columns_[i];
      values->Set(i, bytes[0].data() + column.offset, column.bytes, column.shape);
    }
    return absl::OkStatus();
  }

 private:
  const int64_t record_bytes_, header_bytes_;
  const std::vector<Column> columns_;
};

class Raw final : public ColumnFormat {
 public:
  explicit Raw(RawParams params) : ColumnFormat(params.fields), params_(std::move(params)) {}
  int64_t sections_version() const override { return 1; }

 protected:
  bool takes_offsets() const override { return true; }

  absl::Status FindRecords(const DatasetLocation& location, IndexBuilder* builder,
                           std::vector<ColumnSpec>* columns) const override {
    FW_RETURN_IF_ERROR(ForEachColumn(
        [&](const ColumnSpec& column, int64_t, int64_t) { columns->push_back(column); }));
    FW_ASSIGN_OR_RETURN(const std::vector<FoundFile> files,
                        FindFiles(location, params_.files, kSuffixes, builder));
    ShardList shards;
    for (const FoundFile& file : files) {
      const int64_t bytes = file.bytes - params_.header_bytes;
      if (bytes < 0 || bytes % params_.record_bytes != 0) {
        const std::string rest =
            bytes > 0 ? absl::StrCat(" (", bytes % params_.record_bytes, " are left over)") : "";
        return absl::InvalidArgumentError(
            absl::StrCat(location.root->Describe(file.path), " has ",
                         FormatCount(file.bytes, "byte"), ", which is no header of ",
                         params_.header_bytes, " and whole records of ", params_.record_bytes, rest,
                         ": it is truncated, or 'record_bytes' or 'header_bytes' is another"));
      }
      shards.Add(file, bytes / params_.record_bytes);
    }
    Digest digest;
    digest.Add("raw");
    digest.Add(static_cast<uint64_t>(params_.record_bytes));
    digest.Add(static_cast<uint64_t>(params_.header_bytes));
    shards.AddTo(location, builder, &digest);
    builder->digest = digest.Hex();
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenRecords(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>&) const override {
    FW_ASSIGN_OR_RETURN(Shards shards, Shards::Open(*parts.index, parts.records));
    for (uint32_t shard = 0; shard < shards.size(); ++shard) {
      int64_t end = 0;
      if (__builtin_mul_overflow(shards.records(shard), params_.record_bytes, &end) ||
          __builtin_add_overflow(end, params_.header_bytes, &end) || end != shards.bytes(shard)) {
        return absl::DataLossError("a raw index whose files do not hold its records");
      }
    }
    std::vector<RawColumns::Column> places;
    std::vector<ColumnSpec> own;
    FW_RETURN_IF_ERROR(ForEachColumn([&](const ColumnSpec& column, int64_t offset, int64_t bytes) {
      places.push_back({offset, static_cast<size_t>(bytes), column.shape});
      own.push_back(column);
    }));
    if (own != columns) return absl::DataLossError("a raw index with other columns");
    return std::make_unique<RawColumns>(std::move(shards), params_, std::move(places));
  }

 private:
  // The fields as columns, with where they begin and their bytes. Without any: all bytes, as
  // `data`.
  template <typename Use>
  absl::Status ForEachColumn(const Use& use) const {
    if (requests().list.empty()) {
      ColumnSpec data = ColumnSpec::Array("data", DType::kUInt8, {params_.record_bytes});
      data.doc = "All bytes of the record.";
      use(data, 0, params_.record_bytes);
      return absl::OkStatus();
    }
    for (const FieldRequest& field : requests().list) {
      const auto fail = [&](absl::string_view message) {
        return absl::InvalidArgumentError(
            absl::StrCat(field.where, ": field '", Printable(field.name), "' ", message));
      };
      if (field.from != field.name)
        return fail("has no column to come from: a raw record has offsets, not names");
      if (field.is_file || field.has_classes || field.is_optional)
        return fail("takes offset, dtype and shape alone");
      const int64_t offset = field.offset.value_or(0);
      ColumnSpec column = ColumnSpec::Array(field.name, field.dtype.value_or(DType::kUInt8),
                                            field.shape.value_or(Shape{}));
      column.doc = absl::StrCat("From byte ", offset, " of the record on.");
      const absl::StatusOr<int64_t> bytes =
          TensorSpec{column.dtype, Layout::kPlain, column.shape}.ByteSize();
      int64_t end = 0;
      if (!bytes.ok() || __builtin_add_overflow(*bytes, offset, &end) ||
          end > params_.record_bytes) {
        return fail(
            absl::StrCat("is ", column.TypeText(), " from byte ", offset,
                         ", which does not fit into 'record_bytes' = ", params_.record_bytes));
      }
      use(column, offset, *bytes);
    }
    return absl::OkStatus();
  }

  const RawParams params_;
};

const Registrar kRegistrar(
    "raw",
    DeclareFormat<Raw>(
        "Files of fixed-size records. Each field is a range of the record: where it begins, its "
        "dtype and its shape, little-endian.",
        "dataset: {format: raw, root: data, path: images.bin, record_bytes: 785, fields: {label: "
        "{offset: 0, dtype: uint8}, image: {offset: 1, dtype: uint8, shape: [28, 28, 1]}}}",
        FormatSchema<RawParams>()
            .Required("record_bytes", &RawParams::record_bytes, "Bytes of one record.",
                      Range(1, kMaxRecordBytes))
            .Param("header_bytes", &RawParams::header_bytes,
                   "Bytes at the start of each file that belong to no record.", Range(0, 1e15))
            .Files("files", &RawParams::files,
                   "Files below `path`: names, globs and ranges. Left out: every file of the "
                   "folder.")
            .Fields(&RawParams::fields)));

}  // namespace
}  // namespace feedwater::server
