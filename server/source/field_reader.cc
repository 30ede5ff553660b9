#include "server/source/field_reader.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/base/escape.h"
#include "server/base/status_message.h"
#include "server/source/npy_header.h"
#include "server/source/value_conversion.h"
#include "server/storage/engine.h"  // kReadPadding

namespace feedwater::server {

std::string ColumnSpec::TypeText() const {
  if (kind == Kind::kText) return "text";
  if (kind == Kind::kBytes) return "bytes";
  return TensorSpec{dtype, Layout::kPlain, shape}.ToString();
}

absl::StatusOr<int64_t> ColumnValues::CountOf(size_t column, DType dtype) const {
  const Value& value = values_[column];
  const TensorSpec spec{dtype, Layout::kPlain, value.shape};
  const absl::StatusOr<int64_t> bytes = spec.ByteSize();
  if (bytes.ok() && static_cast<uint64_t>(*bytes) == value.bytes)
    return *bytes / static_cast<int64_t>(DTypeSize(dtype));
  return absl::InvalidArgumentError(
      absl::StrCat("has ", value.bytes, " bytes, which are no ", spec.ToString()));
}

namespace {

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

std::vector<std::string> FieldReader::ClassesOf(size_t field) const {
  std::vector<std::string> names;
  if (fields_[field].way != Way::kClass) return names;
  const Classes& classes = classes_[fields_[field].number];
  for (size_t i = classes.first; i < classes.last; ++i) names.emplace_back(classes.names[i]);
  return names;
}

absl::StatusOr<std::optional<absl::string_view>> FieldReader::TextOf(
    size_t number, const ColumnValues& values) const {
  const Field& field = fields_[number];
  for (const size_t column : field.columns) {
    if (!values.has(column)) continue;
    FW_ASSIGN_OR_RETURN(const int64_t bytes, values.CountOf(column, field.stored));
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

absl::Status FieldReader::FileBytes(const Field& field, absl::Span<const NamedFile> files,
                                    Place* place, Tensor* out) {
  if (field.number >= files.size()) return absl::InternalError("a file's bytes are missing");
  const NamedFile& file = files[field.number];
  if (file.bytes.empty() && !field.is_optional) {
    return absl::InvalidArgumentError(absl::StrCat(
        "needs the file '", Printable(file.path), "' that column '", Printable(field.from),
        "' names, which ", file.is_there ? "is empty" : "is not there"));
  }
  out->spec.shape[0] = static_cast<int64_t>(file.bytes.size());
  place->data = file.bytes.data();
  return absl::OkStatus();
}

absl::Status FieldReader::PutNumber(const void* number, size_t bytes, ColumnValues& values,
                                    Place* place) {
  const std::optional<size_t> at = values.Grow(bytes);
  if (!at.has_value())
    return absl::InvalidArgumentError("has more elements than a record may have");
  std::memcpy(values.scratch().data() + *at, number, bytes);
  *place = {nullptr, *at, true};
  return absl::OkStatus();
}

absl::StatusOr<int64_t> FieldReader::ClassOf(const Field& field, absl::string_view text) const {
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
  return static_cast<int64_t>(first - classes.first);
}

// Bytes become the elements that they are, or those of the .npy file that they are.
absl::Status FieldReader::Reinterpret(const TensorSpec& planned, absl::string_view bytes,
                                      Elements* elements) {
  if (absl::StartsWith(bytes, kNpyMagic)) {
    FW_ASSIGN_OR_RETURN(const NpyHeader header, ParseNpyHeader(bytes));
    if (header.dtype != planned.dtype) {
      return absl::InvalidArgumentError(absl::StrCat("is an array of ", DTypeName(header.dtype),
                                                     ", not of ", DTypeName(planned.dtype)));
    }
    FW_ASSIGN_OR_RETURN(const int64_t needs,
                        TensorSpec({header.dtype, Layout::kPlain, header.shape}).ByteSize());
    if (bytes.size() < header.bytes || static_cast<uint64_t>(needs) > bytes.size() - header.bytes)
      return absl::InvalidArgumentError("is an array that is cut off");
    if (elements->place.is_in_scratch) {
      elements->place.at += header.bytes;
    } else {
      elements->place.data += header.bytes;
    }
    FW_ASSIGN_OR_RETURN(elements->count, CountOf(header.shape));
    elements->shape = header.shape;
    return CheckAxes(planned.shape, header.shape);
  }
  if (HasOwnShape(planned.shape)) {
    return absl::InvalidArgumentError(
        absl::StrCat("is no .npy array, which alone says all lengths of ", planned.ToString()));
  }
  const auto size = static_cast<int64_t>(DTypeSize(planned.dtype));
  if (elements->count % size != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has ", elements->count, " bytes, no whole number of ", DTypeName(planned.dtype)));
  }
  elements->count /= size;
  elements->shape = {elements->count};
  return absl::OkStatus();
}

absl::Status FieldReader::ReadField(size_t number, ColumnValues& values,
                                    absl::Span<const NamedFile> files, Place* place,
                                    Tensor* out) const {
  const Field& field = fields_[number];
  out->spec = specs_[number].spec;
  if (field.way == Way::kFile) return FileBytes(field, files, place, out);
  const auto found = std::find_if(field.columns.begin(), field.columns.end(),
                                  [&](size_t column) { return values.has(column); });
  if (found == field.columns.end()) return Missing(field, specs_[number], values, place, out);
  const size_t column = *found;
  const bool is_in_scratch = values.is_in_scratch(column);
  Elements elements{{is_in_scratch ? nullptr : values.data(column),
                     is_in_scratch ? values.scratch_at(column) : 0, is_in_scratch},
                    values.shape(column)};
  FW_ASSIGN_OR_RETURN(elements.count, values.CountOf(column, field.stored));
  const absl::string_view bytes(reinterpret_cast<const char*>(values.data(column)),
                                static_cast<size_t>(elements.count));  // of text and bytes
  if (field.way == Way::kClass) {
    FW_ASSIGN_OR_RETURN(const int64_t label, ClassOf(field, WithoutLineEnd(bytes)));
    return PutNumber(&label, sizeof(label), values, place);
  }
  if (field.way == Way::kParsed) {
    std::byte parsed[8];
    FW_RETURN_IF_ERROR(ParseNumber(bytes, parsed, out->spec.dtype));
    return PutNumber(parsed, DTypeSize(out->spec.dtype), values, place);
  }
  if (field.way == Way::kReinterpreted)
    FW_RETURN_IF_ERROR(Reinterpret(specs_[number].spec, bytes, &elements));
  if (HasOwnShape(out->spec.shape)) {
    FW_RETURN_IF_ERROR(CheckAxes(out->spec.shape, elements.shape));
    out->spec.shape = elements.shape;
  } else {
    FW_RETURN_IF_ERROR(FillShape(specs_[number].spec.shape, elements.count, &out->spec.shape));
  }
  return PutElements(field, elements, values, place, out);
}

// They stay where they are, or are converted, or moved to where they can be read as what they are.
absl::Status FieldReader::PutElements(const Field& field, const Elements& elements,
                                      ColumnValues& values, Place* place, Tensor* out) {
  const Place& data = elements.place;
  const size_t element = DTypeSize(out->spec.dtype);
  const bool is_aligned =
      element == 1 || (data.is_in_scratch ? data.at % element == 0
                                          : reinterpret_cast<uintptr_t>(data.data) % element == 0);
  if (field.way != Way::kConverted && is_aligned) {
    *place = data;
    return absl::OkStatus();
  }
  const size_t bytes = static_cast<size_t>(elements.count) * element;
  std::optional<size_t> at;
  if (static_cast<uint64_t>(elements.count) <= ColumnValues::kMaxScratchBytes / element)
    at = values.Grow(bytes);
  if (!at.has_value())
    return absl::InvalidArgumentError("has more elements than a record may have");
  *place = {nullptr, *at, true};
  std::byte* const scratch = values.scratch().data();
  const std::byte* from = data.is_in_scratch ? scratch + data.at : data.data;
  if (field.way == Way::kConverted)
    return Convert(from, field.stored, scratch + *at, out->spec.dtype, elements.count);
  if (bytes > 0) std::memcpy(scratch + *at, from, bytes);
  return absl::OkStatus();
}

std::optional<size_t> FieldReader::ColumnAsStored(size_t field) const {
  const Field& as = fields_[field];
  if (as.way != Way::kAsStored || as.is_optional || as.columns.size() != 1) return std::nullopt;
  if (as.stored != specs_[field].spec.dtype || !specs_[field].spec.IsStatic()) return std::nullopt;
  return as.columns[0];
}

absl::Status FieldReader::Read(ColumnValues& values, absl::Span<const NamedFile> files,
                               Record* out) const {
  out->fields.resize(fields_.size());
  absl::InlinedVector<Place, 8> places(fields_.size());
  for (size_t i = 0; i < fields_.size(); ++i) {
    const absl::Status read = ReadField(i, values, files, &places[i], &out->fields[i]);
    if (!read.ok()) {
      return WithMessage(read,
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
