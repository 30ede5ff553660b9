// Format `lmdb`: the keys and values of an LMDB file, in the order of keys
// (lmdb_file.h). A record is one read for its value and, where a field takes
// it, one for its key.
//
// The index keeps 16 bytes a record: the key's page, its place in it, the page
// of a large value, and the value's size.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/source/caffe_datum.h"
#include "server/source/column_format.h"
#include "server/source/file_stream.h"
#include "server/source/lmdb_file.h"

namespace feedwater::server {
namespace {

constexpr IndexTag kPageBytes = MakeIndexTag("lpsz");  // one number
constexpr IndexTag kLeaves = MakeIndexTag("lpag");     // page of each key
constexpr IndexTag kKeys = MakeIndexTag("lkey");       // its place in the page, and its size << 16
constexpr IndexTag kOverflows = MakeIndexTag("lovf");  // first page of a large value, or 0
constexpr IndexTag kSizes = MakeIndexTag("lval");      // of the values

constexpr const char *kKey = "key", *kData = "data", *kLabel = "label";
constexpr const char* kFileName = "data.mdb";
constexpr int64_t kBytesPerRecord = 2 * (4 * sizeof(uint64_t));
constexpr int64_t kMaxLooks = 64;  // records that types are taken from
constexpr uint64_t kMaxLookBytes = 64 << 20;

struct LmdbParams {
  std::string values = "bytes";
  FieldRequests fields;
};

// What is found in the file.
struct LmdbScan {
  std::vector<uint64_t> leaves, keys, overflows, sizes;
};

class LmdbColumns final : public ShardedColumns {
 public:
  static absl::StatusOr<std::unique_ptr<const RecordColumns>> Open(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted, bool is_datum) {
    FW_ASSIGN_OR_RETURN(Shards shards, Shards::Open(*parts.index, parts.records));
    std::unique_ptr<LmdbColumns> records(new LmdbColumns(std::move(shards)));
    FW_ASSIGN_OR_RETURN(const NumberColumn page_bytes, parts.index->Numbers(kPageBytes));
    FW_ASSIGN_OR_RETURN(records->leaves_, parts.index->Numbers(kLeaves));
    FW_ASSIGN_OR_RETURN(records->keys_, parts.index->Numbers(kKeys));
    FW_ASSIGN_OR_RETURN(records->overflows_, parts.index->Numbers(kOverflows));
    FW_ASSIGN_OR_RETURN(records->sizes_, parts.index->Numbers(kSizes));
    const auto size = static_cast<size_t>(parts.records);
    if (page_bytes.size() != 1 || page_bytes[0] == 0 || page_bytes[0] > kLmdbMaxPage ||
        records->leaves_.size() != size || records->keys_.size() != size ||
        records->overflows_.size() != size || records->sizes_.size() != size ||
        records->shards().size() != 1) {
      return absl::DataLossError("an lmdb index whose columns do not fit together");
    }
    records->page_bytes_ = static_cast<uint32_t>(page_bytes[0]);
    records->is_datum_ = is_datum;
    for (size_t i = 0; i < columns.size(); ++i) {
      const ColumnSpec& column = columns[i];
      const bool is_image = column.kind == ColumnSpec::Kind::kArray && column.shape.size() == 3 &&
                            (column.dtype == DType::kUInt8 || column.dtype == DType::kFloat32);
      int64_t* place = nullptr;
      if (column.name == kKey && column.kind == ColumnSpec::Kind::kText) {
        place = &records->key_column_;
      } else if (column.name == kData &&
                 (column.kind == ColumnSpec::Kind::kBytes || (is_datum && is_image))) {
        records->data_ = column;
        place = &records->data_column_;
      } else if (column.name == kLabel && is_datum && column.kind == ColumnSpec::Kind::kNumbers &&
                 column.dtype == DType::kInt64 && column.shape.empty()) {
        place = &records->label_column_;
      } else {
        return absl::DataLossError("an lmdb index with columns that lmdb does not have");
      }
      if (wanted[i]) *place = static_cast<int64_t>(i);
    }
    return records;
  }

  size_t extents_per_record() const override {
    return (reads_key() ? 1 : 0) + (reads_value() ? 1 : 0);
  }

  void AddExtents(int64_t record, std::vector<Extent>* extents) const override {
    const auto i = static_cast<size_t>(record);
    // Numbers of a damaged index may be any.
    const auto most = static_cast<uint64_t>(shards().bytes(0));
    const auto add = [&](uint64_t page, uint64_t at, uint64_t bytes) {
      const uint64_t begin = std::min(page, most / page_bytes_) * page_bytes_ + at;
      extents->push_back(shards().Part(0, begin, bytes));
    };
    const uint64_t key_at = keys_[i] & 0xffff, key_bytes = keys_[i] >> 16 & 0xffff;
    if (reads_key()) add(leaves_[i], key_at, key_bytes);
    if (!reads_value()) return;
    if (overflows_[i] == 0) {
      add(leaves_[i], key_at + key_bytes, sizes_[i]);
    } else {
      add(overflows_[i], 0, kLmdbPageHeader + std::min(sizes_[i], most));
    }
  }

  absl::Status Read(int64_t record, RecordSpans bytes, ColumnValues* values) const override {
    if (reads_key())
      values->SetBytes(static_cast<size_t>(key_column_), bytes[0].data(), bytes[0].size());
    if (!reads_value()) return absl::OkStatus();
    absl::string_view value(reinterpret_cast<const char*>(bytes.back().data()),
                            bytes.back().size());
    const auto i = static_cast<size_t>(record);
    if (overflows_[i] != 0) {
      if (value.size() < kLmdbPageHeader ||
          !IsLmdbOverflow(value.data(), overflows_[i], value.size() - kLmdbPageHeader,
                          page_bytes_)) {
        return absl::DataLossError(
            absl::StrCat("page ", overflows_[i], " does not hold the record's value"));
      }
      value.remove_prefix(kLmdbPageHeader);
    }
    if (!is_datum_) {
      values->SetBytes(static_cast<size_t>(data_column_), value.data(), value.size());
      return absl::OkStatus();
    }
    return SetDatum(value, values);
  }

 private:
  using ShardedColumns::ShardedColumns;
  bool reads_key() const { return key_column_ >= 0; }
  bool reads_value() const { return data_column_ >= 0 || label_column_ >= 0; }

  absl::Status SetDatum(absl::string_view value, ColumnValues* values) const {
    FW_ASSIGN_OR_RETURN(const CaffeDatum datum, CaffeDatum::Read(value));
    if (label_column_ >= 0) values->SetNumber(static_cast<size_t>(label_column_), datum.label);
    if (data_column_ < 0) return absl::OkStatus();
    const auto column = static_cast<size_t>(data_column_);
    const bool wants_encoded = data_.kind == ColumnSpec::Kind::kBytes;
    if (datum.is_encoded != wants_encoded) {
      return absl::InvalidArgumentError(
          absl::StrCat("column 'data' is ", datum.is_encoded ? "an encoded image" : "pixels",
                       ", and those of the first records are not"));
    }
    if (wants_encoded) {
      values->SetBytes(column, datum.data.data(), datum.data.size());
      return absl::OkStatus();
    }
    if (datum.has_floats != (data_.dtype == DType::kFloat32) &&
        (datum.has_floats || !datum.data.empty())) {
      return absl::InvalidArgumentError(absl::StrCat("column 'data' is not of ",
                                                     DTypeName(data_.dtype),
                                                     " as in the first "
                                                     "records"));
    }
    const Shape shape = datum.shape();
    for (size_t i = 0; i < shape.size(); ++i) {
      if (data_.shape.size() != shape.size() ||
          (data_.shape[i] >= 0 && data_.shape[i] != shape[i])) {
        return absl::InvalidArgumentError(absl::StrCat(
            "column 'data' is ", TensorSpec{data_.dtype, Layout::kPlain, shape}.ToString(),
            ", not ", data_.TypeText(), " as in the first records"));
      }
    }
    if (!datum.has_floats) {
      values->Set(column, datum.data.data(), datum.data.size(), shape);
      return absl::OkStatus();
    }
    const size_t size = datum.floats.size() * sizeof(float);
    std::byte* to = values->Make(column, shape, size);
    if (to == nullptr) return absl::InvalidArgumentError("column 'data' is too large");
    if (size > 0) std::memcpy(to, datum.floats.data(), size);
    return absl::OkStatus();
  }

  NumberColumn leaves_, keys_, overflows_, sizes_;
  uint32_t page_bytes_ = 0;
  bool is_datum_ = false;
  ColumnSpec data_;
  int64_t key_column_ = -1, data_column_ = -1, label_column_ = -1;
};

class Lmdb final : public ColumnFormat {
 public:
  explicit Lmdb(LmdbParams params) : ColumnFormat(params.fields), params_(std::move(params)) {}
  int64_t sections_version() const override { return 1; }

 protected:
  absl::Status FindRecords(const DatasetLocation& location, IndexBuilder* builder,
                           std::vector<ColumnSpec>* columns) const override {
    if (params_.values == "pickle") {
      return absl::InvalidArgumentError(
          absl::StrCat(location.Describe(),
                       ": 'values: pickle' would run code that the file holds; cure: read "
                       "it in Python and write each value as plain bytes (txn.put(key, "
                       "array.tobytes()), or the image file itself), or write tar shards "
                       "with webdataset.TarWriter"));
    }
    FW_ASSIGN_OR_RETURN(const struct stat info, location.root->Stat(location.path));
    const std::vector<std::string> names =
        S_ISDIR(info.st_mode) ? std::vector<std::string>{kFileName} : std::vector<std::string>{};
    FW_ASSIGN_OR_RETURN(const std::vector<FoundFile> files,
                        FindFiles(location, names, {}, builder));
    const FoundFile& file = files[0];
    const std::string what = location.root->Describe(file.path);
    FW_ASSIGN_OR_RETURN(const Fd fd,
                        file.RootIn(location).OpenFile(file.path_to_read(), /*direct_io=*/false));
    const auto read = [&](int64_t offset, char* to, size_t bytes) {
      return ReadFileAt(fd.get(), offset, to, bytes, what);
    };
    const auto name_file = [&](const absl::Status& status) {
      if (!absl::IsDataLoss(status)) return status;
      return absl::InvalidArgumentError(absl::StrCat(what, " ", status.message()));
    };
    absl::StatusOr<LmdbFile> opened = LmdbFile::Open(read, file.bytes);
    if (!opened.ok()) return name_file(opened.status());
    LmdbScan scan;
    const absl::Status walked = opened->Walk([&](const LmdbRecord& record) {
      scan.leaves.push_back(record.leaf);
      scan.keys.push_back(record.key_at | uint64_t{record.key_bytes} << 16);
      scan.overflows.push_back(record.overflow);
      scan.sizes.push_back(record.value_bytes);
      FW_RETURN_IF_ERROR(builder->Take(kBytesPerRecord));
      return builder->Progress(
          static_cast<int64_t>(scan.leaves.size()) - 1,
          static_cast<int64_t>(std::min<uint64_t>(opened->entries(), INT64_MAX)));
    });
    FW_RETURN_IF_ERROR(name_file(walked));
    ShardList shards;
    shards.Add(file, static_cast<int64_t>(scan.leaves.size()));
    Digest digest;
    digest.Add("lmdb");
    shards.AddTo(location, builder, &digest);
    builder->digest = digest.Hex();
    builder->columns.Add(kPageBytes, {opened->page_bytes()});
    builder->columns.Add(kLeaves, scan.leaves);
    builder->columns.Add(kKeys, scan.keys);
    builder->columns.Add(kOverflows, scan.overflows);
    builder->columns.Add(kSizes, scan.sizes);
    columns->push_back(ColumnSpec::Text(kKey));
    columns->back().doc = "The record's key.";
    if (params_.values == "bytes") {
      columns->push_back(ColumnSpec::Bytes(kData));
      columns->back().doc = "The record's value, as it is stored.";
      return absl::OkStatus();
    }
    return FindDatums(scan, *opened, read, what, builder, columns);
  }

  absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenRecords(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) const override {
    return LmdbColumns::Open(parts, columns, wanted, params_.values == "caffe_datum");
  }

 private:
  // What the Datums hold, from records evenly spread over the file.
  static absl::Status FindDatums(const LmdbScan& scan, const LmdbFile& file,
                                 const LmdbFile::ReadAt& read, const std::string& what,
                                 IndexBuilder* builder, std::vector<ColumnSpec>* columns) {
    const auto records = static_cast<int64_t>(scan.leaves.size());
    const int64_t looks = std::min(records, kMaxLooks);
    ColumnSpec data = ColumnSpec::Bytes(kData);
    std::string value;
    for (int64_t look = 0; look < looks; ++look) {
      const int64_t record = look * (records / looks);
      const auto i = static_cast<size_t>(record);
      const auto fail = [&](absl::string_view message) {
        return absl::InvalidArgumentError(
            absl::StrCat("record ", record, " of ", what, " ", message, "; cure: 'values: bytes'"));
      };
      if (scan.sizes[i] > kMaxLookBytes) return fail("is too large for a Caffe Datum");
      FW_RETURN_IF_ERROR(builder->Take(std::max<int64_t>(
          0,
          static_cast<int64_t>(scan.sizes[i] - std::min<uint64_t>(scan.sizes[i], value.size())))));
      value.resize(scan.sizes[i]);
      const uint64_t page = scan.overflows[i] == 0 ? scan.leaves[i] : scan.overflows[i];
      const uint64_t at =
          scan.overflows[i] == 0 ? (scan.keys[i] & 0xffff) + (scan.keys[i] >> 16) : kLmdbPageHeader;
      FW_RETURN_IF_ERROR(
          read(static_cast<int64_t>(page * file.page_bytes() + at), value.data(), value.size()));
      FW_RETURN_IF_ERROR(builder->Progress(look, looks));
      const absl::StatusOr<CaffeDatum> datum = CaffeDatum::Read(value);
      if (!datum.ok()) return fail(datum.status().message());
      ColumnSpec found = ColumnSpec::Bytes(kData);
      if (!datum->is_encoded) {
        found = ColumnSpec::Array(kData, datum->has_floats ? DType::kFloat32 : DType::kUInt8,
                                  datum->shape());
      }
      if (look == 0) data = found;
      if (found.kind != data.kind || found.dtype != data.dtype)
        return fail("holds an image of another kind than the first one");
      for (size_t axis = 0; axis < data.shape.size() && !datum->is_encoded; ++axis) {
        if (data.shape[axis] != found.shape[axis]) data.shape[axis] = -1;
      }
    }
    data.doc = data.kind == ColumnSpec::Kind::kBytes
                   ? "The Datum's encoded image."
                   : "The Datum's image: channels, height, width; Caffe's "
                     "colours are BGR.";
    columns->push_back(std::move(data));
    columns->push_back(ColumnSpec::Number(kLabel, DType::kInt64));
    columns->back().doc = "The Datum's label; 0 when it has none.";
    return absl::OkStatus();
  }

  const LmdbParams params_;
};

const Registrar kRegistrar(
    "lmdb",
    DeclareFormat<Lmdb>("Keys and values of an LMDB file, in the order of keys: `path` is the "
                        "file, or the folder "
                        "with its data.mdb. Columns are `key` and `data`, and `label` with "
                        "`caffe_datum`. Named "
                        "databases and several values of one key (MDB_DUPSORT) are refused.",
                        "dataset: {format: lmdb, root: data, path: train.lmdb, fields: {data: "
                        "data}}",
                        FormatSchema<LmdbParams>()
                            .Param("values", &LmdbParams::values,
                                   "`bytes`: the value as it is. `caffe_datum`: a Datum "
                                   "message, whose image is "
                                   "`data` (encoded, or channels x height x width of uint8 or "
                                   "float32) and whose "
                                   "label is `label`. `pickle` is refused, with what to do "
                                   "instead.",
                                   OneOf({"bytes", "caffe_datum", "pickle"}))
                            .Fields(&LmdbParams::fields)));

}  // namespace
}  // namespace feedwater::server
