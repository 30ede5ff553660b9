#include "server/source/field_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/base/escape.h"
#include "server/source/npy_header.h"
#include "server/storage/engine.h"  // kReadPadding

namespace feedwater::server {

std::string ColumnSpec::TypeText() const {
  if (kind == Kind::kText) return "text";
  if (kind == Kind::kBytes) return "bytes";
  return TensorSpec{dtype, Layout::kPlain, shape}.ToString();
}

bool IsInteger(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kUInt16:
    case DType::kInt32:
    case DType::kInt64:
      return true;
    default:
      return false;
  }
}

namespace {

bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// Arrays that look like images may go where images go.
Layout LayoutOf(DType dtype, const Shape& shape) {
  if (shape.size() != 3 || (dtype != DType::kUInt8 && dtype != DType::kFloat32))
    return Layout::kPlain;
  const auto is_channels = [](int64_t axis) { return axis == 1 || axis == 3; };
  if (shape[0] == 0 || shape[1] == 0 || shape[2] == 0) return Layout::kPlain;
  return is_channels(shape[2])   ? Layout::kHWC
         : is_channels(shape[0]) ? Layout::kCHW
                                 : Layout::kPlain;
}

template <typename T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// Calls `use` with a value of the C++ type of a dtype; false for those that have none here.
template <typename Use>
bool WithType(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::kUInt8:
      use(uint8_t{});
      return true;
    case DType::kInt8:
      use(int8_t{});
      return true;
    case DType::kBool:
      use(bool{});
      return true;
    case DType::kInt16:
      use(int16_t{});
      return true;
    case DType::kUInt16:
      use(uint16_t{});
      return true;
    case DType::kInt32:
      use(int32_t{});
      return true;
    case DType::kInt64:
      use(int64_t{});
      return true;
    case DType::kFloat32:
      use(float{});
      return true;
    case DType::kFloat64:
      use(double{});
      return true;
    default:
      return false;
  }
}

// Whether `from` has an exact counterpart in the whole numbers of To.
template <typename To, typename From>
bool Fits(From from) {
  if constexpr (std::is_floating_point_v<To>) {
    return true;
  } else if constexpr (std::is_floating_point_v<From>) {
    // 2^63 as a double is one more than the largest int64.
    const double value = from;
    return value == std::trunc(value) &&
           value >= static_cast<double>(std::numeric_limits<To>::min()) &&
           value < static_cast<double>(std::numeric_limits<To>::max()) + 1.0;
  } else {
    const auto value = static_cast<int64_t>(from);
    return value >= static_cast<int64_t>(std::numeric_limits<To>::min()) &&
           value <= static_cast<int64_t>(std::numeric_limits<To>::max());
  }
}

template <typename From, typename To>
absl::Status ConvertAll(const std::byte* from, std::byte* to, int64_t count, DType to_dtype) {
  for (int64_t i = 0; i < count; ++i) {
    // A bool may be any byte in a file.
    From value;
    if constexpr (std::is_same_v<From, bool>) {
      value = Load<uint8_t>(from + i) != 0;
    } else {
      value = Load<From>(from + i * static_cast<int64_t>(sizeof(From)));
    }
    if (!Fits<To>(value)) {
      return absl::InvalidArgumentError(absl::StrCat("has ", static_cast<double>(value), ", which ",
                                                     DTypeName(to_dtype), " cannot hold"));
    }
    const auto converted = static_cast<To>(value);
    std::memcpy(to + i * static_cast<int64_t>(sizeof(To)), &converted, sizeof(To));
  }
  return absl::OkStatus();
}

absl::Status Convert(const std::byte* from, DType stored, std::byte* to, DType wanted,
                     int64_t count) {
  absl::Status status = absl::InternalError("no such conversion");
  WithType(stored, [&](auto from_type) {
    WithType(wanted, [&](auto to_type) {
      status = ConvertAll<decltype(from_type), decltype(to_type)>(from, to, count, wanted);
    });
  });
  return status;
}

// One number written as text, put at `to` in `wanted`'s form.
absl::Status ParseNumber(absl::string_view text, std::byte* to, DType wanted) {
  text = absl::StripAsciiWhitespace(text);
  int64_t integer = 0;
  if (absl::SimpleAtoi(text, &integer))
    return Convert(reinterpret_cast<const std::byte*>(&integer), DType::kInt64, to, wanted, 1);
  double number = 0;
  if (!absl::SimpleAtod(text, &number))
    return absl::InvalidArgumentError(absl::StrCat("is no number: '", Printable(text), "'"));
  return Convert(reinterpret_cast<const std::byte*>(&number), DType::kFloat64, to, wanted, 1);
}

absl::StatusOr<int64_t> CountOf(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t axis : shape) {
    if (axis < 0 || __builtin_mul_overflow(count, axis, &count))
      return absl::InvalidArgumentError("has too many elements");
  }
  return count;
}

// The planned shape with what is open in it filled, for so many elements.
absl::Status FillShape(const Shape& planned, int64_t count, Shape* shape) {
  int64_t known = 1;
  int open = 0;
  for (const int64_t axis : planned) {
    if (axis < 0) {
      ++open;
    } else if (__builtin_mul_overflow(known, axis, &known)) {
      known = -1;
      break;
    }
  }
  *shape = planned;
  const bool fits = open == 0 ? known == count : known > 0 && count % known == 0;
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has ", count, count == 1 ? " element" : " elements", " where ",
        TensorSpec{DType::kUInt8, Layout::kPlain, planned}.ToString().substr(5), " is announced"));
  }
  for (int64_t& axis : *shape) {
    if (axis < 0) axis = count / known;
  }
  return absl::OkStatus();
}

// A text file in an archive may end with one.
absl::string_view WithoutLineEnd(absl::string_view text) {
  absl::ConsumeSuffix(&text, "\n");
  absl::ConsumeSuffix(&text, "\r");
  return text;
}

// Whether an array has the planned axes.
absl::Status CheckAxes(const Shape& planned, const Shape& shape) {
  bool fits = planned.size() == shape.size();
  for (size_t axis = 0; fits && axis < shape.size(); ++axis)
    fits = planned[axis] < 0 || planned[axis] == shape[axis];
  if (fits) return absl::OkStatus();
  const auto text = [](const Shape& axes) {
    return TensorSpec{DType::kUInt8, Layout::kPlain, axes}.ToString().substr(5);
  };
  return absl::InvalidArgumentError(
      absl::StrCat("has the shape ", text(shape), ", not ", text(planned)));
}

bool IsOpen(const Shape& shape) {
  return std::any_of(shape.begin(), shape.end(), [](int64_t axis) { return axis < 0; });
}

// More than one open axis: the record says all of them.
bool HasOwnShape(const Shape& planned) {
  return std::count(planned.begin(), planned.end(), -1) > 1;
}

}  // namespace

absl::Status FieldReader::Settle(const FieldRequest& request,
                                 const std::vector<ColumnSpec>& columns, const std::string& what,
                                 Field* field, FieldSpec* spec) {
  const auto fail = [&](absl::string_view message) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.where.empty() ? "" : absl::StrCat(request.where, ": "), "field '",
                     Printable(request.name), "': ", message));
  };
  const auto find = [&](absl::string_view name) {
    return static_cast<size_t>(
        std::find_if(columns.begin(), columns.end(),
                     [&](const ColumnSpec& column) { return column.name == name; }) -
        columns.begin());
  };
  field->from = request.from;
  field->is_optional = request.is_optional;
  if (const size_t found = find(request.from); found < columns.size()) {
    field->columns.push_back(found);
  } else {
    for (const absl::string_view name : absl::StrSplit(request.from, ';', absl::SkipEmpty())) {
      if (const size_t column = find(absl::StripAsciiWhitespace(name)); column < columns.size())
        field->columns.push_back(column);
    }
  }
  if (field->columns.empty()) {
    std::vector<std::string> known;
    for (const ColumnSpec& column : columns) known.push_back(column.name);
    return fail(absl::StrCat(what, " has no column '", Printable(request.from), "'",
                             Suggest(request.from, known)));
  }
  const ColumnSpec& column = columns[field->columns[0]];
  for (const size_t other : field->columns) {
    if (columns[other].kind != column.kind || columns[other].dtype != column.dtype ||
        columns[other].shape != column.shape) {
      return fail(absl::StrCat("columns '", column.name, "' (", column.TypeText(), ") and '",
                               columns[other].name, "' (", columns[other].TypeText(),
                               ") hold different things"));
    }
  }
  const std::string has =
      absl::StrCat("column '", Printable(column.name), "' holds ", column.TypeText());
  field->stored = column.dtype;
  spec->name = request.name;
  spec->doc = column.doc.empty() ? absl::StrCat("Column '", request.from, "'.") : column.doc;
  if (request.is_file || request.has_classes) {
    if (column.is_numeric())
      return fail(absl::StrCat(has, "; '", request.is_file ? "file" : "classes", "' takes text"));
    field->way = request.is_file ? Way::kFile : Way::kClass;
    spec->spec = request.is_file ? TensorSpec{DType::kUInt8, Layout::kEncoded, {-1}}
                                 : TensorSpec{DType::kInt64, Layout::kPlain, {}};
    if (request.is_file)
      spec->doc = absl::StrCat("Bytes of the file that column '", request.from, "' names.");
    return absl::OkStatus();
  }
  if (!column.is_numeric() && !request.dtype) {
    if (request.shape) return fail(absl::StrCat(has, "; a 'shape' needs a 'dtype'"));
    spec->spec = {DType::kUInt8,
                  column.kind == ColumnSpec::Kind::kBytes ? Layout::kEncoded : Layout::kPlain,
                  {-1}};
    return absl::OkStatus();
  }
  DType dtype = column.dtype;
  if (column.kind == ColumnSpec::Kind::kNumbers && IsInteger(dtype)) dtype = DType::kInt64;
  if (request.dtype) dtype = *request.dtype;
  // Bytes without a shape are a number in text; with one they are its elements.
  const bool is_text = column.kind == ColumnSpec::Kind::kText ||
                       (column.kind == ColumnSpec::Kind::kBytes && !request.shape);
  Shape shape = is_text ? Shape{} : column.shape;
  if (request.shape) shape = *request.shape;
  if (HasOwnShape(shape) && column.kind != ColumnSpec::Kind::kBytes &&
      shape.size() != column.shape.size()) {
    return fail("'shape' takes one -1 at most");
  }
  if (is_text) {
    if (!shape.empty()) return fail(absl::StrCat(has, "; it can be one number alone"));
    if (IsHalf(dtype)) return fail("text becomes float32 at the least; `cast` makes it smaller");
    field->way = Way::kParsed;
  } else if (column.kind == ColumnSpec::Kind::kBytes) {
    field->way = Way::kReinterpreted;
  } else if (dtype != column.dtype) {
    if (IsHalf(dtype) || IsHalf(column.dtype)) {
      return fail(absl::StrCat(has, " and is delivered so; the op `cast` converts it to ",
                               DTypeName(dtype)));
    }
    field->way = Way::kConverted;
  }
  if (column.is_numeric() && !IsOpen(column.shape) && !IsOpen(shape)) {
    const absl::StatusOr<int64_t> stored = CountOf(column.shape), wanted = CountOf(shape);
    if (!stored.ok() || !wanted.ok() || *stored != *wanted) {
      return fail(absl::StrCat(has, ", which is not ",
                               TensorSpec{dtype, Layout::kPlain, shape}.ToString()));
    }
  }
  spec->spec = {dtype, LayoutOf(dtype, shape), shape};
  if (IsOpen(shape)) return absl::OkStatus();
  const absl::StatusOr<int64_t> bytes = spec->spec.ByteSize();
  return bytes.ok() ? absl::OkStatus() : fail(bytes.status().message());
}

absl::StatusOr<FieldReader> FieldReader::Create(const std::vector<FieldRequest>& requests,
                                                const std::vector<ColumnSpec>& columns,
                                                const std::string& what) {
  FieldReader reader;
  reader.wanted_.resize(columns.size());
  for (const FieldRequest& request : requests) {
    Field field;
    FieldSpec spec;
    FW_RETURN_IF_ERROR(Settle(request, columns, what, &field, &spec));
    for (const size_t column : field.columns) reader.wanted_[column] = true;
    const size_t number = reader.fields_.size();
    if (field.way == Way::kFile) {
      field.number = reader.file_fields_.size();
      reader.file_fields_.push_back(number);
    } else if (field.way == Way::kClass) {
      field.number = reader.class_fields_.size();
      reader.class_fields_.push_back(number);
    }
    reader.fields_.push_back(std::move(field));
    reader.specs_.push_back(std::move(spec));
  }
  reader.classes_.resize(reader.class_fields_.size());
  return reader;
}

absl::Status FieldReader::SetClasses(size_t i, const TextColumn& names, size_t first, size_t last) {
  for (size_t n = first; n + 1 < last; ++n) {
    if (names[n] >= names[n + 1])
      return absl::DataLossError("an index whose classes are not in order");
  }
  classes_[i] = {names, first, last};
  return absl::OkStatus();
}

absl::StatusOr<std::optional<absl::string_view>> FieldReader::TextOf(
    size_t number, const ColumnValues& values) const {
  const Field& field = fields_[number];
  for (const size_t column : field.columns) {
    if (!values.has(column)) continue;
    FW_ASSIGN_OR_RETURN(const int64_t bytes, CountOf(values.shape(column)));
    return WithoutLineEnd(
        {reinterpret_cast<const char*>(values.data(column)), static_cast<size_t>(bytes)});
  }
  if (field.is_optional) return std::nullopt;
  return absl::InvalidArgumentError(
      absl::StrCat("column '", Printable(field.from), "' is missing"));
}

// An optional column that this record lacks: nothing, or zeros where a size is fixed.
absl::Status FieldReader::Missing(const Field& field, const FieldSpec& spec, ColumnValues& values,
                                  Place* place, Tensor* out) {
  if (!field.is_optional) {
    return absl::InvalidArgumentError(
        absl::StrCat("column '", Printable(field.from), "' is missing"));
  }
  for (int64_t& axis : out->spec.shape) axis = std::max<int64_t>(axis, 0);
  FW_ASSIGN_OR_RETURN(const int64_t bytes, out->spec.ByteSize());
  const std::optional<size_t> at = values.Grow(static_cast<size_t>(bytes));
  if (!at.has_value())
    return absl::InvalidArgumentError(absl::StrCat("field '", spec.name, "' is too large"));
  *place = {nullptr, *at, true};
  return absl::OkStatus();
}

absl::Status FieldReader::ReadField(size_t number, ColumnValues& values,
                                    absl::Span<const absl::Span<const std::byte>> files,
                                    Place* place, Tensor* out) const {
  const Field& field = fields_[number];
  out->spec = specs_[number].spec;
  if (field.way == Way::kFile) {
    if (field.number >= files.size()) return absl::InternalError("a file's bytes are missing");
    const absl::Span<const std::byte> bytes = files[field.number];
    if (bytes.empty() && !field.is_optional) {
      return absl::InvalidArgumentError(
          absl::StrCat("the file that column '", Printable(field.from), "' names is empty"));
    }
    out->spec.shape[0] = static_cast<int64_t>(bytes.size());
    place->data = bytes.data();
    return absl::OkStatus();
  }
  const auto found = std::find_if(field.columns.begin(), field.columns.end(),
                                  [&](size_t column) { return values.has(column); });
  if (found == field.columns.end()) return Missing(field, specs_[number], values, place, out);
  const size_t column = *found;
  FW_ASSIGN_OR_RETURN(int64_t count, CountOf(values.shape(column)));
  if (field.way == Way::kClass) {
    const absl::string_view text = WithoutLineEnd(
        {reinterpret_cast<const char*>(values.data(column)), static_cast<size_t>(count)});
    const Classes& classes = classes_[field.number];
    size_t first = classes.first, last = classes.last;
    while (first < last) {
      const size_t middle = first + (last - first) / 2;
      if (classes.names[middle] < text) {
        first = middle + 1;
      } else {
        last = middle;
      }
    }
    if (first == classes.last || classes.names[first] != text) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", Printable(text), "' was no class when the dataset was indexed"));
    }
    const auto number = static_cast<int64_t>(first - classes.first);
    const std::optional<size_t> at = values.Grow(sizeof(number));
    if (!at.has_value())
      return absl::InvalidArgumentError("has more elements than a record may have");
    std::memcpy(values.scratch().data() + *at, &number, sizeof(number));
    *place = {nullptr, *at, true};
    return absl::OkStatus();
  }

  Shape shape = values.shape(column), array_shape;
  Place data{values.is_in_scratch(column) ? nullptr : values.data(column),
             values.is_in_scratch(column) ? values.scratch_at(column) : 0,
             values.is_in_scratch(column)};
  if (field.way == Way::kReinterpreted) {
    const absl::string_view bytes(reinterpret_cast<const char*>(values.data(column)),
                                  static_cast<size_t>(count));
    if (absl::StartsWith(bytes, kNpyMagic)) {
      FW_ASSIGN_OR_RETURN(const NpyHeader header, ParseNpyHeader(bytes));
      if (header.dtype != out->spec.dtype) {
        return absl::InvalidArgumentError(absl::StrCat("is an array of ", DTypeName(header.dtype),
                                                       ", not of ", DTypeName(out->spec.dtype)));
      }
      FW_ASSIGN_OR_RETURN(const int64_t needs,
                          TensorSpec({header.dtype, Layout::kPlain, header.shape}).ByteSize());
      if (bytes.size() < header.bytes || static_cast<uint64_t>(needs) > bytes.size() - header.bytes)
        return absl::InvalidArgumentError("is an array that is cut off");
      if (data.is_in_scratch) {
        data.at += header.bytes;
      } else {
        data.data += header.bytes;
      }
      FW_ASSIGN_OR_RETURN(count, CountOf(header.shape));
      shape = header.shape;
      FW_RETURN_IF_ERROR(CheckAxes(specs_[number].spec.shape, shape));
    } else if (HasOwnShape(out->spec.shape)) {
      return absl::InvalidArgumentError(
          absl::StrCat("is no .npy array, which alone says all lengths of ", out->spec.ToString()));
    } else {
      const auto size = static_cast<int64_t>(DTypeSize(out->spec.dtype));
      if (count % size != 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("has ", count, " bytes, no whole number of ", DTypeName(out->spec.dtype)));
      }
      count /= size;
      shape = {count};
    }
  }
  if (field.way == Way::kParsed) {
    const size_t size = DTypeSize(out->spec.dtype);
    std::byte number_bytes[8];
    FW_RETURN_IF_ERROR(ParseNumber(
        {reinterpret_cast<const char*>(values.data(column)), static_cast<size_t>(count)},
        number_bytes, out->spec.dtype));
    std::vector<std::byte>& scratch = values.scratch();
    const size_t at = (scratch.size() + 7) / 8 * 8;
    scratch.resize(at + 8);
    std::memcpy(scratch.data() + at, number_bytes, size);
    *place = {nullptr, at, true};
    return absl::OkStatus();
  }
  if (HasOwnShape(out->spec.shape)) {
    FW_RETURN_IF_ERROR(CheckAxes(out->spec.shape, shape));
    out->spec.shape = shape;
  } else {
    FW_RETURN_IF_ERROR(FillShape(specs_[number].spec.shape, count, &out->spec.shape));
  }

  const size_t element = DTypeSize(out->spec.dtype);
  const bool aligned =
      element == 1 || (data.is_in_scratch ? data.at % element == 0
                                          : reinterpret_cast<uintptr_t>(data.data) % element == 0);
  if (field.way != Way::kConverted && aligned) {
    *place = data;
    return absl::OkStatus();
  }
  // Converted, or moved to where it can be read as what it is.
  const size_t bytes = static_cast<size_t>(count) * element;
  std::optional<size_t> at;
  if (static_cast<uint64_t>(count) <= ColumnValues::kMaxScratchBytes / element)
    at = values.Grow(bytes);
  if (!at.has_value())
    return absl::InvalidArgumentError("has more elements than a record may have");
  *place = {nullptr, *at, true};
  std::byte* const scratch = values.scratch().data();
  const std::byte* from = data.is_in_scratch ? scratch + data.at : data.data;
  if (field.way == Way::kConverted)
    return Convert(from, field.stored, scratch + *at, out->spec.dtype, count);
  if (bytes > 0) std::memcpy(scratch + *at, from, bytes);
  return absl::OkStatus();
}

std::optional<size_t> FieldReader::ColumnAsStored(size_t field) const {
  const Field& as = fields_[field];
  if (as.way != Way::kAsStored || as.is_optional || as.columns.size() != 1) return std::nullopt;
  if (as.stored != specs_[field].spec.dtype || !specs_[field].spec.IsStatic()) return std::nullopt;
  return as.columns[0];
}

absl::Status FieldReader::Read(ColumnValues& values,
                               absl::Span<const absl::Span<const std::byte>> files,
                               Record* out) const {
  out->fields.resize(fields_.size());
  absl::InlinedVector<Place, 8> places(fields_.size());
  for (size_t i = 0; i < fields_.size(); ++i) {
    const absl::Status read = ReadField(i, values, files, &places[i], &out->fields[i]);
    if (!read.ok()) {
      return absl::Status(read.code(),
                          absl::StrCat("field '", Printable(specs_[i].name), "' ", read.message()));
    }
  }
  // Decoders may load a little past an image's end.
  if (!out->scratch.empty()) out->scratch.resize(out->scratch.size() + kReadPadding);
  for (size_t i = 0; i < fields_.size(); ++i) {
    const std::byte* data =
        places[i].is_in_scratch ? out->scratch.data() + places[i].at : places[i].data;
    out->fields[i].data = const_cast<std::byte*>(data);
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
