#include "server/source/mindrecord_rows.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "server/base/status_message.h"
#include "server/source/mindrecord_file.h"
#include "server/source/value_conversion.h"

namespace feedwater::server {
namespace {

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
      if (!FitsFloat32(number))
        return absl::InvalidArgumentError(absl::StrCat("holds ", number, ", which is no float32"));
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
  values->Set(wanted.number, bytes.data(), bytes.size(), std::move(shape));
  return absl::OkStatus();
}

class MindRecordRows final : public ShardedColumns {
 public:
  static absl::StatusOr<std::unique_ptr<const RecordColumns>> Open(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) {
    const absl::Status wrong = absl::DataLossError("a mindrecord index whose columns do not fit");
    const Index& index = *parts.index;
    FW_ASSIGN_OR_RETURN(Shards shards, Shards::Open(index, parts.records));
    std::unique_ptr<MindRecordRows> rows(new MindRecordRows(std::move(shards)));
    FW_ASSIGN_OR_RETURN(rows->rows_, index.Numbers(kMindRecordRows));
    FW_ASSIGN_OR_RETURN(rows->blobs_, index.Numbers(kMindRecordBlobs));
    FW_ASSIGN_OR_RETURN(rows->groups_, index.Numbers(kMindRecordGroups));
    FW_ASSIGN_OR_RETURN(rows->row_ends_, index.Numbers(kMindRecordRowEnds));
    FW_ASSIGN_OR_RETURN(rows->blob_ends_, index.Numbers(kMindRecordBlobEnds));
    FW_ASSIGN_OR_RETURN(const TextColumn fields, index.Texts(kMindRecordFields));
    FW_ASSIGN_OR_RETURN(const NumberColumn layout, index.Numbers(kMindRecordLayout));
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
    const auto add = [&](const NumberColumn& begins, const NumberColumn& ends) {
      const bool is_last = i + 1 == groups_[group + 1];
      const uint64_t begin = begins[i], end = is_last ? ends[group] : begins[i + 1];
      extents->push_back(shards().Part(shard, begin, end > begin ? end - begin : 0));
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
    return WithMessage(status, absl::StrCat("column '", Printable(name), "' ", status.message()));
  }

  static absl::Status ReadMap(absl::string_view row, const char* what, const Map& wanted,
                              ColumnValues* values) {
    absl::Status in_column;
    const absl::Status read = ForEachMindRecordEntry(
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
    return WithMessage(read, absl::StrCat("its ", what, " ", read.message()));
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

}  // namespace

absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenMindRecordRows(
    const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
    const std::vector<bool>& wanted) {
  return MindRecordRows::Open(parts, columns, wanted);
}

}  // namespace feedwater::server
