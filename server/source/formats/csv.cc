// Format `csv`: rows of CSV files as RFC 4180 describes them (csv_row.h). A record is one read,
// from the beginning of its row to the beginning of the next one. Types of columns come from all
// rows, when the index is made. The index keeps 4 bytes a record (row_places.h).
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/base/units.h"
#include "server/source/column_format.h"
#include "server/source/csv_row.h"
#include "server/source/file_stream.h"
#include "server/source/row_places.h"
#include "server/source/value_conversion.h"

namespace feedwater::server {

namespace {

// One character between two values.
struct CsvDelimiter {
  char character = ',';
};

}  // namespace

FW_DECLARE_PARAM_TYPE(CsvDelimiter);

const char* const ParamType<CsvDelimiter>::kName = "one character";
const char* const ParamType<CsvDelimiter>::kJson =
    R"({"type":"string","pattern":"^[^\"\r\nA-Za-z0-9]$"})";
absl::Status ParamType<CsvDelimiter>::Read(const YamlNode& node, CsvDelimiter* value) {
  const std::string text = node.is_scalar() ? node.scalar : "";
  if (text.size() != 1 || static_cast<unsigned char>(text[0]) >= 0x80 ||
      absl::StrContains("\"\r\n", text) || absl::ascii_isalnum(text[0])) {
    return node.Error(
        absl::StrCat("must be one ASCII character, no letter, digit, quote or line end, such as "
                     "\";\" or \"\\t\", not ",
                     node.Found()));
  }
  value->character = text[0];
  return absl::OkStatus();
}
std::string ParamType<CsvDelimiter>::Text(const CsvDelimiter& value) {
  return ParamType<std::string>::Text(std::string(1, value.character));
}
absl::Status ParamType<CsvDelimiter>::Check(const CsvDelimiter&, const Constraint&) {
  return absl::OkStatus();
}

namespace {

constexpr absl::string_view kSuffixes[] = {".csv"}, kTabSuffixes[] = {".csv", ".tsv"};

struct CsvParams {
  std::vector<std::string> files;
  CsvDelimiter delimiter;
  bool header = true, quotes = true;
  FieldRequests fields;
};

// What the rows have shown of a column.
struct CsvColumn {
  std::string name;
  bool is_text = false, has_floats = false, has_numbers = false, has_empty = false;

  void Look(absl::string_view text) {
    if (text.empty()) {
      has_empty = true;
      return;
    }
    if (is_text) return;
    int64_t integer = 0;
    double number = 0;
    if (absl::SimpleAtoi(text, &integer)) {
      has_numbers = true;
    } else if (IsLargeInteger(text) || !ReadDouble(text, &number)) {
      is_text = true;
    } else {
      has_numbers = has_floats = true;
    }
  }

 private:
  // An integer that int64 does not hold: float64 would be another number.
  static bool IsLargeInteger(absl::string_view text) {
    text = absl::StripAsciiWhitespace(text);
    if (absl::StartsWith(text, "-") || absl::StartsWith(text, "+")) text.remove_prefix(1);
    return std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
  }
};

// What is found in the files.
struct CsvScan {
  std::vector<CsvColumn> columns;
  std::string named_by;  // the file whose header they are
  RowList rows;
  // Quoted values with line ends where values are seldom quoted: lines that were merged, perhaps.
  int64_t rows_of_lines = 0;
};

bool HoldsLineEnd(const CsvRow& row) {
  return std::any_of(row.values().begin(), row.values().end(), [](const CsvRow::Value& value) {
    return value.is_quoted && absl::StrContains(value.text, '\n');
  });
}
bool HasQuoted(const CsvRow& row) {
  return std::any_of(row.values().begin(), row.values().end(),
                     [](const CsvRow::Value& value) { return value.is_quoted; });
}

class CsvColumns final : public RowColumns {
 public:
  static absl::StatusOr<std::unique_ptr<const RecordColumns>> Open(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted, const CsvParams& params) {
    FW_ASSIGN_OR_RETURN(RowPlaces places, RowPlaces::Open(parts));
    std::unique_ptr<CsvColumns> rows(new CsvColumns(std::move(places), params));
    for (size_t i = 0; i < columns.size(); ++i) {
      const ColumnSpec& column = columns[i];
      const bool is_number = column.kind == ColumnSpec::Kind::kNumbers && column.shape.empty() &&
                             (column.dtype == DType::kInt64 || column.dtype == DType::kFloat64);
      if (column.kind != ColumnSpec::Kind::kText && !is_number)
        return absl::DataLossError("a csv index with columns that csv does not have");
      rows->columns_.push_back({column.name, column.dtype, is_number, wanted[i]});
    }
    return rows;
  }

  absl::Status Read(int64_t, RecordSpans bytes, ColumnValues* values) const override {
    const absl::string_view text(reinterpret_cast<const char*>(bytes[0].data()), bytes[0].size());
    CsvRow row(delimiter_, has_quoting_);
    const CsvRow::Outcome outcome =
        text.empty() ? CsvRow::Outcome::kBlank : row.Parse(text, /*is_whole_file=*/true);
    if (outcome == CsvRow::Outcome::kBad) return absl::DataLossError(row.error());
    if (outcome != CsvRow::Outcome::kRow)
      return absl::DataLossError("no row where the record was indexed");
    if (row.values().size() != columns_.size()) {
      return absl::DataLossError(absl::StrCat(
          "the row has ", FormatCount(static_cast<int64_t>(row.values().size()), "value"), ", not ",
          columns_.size()));
    }
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].is_wanted) FW_RETURN_IF_ERROR(Set(i, row.values()[i], values));
    }
    return absl::OkStatus();
  }

 private:
  struct Column {
    std::string name;
    DType dtype;
    bool is_number, is_wanted;
  };

  CsvColumns(RowPlaces places, const CsvParams& params)
      : RowColumns(std::move(places)),
        delimiter_(params.delimiter.character),
        has_quoting_(params.quotes) {}

  absl::Status Set(size_t number, const CsvRow::Value& value, ColumnValues* values) const {
    const Column& column = columns_[number];
    if (!column.is_number) {
      if (!value.has_quotes) {
        values->SetBytes(number, value.text.data(), value.text.size());
        return absl::OkStatus();
      }
      const auto doubled = std::count(value.text.begin(), value.text.end(), '"') / 2;
      const size_t size = value.text.size() - static_cast<size_t>(doubled);
      std::byte* to = values->Make(number, {static_cast<int64_t>(size)}, size);
      if (to == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("column '", Printable(column.name), "' is too large"));
      }
      CsvRow::Unquote(value.text, reinterpret_cast<char*>(to));
      return absl::OkStatus();
    }
    if (value.text.empty()) return absl::OkStatus();  // missing
    int64_t integer = 0;
    double real = 0;
    if (column.dtype == DType::kInt64 && absl::SimpleAtoi(value.text, &integer)) {
      values->SetNumber(number, integer);
    } else if (column.dtype == DType::kFloat64 && ReadDouble(value.text, &real)) {
      values->SetNumber(number, real);
    } else {
      return absl::InvalidArgumentError(absl::StrCat("column '", Printable(column.name), "' is no ",
                                                     DTypeName(column.dtype), ": '",
                                                     Printable(value.text.substr(0, 100)), "'"));
    }
    return absl::OkStatus();
  }

  const char delimiter_;
  const bool has_quoting_;
  std::vector<Column> columns_;
};

class Csv final : public ColumnFormat {
 public:
  explicit Csv(CsvParams params) : ColumnFormat(params.fields), params_(std::move(params)) {}
  // 2: a note of line ends in quotes, which are usual between commas.
  int64_t sections_version() const override { return delimiter() == ',' ? 1 : 2; }

 protected:
  absl::Status FindRecords(const DatasetLocation& location, IndexBuilder* builder,
                           std::vector<ColumnSpec>* columns) const override {
    const absl::Span<const absl::string_view> suffixes =
        delimiter() == '\t' ? absl::Span<const absl::string_view>(kTabSuffixes) : kSuffixes;
    FW_ASSIGN_OR_RETURN(const std::vector<FoundFile> files,
                        FindFiles(location, params_.files, suffixes, builder));
    CsvScan scan;
    std::vector<char> buffer;
    for (const FoundFile& file : files)
      FW_RETURN_IF_ERROR(ScanFile(location, file, &buffer, builder, &scan));
    scan.rows.AddTo(params_.quotes ? "csv" : "csv without quoting", location, builder);
    if (scan.rows_of_lines > 0) {
      absl::StrAppend(&builder->notes, builder->notes.empty() ? "" : ", ",
                      FormatCount(scan.rows_of_lines, "row"),
                      " with line ends in quotes ('quotes: false' where a quote is a character "
                      "like any other)");
    }
    for (const CsvColumn& column : scan.columns) columns->push_back(SpecOf(column));
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenRecords(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) const override {
    return CsvColumns::Open(parts, columns, wanted, params_);
  }

 private:
  char delimiter() const { return params_.delimiter.character; }

  // What the rows say of a column's type, unless `fields` says more: names of files and classes are
  // texts, whatever they look like, and with a dtype empty values are missing numbers.
  ColumnSpec SpecOf(const CsvColumn& column) const {
    bool is_word = false, has_dtype = false;
    for (const FieldRequest& request : requests().list) {
      bool is_of_it = request.from == column.name;
      for (const absl::string_view from : absl::StrSplit(request.from, ';'))
        is_of_it = is_of_it || absl::StripAsciiWhitespace(from) == column.name;
      is_word = is_word || (is_of_it && (request.is_file || request.has_classes));
      has_dtype = has_dtype || (is_of_it && request.dtype.has_value());
    }
    ColumnSpec spec = ColumnSpec::Text(column.name);
    if (column.has_numbers && !column.is_text && !is_word && (!column.has_empty || has_dtype))
      spec = ColumnSpec::Number(column.name, column.has_floats ? DType::kFloat64 : DType::kInt64);
    spec.doc = absl::StrCat("Column '", column.name, "' of the rows.");
    return spec;
  }

  absl::Status ScanFile(const DatasetLocation& location, const FoundFile& file,
                        std::vector<char>* buffer, IndexBuilder* builder, CsvScan* scan) const {
    FW_ASSIGN_OR_RETURN(FileStream stream, FileStream::Open(location, file, buffer, builder));
    FW_RETURN_IF_ERROR(CheckIsPlainText(stream.view(), stream.what()));
    if (absl::StartsWith(stream.view(), kByteOrderMark)) stream.Skip(kByteOrderMark.size());
    CsvRow row(delimiter(), params_.quotes);
    bool needs_header = params_.header;
    int64_t line = 1;
    while (!stream.is_done()) {
      const auto fail = [&](absl::string_view message) {
        return absl::InvalidArgumentError(absl::StrCat(stream.what(), " line ", line, message));
      };
      const CsvRow::Outcome outcome = stream.view().empty()
                                          ? CsvRow::Outcome::kMore
                                          : row.Parse(stream.view(), stream.reaches_end());
      if (outcome == CsvRow::Outcome::kBad)
        return fail(absl::StrCat(": the row that begins here has ", row.error()));
      const size_t bytes = outcome == CsvRow::Outcome::kMore ? stream.view().size() : row.bytes();
      if (static_cast<int64_t>(bytes) >= RowList::kMaxRowBytes) {
        return fail(absl::StrCat(
            ": the row that begins here is longer than ", FormatBytes(RowList::kMaxRowBytes),
            params_.quotes ? "; cure: look for a quote that is never closed, or 'quotes: "
                             "false' where a quote is a character like any other"
                           : "; cure: look for a line end that is missing"));
      }
      if (outcome == CsvRow::Outcome::kMore) {
        FW_RETURN_IF_ERROR(stream.Fill());
        continue;
      }
      if (outcome == CsvRow::Outcome::kBlank) {
        scan->rows.AddBlankLine();
        FW_RETURN_IF_ERROR(builder->Progress(scan->rows.rows(), 0));
      } else if (needs_header) {
        needs_header = false;
        FW_RETURN_IF_ERROR(TakeHeader(row, stream.what(), scan));
      } else {
        if (scan->columns.empty()) NameColumns(row, scan);
        if (delimiter() != ',' && HoldsLineEnd(row)) ++scan->rows_of_lines;
        if (row.values().size() != scan->columns.size()) {
          return fail(absl::StrCat(
              " has ", FormatCount(static_cast<int64_t>(row.values().size()), "value"), ", but ",
              params_.header ? "the header" : "the first row", " has ", scan->columns.size(),
              params_.quotes ? "; cure: put values that hold a delimiter or a line end in quotes, "
                               "or correct 'delimiter' or the row"
                             : "; cure: correct 'delimiter' or the row, or leave 'quotes' out",
              HasQuoted(row) ? ", or 'quotes: false' where a quote is a character like any other"
                             : ""));
        }
        for (size_t i = 0; i < scan->columns.size(); ++i)
          scan->columns[i].Look(row.values()[i].text);
        FW_RETURN_IF_ERROR(scan->rows.Add(stream.position(),
                                          stream.position() + static_cast<int64_t>(bytes),
                                          absl::StrCat(stream.what(), " line ", line), builder));
      }
      const absl::string_view text = stream.view().substr(0, bytes);
      line += std::count(text.begin(), text.end(), '\n');
      stream.Skip(bytes);
    }
    if (needs_header) {
      return absl::InvalidArgumentError(
          absl::StrCat(stream.what(), " has no header; cure: 'header: false', or leave it out"));
    }
    scan->rows.EndFile(file);
    return absl::OkStatus();
  }

  static void NameColumns(const CsvRow& row, CsvScan* scan) {
    for (size_t i = 0; i < row.values().size(); ++i)
      scan->columns.emplace_back().name = absl::StrCat("c", i);
  }

  static absl::Status TakeHeader(const CsvRow& row, const std::string& what, CsvScan* scan) {
    std::vector<std::string> names;
    for (const CsvRow::Value& value : row.values()) {
      std::string name(value.text);
      if (value.has_quotes) name.resize(CsvRow::Unquote(value.text, name.data()));
      names.push_back(name.empty() ? absl::StrCat("c", names.size()) : std::move(name));
    }
    if (scan->named_by.empty()) {
      scan->named_by = what;
      for (std::string& name : names) scan->columns.emplace_back().name = std::move(name);
      return absl::OkStatus();
    }
    const auto name_of = [](const std::string& name) {
      return absl::StrCat("'", Printable(name), "'");
    };
    for (size_t i = 0; i < std::max(names.size(), scan->columns.size()); ++i) {
      const std::string here = i < names.size() ? name_of(names[i]) : "not there";
      const std::string there =
          i < scan->columns.size() ? name_of(scan->columns[i].name) : "not there";
      if (here == there) continue;
      return absl::InvalidArgumentError(absl::StrCat(what, " has another header than ",
                                                     scan->named_by, ": column ", i + 1, " is ",
                                                     here, ", there ", there));
    }
    return absl::OkStatus();
  }

  const CsvParams params_;
};

const Registrar kRegistrar(
    "csv",
    DeclareFormat<Csv>(
        "Rows of CSV files (RFC 4180: values in quotes may hold line ends, doubled quotes and "
        "delimiters; LF or CRLF; a UTF-8 byte order mark and empty lines are passed over). A "
        "column is int64 when every value is an integer, float64 when every value is a number, "
        "else text. An empty value makes a column text, unless a field gives a `dtype`: then it is "
        "a missing number. A column that a field takes as `file` or as `classes` is text. So are "
        "integers beyond int64.",
        "dataset: {format: csv, root: data, path: photos, files: [train.csv], fields: {data: "
        "{from: path, file: true}, label: {from: species, classes: auto}}}",
        FormatSchema<CsvParams>()
            .Files("files", &CsvParams::files,
                   "CSV files below `path`, with the same header: names, globs and ranges. Left "
                   "out: every *.csv of the folder, with tabs as delimiter every *.tsv too.")
            .Param("delimiter", &CsvParams::delimiter, "The separator between two values.")
            .Param("header", &CsvParams::header,
                   "The first row of each file names the columns; one without a name is named by "
                   "its place, `c0`, `c1`, ... False: all are.")
            .LaterParam("quotes", &CsvParams::quotes,
                        "A value may stand in quotes. False: a quote is a character like any "
                        "other, and a row is a line, as in the .tsv files of GLUE and Common Voice "
                        "and in LJSpeech's metadata.csv.")
            .Fields(&CsvParams::fields)));

}  // namespace
}  // namespace feedwater::server
