// Format `npy`: arrays in .npy files, whose first axis are the records. Several arrays of one
// length make the fields of a record, each read from its own file. Arrays in .npz archives that
// numpy.savez wrote, which does not compress, are read where they lie. The index holds nothing for
// a record.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/source/column_format.h"
#include "server/source/npy_header.h"
#include "server/source/zip.h"

namespace feedwater::server {
namespace {

constexpr IndexTag kPaths = MakeIndexTag("npfi");    // of each column's file, below the root
constexpr IndexTag kNumbers = MakeIndexTag("npnu");  // of each column: file bytes, begin, stride
constexpr size_t kNumbersOfColumn = 3;
constexpr uint64_t kMaxBytes = uint64_t{1} << 61;
constexpr int64_t kBytesPerArray = 1024;  // while it is indexed

constexpr absl::string_view kSuffixes[] = {".npy", ".npz"};

struct NpyParams {
  FieldRequests fields;
};

// An array where it lies: elements from `begin`, in a file that has so many bytes, of which those
// before `end` may be the array's.
struct Array {
  std::string column, path;
  int64_t file_bytes = 0, begin = 0, end = 0;
  NpyHeader header;
};

class NpyColumns final : public RecordColumns {
 public:
  static absl::StatusOr<std::unique_ptr<const RecordColumns>> Open(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) {
    std::unique_ptr<NpyColumns> records(new NpyColumns);
    FW_ASSIGN_OR_RETURN(records->paths_, parts.index->Texts(kPaths));
    FW_ASSIGN_OR_RETURN(records->numbers_, parts.index->Numbers(kNumbers));
    const absl::Status wrong = absl::DataLossError("an npy index that does not fit its columns");
    if (records->paths_.size() != columns.size() ||
        records->numbers_.size() != kNumbersOfColumn * columns.size()) {
      return wrong;
    }
    for (size_t i = 0; i < columns.size(); ++i) {
      if (!columns[i].is_numeric()) return wrong;
      const absl::StatusOr<int64_t> stride =
          TensorSpec{columns[i].dtype, Layout::kPlain, columns[i].shape}.ByteSize();
      int64_t all = 0;
      const uint64_t bytes = records->Number(i, 0), begin = records->Number(i, 1);
      if (!stride.ok() || static_cast<uint64_t>(*stride) != records->Number(i, 2) ||
          bytes > kMaxBytes || begin > bytes ||
          __builtin_mul_overflow(*stride, parts.records, &all) ||
          static_cast<uint64_t>(all) > bytes - begin) {
        return wrong;
      }
      records->shapes_.push_back(columns[i].shape);
      if (wanted[i]) records->wanted_.push_back(i);
    }
    return records;
  }

  int64_t objects() const override { return static_cast<int64_t>(paths_.size()); }
  std::string ObjectPath(uint32_t object) const override { return std::string(paths_[object]); }
  int64_t ObjectBytes(uint32_t object) const override {
    return static_cast<int64_t>(Number(object, 0));
  }
  std::vector<int64_t> shard_starts() const override { return {0}; }

  void AddExtents(int64_t record, std::vector<Extent>* extents) const override {
    for (const size_t column : wanted_) {
      const auto stride = static_cast<int64_t>(Number(column, 2));
      extents->push_back({static_cast<uint32_t>(column),
                          static_cast<int64_t>(Number(column, 1)) + record * stride, stride});
    }
  }
  size_t extents_per_record() const override { return wanted_.size(); }

  std::optional<StoredField> StoredAt(size_t column) const override {
    const auto extent = std::find(wanted_.begin(), wanted_.end(), column);
    if (extent == wanted_.end()) return std::nullopt;
    return StoredField{static_cast<size_t>(extent - wanted_.begin()), 0};
  }
  absl::Status Read(int64_t, RecordSpans bytes, ColumnValues* values) const override {
    for (size_t i = 0; i < wanted_.size(); ++i) {
      if (bytes[i].size() != Number(wanted_[i], 2))
        return absl::DataLossError("a record's part of an array is cut off");
      values->Set(wanted_[i], bytes[i].data(), bytes[i].size(), shapes_[wanted_[i]]);
    }
    return absl::OkStatus();
  }

 private:
  NpyColumns() = default;
  uint64_t Number(size_t column, size_t i) const { return numbers_[column * kNumbersOfColumn + i]; }
  TextColumn paths_;
  NumberColumn numbers_;
  std::vector<Shape> shapes_;
  std::vector<size_t> wanted_;
};

class Npy final : public ColumnFormat {
 public:
  explicit Npy(NpyParams params) : ColumnFormat(std::move(params.fields)) {}
  int64_t sections_version() const override { return 1; }

 protected:
  absl::Status FindRecords(const DatasetLocation& location, IndexBuilder* builder,
                           std::vector<ColumnSpec>* columns) const override {
    FW_ASSIGN_OR_RETURN(const std::vector<Array> arrays, FindArrays(location, builder));
    Digest digest;
    digest.Add("npy");
    TextList paths;
    std::vector<uint64_t> numbers;
    const Array& first = arrays[0];
    for (const Array& array : arrays) {
      const std::string what = absl::StrCat("array '", Printable(array.column), "' of ",
                                            location.root->Describe(array.path));
      const Shape& shape = array.header.shape;
      if (shape.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat(what, " is one number and has no axis of records"));
      }
      if (!first.header.shape.empty() && shape[0] != first.header.shape[0]) {
        return absl::InvalidArgumentError(absl::StrCat(
            what, " has ", shape[0], " records, but array '", Printable(first.column), "' has ",
            first.header.shape[0], "; cure: name those that belong together with 'fields'"));
      }
      const Shape one(shape.begin() + 1, shape.end());
      ColumnSpec column = one.empty() ? ColumnSpec::Number(array.column, array.header.dtype)
                                      : ColumnSpec::Array(array.column, array.header.dtype, one);
      column.doc = absl::StrCat("Array '", array.column, "'.");
      const absl::StatusOr<int64_t> stride =
          TensorSpec{column.dtype, Layout::kPlain, one}.ByteSize();
      int64_t bytes = 0;
      if (!stride.ok() || __builtin_mul_overflow(*stride, shape[0], &bytes) ||
          bytes > array.end - array.begin) {
        return absl::InvalidArgumentError(absl::StrCat(
            what, " announces ", TensorSpec{column.dtype, Layout::kPlain, shape}.ToString(),
            ", which is more than the file has: truncated or damaged"));
      }
      if (bytes < array.end - array.begin) {
        return absl::InvalidArgumentError(absl::StrCat(
            what, " has ", array.end - array.begin - bytes,
            " bytes behind its elements: several arrays in one file; cure: a file for each"));
      }
      if (*stride == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat(what, " has records without elements: ",
                         TensorSpec{column.dtype, Layout::kPlain, shape}.ToString()));
      }
      paths.Add(array.path);
      numbers.insert(numbers.end(),
                     {static_cast<uint64_t>(array.file_bytes), static_cast<uint64_t>(array.begin),
                      static_cast<uint64_t>(*stride)});
      digest.Add(NameInDataset(location, array.path));
      digest.Add(array.column);
      digest.Add(column.TypeText());
      digest.Add(static_cast<uint64_t>(array.file_bytes));
      columns->push_back(std::move(column));
    }
    builder->records = first.header.shape[0];
    digest.Add(static_cast<uint64_t>(builder->records));
    builder->digest = digest.Hex();
    builder->columns.Add(kPaths, paths);
    builder->columns.Add(kNumbers, numbers);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenRecords(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) const override {
    return NpyColumns::Open(parts, columns, wanted);
  }

  // Every array under the name of its file or member, without .npy.
  std::vector<FieldRequest> DefaultFields(const std::vector<ColumnSpec>& columns) const override {
    std::vector<FieldRequest> fields = ColumnFormat::DefaultFields(columns);
    for (FieldRequest& field : fields) {
      field.name = field.name.substr(field.name.rfind(':') + 1);
      if (absl::EndsWith(field.name, ".npy")) field.name.resize(field.name.size() - 4);
    }
    return fields;
  }

 private:
  // The arrays that `fields` names, or all.
  absl::StatusOr<std::vector<Array>> FindArrays(const DatasetLocation& location,
                                                IndexBuilder* builder) const {
    // Files that are named need not lie in the folder itself.
    std::vector<std::string> named;
    for (const FieldRequest& field : requests().list) {
      const std::string file = field.from.substr(0, field.from.find(':'));
      const bool is_file = absl::EndsWith(file, ".npy") || absl::EndsWith(file, ".npz");
      if (!is_file || std::find(named.begin(), named.end(), file) != named.end()) continue;
      YamlNode place;
      FW_RETURN_IF_ERROR(NormalizePath("fields", file, place).status());
      named.push_back(file);
    }
    FW_ASSIGN_OR_RETURN(const std::vector<FoundFile> files,
                        FindFiles(location, named, kSuffixes, builder));
    const bool is_one_file = files.size() == 1 && files[0].path == location.path;
    std::vector<Array> arrays;
    for (const FoundFile& file : files)
      FW_RETURN_IF_ERROR(AddArrays(location, file, is_one_file, builder, &arrays));
    const auto is_wanted = [&](const Array& array) {
      return std::any_of(requests().list.begin(), requests().list.end(),
                         [&](const FieldRequest& field) { return field.from == array.column; });
    };
    std::vector<Array> wanted;
    std::copy_if(arrays.begin(), arrays.end(), std::back_inserter(wanted), is_wanted);
    if (!wanted.empty()) return wanted;  // else the reader of fields names what there is
    if (arrays.empty())
      return absl::InvalidArgumentError(absl::StrCat(location.Describe(), " holds no array"));
    return arrays;
  }

  static absl::Status AddArrays(const DatasetLocation& location, const FoundFile& file,
                                bool is_one_file, IndexBuilder* builder,
                                std::vector<Array>* arrays) {
    FW_RETURN_IF_ERROR(builder->Progress(0, 0));
    FW_RETURN_IF_ERROR(builder->Take(kBytesPerArray));
    const std::string name = NameInDataset(location, file.path);
    if (file.staged != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(location.root->Describe(file.path),
                                                     " is compressed as a whole; cure: gunzip it"));
    }
    if (!absl::EndsWith(file.path, ".npz")) {
      arrays->push_back({name, file.path, file.bytes, 0, file.bytes, {}});
      return ReadArray(*location.root, &arrays->back());
    }
    FW_ASSIGN_OR_RETURN(const std::vector<ZipMember> members,
                        ListZip(*location.root, file.path, file.bytes));
    for (const ZipMember& member : members) {
      if (!absl::EndsWith(member.name, ".npy")) continue;
      FW_RETURN_IF_ERROR(builder->Progress(0, 0));
      FW_RETURN_IF_ERROR(builder->Take(kBytesPerArray + static_cast<int64_t>(member.name.size())));
      if (member.is_compressed) {
        return absl::InvalidArgumentError(absl::StrCat(
            location.root->Describe(file.path),
            " was written by numpy.savez_compressed and cannot be read in any order; cure: "
            "numpy.savez(path, **numpy.load(path))"));
      }
      const std::string array = member.name.substr(0, member.name.size() - 4);
      arrays->push_back({is_one_file ? array : absl::StrCat(name, ":", array),
                         file.path,
                         file.bytes,
                         member.begin,
                         member.begin + member.bytes,
                         {}});
      FW_RETURN_IF_ERROR(ReadArray(*location.root, &arrays->back()));
    }
    return absl::OkStatus();
  }

  // Reads the header at the array's begin, and moves that behind it.
  static absl::Status ReadArray(const Root& root, Array* array) {
    const int64_t bytes =
        std::min(static_cast<int64_t>(kMaxNpyHeaderBytes), array->end - array->begin);
    FW_ASSIGN_OR_RETURN(const std::string head,
                        ReadRange(root, array->path, array->begin, static_cast<size_t>(bytes)));
    const absl::StatusOr<NpyHeader> header = ParseNpyHeader(head);
    if (!header.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("array '", Printable(array->column), "' of ",
                                                     root.Describe(array->path), " ",
                                                     header.status().message()));
    }
    array->header = *header;
    array->begin += static_cast<int64_t>(header->bytes);
    return absl::OkStatus();
  }
};

const Registrar kRegistrar(
    "npy",
    DeclareFormat<Npy>(
        "NumPy arrays (.npy, and .npz of numpy.savez), whose first axis are the records. A column "
        "is a file below `path`, an array of an .npz that `path` names, or FILE.npz:ARRAY. Arrays "
        "are delivered in their own dtype, single integers as int64.",
        "dataset: {format: npy, root: data, path: arrays, fields: {image: images.npy, label: "
        "labels.npy}}",
        FormatSchema<NpyParams>().Fields(&NpyParams::fields)));

}  // namespace
}  // namespace feedwater::server
