#include "server/source/column_format.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "absl/container/inlined_vector.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/base/fd.h"
#include "server/base/units.h"
#include "server/storage/fault.h"

namespace feedwater::server {
namespace {

constexpr IndexTag kColumns = MakeIndexTag("COLS");  // name, kind, dtype, shape, doc of each
constexpr size_t kColumnTexts = 5;
constexpr IndexTag kFilePaths = MakeIndexTag("FIPA");  // below the root, record by record
// A file's bytes and one more; 0: there was none.
constexpr IndexTag kFileSizes = MakeIndexTag("FISI");
constexpr IndexTag kFieldClasses = MakeIndexTag("FICL");  // names of all class fields in turn
constexpr IndexTag kFieldClassStarts = MakeIndexTag("FICS");

constexpr int64_t kMaxRecordBytes = 256 << 20;  // as the pipeline's reader
constexpr size_t kMaxColumns = 10'000;
constexpr size_t kMaxFields = 256, kMaxAxes = 8;  // what a decoder process takes
// A class's name while an index is made: in a set, a list, a column and the dataset's classes.
constexpr int64_t kBytesPerName = 160, kNameCopies = 4;

std::string ShapeText(const Shape& shape) { return absl::StrJoin(shape, ","); }

void AddColumns(const std::vector<ColumnSpec>& columns, IndexWriter* writer) {
  TextList texts;
  for (const ColumnSpec& column : columns) {
    texts.Add(column.name);
    texts.Add(absl::StrCat(static_cast<int>(column.kind)));
    texts.Add(DTypeName(column.dtype));
    texts.Add(ShapeText(column.shape));
    texts.Add(column.doc);
  }
  writer->Add(kColumns, texts);
}

absl::StatusOr<std::vector<ColumnSpec>> ReadColumns(const Index& index) {
  const absl::Status wrong = absl::DataLossError("an index whose columns are not described");
  FW_ASSIGN_OR_RETURN(const TextColumn texts, index.Texts(kColumns));
  if (texts.size() % kColumnTexts != 0 || texts.size() / kColumnTexts > kMaxColumns) return wrong;
  std::vector<ColumnSpec> columns(texts.size() / kColumnTexts);
  for (size_t i = 0; i < columns.size(); ++i) {
    ColumnSpec& column = columns[i];
    column.name = std::string(texts[i * kColumnTexts]);
    int kind = 0;
    const absl::StatusOr<DType> dtype = DTypeFromName(texts[i * kColumnTexts + 2]);
    if (!absl::SimpleAtoi(texts[i * kColumnTexts + 1], &kind) || kind < 0 ||
        kind > static_cast<int>(ColumnSpec::Kind::kBytes) || !dtype.ok()) {
      return wrong;
    }
    column.kind = static_cast<ColumnSpec::Kind>(kind);
    column.dtype = *dtype;
    for (const absl::string_view axis :
         absl::StrSplit(texts[i * kColumnTexts + 3], ',', absl::SkipEmpty())) {
      int64_t length = 0;
      if (!absl::SimpleAtoi(axis, &length) || length < -1 || column.shape.size() == 16)
        return wrong;
      column.shape.push_back(length);
    }
    if (!column.is_numeric() && (column.dtype != DType::kUInt8 || column.shape != Shape{-1}))
      return wrong;
    column.doc = std::string(texts[i * kColumnTexts + 4]);
  }
  return columns;
}

// Reads records one after the other, with the files of the last one kept open.
class RecordScan {
 public:
  RecordScan(const Root& root, const Root* unpacked, const RecordColumns& records,
             IndexBuilder* builder)
      : root_(root), unpacked_(unpacked), records_(records), builder_(builder) {}

  absl::StatusOr<RecordSpans> Read(int64_t record) {
    extents_.clear();
    records_.AddExtents(record, &extents_);
    bytes_.resize(extents_.size());
    spans_.clear();
    for (size_t i = 0; i < extents_.size(); ++i) {
      const Extent& extent = extents_[i];
      if (extent.length > kMaxRecordBytes)
        return absl::InvalidArgumentError(
            absl::StrCat("record ", record, " has ", extent.length, " bytes"));
      FW_ASSIGN_OR_RETURN(const int fd, FileOf(extent.object, i));
      const auto length = static_cast<size_t>(extent.length);
      if (length > bytes_[i].capacity())
        FW_RETURN_IF_ERROR(builder_->Take(static_cast<int64_t>(length - bytes_[i].capacity())));
      bytes_[i].reserve(length);
      bytes_[i].resize(length);
      size_t done = 0;
      while (done < bytes_[i].size()) {
        const ssize_t got = pread(fd, bytes_[i].data() + done, bytes_[i].size() - done,
                                  static_cast<off_t>(extent.offset) + static_cast<off_t>(done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return StorageError(errno, root_.Describe(records_.ObjectPath(extent.object)));
        if (got == 0) {
          return FileChangedError(absl::StrCat(root_.Describe(records_.ObjectPath(extent.object)),
                                               " became shorter while it was indexed"));
        }
        done += static_cast<size_t>(got);
      }
      spans_.emplace_back(bytes_[i].data(), bytes_[i].size());
    }
    return RecordSpans(spans_);
  }

 private:
  struct Open {
    int64_t object = -1;
    Fd fd;
  };
  absl::StatusOr<int> FileOf(uint32_t object, size_t place) {
    if (open_.size() <= place) open_.resize(place + 1);
    Open& open = open_[place];
    if (open.object != object) {
      const Root& root = records_.IsUnpacked(object) && unpacked_ != nullptr ? *unpacked_ : root_;
      FW_ASSIGN_OR_RETURN(open.fd, root.OpenFile(records_.ObjectPath(object), /*direct_io=*/false));
      open.object = object;
    }
    return open.fd.get();
  }

  const Root& root_;
  const Root* const unpacked_;
  const RecordColumns& records_;
  IndexBuilder* const builder_;
  std::vector<Extent> extents_;
  std::vector<std::vector<std::byte>> bytes_;
  std::vector<absl::Span<const std::byte>> spans_;
  std::vector<Open> open_;
};

// A path that a record names, below the root.
absl::StatusOr<std::string> PathOfText(const DatasetLocation& location, absl::string_view text) {
  if (absl::StartsWith(text, "/") || text.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("names '", Printable(text),
                                                   "': a path is relative to the dataset's path, ",
                                                   location.Describe()));
  }
  std::string normal;
  for (const absl::string_view part : absl::StrSplit(text, '/', absl::SkipEmpty())) {
    if (part == ".") continue;
    if (part == "..")
      return absl::InvalidArgumentError(
          absl::StrCat("names '", Printable(text), "', which leads out of the dataset"));
    normal = DatasetLocation::JoinPath(normal, part);
  }
  if (normal.empty()) return absl::InvalidArgumentError("names no file");
  // A dataset that is one file names others beside it.
  return normal;
}

// A dataset's records with the fields that were asked for.
class ColumnDataset final : public IndexedDataset {
 public:
  static absl::StatusOr<std::shared_ptr<const Dataset>> Open(
      IndexedParts parts, FieldReader reader, std::unique_ptr<const RecordColumns> records) {
    const Index& index = *parts.index;
    const auto size = static_cast<uint64_t>(parts.records);
    const size_t file_fields = reader.file_fields().size();
    std::shared_ptr<ColumnDataset> dataset(
        new ColumnDataset(std::move(parts), std::move(reader), std::move(records)));
    dataset->SetShardStarts(dataset->records_->shard_starts());
    if (file_fields == 0) return dataset;
    FW_ASSIGN_OR_RETURN(dataset->paths_, index.Texts(kFilePaths));
    FW_ASSIGN_OR_RETURN(dataset->sizes_, index.Numbers(kFileSizes));
    if (size > UINT32_MAX / file_fields || dataset->paths_.size() != size * file_fields ||
        dataset->sizes_.size() != size * file_fields ||
        static_cast<uint64_t>(dataset->records_->objects()) + size * file_fields > UINT32_MAX) {
      return absl::DataLossError("an index whose files do not fit its records");
    }
    return dataset;
  }

  int64_t objects() const override { return records_->objects() + FileObjects(); }
  const Root& RootOf(uint32_t object) const override {
    const bool is_unpacked = object < records_->objects() && records_->IsUnpacked(object);
    return is_unpacked && parts().staged != nullptr ? *parts().staged->root() : root();
  }
  std::string ObjectPath(uint32_t object) const override {
    const int64_t own = records_->objects();
    return object < own ? records_->ObjectPath(object)
                        : std::string(paths_[static_cast<size_t>(object - own)]);
  }
  int64_t ObjectBytes(uint32_t object) const override {
    const int64_t own = records_->objects();
    return object < own ? records_->ObjectBytes(object)
                        : FileBytes(static_cast<size_t>(object - own));
  }
  void Extents(int64_t record, std::vector<Extent>* extents) const override {
    extents->clear();
    records_->AddExtents(record, extents);
    const size_t files = reader_.file_fields().size();
    for (size_t i = 0; i < files; ++i) {
      const size_t file = static_cast<size_t>(record) * files + i;
      extents->push_back({static_cast<uint32_t>(static_cast<size_t>(records_->objects()) + file), 0,
                          FileBytes(file)});
    }
  }
  // The first of its files that it names: of an optional column it may name none.
  size_t NamingExtent(int64_t record) const override {
    const size_t files = reader_.file_fields().size();
    for (size_t i = 0; i < files; ++i) {
      if (!paths_[static_cast<size_t>(record) * files + i].empty())
        return records_->extents_per_record() + i;
    }
    return 0;
  }
  std::optional<StoredField> StoredAt(size_t field) const override {
    const std::optional<size_t> column = reader_.ColumnAsStored(field);
    return column.has_value() ? records_->StoredAt(*column) : std::nullopt;
  }
  std::vector<std::string> ClassesOf(size_t field) const override {
    return reader_.ClassesOf(field);
  }
  absl::Status Parse(int64_t record, RecordSpans bytes, Record* out) const override {
    const size_t own = records_->extents_per_record(), files = reader_.file_fields().size();
    if (bytes.size() != own + files) {
      return absl::DataLossError(
          absl::StrCat("the record has ", bytes.size(), " parts, not ", own + files));
    }
    ColumnValues values(columns_, &out->scratch);
    FW_RETURN_IF_ERROR(records_->Read(record, bytes.first(own), &values));
    absl::InlinedVector<NamedFile, 4> named(files);
    for (size_t i = 0; i < files; ++i) {
      const size_t file = static_cast<size_t>(record) * files + i;
      named[i] = {bytes[own + i], paths_[file], sizes_[file] > 0};
    }
    return reader_.Read(values, named, out);
  }

 private:
  ColumnDataset(IndexedParts parts, FieldReader reader,
                std::unique_ptr<const RecordColumns> records)
      : IndexedDataset(std::move(parts)),
        reader_(std::move(reader)),
        records_(std::move(records)),
        columns_(reader_.wanted().size()) {}

  int64_t FileObjects() const {
    return size() * static_cast<int64_t>(reader_.file_fields().size());
  }
  int64_t FileBytes(size_t file) const {
    const uint64_t size = sizes_[file];
    return size == 0 ? 0 : static_cast<int64_t>(std::min<uint64_t>(size - 1, uint64_t{1} << 61));
  }

  const FieldReader reader_;
  const std::unique_ptr<const RecordColumns> records_;
  const size_t columns_;
  TextColumn paths_;
  NumberColumn sizes_;
};

}  // namespace

std::vector<FieldRequest> ColumnFormat::DefaultFields(
    const std::vector<ColumnSpec>& columns) const {
  std::vector<FieldRequest> all;
  for (const ColumnSpec& column : columns) {
    FieldRequest request;
    request.name = request.from = column.name;
    all.push_back(std::move(request));
  }
  return all;
}

absl::StatusOr<FieldReader> ColumnFormat::MakeReader(const DatasetLocation& location,
                                                     const std::vector<ColumnSpec>& columns) const {
  for (const FieldRequest& request : requests_.list) {
    if (request.offset && !takes_offsets()) {
      return absl::InvalidArgumentError(
          absl::StrCat(request.where, ": field '", Printable(request.name),
                       "': 'offset' is for the format raw; here 'from' names a column"));
    }
  }
  std::set<absl::string_view> names;
  for (const ColumnSpec& column : columns) {
    if (!names.insert(column.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(location.Describe(), " has two columns '", Printable(column.name), "'"));
    }
  }
  FW_ASSIGN_OR_RETURN(
      FieldReader reader,
      FieldReader::Create(requests_.list.empty() ? DefaultFields(columns) : requests_.list, columns,
                          location.Describe()));
  if (reader.fields().size() > kMaxFields) {
    return absl::InvalidArgumentError(absl::StrCat(
        location.Describe(), " has ", reader.fields().size(), " fields, more than the ", kMaxFields,
        " of a record; cure: name those that are needed with 'fields'"));
  }
  for (const FieldSpec& field : reader.fields()) {
    if (field.spec.shape.size() > kMaxAxes) {
      return absl::InvalidArgumentError(absl::StrCat("field '", Printable(field.name), "' has ",
                                                     field.spec.shape.size(), " axes, not ",
                                                     kMaxAxes, " at most"));
    }
  }
  return reader;
}

absl::Status ColumnFormat::BuildIndex(const DatasetLocation& location,
                                      IndexBuilder* builder) const {
  std::vector<ColumnSpec> columns;
  builder->classes = ClassNames();
  FW_RETURN_IF_ERROR(FindRecords(location, builder, &columns));
  if (builder->records <= 0) return absl::OkStatus();  // told by the caller; no columns are known
  if (columns.size() > kMaxColumns) {
    return absl::InvalidArgumentError(
        absl::StrCat(location.Describe(), " has more than ", kMaxColumns, " columns"));
  }
  FW_ASSIGN_OR_RETURN(const FieldReader reader, MakeReader(location, columns));
  AddColumns(columns, &builder->columns);
  if (reader.file_fields().empty() && reader.class_fields().empty()) return absl::OkStatus();
  return Survey(location, columns, reader, builder);
}

absl::Status ColumnFormat::Survey(const DatasetLocation& location,
                                  const std::vector<ColumnSpec>& columns, const FieldReader& reader,
                                  IndexBuilder* builder) const {
  IndexedParts parts;
  parts.location = location;
  parts.records = builder->records;
  parts.staged = builder->staged();
  FW_ASSIGN_OR_RETURN(parts.index, builder->columns.Finish(nullptr));
  FW_RETURN_IF_ERROR(builder->Take(parts.index->bytes()));
  std::vector<bool> wanted = reader.wanted();
  for (size_t i = 0; i < columns.size(); ++i) wanted[i] = wanted[i] && IsSurveyed(columns[i]);
  FW_ASSIGN_OR_RETURN(const std::unique_ptr<const RecordColumns> records,
                      OpenRecords(parts, columns, wanted));
  const StagedFolder* staged = builder->staged().get();
  RecordScan scan(*location.root, staged != nullptr ? staged->root().get() : nullptr, *records,
                  builder);
  std::vector<std::byte> scratch;
  std::vector<std::set<std::string>> classes(reader.class_fields().size());
  TextList paths;
  std::vector<uint64_t> sizes;
  int64_t missing = 0;
  std::string first_missing;
  Digest digest;
  digest.Add(builder->digest);
  DatasetLocation files = location;
  FW_ASSIGN_OR_RETURN(const struct stat info, location.root->Stat(location.path));
  if (!S_ISDIR(info.st_mode)) {  // its files lie beside it
    const size_t slash = files.path.rfind('/');
    files.path = slash == std::string::npos ? "" : files.path.substr(0, slash);
  }
  for (int64_t record = 0; record < builder->records; ++record) {
    FW_RETURN_IF_ERROR(builder->Progress(record, builder->records));
    FW_ASSIGN_OR_RETURN(const RecordSpans bytes, scan.Read(record));
    ColumnValues values(columns.size(), &scratch);
    const auto name_record = [&](const absl::Status& status) {
      std::vector<Extent> extents;
      records->AddExtents(record, &extents);
      return absl::Status(
          status.code(),
          absl::StrCat("record ", record, " of ", location.Describe(),
                       extents.empty() ? ""
                                       : absl::StrCat(" (byte ", extents[0].offset, " of ",
                                                      location.root->Describe(
                                                          records->ObjectPath(extents[0].object)),
                                                      ")"),
                       ": ", status.message()));
    };
    if (const absl::Status read = records->Read(record, bytes, &values); !read.ok())
      return name_record(read);
    for (size_t i = 0; i < classes.size(); ++i) {
      const auto text = reader.TextOf(reader.class_fields()[i], values);
      if (!text.ok()) return name_record(text.status());
      if (!text->has_value()) continue;  // an optional one
      if (classes[i].insert(std::string(**text)).second) {
        FW_RETURN_IF_ERROR(
            builder->Take(kBytesPerName + kNameCopies * static_cast<int64_t>((*text)->size())));
        if (classes[i].size() > kMaxClasses) {
          return absl::InvalidArgumentError(absl::StrCat(
              "field '", reader.fields()[reader.class_fields()[i]].name, "' has more than ",
              kMaxClasses, " different texts: 'classes: auto' is not for it"));
        }
      }
    }
    for (const size_t field : reader.file_fields()) {
      const auto text = reader.TextOf(field, values);
      if (!text.ok()) return name_record(text.status());
      if (!text->has_value()) {  // an optional one: no file
        FW_RETURN_IF_ERROR(builder->Take(2 * sizeof(uint64_t)));
        sizes.push_back(0);
        paths.Add("");
        continue;
      }
      const absl::StatusOr<std::string> relative = PathOfText(files, **text);
      if (!relative.ok()) {
        return name_record(absl::InvalidArgumentError(absl::StrCat(
            "field '", reader.fields()[field].name, "' ", relative.status().message())));
      }
      std::string path = files.Below(*relative);
      const absl::StatusOr<struct stat> file = location.root->Stat(path);
      if (!file.ok() && !absl::IsNotFound(file.status())) return name_record(file.status());
      const bool is_there = file.ok() && S_ISREG(file->st_mode);
      if (!is_there && ++missing == 1) first_missing = path;
      if (absl::IsNotFound(file.status()) && missing <= kMostAbsent) {
        FW_RETURN_IF_ERROR(builder->Take(static_cast<int64_t>(3 * (sizeof(Stamp) + path.size()))));
        builder->empty_folders.push_back(Stamp{path});  // shows when it comes
      }
      const uint64_t bytes_of_it = is_there ? static_cast<uint64_t>(file->st_size) : 0;
      sizes.push_back(is_there ? bytes_of_it + 1 : 0);
      digest.Add(*relative);
      digest.Add(bytes_of_it);
      FW_RETURN_IF_ERROR(builder->Take(static_cast<int64_t>(path.size() + 2 * sizeof(uint64_t))));
      paths.Add(path);
    }
  }
  if (missing > 0) {
    absl::StrAppend(&builder->notes, builder->notes.empty() ? "" : ", ",
                    FormatCount(missing, "file"),
                    missing > 1 ? " that records name and that are not there: "
                                : " that records name and that is not there: ",
                    Printable(first_missing), missing > 1 ? ", ..." : "");
  }
  if (!reader.file_fields().empty()) {
    builder->columns.Add(kFilePaths, paths);
    builder->columns.Add(kFileSizes, sizes);
  }
  if (!classes.empty()) {
    TextList names;
    std::vector<uint64_t> starts = {0};
    for (size_t i = 0; i < classes.size(); ++i) {
      // A record's number follows from them, so they are part of what the dataset is.
      digest.Add(static_cast<uint64_t>(classes[i].size()));
      for (const std::string& name : classes[i]) {
        names.Add(name);
        digest.Add(name);
      }
      starts.push_back(names.size());
      const bool is_label = reader.fields()[reader.class_fields()[i]].name == "label";
      if (i == 0 || is_label) builder->classes.assign(classes[i].begin(), classes[i].end());
    }
    builder->columns.Add(kFieldClasses, names);
    builder->columns.Add(kFieldClassStarts, starts);
  }
  builder->digest = digest.Hex();
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Dataset>> ColumnFormat::Open(IndexedParts parts) const {
  FW_ASSIGN_OR_RETURN(const std::vector<ColumnSpec> columns, ReadColumns(*parts.index));
  absl::StatusOr<FieldReader> made = MakeReader(parts.location, columns);
  if (!made.ok()) return absl::DataLossError(made.status().message());
  FieldReader reader = *std::move(made);
  const size_t class_fields = reader.class_fields().size();
  if (class_fields > 0) {
    FW_ASSIGN_OR_RETURN(const TextColumn names, parts.index->Texts(kFieldClasses));
    FW_ASSIGN_OR_RETURN(const NumberColumn starts, parts.index->Numbers(kFieldClassStarts));
    if (starts.size() != class_fields + 1 || !starts.Divides(names.size()) ||
        names.size() > class_fields * kMaxClasses) {
      return absl::DataLossError("an index whose classes do not fit together");
    }
    for (size_t i = 0; i < class_fields; ++i)
      FW_RETURN_IF_ERROR(reader.SetClasses(i, names, starts[i], starts[i + 1]));
  }
  FW_ASSIGN_OR_RETURN(std::unique_ptr<const RecordColumns> records,
                      OpenRecords(parts, columns, reader.wanted()));
  parts.fields = reader.fields();
  return ColumnDataset::Open(std::move(parts), std::move(reader), std::move(records));
}

}  // namespace feedwater::server
