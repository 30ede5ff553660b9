// Format `jsonl`: one JSON object a line (json_line.h). A record is one read, from the beginning of
// its line to the beginning of the next one. Columns and their types come from all lines, when the
// index is made.
//
// The index keeps 4 bytes a record (row_places.h).
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/base/status_message.h"
#include "server/base/units.h"
#include "server/source/column_format.h"
#include "server/source/file_stream.h"
#include "server/source/json_line.h"
#include "server/source/row_places.h"

namespace feedwater::server {
namespace {

constexpr absl::string_view kSuffixes[] = {".jsonl", ".ndjson"};
constexpr size_t kMaxColumns = 10'000;
constexpr int64_t kBytesPerColumn = 256;

struct JsonlParams {
  std::vector<std::string> files;
  FieldRequests fields;
};

bool IsEmpty(const Shape& shape) {
  return std::any_of(shape.begin(), shape.end(), [](int64_t axis) { return axis == 0; });
}

// What the lines have shown of a column.
struct JsonColumn {
  std::string name;
  JsonKind kind = JsonKind::kNull;
  bool is_list = false;
  bool has_elements = false;  // of a list: its number of axes is known
  Shape shape;                // -1: lengths that differ
  std::string why;            // it cannot be a column: what it holds, and where
  int64_t last_line = 0;

  static absl::string_view Noun(JsonKind kind, bool is_list) {
    switch (kind) {
      case JsonKind::kText:
        return "text";
      case JsonKind::kBool:
        return is_list ? "a list of true and false" : "true or false";
      case JsonKind::kInteger:
      case JsonKind::kReal:
        return is_list ? "a list of numbers" : "a number";
      default:
        return is_list ? "a list" : "null";
    }
  }

  void Look(const JsonValue& value, const std::string& where) {
    if (!why.empty() || (value.kind == JsonKind::kNull && !value.is_list)) return;
    if (value.kind == JsonKind::kOther) {
      why = absl::StrCat(value.why, " in ", where);
      return;
    }
    const bool is_first = kind == JsonKind::kNull && !is_list;
    const auto is_number = [](JsonKind kind) {
      return kind == JsonKind::kInteger || kind == JsonKind::kReal;
    };
    const bool kinds_agree = kind == value.kind || kind == JsonKind::kNull ||
                             value.kind == JsonKind::kNull ||
                             (is_number(kind) && is_number(value.kind));
    if (!is_first && (is_list != value.is_list || !kinds_agree)) {
      why = absl::StrCat(Noun(value.kind, value.is_list), " in ", where, " and ",
                         Noun(kind, is_list), " before");
      return;
    }
    is_list = value.is_list;
    if (kind != JsonKind::kReal && value.kind != JsonKind::kNull) kind = value.kind;
    if (is_list) LookAtShape(value.shape, where);
  }

 private:
  void LookAtShape(const Shape& other, const std::string& where) {
    const bool is_empty = IsEmpty(other);
    const size_t axes = shape.size();
    const bool more = other.size() > axes && has_elements;
    const bool fewer = other.size() < axes && !is_empty;
    if (more || fewer) {
      why = absl::StrCat("lists in ", other.size(), other.size() == 1 ? " level" : " levels",
                         " in ", where, " and in ", axes, " before");
      return;
    }
    for (size_t i = 0; i < other.size(); ++i) {
      if (i == shape.size()) {
        shape.push_back(other[i]);
      } else if (shape[i] != other[i] && !(i > 0 && is_empty)) {
        // What an empty list would hold is not known.
        shape[i] = i > 0 && !has_elements ? other[i] : -1;
      }
    }
    has_elements = has_elements || !is_empty;
  }
};

// Looks at every value of every line.
class JsonlScan final : public JsonSink {
 public:
  explicit JsonlScan(IndexBuilder* builder) : builder_(builder) {}

  void BeginLine(std::string where) {
    where_ = std::move(where);
    ++line_;
  }
  absl::Status Value(absl::string_view path, const JsonValue& value) override {
    auto found = numbers_.find(path);
    if (found == numbers_.end()) {
      if (columns_.size() == kMaxColumns) {
        return absl::InvalidArgumentError(absl::StrCat(
            "has '", Printable(path), "', one key more than ", kMaxColumns,
            ": keys are columns; cure: keep what differs from line to line in values"));
      }
      FW_RETURN_IF_ERROR(builder_->Take(kBytesPerColumn + static_cast<int64_t>(2 * path.size())));
      found = numbers_.emplace(std::string(path), columns_.size()).first;
      columns_.emplace_back().name = std::string(path);
    }
    JsonColumn& column = columns_[found->second];
    if (column.last_line == line_)
      return absl::InvalidArgumentError(absl::StrCat("has two values '", Printable(path), "'"));
    column.last_line = line_;
    column.Look(value, where_);
    return absl::OkStatus();
  }
  const std::vector<JsonColumn>& columns() const { return columns_; }

 private:
  IndexBuilder* const builder_;
  std::string where_;
  int64_t line_ = 0;
  absl::flat_hash_map<std::string, size_t> numbers_;  // by path
  std::vector<JsonColumn> columns_;
};

class JsonlColumns final : public RowColumns {
 public:
  static absl::StatusOr<std::unique_ptr<const RecordColumns>> Open(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) {
    FW_ASSIGN_OR_RETURN(RowPlaces places, RowPlaces::Open(parts));
    std::unique_ptr<JsonlColumns> lines(new JsonlColumns(std::move(places)));
    for (size_t i = 0; i < columns.size(); ++i) {
      const ColumnSpec& column = columns[i];
      const bool is_number = column.kind == ColumnSpec::Kind::kNumbers &&
                             column.shape.size() <= kMaxJsonListAxes &&
                             (column.dtype == DType::kInt64 || column.dtype == DType::kFloat64 ||
                              column.dtype == DType::kBool);
      if (column.kind != ColumnSpec::Kind::kText && !is_number)
        return absl::DataLossError("a jsonl index with columns that jsonl does not have");
      lines->columns_.push_back(column);
      if (wanted[i]) lines->numbers_.emplace(column.name, i);
    }
    return lines;
  }

  absl::Status Read(int64_t, RecordSpans bytes, ColumnValues* values) const override {
    Sink sink(*this, values);
    // The extent goes on over empty lines.
    return ReadJsonLine(absl::StripAsciiWhitespace(absl::string_view(
                            reinterpret_cast<const char*>(bytes[0].data()), bytes[0].size())),
                        &sink);
  }

 private:
  class Sink final : public JsonSink {
   public:
    Sink(const JsonlColumns& columns, ColumnValues* values) : columns_(columns), values_(values) {}
    absl::Status Value(absl::string_view path, const JsonValue& value) override {
      const auto found = columns_.numbers_.find(path);
      if (found == columns_.numbers_.end()) return absl::OkStatus();
      if (value.kind == JsonKind::kNull && !value.is_list) return absl::OkStatus();  // missing
      const ColumnSpec& column = columns_.columns_[found->second];
      const absl::Status set = Set(column, found->second, value, values_);
      if (set.ok()) return set;
      return WithMessage(set, absl::StrCat("column '", Printable(path), "' ", set.message()));
    }

   private:
    const JsonlColumns& columns_;
    ColumnValues* const values_;
  };

  explicit JsonlColumns(RowPlaces places) : RowColumns(std::move(places)) {}

  static absl::Status Set(const ColumnSpec& column, size_t number, const JsonValue& value,
                          ColumnValues* values) {
    if (values->has(number)) return absl::InvalidArgumentError("has two values");
    const absl::Status too_large = absl::InvalidArgumentError("is too large");
    if (column.kind == ColumnSpec::Kind::kText) {
      if (value.kind != JsonKind::kText) return absl::InvalidArgumentError("holds no text");
      const size_t size = value.text.size();
      std::byte* to = values->Make(number, {static_cast<int64_t>(size)}, size);
      if (to == nullptr) return too_large;
      if (size > 0) std::memcpy(to, value.text.data(), size);
      return absl::OkStatus();
    }
    const bool is_real = value.kind == JsonKind::kReal, is_none = value.kind == JsonKind::kNull;
    const bool fits = is_none ||
                      (column.dtype == DType::kFloat64 && value.kind == JsonKind::kInteger) ||
                      value.kind == (column.dtype == DType::kFloat64 ? JsonKind::kReal
                                     : column.dtype == DType::kInt64 ? JsonKind::kInteger
                                                                     : JsonKind::kBool);
    if (!fits || value.is_list == column.shape.empty()) {
      const absl::string_view what =
          value.kind == JsonKind::kOther ? value.why : JsonColumn::Noun(value.kind, value.is_list);
      return absl::InvalidArgumentError(absl::StrCat("holds ", what, ", not ", column.TypeText()));
    }
    const size_t count = is_real ? value.reals->size() : value.integers->size();
    Shape shape;
    if (value.is_list) FW_RETURN_IF_ERROR(ShapeOf(column, value, count, &shape));
    const size_t element = DTypeSize(column.dtype);
    std::byte* to = values->Make(number, std::move(shape), count * element);
    if (to == nullptr) return too_large;
    for (size_t i = 0; i < count; ++i, to += element) {
      if (column.dtype == DType::kBool) {
        *to = static_cast<std::byte>((*value.integers)[i]);
      } else if (column.dtype == DType::kInt64) {
        std::memcpy(to, &(*value.integers)[i], element);
      } else {
        const double real = is_real ? (*value.reals)[i] : static_cast<double>((*value.integers)[i]);
        std::memcpy(to, &real, element);
      }
    }
    return absl::OkStatus();
  }

  // The shape of a list of `count` numbers, with as many axes as the column has.
  static absl::Status ShapeOf(const ColumnSpec& column, const JsonValue& value, size_t count,
                              Shape* shape) {
    bool fits = IsEmpty(value.shape) ? value.shape.size() <= column.shape.size()
                                     : value.shape.size() == column.shape.size();
    *shape = value.shape;
    for (size_t i = shape->size(); i < column.shape.size(); ++i)
      shape->push_back(std::max<int64_t>(column.shape[i], 0));
    int64_t elements = 1;  // of the axes so far
    for (size_t i = 0; i < column.shape.size() && fits; ++i) {
      // A list without lists in it does not say how long those would be.
      if (column.shape[i] >= 0 && elements == 0) (*shape)[i] = column.shape[i];
      fits = (column.shape[i] < 0 || column.shape[i] == (*shape)[i]) &&
             !__builtin_mul_overflow(elements, (*shape)[i], &elements);
    }
    if (fits && static_cast<uint64_t>(elements) == count) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("holds a list of another shape than ", column.TypeText()));
  }

  std::vector<ColumnSpec> columns_;
  absl::flat_hash_map<std::string, size_t> numbers_;  // of those that are wanted, by path
};

class Jsonl final : public ColumnFormat {
 public:
  explicit Jsonl(JsonlParams params) : ColumnFormat(params.fields), params_(std::move(params)) {}
  int64_t sections_version() const override { return 1; }

 protected:
  absl::Status FindRecords(const DatasetLocation& location, IndexBuilder* builder,
                           std::vector<ColumnSpec>* columns) const override {
    FW_ASSIGN_OR_RETURN(const std::vector<FoundFile> files,
                        FindFiles(location, params_.files, kSuffixes, builder));
    JsonlScan scan(builder);
    RowList rows;
    std::vector<char> buffer;
    for (const FoundFile& file : files)
      FW_RETURN_IF_ERROR(ScanFile(location, file, &buffer, builder, &scan, &rows));
    rows.AddTo("jsonl", location, builder);
    std::vector<std::string> left_out;
    for (const JsonColumn& column : scan.columns()) {
      if (!column.why.empty()) {
        FW_RETURN_IF_ERROR(CheckIsNotAskedFor(column, location));
        left_out.push_back(absl::StrCat("'", Printable(column.name), "' (", column.why, ")"));
      } else if (column.kind != JsonKind::kNull || column.is_list) {
        columns->push_back(SpecOf(column));
      }
    }
    if (!left_out.empty()) {
      absl::StrAppend(&builder->notes, builder->notes.empty() ? "" : ", ",
                      FormatCount(static_cast<int64_t>(left_out.size()), "key"),
                      " that cannot be columns, such as ", left_out[0]);
    }
    if (columns->empty() && rows.rows() > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(location.Describe(), " has no key that can be a column",
                       left_out.empty() ? "" : absl::StrCat(": ", left_out[0])));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenRecords(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) const override {
    return JsonlColumns::Open(parts, columns, wanted);
  }

 private:
  absl::Status CheckIsNotAskedFor(const JsonColumn& column, const DatasetLocation& location) const {
    for (const FieldRequest& request : requests().list) {
      bool is_of_it = request.from == column.name;
      for (const absl::string_view from : absl::StrSplit(request.from, ';'))
        is_of_it = is_of_it || absl::StripAsciiWhitespace(from) == column.name;
      if (!is_of_it) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(request.where, ": field '", Printable(request.name), "': column '",
                       Printable(column.name), "' of ", location.Describe(), " holds ", column.why,
                       "; cure: give all lines one type of value there: text, a number, true or "
                       "false, or a list of numbers"));
    }
    return absl::OkStatus();
  }

  static ColumnSpec SpecOf(const JsonColumn& column) {
    ColumnSpec spec = ColumnSpec::Text(column.name);
    if (column.kind != JsonKind::kText) {
      const DType dtype = column.kind == JsonKind::kReal   ? DType::kFloat64
                          : column.kind == JsonKind::kBool ? DType::kBool
                                                           : DType::kInt64;
      spec = ColumnSpec::Number(column.name, dtype, column.shape);
    }
    spec.doc = absl::StrCat("Key '", column.name, "' of the lines.");
    return spec;
  }

  static absl::Status ScanFile(const DatasetLocation& location, const FoundFile& file,
                               std::vector<char>* buffer, IndexBuilder* builder, JsonlScan* scan,
                               RowList* rows) {
    FW_ASSIGN_OR_RETURN(FileStream stream, FileStream::Open(location, file, buffer, builder));
    FW_RETURN_IF_ERROR(CheckIsPlainText(stream.view(), stream.what()));
    if (absl::StartsWith(stream.view(), kByteOrderMark)) stream.Skip(kByteOrderMark.size());
    int64_t line = 1;
    size_t looked_at = 0;  // bytes of the view without a line end
    while (!stream.is_done()) {
      const std::string where = absl::StrCat(stream.what(), " line ", line);
      const size_t found = stream.view().find('\n', looked_at);
      const bool is_whole = found != absl::string_view::npos || stream.reaches_end();
      const size_t bytes = found != absl::string_view::npos ? found + 1 : stream.view().size();
      if (static_cast<int64_t>(bytes) >= RowList::kMaxRowBytes) {
        return absl::InvalidArgumentError(
            absl::StrCat(where, " is longer than ", FormatBytes(RowList::kMaxRowBytes),
                         "; cure: one object a line, as jq -c writes them"));
      }
      if (!is_whole) {
        looked_at = bytes;
        FW_RETURN_IF_ERROR(stream.Fill());
        continue;
      }
      looked_at = 0;
      const absl::string_view text = absl::StripAsciiWhitespace(stream.view().substr(0, bytes));
      if (text.empty()) {
        rows->AddBlankLine();
        FW_RETURN_IF_ERROR(builder->Progress(rows->rows(), 0));
      } else {
        scan->BeginLine(where);
        const absl::Status read = ReadJsonLine(text, scan);
        if (absl::IsDataLoss(read)) {
          return absl::InvalidArgumentError(absl::StrCat(where, ": ", read.message(),
                                                         "; cure: one object a line, as jq -c "
                                                         "writes them"));
        }
        if (!read.ok()) return WithMessage(read, absl::StrCat(where, " ", read.message()));
        FW_RETURN_IF_ERROR(rows->Add(
            stream.position(), stream.position() + static_cast<int64_t>(bytes), where, builder));
      }
      ++line;
      stream.Skip(bytes);
    }
    rows->EndFile(file);
    return absl::OkStatus();
  }

  const JsonlParams params_;
};

const Registrar kRegistrar(
    "jsonl",
    DeclareFormat<Jsonl>(
        "JSON Lines: one object a line, whose keys are columns, those of an object in it by "
        "dotted path (`meta.lang`). Text, numbers (int64 when all are integers, else float64), "
        "true and false, and lists of numbers, also in lists of one length, become fields; null "
        "is a missing value. Keys with other values, or with values of several types, are left "
        "out, and an error where a field asks for them.",
        "dataset: {format: jsonl, root: data, files: [\"part-*.jsonl\"], fields: {tokens: ids, "
        "lang: {from: meta.lang, classes: auto}}}",
        FormatSchema<JsonlParams>()
            .Files("files", &JsonlParams::files,
                   "Files below `path`: names, globs and ranges. Left out: every *.jsonl and "
                   "*.ndjson of the folder.")
            .Fields(&JsonlParams::fields)));

}  // namespace
}  // namespace feedwater::server
