// Formats `parquet` and `arrow`: rows of Parquet files; rows of Arrow IPC files and streams, which
// are what a Hugging Face dataset is saved as. Columns of structs are named by dotted path.
//
// A row's values lie in as many places as there are columns, in compressed pages or batches of many
// rows. So a file is unpacked once (staging.h) into its rows, one behind the other
// (columnar_rows.h), of the columns that `fields:` names. That is done by a program of its own
// (columnar_program.h), which is built where pyarrow was found.
//
// The index keeps of each row where it begins in its staged file: 4 bytes, 8 in files of more than
// 4 GiB.
#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/base/key.h"
#include "server/base/units.h"
#include "server/base/yaml.h"
#include "server/source/column_format.h"
#include "server/source/columnar_program.h"
#include "server/source/columnar_rows.h"
#include "server/source/file_window.h"
#include "server/source/json_document.h"

namespace feedwater::server {
namespace {

constexpr IndexTag kBegins = MakeIndexTag("cobe");  // first byte of each row in its staged file
constexpr IndexTag kStaged = MakeIndexTag("cost");  // the columns in a row, in order
constexpr uint64_t kHead = sizeof(uint32_t);        // before a row: its length
constexpr int64_t kMaxStateFile = 16 << 20;
constexpr int64_t kMostNamed = 5;  // columns in a note, and of a name so many bytes
constexpr size_t kMostNameBytes = 100;
constexpr const char* kStateFile = "state.json";

struct ColumnarParams {
  std::vector<std::string> files;
  FieldRequests fields;
};

// The units of a column's numbers, such as timestamp[us, and whether its moments have a time zone.
std::string UnitsOf(absl::string_view type) {
  std::string units;
  for (const absl::string_view word :
       {"timestamp[", "duration[", "time32[", "time64[", "date32[", "date64["}) {
    for (size_t at = type.find(word); at != type.npos; at = type.find(word, at + 1)) {
      const absl::string_view unit = type.substr(at, type.find(']', at) - at);
      const size_t zone = unit.find(", tz=");
      absl::StrAppend(&units, unit.substr(0, zone), zone == unit.npos ? "" : " in a zone", ";");
    }
  }
  return units;
}

class ColumnarRows final : public ShardedColumns {
 public:
  static absl::StatusOr<std::unique_ptr<const RecordColumns>> Open(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) {
    const absl::Status wrong = absl::DataLossError("an index of rows whose columns do not fit");
    FW_ASSIGN_OR_RETURN(Shards shards, Shards::Open(*parts.index, parts.records));
    std::unique_ptr<ColumnarRows> rows(new ColumnarRows(std::move(shards)));
    FW_ASSIGN_OR_RETURN(rows->begins_, parts.index->Numbers(kBegins));
    FW_ASSIGN_OR_RETURN(const NumberColumn staged, parts.index->Numbers(kStaged));
    if (rows->begins_.size() != static_cast<size_t>(parts.records) ||
        staged.size() > columns.size()) {
      return wrong;
    }
    size_t staged_wanted = 0;
    for (size_t i = 0; i < staged.size(); ++i) {
      if (staged[i] >= columns.size() || (i > 0 && staged[i] <= staged[i - 1])) return wrong;
      Staged column;
      column.number = static_cast<size_t>(staged[i]);
      const ColumnSpec& spec = columns[column.number];
      if (!StagedBytes(spec, &column.bytes, &column.row_bytes)) return wrong;
      column.name = spec.name;
      column.shape = spec.shape;
      column.is_wanted = wanted[column.number];
      staged_wanted += column.is_wanted ? 1 : 0;
      rows->staged_.push_back(std::move(column));
    }
    if (staged_wanted != static_cast<size_t>(std::count(wanted.begin(), wanted.end(), true)))
      return wrong;
    return rows;
  }

  void AddExtents(int64_t record, std::vector<Extent>* extents) const override {
    extents->push_back(shards().Record(record, begins_, nullptr));
  }

  absl::Status Read(int64_t, RecordSpans bytes, ColumnValues* values) const override {
    const absl::Status wrong = absl::DataLossError(
        "is not as it was unpacked; cure: remove the daemon's state_dir/staged");
    BytesReader row(AsText(bytes[0]));
    if (row.Number<uint32_t>() != bytes[0].size() - kHead || !row.good()) return wrong;
    const absl::string_view states = row.Bytes(staged_.size());
    if (!row.good()) return wrong;
    for (size_t i = 0; i < staged_.size(); ++i) {
      const Staged& column = staged_[i];
      switch (static_cast<RowState>(states[i])) {
        case RowState::kNull:
          continue;
        case RowState::kNullInside:
          if (column.is_wanted) return Bad(column, "has a null among its numbers");
          continue;
        case RowState::kTooLarge:
          if (column.is_wanted) return Bad(column, "has a number that int64 cannot hold");
          continue;
        case RowState::kValue:
          break;
        default:
          return wrong;
      }
      Shape shape = column.shape;
      auto length = static_cast<uint64_t>(column.bytes);
      if (column.bytes < 0) {
        const auto count = row.Number<uint32_t>();
        length = uint64_t{count} * static_cast<uint64_t>(column.row_bytes);
        shape[0] = count;
      }
      const absl::string_view value = row.Bytes(length);
      if (!row.good()) return wrong;
      if (column.is_wanted)
        values->Set(column.number, value.data(), value.size(), std::move(shape));
    }
    return row.at_end() ? absl::OkStatus() : wrong;
  }

 private:
  struct Staged {
    size_t number = 0;  // of the column
    std::string name;
    Shape shape;
    int64_t bytes = 0, row_bytes = 0;  // as StagedBytes says
    bool is_wanted = false;
  };
  using ShardedColumns::ShardedColumns;

  static absl::Status Bad(const Staged& column, absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("column '", Printable(column.name), "' ", why));
  }

  NumberColumn begins_;
  std::vector<Staged> staged_;
};

class Columnar : public ColumnFormat {
 public:
  Columnar(bool is_parquet, ColumnarParams params)
      : ColumnFormat(params.fields), is_parquet_(is_parquet), params_(std::move(params)) {}
  int64_t sections_version() const override { return 2; }

 protected:
  absl::Status FindRecords(const DatasetLocation& location, IndexBuilder* builder,
                           std::vector<ColumnSpec>* columns) const override {
    FW_ASSIGN_OR_RETURN(const std::vector<FoundFile> files, Files(location, builder));
    FW_ASSIGN_OR_RETURN(const ColumnarProgram program, ColumnarProgram::Find(name()));
    const ColumnarRequest request = Request();
    Found found;
    ShardList shards;
    for (const FoundFile& file : files) {
      FW_ASSIGN_OR_RETURN(const FoundFile staged,
                          Stage(location, file, program, request, builder, &found));
      const size_t before = found.begins.size();
      FW_RETURN_IF_ERROR(Scan(location, staged, builder, &found));
      shards.Add(staged, static_cast<int64_t>(found.begins.size() - before));
    }
    Digest digest;
    digest.Add(name());
    std::vector<uint64_t> staged;
    for (size_t i = 0, number = 0; i < found.columns.size(); ++i) {
      const ColumnarColumn& column = found.columns[i];
      digest.Add(column.spec.name);
      digest.Add(column.spec.TypeText());
      if (!column.trouble.empty()) continue;
      if (column.is_staged) staged.push_back(number);
      ++number;
    }
    shards.AddTo(location, builder, &digest);
    builder->digest = digest.Hex();
    builder->columns.Add(kBegins, found.begins);
    builder->columns.Add(kStaged, staged);
    return AddColumns(location, files[0], found, builder, columns);
  }

  absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenRecords(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) const override {
    return ColumnarRows::Open(parts, columns, wanted);
  }

 private:
  struct Found {
    std::vector<uint64_t> begins;
    std::vector<ColumnarColumn> columns;  // those of the first file
    std::string columns_of;               // its name, for messages
    int64_t program_bytes = 0;            // counted with the builder
  };

  const char* name() const { return is_parquet_ ? "parquet" : "arrow"; }

  absl::StatusOr<std::vector<FoundFile>> Files(const DatasetLocation& location,
                                               IndexBuilder* builder) const {
    static constexpr absl::string_view kParquet[] = {".parquet", ".parq", ".pq"};
    static constexpr absl::string_view kArrow[] = {".arrow", ".arrows", ".ipc", ".feather"};
    std::vector<std::string> patterns = params_.files;
    if (patterns.empty() && !is_parquet_) {
      FW_ASSIGN_OR_RETURN(patterns, SavedFiles(location, builder));
    }
    return FindParts(location, patterns,
                     is_parquet_ ? absl::MakeConstSpan(kParquet) : absl::MakeConstSpan(kArrow),
                     builder, /*numbers_before_suffix=*/true);
  }

  // The files that a saved Hugging Face dataset says it consists of: what its methods keep for
  // themselves lies beside them (cache-*.arrow). None: it is no such folder.
  static absl::StatusOr<std::vector<std::string>> SavedFiles(const DatasetLocation& location,
                                                             IndexBuilder* builder) {
    std::vector<std::string> files;
    FW_ASSIGN_OR_RETURN(const struct stat info, location.root->Stat(location.path));
    if (!S_ISDIR(info.st_mode)) return files;
    const std::string path = location.Below(kStateFile);
    const absl::StatusOr<struct stat> state = builder->DependOn(*location.root, path);
    if (absl::IsNotFound(state.status())) return files;
    if (!state.ok()) return state.status();
    if (!S_ISREG(state->st_mode)) return files;
    const absl::Status unreadable = absl::InvalidArgumentError(absl::StrCat(
        location.root->Describe(path),
        " cannot be read as JSON that names the dataset's files; cure: save the dataset again, or "
        "name the files with 'files'"));
    if (state->st_size > kMaxStateFile) return unreadable;
    FW_RETURN_IF_ERROR(builder->Take(state->st_size));
    FW_ASSIGN_OR_RETURN(const std::string text,
                        ReadHead(*location.root, path, static_cast<size_t>(state->st_size)));
    FW_RETURN_IF_ERROR(builder->Take(ShapeOfJson(text).memory_bytes(text)));
    const nlohmann::json document = ParseJsonDocument(text);
    if (document.is_discarded()) return unreadable;
    if (!document.is_object() || !document.contains("_data_files")) return files;
    if (!document["_data_files"].is_array()) return unreadable;
    const auto indices = document.find("_indices_data_files");
    if (indices != document.end() && indices->is_array() && !indices->empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          location.root->Describe(path),
          " says that the dataset's rows are chosen by other files (_indices_data_files); cure: "
          "save it again, as dataset.flatten_indices().save_to_disk(...), or name the files with "
          "'files'"));
    }
    for (const nlohmann::json& entry : document["_data_files"]) {
      const bool has_name =
          entry.is_object() && entry.contains("filename") && entry["filename"].is_string();
      std::string name = has_name ? entry["filename"].get<std::string>() : "";
      const bool is_plain =
          !name.empty() && name.find_first_of("/*?[{\\") == std::string::npos && name[0] != '.';
      if (!is_plain) {
        return absl::InvalidArgumentError(
            absl::StrCat(location.root->Describe(path), " names a file '", Printable(name),
                         "', which is not in its folder; cure: name the files with 'files'"));
      }
      files.push_back(std::move(name));
    }
    if (files.empty()) return unreadable;
    return files;
  }

  ColumnarRequest Request() const {
    ColumnarRequest request;
    request.is_parquet = is_parquet_;
    request.wants_all = requests().list.empty();
    std::set<std::string> names;
    for (const FieldRequest& field : requests().list) {
      names.insert(field.from);
      for (const absl::string_view part : absl::StrSplit(field.from, ';', absl::SkipEmpty()))
        names.emplace(absl::StripAsciiWhitespace(part));
    }
    request.wanted.assign(names.begin(), names.end());
    return request;
  }

  // Unpacks a file, unless it is there already.
  absl::StatusOr<FoundFile> Stage(const DatasetLocation& location, const FoundFile& file,
                                  const ColumnarProgram& program, ColumnarRequest request,
                                  IndexBuilder* builder, Found* found) const {
    const std::string what = location.root->Describe(file.path);
    const std::string form = Key("columnar rows")
                                 .Add("version", 2)
                                 .Add("format", name())
                                 .Add("all", request.wants_all)
                                 .Add("columns", request.wanted)
                                 .text();
    const auto write = [&](int fd, const StagedFolder::Append& append) -> absl::Status {
      request.file_bytes = static_cast<uint64_t>(file.bytes);
      const int64_t memory = ColumnarMemory(file.bytes);
      request.memory_bytes = static_cast<uint64_t>(memory);
      if (memory > found->program_bytes) {
        FW_RETURN_IF_ERROR(builder->Take(memory - found->program_bytes));
        found->program_bytes = memory;
      }
      return program.Unpack(request, fd, what, append, [&] { return builder->Progress(0, 0); });
    };
    FW_ASSIGN_OR_RETURN(StagedFolder::File staged,
                        builder->Stage(file.RootIn(location), file.path_to_read(), form,
                                       "holds columns, not records, and is unpacked to be read",
                                       "write its rows as tfrecord, mds, lmdb or jsonl", write));
    return file.Unpacked(std::move(staged), *builder->staged());
  }

  // Finds the columns and the rows of an unpacked file.
  static absl::Status Scan(const DatasetLocation& location, const FoundFile& file,
                           IndexBuilder* builder, Found* found) {
    FW_ASSIGN_OR_RETURN(FileWindow window, FileWindow::Open(location, file));
    const auto bytes = static_cast<uint64_t>(window.bytes());
    const auto damaged = [&](uint64_t at) {
      return absl::DataLossError(absl::StrCat(
          "what was unpacked of ", location.root->Describe(file.path), " is damaged at byte ", at,
          "; cure: remove the daemon's state_dir/staged, and it is unpacked again"));
    };
    const auto number = [&](uint64_t at, uint32_t* value) -> absl::Status {
      if (at > bytes || bytes - at < kHead) return damaged(at);
      return window.Read(static_cast<int64_t>(at), kHead, reinterpret_cast<char*>(value));
    };
    uint32_t mark = 0, header = 0;
    FW_RETURN_IF_ERROR(number(0, &mark));
    FW_RETURN_IF_ERROR(number(kHead, &header));
    if (mark != kHeaderMark || header > kMaxHeaderBytes || header > bytes - 2 * kHead)
      return damaged(0);
    std::string text;
    FW_RETURN_IF_ERROR(builder->Take(3 * int64_t{header}));
    FW_RETURN_IF_ERROR(window.Read(2 * kHead, header, &text));
    std::vector<ColumnarColumn> columns;
    if (!DecodeColumns(text, &columns)) return damaged(0);
    FW_RETURN_IF_ERROR(CompareColumns(location, file, std::move(columns), found));
    for (uint64_t at = 2 * kHead + header; at < bytes;) {
      uint32_t length = 0;
      FW_RETURN_IF_ERROR(number(at, &length));
      if (length > bytes - at - kHead) return damaged(at);
      FW_RETURN_IF_ERROR(builder->Take(3 * sizeof(uint64_t)));
      found->begins.push_back(at);
      FW_RETURN_IF_ERROR(builder->Progress(static_cast<int64_t>(found->begins.size()), 0));
      at += kHead + length;
    }
    return absl::OkStatus();
  }

  static absl::Status CompareColumns(const DatasetLocation& location, const FoundFile& file,
                                     std::vector<ColumnarColumn> columns, Found* found) {
    if (found->columns_of.empty()) {
      found->columns = std::move(columns);
      found->columns_of = location.root->Describe(file.path);
      return absl::OkStatus();
    }
    const std::vector<ColumnarColumn>& first = found->columns;
    const auto refuse = [&](absl::string_view why) {
      return absl::InvalidArgumentError(absl::StrCat(
          location.root->Describe(file.path), " ", why, " ", found->columns_of,
          "; cure: name files of one kind with 'files', or write them again with one schema"));
    };
    for (size_t i = 0; i < std::min(first.size(), columns.size()); ++i) {
      if (first[i].spec == columns[i].spec && first[i].trouble == columns[i].trouble &&
          UnitsOf(first[i].type) == UnitsOf(columns[i].type)) {
        continue;
      }
      return refuse(absl::StrCat(
          "has a column '", Printable(columns[i].spec.name), "' (", Printable(columns[i].type),
          ") where '", Printable(first[i].spec.name), "' (", Printable(first[i].type), ") is in"));
    }
    if (first.size() != columns.size()) {
      return refuse(absl::StrCat("has ", columns.size(), " columns, and ", first.size(), " has"));
    }
    return absl::OkStatus();
  }

  absl::Status AddColumns(const DatasetLocation& location, const FoundFile& file,
                          const Found& found, IndexBuilder* builder,
                          std::vector<ColumnSpec>* columns) const {
    const std::vector<std::string> asked = Request().wanted;
    int64_t left_out = 0;
    for (const ColumnarColumn& column : found.columns) {
      if (column.trouble.empty()) {
        columns->push_back(column.spec);
        columns->back().doc = absl::StrCat("Column '", Printable(column.spec.name), "', ",
                                           Printable(column.type), ".");
        continue;
      }
      const bool is_asked_for = requests().list.empty() ||
                                std::binary_search(asked.begin(), asked.end(), column.spec.name);
      if (is_asked_for) {
        return absl::InvalidArgumentError(absl::StrCat(
            "column '", Printable(column.spec.name), "' of ", location.root->Describe(file.path),
            " (", Printable(column.type), ") ", Printable(column.trouble),
            "; or name the columns that you need in 'fields'"));
      }
      if (++left_out > kMostNamed) continue;
      absl::StrAppend(&builder->notes, builder->notes.empty() ? "" : ", ", "column '",
                      Printable(column.spec.name.substr(0, kMostNameBytes)), "' (",
                      Printable(column.type), ") is not read");
    }
    if (left_out > kMostNamed)
      absl::StrAppend(&builder->notes, ", and ", FormatCount(left_out - kMostNamed, "more column"),
                      left_out - kMostNamed == 1 ? " is" : " are", " not read");
    return absl::OkStatus();
  }

  const bool is_parquet_;
  const ColumnarParams params_;
};

class Parquet final : public Columnar {
 public:
  explicit Parquet(ColumnarParams params) : Columnar(true, std::move(params)) {}
};

class Arrow final : public Columnar {
 public:
  explicit Arrow(ColumnarParams params) : Columnar(false, std::move(params)) {}
};

constexpr const char* kRules =
    "Columns inside structs are named by dotted path (image.bytes). Numbers, text, bytes and lists "
    "of numbers are read; timestamps and dates are integers as stored, of one unit in all "
    "files, dictionaries what they stand for. Lists of lists, maps and decimals are refused. A "
    "null makes the record bad, unless the "
    "field is optional. Each file is unpacked once, below state_dir, the columns that `fields` "
    "names alone. Needs the program feedwater-columnar, which is built with pyarrow: "
    "`scripts/setup "
    "--parquet`.";

FormatSchema<ColumnarParams> SchemaOf(std::string files) {
  return FormatSchema<ColumnarParams>()
      .Files("files", &ColumnarParams::files, std::move(files))
      .Fields(&ColumnarParams::fields);
}

const Registrar kParquet(
    "parquet",
    DeclareFormat<Parquet>(
        absl::StrCat("Rows of Parquet files, of any of its compressions. ", kRules),
        "dataset: {format: parquet, root: data, path: web, fields: {data: image.bytes, label: "
        "label}}",
        SchemaOf("Files below `path`: names, globs (*.parquet) and ranges "
                 "(train-{00000..00015}-of-00016.parquet). Left out: every *.parquet, *.parq and "
                 "*.pq of the folder; of files that are numbered (train-00000-of-00016.parquet) "
                 "one whole set.")));

const Registrar kArrow(
    "arrow",
    DeclareFormat<Arrow>(
        absl::StrCat("Rows of Arrow IPC files (Feather 2) and streams, such as a Hugging Face "
                     "dataset that was saved with save_to_disk. ",
                     kRules),
        "dataset: {format: arrow, root: data, path: saved/train, fields: {data: image.bytes, "
        "label: label}}",
        SchemaOf("Files below `path`: names, globs (*.arrow) and ranges. Left out: those that "
                 "state.json of a saved Hugging Face dataset names; without one every *.arrow, "
                 "*.arrows, *.ipc and *.feather of the folder, of files that are numbered one "
                 "whole set.")));

}  // namespace
}  // namespace feedwater::server
