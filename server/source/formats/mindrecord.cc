// Format `mindrecord`: MindSpore's MindRecord files. A header of JSON says what the columns are and
// in which pages rows and blobs lie (mindrecord_file.h); a row is a MessagePack map, its blob the
// images and arrays. A record is one read in the row's page and one in the blob's; what no field
// asks for is not read.
//
// The index databases beside the files (NAME.db) are not read: they repeat where rows lie, which
// the pages say themselves. They tell which files of a folder are data files, whose names MindSpore
// leaves to the user.
//
// The index keeps 8 bytes a record, and 16 in files of 4 GiB and more: where its row and its blob
// begin. A row group's end is where its last row ends.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/units.h"
#include "server/base/yaml.h"
#include "server/source/column_format.h"
#include "server/source/file_window.h"
#include "server/source/json_document.h"
#include "server/source/mindrecord_file.h"
#include "server/source/msgpack_reader.h"

namespace feedwater::server {
namespace {

constexpr IndexTag kRows = MakeIndexTag("mrrb");      // first byte of each record's row
constexpr IndexTag kBlobs = MakeIndexTag("mrbb");     // and of its blob
constexpr IndexTag kGroups = MakeIndexTag("mrgr");    // first record of each row group
constexpr IndexTag kRowEnds = MakeIndexTag("mrre");   // behind the last row of each row group
constexpr IndexTag kBlobEnds = MakeIndexTag("mrbe");  // and behind its last blob
constexpr IndexTag kFields = MakeIndexTag("mrbf");    // names of the blob fields in order
constexpr IndexTag kLayout = MakeIndexTag("mrla");    // a MindRecordBlob
constexpr uint64_t kMaxProbedRow = 64 << 20;
constexpr absl::string_view kSuffix = ".mindrecord";

struct MindRecordParams {
  std::vector<std::string> files;
  FieldRequests fields;
};

// A file with its index database beside it, or by name: "train.mindrecord", "train.mindrecord07".
bool IsDataFile(const std::string& name, const std::vector<std::string>& names) {
  if (std::binary_search(names.begin(), names.end(), name + ".db")) return true;
  absl::string_view rest = name;
  while (!rest.empty() && absl::ascii_isdigit(static_cast<unsigned char>(rest.back())))
    rest.remove_suffix(1);
  return absl::EndsWith(rest, kSuffix);
}

absl::string_view AsText(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A row or blob without its length.
absl::StatusOr<absl::string_view> Unwrap(absl::Span<const std::byte> bytes, const char* what) {
  uint64_t length = 0;
  if (bytes.size() < kMindRecordLength)
    return absl::DataLossError(absl::StrCat("its ", what, " is cut off"));
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length != bytes.size() - kMindRecordLength) {
    return absl::DataLossError(absl::StrCat("its ", what, " says that it has ", length,
                                            " bytes, and has ", bytes.size() - kMindRecordLength));
  }
  return AsText(bytes.subspan(kMindRecordLength));
}

// Gives name and value of every entry of a row; `use` has to pass what belongs to the value.
template <typename Use>
absl::Status ForEachEntry(absl::string_view row, const Use& use) {
  MsgpackReader reader(row);
  FW_ASSIGN_OR_RETURN(const MsgpackValue map, reader.Next());
  if (map.kind != MsgpackValue::Kind::kMap)
    return absl::DataLossError(absl::StrCat("is ", map.name(), ", not a map"));
  for (uint32_t i = 0; i < map.items; ++i) {
    FW_ASSIGN_OR_RETURN(const MsgpackValue name, reader.Next());
    if (name.kind != MsgpackValue::Kind::kText)
      return absl::DataLossError(absl::StrCat("has ", name.name(), " for a column's name"));
    FW_ASSIGN_OR_RETURN(const MsgpackValue value, reader.Next());
    FW_RETURN_IF_ERROR(use(name.bytes, value, &reader));
  }
  if (reader.rest().empty()) return absl::OkStatus();
  return absl::DataLossError("goes on behind its map");
}

// A column that a record has to give, and as what.
struct WantedColumn {
  std::string name;
  size_t number = 0;
  ColumnSpec::Kind kind = ColumnSpec::Kind::kBytes;
  DType dtype = DType::kUInt8;
  Shape shape;
};

absl::Status TooLarge(uint64_t elements) {
  return absl::InvalidArgumentError(
      absl::StrCat("has ", elements, " elements, more than a record may have"));
}

// --- values of MessagePack

absl::Status PutNumber(const MsgpackValue& value, DType dtype, std::byte* to) {
  const auto put = [&](auto number) {
    std::memcpy(to, &number, sizeof(number));
    return absl::OkStatus();
  };
  const bool is_float = value.kind == MsgpackValue::Kind::kFloat;
  const double number = is_float ? value.number : static_cast<double>(value.integer);
  const bool is_for_integers = dtype == DType::kInt32 || dtype == DType::kInt64;
  if (!value.is_number() || (is_float && is_for_integers)) {
    return absl::InvalidArgumentError(
        absl::StrCat("holds ", value.name(), ", not ", DTypeName(dtype)));
  }
  switch (dtype) {
    case DType::kInt32:
      if (value.integer != static_cast<int32_t>(value.integer)) {
        return absl::InvalidArgumentError(
            absl::StrCat("holds ", value.integer, ", which is no int32"));
      }
      return put(static_cast<int32_t>(value.integer));
    case DType::kInt64:
      return put(value.integer);
    case DType::kFloat32:
      return put(static_cast<float>(number));
    case DType::kFloat64:
      return put(number);
    default:
      return absl::InternalError("no column of a row has this type");
  }
}

absl::Status ReadValue(const MsgpackValue& value, const WantedColumn& wanted, MsgpackReader* reader,
                       ColumnValues* values) {
  using Kind = MsgpackValue::Kind;
  if (wanted.kind == ColumnSpec::Kind::kText || wanted.kind == ColumnSpec::Kind::kBytes) {
    if (value.kind != Kind::kText && value.kind != Kind::kBytes)
      return absl::InvalidArgumentError(absl::StrCat("holds ", value.name(), ", not a text"));
    values->SetBytes(wanted.number, value.bytes.data(), value.bytes.size());
    return absl::OkStatus();
  }
  const size_t size = DTypeSize(wanted.dtype);
  if (wanted.shape.empty()) {
    std::byte* to = values->Make(wanted.number, {}, size);
    if (to == nullptr) return TooLarge(1);
    return PutNumber(value, wanted.dtype, to);
  }
  if (value.kind != Kind::kList)
    return absl::InvalidArgumentError(absl::StrCat("holds ", value.name(), ", not a list"));
  if (value.items > reader->rest().size()) return absl::DataLossError("is cut off");
  std::byte* to = values->Make(wanted.number, {value.items}, value.items * size);
  if (to == nullptr) return TooLarge(value.items);
  for (uint32_t i = 0; i < value.items; ++i) {
    FW_ASSIGN_OR_RETURN(const MsgpackValue element, reader->Next());
    FW_RETURN_IF_ERROR(PutNumber(element, wanted.dtype, to + i * size));
  }
  return absl::OkStatus();
}

// --- values of blobs

// The shape of an array of so many elements, whose column may leave one axis open.
absl::Status FillShape(const Shape& planned, uint64_t elements, Shape* shape) {
  uint64_t known = 1;
  bool is_open = false, fits = true;
  for (const int64_t axis : planned) {
    if (axis < 0) {
      is_open = true;
    } else {
      fits = fits && !__builtin_mul_overflow(known, static_cast<uint64_t>(axis), &known);
    }
  }
  fits = fits && (is_open ? known > 0 && elements % known == 0 : known == elements);
  if (!fits) {
    return absl::DataLossError(
        absl::StrCat("has ", elements, " elements, where the schema says ",
                     TensorSpec{DType::kUInt8, Layout::kPlain, planned}.ToString().substr(5)));
  }
  *shape = planned;
  for (int64_t& axis : *shape)
    if (axis < 0) axis = static_cast<int64_t>(elements / known);
  return absl::OkStatus();
}

absl::Status ReadArray(absl::string_view bytes, const WantedColumn& wanted, bool packs_integers,
                       ColumnValues* values) {
  const size_t size = DTypeSize(wanted.dtype);
  Shape shape;
  if (packs_integers && (wanted.dtype == DType::kInt32 || wanted.dtype == DType::kInt64)) {
    FW_ASSIGN_OR_RETURN(const MindRecordIntegers integers, MindRecordIntegers::Open(bytes));
    FW_RETURN_IF_ERROR(FillShape(wanted.shape, integers.size(), &shape));
    std::byte* to = values->Make(wanted.number, std::move(shape), integers.size() * size);
    return to == nullptr ? TooLarge(integers.size()) : integers.Unpack(size, to);
  }
  if (bytes.size() % size != 0) {
    return absl::DataLossError(
        absl::StrCat("has ", bytes.size(), " bytes, no whole number of ", DTypeName(wanted.dtype)));
  }
  FW_RETURN_IF_ERROR(FillShape(wanted.shape, bytes.size() / size, &shape));
  values->Set(wanted.number, bytes.data(), std::move(shape));
  return absl::OkStatus();
}

class MindRecordColumns final : public ShardedColumns {
 public:
  static absl::StatusOr<std::unique_ptr<const RecordColumns>> Open(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) {
    const absl::Status wrong = absl::DataLossError("a mindrecord index whose columns do not fit");
    const Index& index = *parts.index;
    FW_ASSIGN_OR_RETURN(Shards shards, Shards::Open(index, parts.records));
    std::unique_ptr<MindRecordColumns> rows(new MindRecordColumns(std::move(shards)));
    FW_ASSIGN_OR_RETURN(rows->rows_, index.Numbers(kRows));
    FW_ASSIGN_OR_RETURN(rows->blobs_, index.Numbers(kBlobs));
    FW_ASSIGN_OR_RETURN(rows->groups_, index.Numbers(kGroups));
    FW_ASSIGN_OR_RETURN(rows->row_ends_, index.Numbers(kRowEnds));
    FW_ASSIGN_OR_RETURN(rows->blob_ends_, index.Numbers(kBlobEnds));
    FW_ASSIGN_OR_RETURN(const TextColumn fields, index.Texts(kFields));
    FW_ASSIGN_OR_RETURN(const NumberColumn layout, index.Numbers(kLayout));
    const auto records = static_cast<uint64_t>(parts.records);
    if (rows->rows_.size() != records || rows->blobs_.size() != records ||
        !rows->groups_.Divides(records) || rows->row_ends_.size() + 1 != rows->groups_.size() ||
        rows->blob_ends_.size() != rows->row_ends_.size() || layout.size() != 1 ||
        layout[0] > static_cast<uint64_t>(MindRecordBlob::kMap)) {
      return wrong;
    }
    rows->layout_ = static_cast<MindRecordBlob>(layout[0]);
    rows->fields_.resize(fields.size());
    absl::flat_hash_map<absl::string_view, size_t> numbers;
    for (size_t i = 0; i < fields.size(); ++i) numbers.emplace(fields[i], i);
    for (size_t i = 0; i < columns.size(); ++i) {
      if (!wanted[i]) continue;
      const ColumnSpec& column = columns[i];
      const auto field = numbers.find(column.name);
      const bool is_in_blob = field != numbers.end();
      const bool is_in_map = !is_in_blob || rows->layout_ == MindRecordBlob::kMap;
      // Only what MindRecord has may be read as it is.
      const bool fits =
          !column.is_numeric() ||
          (is_in_map ? column.shape.size() <= 1 : column.kind == ColumnSpec::Kind::kArray);
      if (!fits || !IsStored(column)) return wrong;
      WantedColumn place{column.name, i, column.kind, column.dtype, column.shape};
      (is_in_blob ? rows->reads_blobs_ : rows->reads_rows_) = true;
      if (!is_in_map) {
        rows->fields_[field->second] = std::move(place);
      } else {
        (is_in_blob ? rows->in_blob_ : rows->in_row_).emplace(column.name, std::move(place));
      }
    }
    if (!rows->reads_blobs_) rows->reads_rows_ = true;  // a record has to be somewhere
    return rows;
  }

  size_t extents_per_record() const override {
    return (reads_rows_ ? size_t{1} : 0) + (reads_blobs_ ? size_t{1} : 0);
  }

  void AddExtents(int64_t record, std::vector<Extent>* extents) const override {
    const uint32_t shard = shards().Of(record);
    const auto i = static_cast<size_t>(record);
    const size_t group = groups_.RangeOf(i);
    const auto most = static_cast<uint64_t>(shards().bytes(shard));
    // Numbers of a damaged index may be any.
    const auto add = [&](const NumberColumn& begins, const NumberColumn& ends) {
      const bool is_last = i + 1 == groups_[group + 1];
      const uint64_t begin = std::min(begins[i], most);
      const uint64_t end = std::clamp(is_last ? ends[group] : begins[i + 1], begin, most);
      extents->push_back({shard, static_cast<int64_t>(begin), static_cast<int64_t>(end - begin)});
    };
    if (reads_rows_) add(rows_, row_ends_);
    if (reads_blobs_) add(blobs_, blob_ends_);
  }

  absl::Status Read(int64_t, RecordSpans bytes, ColumnValues* values) const override {
    if (reads_rows_) {
      FW_ASSIGN_OR_RETURN(const absl::string_view row, Unwrap(bytes[0], "row"));
      FW_RETURN_IF_ERROR(ReadMap(row, "row", in_row_, values));
    }
    if (!reads_blobs_) return absl::OkStatus();
    FW_ASSIGN_OR_RETURN(const absl::string_view blob, Unwrap(bytes[bytes.size() - 1], "blob"));
    if (layout_ == MindRecordBlob::kMap) return ReadMap(blob, "blob", in_blob_, values);
    return ReadBlob(blob, values);
  }

 private:
  using Map = absl::flat_hash_map<std::string, WantedColumn>;
  using ShardedColumns::ShardedColumns;

  static bool IsStored(const ColumnSpec& column) {
    switch (column.dtype) {
      case DType::kInt32:
      case DType::kInt64:
      case DType::kFloat32:
      case DType::kFloat64:
        return column.is_numeric();
      default:
        return !column.is_numeric();
    }
  }

  static absl::Status InColumn(absl::string_view name, const absl::Status& status) {
    if (status.ok()) return status;
    return absl::Status(status.code(),
                        absl::StrCat("column '", Printable(name), "' ", status.message()));
  }

  static absl::Status ReadMap(absl::string_view row, const char* what, const Map& wanted,
                              ColumnValues* values) {
    absl::Status in_column;
    const absl::Status read = ForEachEntry(
        row, [&](absl::string_view name, const MsgpackValue& value, MsgpackReader* reader) {
          const auto column = wanted.find(name);
          if (column == wanted.end() || value.kind == MsgpackValue::Kind::kNil)
            return reader->Skip(value);
          in_column = values->has(column->second.number)
                          ? absl::InvalidArgumentError("stands there twice")
                          : ReadValue(value, column->second, reader, values);
          in_column = InColumn(name, in_column);
          return in_column;
        });
    if (read.ok() || !in_column.ok()) return read;
    return absl::Status(read.code(), absl::StrCat("its ", what, " ", read.message()));
  }

  absl::Status ReadBlob(absl::string_view blob, ColumnValues* values) const {
    const absl::Status wrong = absl::DataLossError("its blob's fields do not add up to its length");
    for (const std::optional<WantedColumn>& field : fields_) {
      absl::string_view bytes = blob;
      if (fields_.size() > 1) {
        if (blob.size() < sizeof(uint64_t)) return wrong;
        uint64_t length = 0;
        for (size_t i = 0; i < sizeof(uint64_t); ++i)
          length = length << 8 | static_cast<uint8_t>(blob[i]);
        blob.remove_prefix(sizeof(uint64_t));
        if (length > blob.size()) return wrong;
        bytes = blob.substr(0, static_cast<size_t>(length));
      }
      blob.remove_prefix(bytes.size());
      if (!field) continue;
      if (field->kind == ColumnSpec::Kind::kArray) {
        const bool packs = layout_ == MindRecordBlob::kPacked;
        FW_RETURN_IF_ERROR(InColumn(field->name, ReadArray(bytes, *field, packs, values)));
      } else {
        values->SetBytes(field->number, bytes.data(), bytes.size());
      }
    }
    return blob.empty() ? absl::OkStatus() : wrong;
  }

  NumberColumn rows_, blobs_, groups_, row_ends_, blob_ends_;
  MindRecordBlob layout_ = MindRecordBlob::kPlain;
  std::vector<std::optional<WantedColumn>> fields_;  // by blob field
  Map in_row_, in_blob_;                             // by name
  bool reads_rows_ = false, reads_blobs_ = false;
};

// What the values of a column have in common whose type the schema leaves open ("number",
// "array").
struct ProbedColumn {
  bool is_known = false, is_float = false;
  int64_t length = -1;   // of lists; -1: they differ
  std::string conflict;  // "" while they are numbers, or flat lists of them

  void AddNumber(const MsgpackValue& value) {
    if (!value.is_number()) conflict = absl::StrCat("holds ", value.name(), ", not numbers");
    is_float = is_float || value.kind == MsgpackValue::Kind::kFloat;
  }
  absl::Status Add(const MsgpackValue& value, bool is_list, MsgpackReader* reader) {
    if (!is_list || value.kind != MsgpackValue::Kind::kList) {
      if (is_list) conflict = absl::StrCat("holds ", value.name(), ", not a list");
      if (!is_list) AddNumber(value);
      is_known = true;
      return reader->Skip(value);
    }
    for (uint32_t i = 0; i < value.items; ++i) {
      FW_ASSIGN_OR_RETURN(const MsgpackValue element, reader->Next());
      AddNumber(element);
      FW_RETURN_IF_ERROR(reader->Skip(element));
    }
    if (!is_known) length = value.items;
    if (length != value.items) length = -1;
    is_known = true;
    return absl::OkStatus();
  }
};

class MindRecord final : public ColumnFormat {
 public:
  explicit MindRecord(MindRecordParams params)
      : ColumnFormat(params.fields), params_(std::move(params)) {}
  int64_t sections_version() const override { return 1; }

 protected:
  absl::Status FindRecords(const DatasetLocation& location, IndexBuilder* builder,
                           std::vector<ColumnSpec>* columns) const override {
    FW_ASSIGN_OR_RETURN(
        const std::vector<FoundFile> files,
        FindFiles(location, params_.files, IsDataFile,
                  "*.mindrecord or *.mindrecord0, nor one with its .db beside it", builder));
    Found found;
    ShardList shards;
    for (const FoundFile& file : files) {
      const size_t before = found.rows.size();
      FW_RETURN_IF_ERROR(ReadFile(location, file, builder, &found));
      shards.Add(file, static_cast<int64_t>(found.rows.size() - before));
    }
    found.groups.push_back(found.rows.size());
    const bool is_whole = params_.files.empty() && files[0].path != location.path;
    FW_RETURN_IF_ERROR(CheckSets(location, found, is_whole, builder));
    Digest digest;
    digest.Add("mindrecord");
    digest.Add(absl::StrCat(static_cast<int>(found.blob)));
    TextList fields;
    for (const std::string& field : found.fields) {
      fields.Add(field);
      digest.Add(field);
    }
    for (const MindRecordColumn& column : found.columns) {
      digest.Add(column.name);
      digest.Add(absl::StrCat(column.type, "[", absl::StrJoin(column.shape, ","), "]"));
    }
    shards.AddTo(location, builder, &digest);
    builder->digest = digest.Hex();
    builder->columns.Add(kRows, found.rows);
    builder->columns.Add(kBlobs, found.blobs);
    builder->columns.Add(kGroups, found.groups);
    builder->columns.Add(kRowEnds, found.row_ends);
    builder->columns.Add(kBlobEnds, found.blob_ends);
    builder->columns.Add(kFields, fields);
    builder->columns.Add(kLayout, {static_cast<uint64_t>(found.blob)});
    return AddColumns(found, builder, columns);
  }

  absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenRecords(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) const override {
    return MindRecordColumns::Open(parts, columns, wanted);
  }

 private:
  // The files that were written together, by folder and names.
  struct Set {
    std::string what, folder;  // the first file of it that was found; its folder
    std::vector<std::string> names;
    std::vector<bool> is_found;
  };
  struct Found {
    std::string first;  // the first file, for messages
    std::vector<MindRecordColumn> columns;
    std::vector<std::string> fields;  // the blob fields in order
    MindRecordBlob blob = MindRecordBlob::kPlain;
    std::vector<uint64_t> rows, blobs, groups, row_ends, blob_ends;
    std::vector<ProbedColumn> probed;  // by column
    // Those whose types the schema leaves open, by name, in rows and in blobs.
    absl::flat_hash_map<std::string, size_t> open_in_row, open_in_blob;
    std::map<std::string, Set> sets;
    int64_t taken = 0;  // memory for the largest header
  };

  static absl::Status Wrong(const std::string& what, absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " ", why,
                     "; cure: copy it again, write it again with mindspore.mindrecord.FileWriter, "
                     "or leave it out of 'files'"));
  }

  static absl::Status ReadFile(const DatasetLocation& location, const FoundFile& file,
                               IndexBuilder* builder, Found* found) {
    FW_ASSIGN_OR_RETURN(FileWindow window, FileWindow::Open(location, file));
    const std::string& what = window.what();
    const auto file_bytes = static_cast<uint64_t>(window.bytes());
    uint64_t length = 0;
    if (file_bytes >= kMindRecordLength) {
      FW_RETURN_IF_ERROR(window.Read(0, sizeof(length), reinterpret_cast<char*>(&length)));
    }
    if (length == 0 || length > file_bytes - kMindRecordLength || length > kMaxMindRecordHeader) {
      return Wrong(what,
                   "is no MindRecord file, is cut off or is encrypted: it begins with no header");
    }
    // Of the largest header: one is read behind the other.
    const auto take = [&](int64_t memory) {
      return memory <= found->taken ? absl::OkStatus()
                                    : builder->Take(memory - std::exchange(found->taken, memory));
    };
    FW_RETURN_IF_ERROR(take(static_cast<int64_t>(length)));
    std::string text;
    FW_RETURN_IF_ERROR(
        window.Read(static_cast<int64_t>(kMindRecordLength), static_cast<size_t>(length), &text));
    FW_RETURN_IF_ERROR(take(static_cast<int64_t>(length) + ShapeOfJson(text).memory_bytes(text)));
    absl::StatusOr<MindRecordHeader> header = ParseMindRecordHeader(text, window.bytes());
    if (!header.ok()) return Wrong(what, header.status().message());
    FW_RETURN_IF_ERROR(AddToSet(file, what, *header, builder, found));
    FW_RETURN_IF_ERROR(AddSchema(what, *header, found));
    // Two windows, since rows and blobs are walked through together.
    FW_ASSIGN_OR_RETURN(FileWindow blobs, FileWindow::Open(location, file));
    for (const MindRecordGroup& group : header->groups)
      FW_RETURN_IF_ERROR(ReadGroup(group, &window, &blobs, builder, found));
    return absl::OkStatus();
  }

  static absl::Status AddSchema(const std::string& what, const MindRecordHeader& header,
                                Found* found) {
    if (found->first.empty()) {
      found->first = what;
      found->columns = header.columns;
      found->blob = header.blob;
      found->fields.resize(static_cast<size_t>(header.blob_fields));
      for (size_t i = 0; i < header.columns.size(); ++i) {
        const MindRecordColumn& column = header.columns[i];
        if (column.blob >= 0) found->fields[static_cast<size_t>(column.blob)] = column.name;
        if (!IsOpen(column)) continue;
        (column.blob < 0 ? found->open_in_row : found->open_in_blob).emplace(column.name, i);
      }
      found->probed.resize(found->columns.size());
      return absl::OkStatus();
    }
    if (header.columns == found->columns && header.blob == found->blob) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        what, " has another schema than ", found->first,
        "; cure: name files of one schema with 'files', or write them again together"));
  }

  // Finds where the rows of a group and their blobs begin.
  static absl::Status ReadGroup(const MindRecordGroup& group, FileWindow* rows, FileWindow* blobs,
                                IndexBuilder* builder, Found* found) {
    FW_RETURN_IF_ERROR(builder->Take(3 * sizeof(uint64_t)));
    found->groups.push_back(found->rows.size());
    uint64_t row = group.raw_begin, blob = group.blob_begin;
    const auto pass = [&](const char* kind, FileWindow* window, uint64_t* at,
                          uint64_t end) -> absl::Status {
      uint64_t length = 0;
      const bool fits = end - *at >= kMindRecordLength;
      if (fits) {
        FW_RETURN_IF_ERROR(window->Read(static_cast<int64_t>(*at), sizeof(length),
                                        reinterpret_cast<char*>(&length)));
      }
      if (!fits || length > end - *at - kMindRecordLength) {
        return Wrong(window->what(), absl::StrCat("has a ", kind, " at byte ", *at,
                                                  " that does not end within its row group, which "
                                                  "ends at byte ",
                                                  end));
      }
      *at += kMindRecordLength + length;
      return absl::OkStatus();
    };
    for (uint64_t i = 0; i < group.rows; ++i) {
      FW_RETURN_IF_ERROR(builder->Progress(static_cast<int64_t>(found->rows.size()), 0));
      FW_RETURN_IF_ERROR(builder->Take(2 * sizeof(uint64_t)));
      found->rows.push_back(row);
      found->blobs.push_back(blob);
      FW_RETURN_IF_ERROR(pass("row", rows, &row, group.raw_end));
      FW_RETURN_IF_ERROR(pass("blob", blobs, &blob, group.blob_end));
      FW_RETURN_IF_ERROR(Probe(/*is_blob=*/false, found->rows.back(), row, rows, found));
      FW_RETURN_IF_ERROR(Probe(/*is_blob=*/true, found->blobs.back(), blob, blobs, found));
    }
    // Bytes that are left over are rows that a wrong number of rows would lose unseen.
    for (const auto& [kind, at, end] :
         {std::tuple("rows", row, group.raw_end), std::tuple("blobs", blob, group.blob_end)}) {
      if (at == end) continue;
      return Wrong(rows->what(), absl::StrCat("has ", group.rows, " rows in a row group whose ",
                                              kind, " end at byte ", at, ", not at ", end));
    }
    found->row_ends.push_back(row);
    found->blob_ends.push_back(blob);
    return absl::OkStatus();
  }

  static bool IsOpen(const MindRecordColumn& column) {
    return column.type == "number" || column.type == "array";
  }

  // Looks into a row, or a blob, for the types that the schema leaves open. A damaged one tells
  // nothing, and is a bad record when it is read.
  static absl::Status Probe(bool is_blob, uint64_t begin, uint64_t end, FileWindow* window,
                            Found* found) {
    const auto& open = is_blob ? found->open_in_blob : found->open_in_row;
    if (open.empty() || (is_blob && found->blob != MindRecordBlob::kMap) ||
        end - begin > kMaxProbedRow) {
      return absl::OkStatus();
    }
    std::string row;
    FW_RETURN_IF_ERROR(window->Read(static_cast<int64_t>(begin + kMindRecordLength),
                                    static_cast<size_t>(end - begin - kMindRecordLength), &row));
    (void)ForEachEntry(
        row, [&](absl::string_view name, const MsgpackValue& value, MsgpackReader* reader) {
          const auto column = open.find(name);
          if (column == open.end() || value.kind == MsgpackValue::Kind::kNil)
            return reader->Skip(value);
          const bool is_list = found->columns[column->second].type == "array";
          return found->probed[column->second].Add(value, is_list, reader);
        });
    return absl::OkStatus();
  }

  static absl::Status AddToSet(const FoundFile& file, const std::string& what,
                               const MindRecordHeader& header, IndexBuilder* builder,
                               Found* found) {
    const size_t slash = file.path.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : file.path.substr(0, slash);
    const std::string key = absl::StrCat(folder, "\n", absl::StrJoin(header.shard_names, "\n"));
    auto [set, is_new] = found->sets.try_emplace(key);
    if (is_new) {
      FW_RETURN_IF_ERROR(builder->Take(static_cast<int64_t>(
          2 * key.size() + header.shard_names.size() * sizeof(std::string) + sizeof(Set))));
      set->second = {what, folder, header.shard_names, {}};
      set->second.is_found.resize(header.shard_names.size());
    }
    set->second.is_found[header.shard] = true;
    return absl::OkStatus();
  }

  // Whether all files are there that were written together: a set that was copied in part would
  // lose records unseen. Who names files gets those, and a note.
  static absl::Status CheckSets(const DatasetLocation& location, const Found& found, bool is_whole,
                                IndexBuilder* builder) {
    int64_t missing = 0;
    std::string example;
    for (const auto& [key, set] : found.sets) {
      for (size_t i = 0; i < set.names.size(); ++i) {
        if (set.is_found[i]) continue;
        if (is_whole) {
          return absl::NotFoundError(
              absl::StrCat(set.what, " is one of ", set.names.size(), " files, of which ",
                           location.Describe(), " lacks '", Printable(set.names[i]),
                           "'; cure: copy it, or name the files that are to be read with 'files'"));
        }
        if (++missing == 1) example = set.names[i];
      }
    }
    if (missing > 0) {
      builder->notes = absl::StrCat(FormatCount(missing, "file"),
                                    " of the same sets not read, such as ", Printable(example));
    }
    return absl::OkStatus();
  }

  // Why a column cannot be read; "" when it can, and then what it is.
  static std::string Settle(const MindRecordColumn& stored, const ProbedColumn& probed,
                            bool is_in_map, ColumnSpec* column) {
    static const auto* const kNumbers = new std::map<std::string, DType>{
        {"int32", DType::kInt32},     {"int64", DType::kInt64},   {"float32", DType::kFloat32},
        {"float64", DType::kFloat64}, {"integer", DType::kInt64}, {"boolean", DType::kInt64}};
    const auto number = kNumbers->find(stored.type);
    if (stored.type == "string") {
      *column = ColumnSpec::Text(stored.name);
    } else if (stored.type == "bytes") {
      *column = ColumnSpec::Bytes(stored.name);
    } else if (number != kNumbers->end() && !is_in_map) {
      *column = ColumnSpec::Array(stored.name, number->second, stored.shape);
      if (!stored.has_shape) column->shape.push_back(-1);
    } else if (number != kNumbers->end() && !stored.has_shape) {
      *column = ColumnSpec::Number(stored.name, number->second);
    } else if (IsOpen(stored) && is_in_map) {
      if (!probed.conflict.empty()) return probed.conflict;
      if (!probed.is_known) return "has no value by which its type could be known";
      *column = ColumnSpec::Number(stored.name, probed.is_float ? DType::kFloat64 : DType::kInt64);
      if (stored.type == "array") column->shape.push_back(probed.length);
    } else {
      return absl::StrCat("has the type '", Printable(stored.type),
                          stored.has_shape ? "' with a shape outside of the blob" : "'",
                          ", which cannot be read");
    }
    column->doc = absl::StrCat(
        "Column '", Printable(stored.name), "', ", Printable(stored.type),
        stored.has_shape ? absl::StrCat("[", absl::StrJoin(stored.shape, ", "), "]") : "", ".");
    return "";
  }

  absl::Status AddColumns(const Found& found, IndexBuilder* builder,
                          std::vector<ColumnSpec>* columns) const {
    for (size_t i = 0; i < found.columns.size(); ++i) {
      const MindRecordColumn& stored = found.columns[i];
      ColumnSpec column;
      const bool is_in_map = stored.blob < 0 || found.blob == MindRecordBlob::kMap;
      const std::string why = Settle(stored, found.probed[i], is_in_map, &column);
      const bool is_asked_for =
          requests().list.empty() ||
          std::any_of(requests().list.begin(), requests().list.end(),
                      [&](const FieldRequest& request) { return request.from == stored.name; });
      if (why.empty()) {
        columns->push_back(std::move(column));
      } else if (is_asked_for && builder->records > 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("column '", Printable(stored.name), "' of ", found.first, " ", why,
                         "; cure: name the columns that you need in 'fields'"));
      } else {
        absl::StrAppend(&builder->notes, builder->notes.empty() ? "" : ", ", "column '",
                        Printable(stored.name), "' (", Printable(stored.type), ") is not read");
      }
    }
    return absl::OkStatus();
  }

  const MindRecordParams params_;
};

const Registrar kRegistrar(
    "mindrecord",
    DeclareFormat<MindRecord>(
        "MindSpore's MindRecord files, of versions 2.0 and 3.0; the columns of their schema are "
        "the "
        "columns. int32, int64, float32 and float64 are numbers, and arrays where they have a "
        "shape; string is text, bytes are bytes. The types `number` and `array` of old schemas are "
        "what all rows hold. The index databases (NAME.db) are not read: everything that a record "
        "needs stands in the data files.",
        "dataset: {format: mindrecord, root: data, path: imagenet, fields: {data: data, label: "
        "label}}",
        FormatSchema<MindRecordParams>()
            .Files(
                "files", &MindRecordParams::files,
                "Data files below `path`: names, globs and ranges (train.mindrecord{0..7}). Left "
                "out: every file of the folder that has its NAME.db beside it, or whose name "
                "ends with .mindrecord and digits; then all files of a set have to be there.")
            .Fields(&MindRecordParams::fields)));

}  // namespace
}  // namespace feedwater::server
