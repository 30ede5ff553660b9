// Format `mds`: MosaicML Streaming's shards. `index.json` names the shards and their columns; a
// shard holds its number of samples, where each begins (4 bytes each), and the samples: the sizes
// of those columns that differ in size, then all values. A sample is one read.
//
// What index.json says is compared with the files and with what each shard says of itself. What it
// does not say - type and axes of arrays that carry them - the first of each column's values tell,
// from samples all over the dataset.
//
// The index keeps 4 bytes a sample: where it begins in its shard.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/base/units.h"
#include "server/base/yaml.h"
#include "server/source/column_format.h"
#include "server/source/file_window.h"
#include "server/source/json_document.h"
#include "server/source/mds_encoding.h"
#include "server/source/mds_samples.h"
#include "server/source/unpacking.h"

namespace feedwater::server {
namespace {

using nlohmann::json;

constexpr const char* kIndexFile = "index.json";
constexpr int64_t kMaxIndexFile = 256 << 20;
constexpr size_t kMaxShards = 1'000'000;
constexpr size_t kMaxShardHead = 1 << 20;  // of the columns that a shard repeats
constexpr int64_t kProbes = 100;
constexpr int64_t kMaxProbeBytes = 64 << 20;
constexpr size_t kOffsetsAtOnce = 16 << 10;

struct MdsParams {
  FieldRequests fields;
};

// What the values of one array column have in common.
struct ProbedArray {
  const MdsNumber* number = nullptr;
  Shape shape;
  bool is_known = false;
  std::string conflict;  // "" while they have one type and as many axes

  void Add(const MdsArray& array) {
    if (!is_known) {
      number = array.number;
      shape = array.shape;
      is_known = true;
    } else if (number != array.number) {
      conflict = absl::StrCat("holds arrays of ", number->name, " and of ", array.number->name);
    } else if (shape.size() != array.shape.size()) {
      conflict =
          absl::StrCat("holds arrays of ", shape.size(), " and of ", array.shape.size(), " axes");
    } else {
      for (size_t axis = 0; axis < shape.size(); ++axis)
        if (shape[axis] != array.shape[axis]) shape[axis] = -1;
    }
  }
};

class Mds final : public ColumnFormat {
 public:
  explicit Mds(MdsParams params) : ColumnFormat(std::move(params.fields)) {}
  int64_t sections_version() const override { return 2; }

 protected:
  absl::Status FindRecords(const DatasetLocation& location, IndexBuilder* builder,
                           std::vector<ColumnSpec>* columns) const override {
    Found found;
    found.what = location.root->Describe(location.Below(kIndexFile));
    json index;
    FW_RETURN_IF_ERROR(ReadIndexFile(location, builder, found.what, &index));
    const auto shards = index.find("shards");
    if (shards->size() > kMaxShards)
      return Wrong(found, absl::StrCat("names more than ", kMaxShards, " shards"));
    std::set<std::string> names;
    for (size_t i = 0; i < shards->size(); ++i) {
      FW_RETURN_IF_ERROR(FindShard(location, i, (*shards)[i], builder, &found));
      if (!names.insert(found.files.back().path).second)
        return Wrong(found, absl::StrCat("names ", Printable(found.files.back().path), " twice"));
    }
    ShardList list;
    for (size_t i = 0; i < found.files.size(); ++i) list.Add(found.files[i], found.samples[i]);
    Digest digest;
    digest.Add("mds");
    TextList stored;
    for (const MdsColumn& column : found.columns) {
      for (const std::string& text : {column.name, column.encoding_name}) {
        stored.Add(text);
        digest.Add(text);
      }
      // What is not known is passed over, and only index.json says how long it is.
      stored.Add(absl::StrCat(column.encoding.bytes));
    }
    list.AddTo(location, builder, &digest);
    builder->digest = digest.Hex();
    builder->columns.Add(kMdsBegins, found.begins);
    builder->columns.Add(kMdsEnds, found.ends);
    builder->columns.Add(kMdsStored, stored);
    return AddColumns(location, found, builder, columns);
  }

  absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenRecords(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) const override {
    return OpenMdsSamples(parts, columns, wanted);
  }

 private:
  struct Found {
    std::string what;  // index.json, for messages
    std::vector<FoundFile> files;
    std::vector<int64_t> samples;  // by file
    std::vector<uint64_t> begins, ends;
    std::vector<MdsColumn> columns;
  };

  static absl::Status Wrong(const Found& found, absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(found.what, " ", why,
                     "; cure: copy the dataset again, or write it again "
                     "with streaming.MDSWriter"));
  }

  // An object with an array `shards`.
  static absl::Status ReadIndexFile(const DatasetLocation& location, IndexBuilder* builder,
                                    const std::string& what, json* index) {
    const std::string path = location.Below(kIndexFile);
    const absl::StatusOr<struct stat> info = builder->DependOn(*location.root, path);
    if (absl::IsNotFound(info.status())) {
      return absl::NotFoundError(
          absl::StrCat(location.Describe(), " has no ", kIndexFile,
                       "; cure: 'path' is the folder (of one split) into which MDSWriter wrote"));
    }
    if (!info.ok()) return info.status();
    if (!S_ISREG(info->st_mode) || info->st_size > kMaxIndexFile) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " is no regular file of at most ", FormatBytes(kMaxIndexFile)));
    }
    FW_RETURN_IF_ERROR(builder->Take(info->st_size));
    FW_ASSIGN_OR_RETURN(const std::string text,
                        ReadHead(*location.root, path, static_cast<size_t>(info->st_size)));
    FW_RETURN_IF_ERROR(builder->Take(ShapeOfJson(text).memory_bytes(text)));
    *index = ParseJsonDocument(text);
    if (!index->is_object() || !index->contains("shards") || !(*index)["shards"].is_array()) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " is no index of MosaicML Streaming: ",
                       index->is_discarded() ? "it is no JSON" : "it has no list 'shards'",
                       "; cure: copy it again, or write the dataset again"));
    }
    return absl::OkStatus();
  }

  static std::string TextOf(const json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
  }
  static std::optional<uint64_t> NumberOf(const json& object, const char* key) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
    return found->get<uint64_t>();
  }

  // The columns of a shard's description, "" where it has none.
  static absl::StatusOr<std::vector<MdsColumn>> ReadColumns(const json& shard) {
    const absl::Status wrong = absl::InvalidArgumentError(
        "column_names, column_encodings and column_sizes are no lists of one length");
    std::vector<MdsColumn> columns;
    for (const char* key : {"column_names", "column_encodings", "column_sizes"}) {
      const auto list = shard.find(key);
      if (list == shard.end() || !list->is_array() || list->size() > kMaxMdsColumns ||
          list->size() != shard["column_names"].size()) {
        return wrong;
      }
    }
    const json &names = shard["column_names"], &encodings = shard["column_encodings"],
               &sizes = shard["column_sizes"];
    for (size_t i = 0; i < names.size(); ++i) {
      if (!names[i].is_string() || !encodings[i].is_string()) return wrong;
      MdsColumn column{names[i].get<std::string>(), encodings[i].get<std::string>(), {}};
      column.encoding = ParseMdsEncoding(column.encoding_name);
      const uint64_t bytes = sizes[i].is_number_unsigned() ? sizes[i].get<uint64_t>() : 0;
      if (column.encoding.kind == MdsEncoding::Kind::kRefused) {
        column.encoding.bytes = bytes;  // to be passed over
      } else if (bytes != column.encoding.bytes) {
        return absl::InvalidArgumentError(
            absl::StrCat("column '", Printable(column.name), "' (", Printable(column.encoding_name),
                         ") has the size ", sizes[i].dump().substr(0, 20), " in column_sizes"));
      }
      columns.push_back(std::move(column));
    }
    return columns;
  }

  static absl::Status Compare(const std::vector<MdsColumn>& columns,
                              const std::vector<MdsColumn>& others) {
    const bool same = std::equal(columns.begin(), columns.end(), others.begin(), others.end(),
                                 [](const MdsColumn& a, const MdsColumn& b) {
                                   return a.name == b.name && a.encoding_name == b.encoding_name &&
                                          a.encoding.bytes == b.encoding.bytes;
                                 });
    if (same) return absl::OkStatus();
    return absl::InvalidArgumentError("has other columns than the first shard in index.json");
  }

  static absl::Status FindShard(const DatasetLocation& location, size_t number, const json& shard,
                                IndexBuilder* builder, Found* found) {
    const std::string which = absl::StrCat("shard ", number, " ");
    const auto wrong = [&](absl::string_view why) {
      return Wrong(*found, absl::StrCat(which, why));
    };
    if (!shard.is_object()) return wrong("is no object");
    if (TextOf(shard, "format") != "mds") {
      return absl::InvalidArgumentError(absl::StrCat(
          found->what, " ", which, "has the format '", Printable(TextOf(shard, "format")),
          "'; cure: formats csv and jsonl read text files, and MDSWriter writes mds"));
    }
    if (NumberOf(shard, "version") != uint64_t{2}) return wrong("is not of version 2");
    const std::optional<uint64_t> samples = NumberOf(shard, "samples");
    if (!samples || *samples > UINT32_MAX) return wrong("has no number of samples");
    const absl::StatusOr<std::vector<MdsColumn>> columns = ReadColumns(shard);
    if (!columns.ok()) return wrong(columns.status().message());
    if (number == 0) {
      found->columns = *columns;
    } else if (const absl::Status same = Compare(found->columns, *columns); !same.ok()) {
      return wrong(same.message());
    }
    const auto raw = shard.find("raw_data");
    if (raw == shard.end() || !raw->is_object()) return wrong("names no file in raw_data");
    const std::string name = TextOf(*raw, "basename");
    const auto zip = shard.find("zip_data");
    const std::string compressed =
        zip != shard.end() && zip->is_object() ? TextOf(*zip, "basename") : "";
    const bool is_named = !LeadsOut(name);
    if (!is_named || (!compressed.empty() && LeadsOut(compressed))) {
      return wrong(absl::StrCat("has the name '", Printable(is_named ? compressed : name),
                                "', which is no file below it"));
    }
    return FindFile(location, location.Below(name), compressed, shard, *raw, *samples, builder,
                    found);
  }

  // Whether a file that a shard names is not below the dataset's path.
  static bool LeadsOut(const std::string& name) {
    const std::vector<absl::string_view> parts = absl::StrSplit(name, '/');
    return name.find('\0') != std::string::npos ||
           std::any_of(parts.begin(), parts.end(),
                       [](absl::string_view part) { return part.empty() || part == ".."; });
  }

  // `compressed`: the name that index.json gives it while it is compressed; may be empty.
  static absl::Status FindFile(const DatasetLocation& location, const std::string& path,
                               const std::string& compressed, const json& shard, const json& raw,
                               uint64_t samples, IndexBuilder* builder, Found* found) {
    const std::string what = location.root->Describe(path);
    const absl::StatusOr<struct stat> info = builder->DependOn(*location.root, path);
    if (absl::IsNotFound(info.status())) {
      if (compressed.empty())
        return absl::NotFoundError(absl::StrCat(what,
                                                ", which index.json names, is not there; "
                                                "cure: copy the dataset again"));
      if (std::string unpacked; IsPackedName(compressed, &unpacked)) {
        const std::string packed = location.Below(compressed);
        FW_ASSIGN_OR_RETURN(StagedFolder::File staged, builder->Unpack(*location.root, packed));
        return AddFile(location,
                       {packed, staged.bytes, builder->staged()->root(), std::move(staged.name)},
                       raw, samples, builder, found);
      }
      return absl::InvalidArgumentError(absl::StrCat(
          what, " is there only as ", Printable(compressed), ", compressed as a whole with ",
          Printable(TextOf(shard, "compression")),
          ", and cannot be read in any order; cure: decompress each shard to the name in "
          "raw_data, or write the dataset without 'compression'"));
    }
    if (!info.ok()) return info.status();
    if (!S_ISREG(info->st_mode))
      return absl::InvalidArgumentError(absl::StrCat(what, " is no regular file"));
    FW_RETURN_IF_ERROR(builder->Take(static_cast<int64_t>(2 * (sizeof(Stamp) + path.size()))));
    return AddFile(location, {path, static_cast<int64_t>(info->st_size), nullptr, ""}, raw, samples,
                   builder, found);
  }

  static absl::Status AddFile(const DatasetLocation& location, const FoundFile& file,
                              const json& raw, uint64_t samples, IndexBuilder* builder,
                              Found* found) {
    const std::string what = location.root->Describe(file.path);
    const std::optional<uint64_t> bytes = NumberOf(raw, "bytes");
    if (!bytes || *bytes != static_cast<uint64_t>(file.bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " has ", file.bytes, " bytes, where index.json says ",
                       bytes ? absl::StrCat(*bytes) : "nothing", "; cure: copy the dataset again"));
    }
    FW_RETURN_IF_ERROR(ReadOffsets(location, file, samples, builder, found));
    found->files.push_back(file);
    found->samples.push_back(static_cast<int64_t>(samples));
    return absl::OkStatus();
  }

  // A shard's own head: uint32 samples, uint32 offsets[samples + 1], its columns as JSON.
  static absl::Status ReadOffsets(const DatasetLocation& location, const FoundFile& file,
                                  uint64_t samples, IndexBuilder* builder, Found* found) {
    FW_ASSIGN_OR_RETURN(FileWindow window, FileWindow::Open(location, file));
    const auto fail = [&](absl::string_view why) {
      return absl::InvalidArgumentError(
          absl::StrCat(window.what(), " ", why, "; cure: copy it again"));
    };
    const uint64_t head = sizeof(uint32_t) * (samples + 2);
    if (!window.Holds(0, static_cast<int64_t>(head)))
      return fail(absl::StrCat("has ", file.bytes, " bytes, too few for the offsets of the ",
                               samples, " samples that index.json says"));
    uint32_t count = 0;
    FW_RETURN_IF_ERROR(window.Read(0, sizeof(count), reinterpret_cast<char*>(&count)));
    if (count != samples)
      return fail(
          absl::StrCat("says that it has ", count, " samples, where index.json says ", samples));
    FW_RETURN_IF_ERROR(builder->Take(static_cast<int64_t>(2 * sizeof(uint64_t) * samples)));
    std::vector<uint32_t> offsets;
    uint64_t first = 0, last = head;
    for (uint64_t at = 0; at <= samples; at += offsets.size()) {
      offsets.resize(static_cast<size_t>(std::min<uint64_t>(kOffsetsAtOnce, samples + 1 - at)));
      FW_RETURN_IF_ERROR(window.Read(static_cast<int64_t>(sizeof(uint32_t) * (at + 1)),
                                     offsets.size() * sizeof(uint32_t),
                                     reinterpret_cast<char*>(offsets.data())));
      for (size_t i = 0; i < offsets.size(); ++i) {
        if (offsets[i] < last || offsets[i] > static_cast<uint64_t>(file.bytes)) {
          return fail(absl::StrCat("has sample ", at + i, " at byte ", offsets[i],
                                   ", before the one in front of it or behind its end"));
        }
        last = offsets[i];
        if (at + i == 0) first = last;
        if (at + i < samples) found->begins.push_back(last);
      }
      FW_RETURN_IF_ERROR(builder->Progress(static_cast<int64_t>(found->begins.size()), 0));
    }
    if (last != static_cast<uint64_t>(file.bytes))
      return fail(absl::StrCat("ends at byte ", file.bytes, ", its last sample at byte ", last));
    found->ends.push_back(last);
    // What the shard says of its columns, where it says something.
    const uint64_t own = first - head;
    if (own == 0 || own > kMaxShardHead) return absl::OkStatus();
    std::string text;
    FW_RETURN_IF_ERROR(window.Read(static_cast<int64_t>(head), static_cast<size_t>(own), &text));
    const json columns = ParseJsonDocument(text);
    if (!columns.is_object()) return absl::OkStatus();
    const absl::StatusOr<std::vector<MdsColumn>> told = ReadColumns(columns);
    if (!told.ok()) return fail(absl::StrCat("says of itself: ", told.status().message()));
    const absl::Status same = Compare(found->columns, *told);
    return same.ok() ? same : fail(same.message());
  }

  // Reads samples all over the dataset for what index.json does not say of arrays and pictures.
  static absl::Status Probe(const DatasetLocation& location, const Found& found,
                            IndexBuilder* builder, std::vector<ProbedArray>* probed) {
    const auto is_open = [](const MdsColumn& column) {
      return (column.encoding.kind == MdsEncoding::Kind::kArray &&
              (column.encoding.number == nullptr || !column.encoding.shape)) ||
             column.encoding.kind == MdsEncoding::Kind::kPicture;
    };
    if (std::none_of(found.columns.begin(), found.columns.end(), is_open)) return absl::OkStatus();
    const auto total = static_cast<int64_t>(found.begins.size());
    const int64_t probes = std::min(kProbes, total);
    size_t shard = 0;
    int64_t first = 0;  // of the shard
    std::optional<FileWindow> window;
    std::string sample;
    for (int64_t probe = 0; probe < probes; ++probe) {
      FW_RETURN_IF_ERROR(builder->Progress(0, 0));
      const int64_t number = probe * total / probes;
      while (number >= first + found.samples[shard]) {
        first += found.samples[shard++];
        window.reset();
      }
      if (!window) {
        FW_ASSIGN_OR_RETURN(window, FileWindow::Open(location, found.files[shard]));
      }
      const bool is_last = number + 1 == first + found.samples[shard];
      const uint64_t begin = found.begins[static_cast<size_t>(number)];
      const uint64_t end =
          is_last ? found.ends[shard] : found.begins[static_cast<size_t>(number) + 1];
      if (static_cast<int64_t>(end - begin) > kMaxProbeBytes) continue;
      FW_RETURN_IF_ERROR(
          window->Read(static_cast<int64_t>(begin), static_cast<size_t>(end - begin), &sample));
      // A damaged sample tells nothing, and is a bad one when it is read.
      (void)ForEachMdsValue(found.columns, sample, [&](size_t i, absl::string_view value) {
        if (!is_open(found.columns[i])) return absl::OkStatus();
        const absl::StatusOr<MdsArray> array = ReadMdsArray(found.columns[i].encoding, value);
        if (array.ok()) (*probed)[i].Add(*array);
        if (absl::IsInvalidArgument(array.status()) && !(*probed)[i].is_known)
          (*probed)[i].conflict = std::string(array.status().message());
        return absl::OkStatus();
      });
    }
    return absl::OkStatus();
  }

  // Why a column cannot be read; "" when it can, and then what it is.
  static std::string Settle(const MdsColumn& stored, const ProbedArray& probed,
                            ColumnSpec* column) {
    using Kind = MdsEncoding::Kind;
    const MdsEncoding& encoding = stored.encoding;
    switch (encoding.kind) {
      case Kind::kBytes:
        *column = ColumnSpec::Bytes(stored.name);
        break;
      case Kind::kText:
        *column = ColumnSpec::Text(stored.name);
        break;
      case Kind::kNumber:
        column->name = stored.name;
        column->kind = ColumnSpec::Kind::kNumbers;
        column->dtype = encoding.number->dtype;
        break;
      case Kind::kArray:
        if (encoding.number != nullptr && encoding.shape) {
          *column = ColumnSpec::Array(stored.name, encoding.number->dtype, *encoding.shape);
          break;
        }
        [[fallthrough]];
      case Kind::kPicture:
        if (!probed.conflict.empty())
          return absl::StrCat(probed.conflict, "; cure: write it as ndarray:TYPE:SHAPE");
        if (!probed.is_known) return "has no sound value by which its type could be known";
        *column = ColumnSpec::Array(stored.name, probed.number->dtype, probed.shape);
        break;
      case Kind::kRefused:
        if (stored.encoding_name == "pkl")
          return "is a pickle, which can run any code and is never read; cure: write it as json, "
                 "ndarray or bytes, or name the columns that you need in 'fields'";
        return absl::StrCat("has the encoding '", Printable(stored.encoding_name),
                            "', which is not known; cure: write it as one of bytes, str, json, "
                            "int, ndarray, jpeg, png, or name the columns that you need in "
                            "'fields'");
    }
    column->doc = absl::StrCat("Column '", Printable(stored.name), "', ",
                               Printable(stored.encoding_name), ".");
    return "";
  }

  absl::Status AddColumns(const DatasetLocation& location, const Found& found,
                          IndexBuilder* builder, std::vector<ColumnSpec>* columns) const {
    std::vector<ProbedArray> probed(found.columns.size());
    FW_RETURN_IF_ERROR(Probe(location, found, builder, &probed));
    for (size_t i = 0; i < found.columns.size(); ++i) {
      const MdsColumn& stored = found.columns[i];
      ColumnSpec column;
      const std::string why = Settle(stored, probed[i], &column);
      const bool is_asked_for =
          requests().list.empty() ||
          std::any_of(requests().list.begin(), requests().list.end(),
                      [&](const FieldRequest& request) { return request.from == stored.name; });
      if (why.empty()) {
        columns->push_back(std::move(column));
      } else if (is_asked_for && builder->records > 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("column '", Printable(stored.name), "' of ", found.what, " ", why));
      } else {
        absl::StrAppend(&builder->notes, builder->notes.empty() ? "" : ", ", "column '",
                        Printable(stored.name), "' (", Printable(stored.encoding_name),
                        ") is not read");
      }
    }
    return absl::OkStatus();
  }
};

const Registrar kRegistrar(
    "mds",
    DeclareFormat<Mds>(
        "Shards of MosaicML Streaming (MDSWriter) with their index.json; its columns are the "
        "columns. bytes, jpeg, png and jpegarray are bytes as they are stored; str, json, "
        "str_int, "
        "str_float and str_decimal are text; numbers are numbers; ndarray, with or without type "
        "and shape, and pil (RGB as [height, width, 3], L as [height, width, 1]) are arrays. "
        "uint32 and uint64 become int64. pkl is refused.",
        "dataset: {format: mds, root: data, path: train, fields: {data: image, label: class}}",
        FormatSchema<MdsParams>().Fields(&MdsParams::fields)));

}  // namespace
}  // namespace feedwater::server
