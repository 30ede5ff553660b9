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
#include "server/source/mindrecord_rows.h"
#include "server/source/msgpack_reader.h"

namespace feedwater::server {
namespace {

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
  int64_t sections_version() const override { return 2; }

 protected:
  absl::Status FindRecords(const DatasetLocation& location, IndexBuilder* builder,
                           std::vector<ColumnSpec>* columns) const override {
    FW_ASSIGN_OR_RETURN(
        const std::vector<FoundFile> files,
        FindFiles(location, params_.files, IsDataFile,
                  "*.mindrecord or *.mindrecord0, nor one with its .db beside it", builder));
    Found found;
    ShardList shards;
    const bool is_whole = params_.files.empty() && files[0].path != location.path;
    for (const FoundFile& file : files) {
      const size_t before = found.rows.size();
      FW_RETURN_IF_ERROR(ReadFile(location, file, is_whole, builder, &found));
      shards.Add(file, static_cast<int64_t>(found.rows.size() - before));
    }
    found.groups.push_back(found.rows.size());
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
    builder->columns.Add(kMindRecordRows, found.rows);
    builder->columns.Add(kMindRecordBlobs, found.blobs);
    builder->columns.Add(kMindRecordGroups, found.groups);
    builder->columns.Add(kMindRecordRowEnds, found.row_ends);
    builder->columns.Add(kMindRecordBlobEnds, found.blob_ends);
    builder->columns.Add(kMindRecordFields, fields);
    builder->columns.Add(kMindRecordLayout, {static_cast<uint64_t>(found.blob)});
    return AddColumns(found, builder, columns);
  }

  absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenRecords(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) const override {
    return OpenMindRecordRows(parts, columns, wanted);
  }

 private:
  // The files that were written together, by folder and names.
  struct Set {
    std::string what, folder;  // the first file of it that was found; its folder
    std::vector<std::string> names;
    // By name, the files that say they are that one, by what they begin with.
    std::vector<std::map<std::string, std::string>> found_as;
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

  // `is_whole`: nobody has named the file.
  static absl::Status ReadFile(const DatasetLocation& location, const FoundFile& file,
                               bool is_whole, IndexBuilder* builder, Found* found) {
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
    FW_ASSIGN_OR_RETURN(const std::string beginning, BeginningOf(text, *header, &window));
    FW_RETURN_IF_ERROR(AddToSet(file, what, beginning, *header, is_whole, builder, found));
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
    (void)ForEachMindRecordEntry(
        row, [&](absl::string_view name, const MsgpackValue& value, MsgpackReader* reader) {
          const auto column = open.find(name);
          if (column == open.end() || value.kind == MsgpackValue::Kind::kNil)
            return reader->Skip(value);
          const bool is_list = found->columns[column->second].type == "array";
          return found->probed[column->second].Add(value, is_list, reader);
        });
    return absl::OkStatus();
  }

  // A digest that a copy has, too: of the header, and of the first rows and blobs.
  static absl::StatusOr<std::string> BeginningOf(const std::string& text,
                                                 const MindRecordHeader& header,
                                                 FileWindow* window) {
    constexpr uint64_t kLookedAt = 64 << 10;
    Digest digest;
    digest.Add(text);
    std::string bytes;
    if (!header.groups.empty()) {
      const MindRecordGroup& first = header.groups[0];
      for (const auto& [begin, end] : {std::pair(first.raw_begin, first.raw_end),
                                       std::pair(first.blob_begin, first.blob_end)}) {
        FW_RETURN_IF_ERROR(window->Read(static_cast<int64_t>(begin),
                                        static_cast<size_t>(std::min(end - begin, kLookedAt)),
                                        &bytes));
        digest.Add(bytes);
      }
    }
    return digest.Hex();
  }

  // A file that stands beside its copy would give each of its records twice. Who names files gets
  // those. A file that is a set by itself may have been renamed.
  static absl::Status AddToSet(const FoundFile& file, const std::string& what,
                               const std::string& beginning, const MindRecordHeader& header,
                               bool is_whole, IndexBuilder* builder, Found* found) {
    const size_t slash = file.path.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : file.path.substr(0, slash);
    const std::string key = absl::StrCat(folder, "\n", absl::StrJoin(header.shard_names, "\n"));
    auto [set, is_new] = found->sets.try_emplace(key);
    if (is_new) {
      FW_RETURN_IF_ERROR(builder->Take(static_cast<int64_t>(
          2 * key.size() + 3 * header.shard_names.size() * sizeof(std::string) + sizeof(Set))));
      set->second = {what, folder, header.shard_names, {}};
      set->second.found_as.resize(header.shard_names.size());
    }
    std::map<std::string, std::string>& found_as = set->second.found_as[header.shard];
    const auto same = found_as.find(beginning);
    const bool may_be_renamed = header.shard_names.size() == 1 && same == found_as.end();
    if (is_whole && !found_as.empty() && !may_be_renamed) {
      const std::string& other = same == found_as.end() ? found_as.begin()->second : same->second;
      return absl::InvalidArgumentError(absl::StrCat(
          other, " and ", what, " both say that they are '",
          Printable(header.shard_names[header.shard]), "', file ", header.shard,
          " of a set: one seems to be a copy of the other; cure: move the copy away, or name the "
          "files that are to be read with 'files'"));
    }
    FW_RETURN_IF_ERROR(builder->Take(static_cast<int64_t>(what.size() + beginning.size())));
    found_as.emplace(beginning, what);
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
        if (!set.found_as[i].empty()) continue;
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
