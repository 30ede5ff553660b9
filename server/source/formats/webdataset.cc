// Format `webdataset`: tar shards in which the files of a record stand one behind the other and
// share a name up to its first dot, as the webdataset library writes and reads them. A record is
// one read, from the header of its first file to the end of its last one; its files are found in
// those bytes.
//
// The index keeps 4 bytes a record: where its first header is, in blocks of 512 bytes.
#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/base/units.h"
#include "server/source/column_format.h"
#include "server/source/file_stream.h"
#include "server/source/file_window.h"
#include "server/source/tar.h"
#include "server/source/tar_index.h"

namespace feedwater::server {
namespace {

constexpr IndexTag kBegins = MakeIndexTag("tbeg");  // block of each record's first header
constexpr IndexTag kEnds = MakeIndexTag("tend");    // block behind the last record of each shard

constexpr absl::string_view kSuffixes[] = {".tar"};
constexpr absl::string_view kImages[] = {"jpg", "jpeg", "png", "webp", "ppm", "fwcs"};
constexpr absl::string_view kTexts[] = {"txt", "text", "transcript", "json", "jsonl", "id"};
constexpr absl::string_view kNumbers[] = {"cls", "cls2", "class", "count", "index", "inx"};
constexpr const char* kKey = "__key__";
constexpr int64_t kTail = 1 << 20;  // of what is behind an archive's end, looked at at a time

template <size_t n>
bool IsOneOf(const absl::string_view (&words)[n], absl::string_view word) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

constexpr size_t kMaxClassFileBytes = 64 << 20;

// By the last part of an extension, as the webdataset library decodes: "seg.txt" is a text.
absl::string_view LastPart(absl::string_view extension) {
  return extension.substr(extension.rfind('.') + 1);  // all of it where there is no dot
}
bool IsNumber(absl::string_view extension) { return IsOneOf(kNumbers, LastPart(extension)); }
bool IsText(absl::string_view extension) {
  return IsOneOf(kTexts, LastPart(extension)) || IsNumber(extension);
}

struct WebdatasetParams {
  std::vector<std::string> files, classes;
  std::string class_file;
  FieldRequests fields;
};

// What is found in the archives.
struct Scan {
  std::vector<uint64_t> begins, ends;
  std::set<std::string> extensions;
  int64_t others = 0;  // members that belong to no record
  std::string first_other;
  int64_t unfit = 0;  // indexes beside shards that do not fit them
  std::string first_unfit;
};

class WebdatasetColumns final : public ShardedColumns {
 public:
  static absl::StatusOr<std::unique_ptr<const RecordColumns>> Open(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) {
    FW_ASSIGN_OR_RETURN(Shards shards, Shards::Open(*parts.index, parts.records));
    std::unique_ptr<WebdatasetColumns> records(new WebdatasetColumns(std::move(shards)));
    FW_ASSIGN_OR_RETURN(records->begins_, parts.index->Numbers(kBegins));
    FW_ASSIGN_OR_RETURN(records->ends_, parts.index->Numbers(kEnds));
    if (records->begins_.size() != static_cast<size_t>(parts.records) ||
        records->ends_.size() != records->shards().size()) {
      return absl::DataLossError("a webdataset index whose columns do not fit together");
    }
    for (size_t i = 0; i < columns.size(); ++i) {
      if (columns[i].is_numeric())
        return absl::DataLossError("a webdataset index whose columns are no files");
      if (columns[i].name == kKey) {
        if (wanted[i]) records->key_column_ = static_cast<int64_t>(i);
      } else if (wanted[i]) {
        records->columns_.emplace(columns[i].name, i);
      }
    }
    return records;
  }

  void AddExtents(int64_t record, std::vector<Extent>* extents) const override {
    const uint32_t shard = shards().Of(record);
    const auto i = static_cast<size_t>(record);
    const bool is_last = record + 1 == shards().first(shard + 1);
    // Numbers of a damaged index may be any.
    const uint64_t most = static_cast<uint64_t>(shards().bytes(shard));
    const uint64_t begin = std::min(begins_[i], most / kTarBlock) * kTarBlock;
    const uint64_t end =
        std::min<uint64_t>(is_last ? ends_[shard] : begins_[i + 1], most / kTarBlock + 1) *
        kTarBlock;
    extents->push_back({shard, static_cast<int64_t>(begin),
                        static_cast<int64_t>(std::min(std::max(begin, end), most) - begin)});
  }

  absl::Status Read(int64_t, RecordSpans bytes, ColumnValues* values) const override {
    const absl::Span<const std::byte> all = bytes[0];
    TarReader reader(
        [&](int64_t offset, char* to, size_t length) {
          std::memcpy(to, all.data() + offset, length);
          return absl::OkStatus();
        },
        static_cast<int64_t>(all.size()));
    bool any = false;
    std::string record_key;
    while (true) {
      FW_ASSIGN_OR_RETURN(const std::optional<TarMember> member, reader.Next());
      if (!member) break;
      absl::string_view key;
      std::string extension;
      if (member->kind != TarMember::Kind::kFile ||
          !SplitMemberName(member->name, &key, &extension)) {
        continue;
      }
      if (!any && key_column_ >= 0) {
        const auto column = static_cast<size_t>(key_column_);
        std::byte* at = values->Make(column, {static_cast<int64_t>(key.size())}, key.size());
        if (at != nullptr) std::memcpy(at, key.data(), key.size());
      }
      if (any && key != record_key) return NotAsIndexed("several records");
      if (!any) record_key = std::string(key);
      any = true;
      const auto column = columns_.find(extension);
      if (column == columns_.end()) continue;
      if (values->has(column->second))
        return absl::InvalidArgumentError(absl::StrCat("two files '", Printable(extension), "'"));
      values->SetBytes(column->second, all.data() + member->data,
                       static_cast<size_t>(member->bytes));
    }
    return any ? absl::OkStatus() : NotAsIndexed("no file");
  }

 private:
  using ShardedColumns::ShardedColumns;
  static absl::Status NotAsIndexed(absl::string_view what) {
    return absl::DataLossError(absl::StrCat(
        what, " where one record was indexed: the shard is damaged, or the ", TarIndex::kSuffix,
        " beside it is of another one; cure: copy the shard again, or `feedwater index --force`"));
  }
  NumberColumn begins_, ends_;
  absl::flat_hash_map<std::string, size_t> columns_;  // by extension
  int64_t key_column_ = -1;
};

class Webdataset final : public ColumnFormat {
 public:
  explicit Webdataset(WebdatasetParams params)
      : ColumnFormat(params.fields), params_(std::move(params)) {}
  // 3: lines of class_file without carriage returns and a byte order mark.
  int64_t sections_version() const override { return params_.class_file.empty() ? 2 : 3; }

 protected:
  absl::Status FindRecords(const DatasetLocation& location, IndexBuilder* builder,
                           std::vector<ColumnSpec>* columns) const override {
    FW_ASSIGN_OR_RETURN(const std::vector<FoundFile> files,
                        FindFiles(location, params_.files, kSuffixes, builder));
    Scan scan;
    ShardList shards;
    for (const FoundFile& file : files) {
      const size_t before = scan.begins.size();
      FW_RETURN_IF_ERROR(ScanShard(location, file, builder, &scan));
      shards.Add(file, static_cast<int64_t>(scan.begins.size() - before));
    }
    Digest digest;
    digest.Add("webdataset");
    shards.AddTo(location, builder, &digest);
    FW_RETURN_IF_ERROR(FindClasses(location, builder));
    for (const std::string& name : builder->classes) digest.Add(name);
    builder->digest = digest.Hex();
    builder->columns.Add(kBegins, scan.begins);
    builder->columns.Add(kEnds, scan.ends);
    std::vector<std::string> notes;
    if (scan.others > 0) {
      notes.push_back(absl::StrCat(FormatCount(scan.others, "member"), " of no record, such as ",
                                   Printable(scan.first_other)));
    }
    if (scan.unfit > 0) {
      notes.push_back(absl::StrCat(scan.unfit, scan.unfit == 1 ? " index" : " indexes",
                                   " beside shards not used, such as ",
                                   Printable(scan.first_unfit)));
    }
    builder->notes = absl::StrJoin(notes, "; ");
    for (const std::string& extension : scan.extensions) {
      columns->push_back(IsText(extension) ? ColumnSpec::Text(extension)
                                           : ColumnSpec::Bytes(extension));
      columns->back().doc = absl::StrCat("File '.", extension, "' of the record.");
    }
    columns->push_back(ColumnSpec::Text(kKey));
    columns->back().doc = "The name that the record's files share.";
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenRecords(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) const override {
    return WebdatasetColumns::Open(parts, columns, wanted);
  }

  // `data` is the image, `label` is cls, and the rest goes by its extension.
  std::vector<FieldRequest> DefaultFields(const std::vector<ColumnSpec>& columns) const override {
    std::vector<FieldRequest> fields;
    std::vector<absl::string_view> images;
    for (const absl::string_view image : kImages) {
      const auto is_it = [&](const ColumnSpec& column) { return column.name == image; };
      if (std::any_of(columns.begin(), columns.end(), is_it)) images.push_back(image);
    }
    if (!images.empty()) {
      FieldRequest data;
      data.name = "data";
      data.from = absl::StrJoin(images, ";");
      fields.push_back(std::move(data));
    }
    for (const ColumnSpec& column : columns) {
      if (column.name == kKey || IsOneOf(kImages, column.name)) continue;
      FieldRequest field;
      field.name = column.name == "cls" ? "label" : column.name;
      field.from = column.name;
      if (IsNumber(column.name)) field.dtype = DType::kInt64;
      fields.push_back(std::move(field));
    }
    return fields;
  }

 private:
  absl::Status FindClasses(const DatasetLocation& location, IndexBuilder* builder) const {
    if (params_.class_file.empty()) {
      builder->classes = params_.classes;
      return absl::OkStatus();
    }
    if (!params_.classes.empty())
      return absl::InvalidArgumentError("'classes' and 'class_file' say the same; give one");
    const std::string path = location.Below(params_.class_file);
    FW_RETURN_IF_ERROR(builder->DependOn(*location.root, path).status());
    FW_ASSIGN_OR_RETURN(const std::string text,
                        ReadHead(*location.root, path, kMaxClassFileBytes + 1));
    const std::string what = location.root->Describe(path);
    if (text.size() > kMaxClassFileBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " has more than ", FormatBytes(kMaxClassFileBytes)));
    }
    FW_RETURN_IF_ERROR(builder->Take(static_cast<int64_t>(text.size())));
    const absl::string_view lines =
        absl::StripSuffix(absl::StripPrefix(text, kByteOrderMark), "\n");
    for (absl::string_view line : absl::StrSplit(lines, '\n')) {
      absl::ConsumeSuffix(&line, "\r");
      if (builder->classes.size() == kMaxClasses) {
        return absl::InvalidArgumentError(
            absl::StrCat(what, " names more than ", kMaxClasses, " classes"));
      }
      FW_RETURN_IF_ERROR(builder->Take(sizeof(std::string)));
      builder->classes.emplace_back(line);
    }
    return absl::OkStatus();
  }

  static absl::Status ScanShard(const DatasetLocation& location, const FoundFile& file,
                                IndexBuilder* builder, Scan* scan) {
    const std::string what = location.root->Describe(file.path);
    FW_ASSIGN_OR_RETURN(FileWindow window, FileWindow::Open(location, file));
    const TarReader::ReadAt read = [&](int64_t offset, char* to, size_t bytes) {
      return window.Read(offset, bytes, to);
    };
    if (UseIndexBeside(location, file, what, read, builder, scan)) return absl::OkStatus();
    TarReader reader(read, file.bytes);
    std::string last_key;
    std::set<std::string> extensions;  // of the record
    bool in_record = false;
    while (true) {
      absl::StatusOr<std::optional<TarMember>> member = reader.Next();
      if (absl::IsDataLoss(member.status())) {
        return absl::InvalidArgumentError(
            absl::StrCat(what, " ", member.status().message(),
                         "; cure: copy it again, or leave it out of 'files'"));
      }
      if (!member.ok()) return member.status();
      if (!*member) break;
      FW_RETURN_IF_ERROR(builder->Progress(static_cast<int64_t>(scan->begins.size()), 0));
      absl::string_view key;
      std::string extension;
      if ((*member)->kind == TarMember::Kind::kFolder) continue;
      if ((*member)->kind == TarMember::Kind::kLink &&
          SplitMemberName((*member)->name, &key, &extension)) {
        return absl::InvalidArgumentError(absl::StrCat(
            what, " has '", Printable((*member)->name), "' at byte ", (*member)->begin,
            " as a link to another member, without bytes of its own; cure: tar --hard-dereference "
            "--dereference"));
      }
      if ((*member)->kind != TarMember::Kind::kFile ||
          !SplitMemberName((*member)->name, &key, &extension)) {
        if (++scan->others == 1) scan->first_other = (*member)->name;
        continue;
      }
      if (!in_record || key != last_key) {
        in_record = true;
        last_key = std::string(key);
        extensions.clear();
        scan->begins.push_back(static_cast<uint64_t>((*member)->begin / kTarBlock));
        FW_RETURN_IF_ERROR(builder->Take(2 * sizeof(uint64_t)));
      }
      if (!extensions.insert(extension).second) {
        return absl::InvalidArgumentError(
            absl::StrCat(what, " has two files '", Printable((*member)->name),
                         "' in one record, the second at byte ", (*member)->begin));
      }
      if (scan->extensions.insert(extension).second) {
        FW_RETURN_IF_ERROR(
            builder->Take(kBytesPerExtension + 4 * static_cast<int64_t>(extension.size())));
        if (scan->extensions.size() > kMaxExtensions) {
          return absl::InvalidArgumentError(
              absl::StrCat(what, " has more than ", kMaxExtensions, " different extensions"));
        }
      }
    }
    scan->ends.push_back(static_cast<uint64_t>((reader.position() + kTarBlock - 1) / kTarBlock));
    return CheckTail(file, reader.position(), what, read, builder);
  }

  // What `feedwater convert` left beside the shard (tar_index.h), where it fits. The index that is
  // made is the same with and without it.
  static bool UseIndexBeside(const DatasetLocation& location, const FoundFile& file,
                             const std::string& what, const TarReader::ReadAt& read,
                             IndexBuilder* builder, Scan* scan) {
    if (file.staged != nullptr || builder->rebuilds()) return false;
    const std::string path = absl::StrCat(file.path, TarIndex::kSuffix);
    const absl::StatusOr<struct stat> info = location.root->Stat(path);
    if (!info.ok() || !S_ISREG(info->st_mode)) return false;  // as a rule there is none
    std::set<std::string> extensions = scan->extensions;
    TarIndex index;
    const absl::Status fits = [&]() -> absl::Status {
      if (info->st_size > TarIndex::MostBytes(file.bytes))
        return absl::DataLossError("it is too large for this shard");
      FW_RETURN_IF_ERROR(builder->Take(TarIndex::ParsedBytes(info->st_size)));
      FW_ASSIGN_OR_RETURN(const std::string text,
                          ReadHead(*location.root, path, static_cast<size_t>(info->st_size)));
      FW_ASSIGN_OR_RETURN(index, TarIndex::Parse(text));
      FW_RETURN_IF_ERROR(index.FitsTar(read, file.bytes));
      FW_RETURN_IF_ERROR(
          CheckTail(file, static_cast<int64_t>(index.end) * kTarBlock, what, read, builder));
      extensions.insert(index.extensions.begin(), index.extensions.end());
      if (extensions.size() > kMaxExtensions) return absl::DataLossError("too many extensions");
      return builder->Take(static_cast<int64_t>(2 * sizeof(uint64_t) * index.begins.size()));
    }();
    if (!fits.ok()) {
      if (++scan->unfit == 1) scan->first_unfit = absl::StrCat(path, " (", fits.message(), ")");
      return false;
    }
    scan->extensions = std::move(extensions);
    scan->begins.insert(scan->begins.end(), index.begins.begin(), index.begins.end());
    scan->ends.push_back(index.end);
    return true;
  }

  // Archives that were put one behind the other would lose all but the first.
  static absl::Status CheckTail(const FoundFile& file, int64_t end, const std::string& what,
                                const TarReader::ReadAt& read, IndexBuilder* builder) {
    std::string tail;
    for (int64_t at = end; at < file.bytes; at += static_cast<int64_t>(tail.size())) {
      tail.resize(static_cast<size_t>(std::min(kTail, file.bytes - at)));
      FW_RETURN_IF_ERROR(read(at, tail.data(), tail.size()));
      const size_t other = tail.find_first_not_of('\0');
      if (other != std::string::npos) {
        return absl::InvalidArgumentError(absl::StrCat(
            what, " goes on behind the end of its archive, at byte ",
            at + static_cast<int64_t>(other),
            ": archives that were joined; cure: tar --concatenate, or keep them apart"));
      }
      FW_RETURN_IF_ERROR(builder->Progress(0, 0));
    }
    return absl::OkStatus();
  }

  static constexpr size_t kMaxExtensions = 1000;
  static constexpr int64_t kBytesPerExtension = 256;  // as a column, beside its names
  const WebdatasetParams params_;
};

const Registrar kRegistrar(
    "webdataset",
    DeclareFormat<Webdataset>(
        "Tar shards as webdataset writes them: the files of a record share their name up to its "
        "first dot, and each extension is a column. Left out, `fields` gives `data`, the first of "
        "jpg, jpeg, png, webp, ppm and fwcs (`feedwater convert --jpeg coefficients`), `label` "
        "from cls as a number, and the rest by extension.",
        "dataset: {format: webdataset, root: data, files: [\"train-{000000..000146}.tar\"], "
        "fields: {data: jpg;png, label: cls}}",
        FormatSchema<WebdatasetParams>()
            .Files("files", &WebdatasetParams::files,
                   "Shards below `path`: names, globs (*.tar) and ranges "
                   "(train-{000000..000146}.tar). Left out: every *.tar of the folder. .tgz, "
                   ".tar.gz and .tar.zst are unpacked once, below state_dir.")
            .Param("classes", &WebdatasetParams::classes,
                   "Names of the classes, in the order of their labels.")
            .File("class_file", &WebdatasetParams::class_file,
                  "The same, one name a line, in a file below `path`: for thousands of classes.")
            .Fields(&WebdatasetParams::fields)));

}  // namespace
}  // namespace feedwater::server
