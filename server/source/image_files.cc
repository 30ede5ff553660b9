#include "server/source/image_files.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

constexpr IndexTag kFolders = MakeIndexTag("fold");  // paths below the dataset's, in record order
constexpr IndexTag kFolderStarts =
    MakeIndexTag("fsta");                                // first record of each folder, and the end
constexpr IndexTag kClassStarts = MakeIndexTag("csta");  // first record of each class, and the end
constexpr IndexTag kNames = MakeIndexTag("name");
constexpr IndexTag kSizes = MakeIndexTag("size");

constexpr uint64_t kMaxRecords = UINT32_MAX;  // an object's number has 32 bits

class ImageFilesDataset final : public IndexedDataset {
 public:
  static absl::StatusOr<std::shared_ptr<const Dataset>> Open(IndexedParts parts, bool has_labels) {
    const auto records = static_cast<uint64_t>(parts.records);
    std::shared_ptr<ImageFilesDataset> dataset(new ImageFilesDataset(std::move(parts)));
    const Index& index = *dataset->parts().index;
    FW_ASSIGN_OR_RETURN(dataset->folders_, index.Texts(kFolders));
    FW_ASSIGN_OR_RETURN(dataset->folder_starts_, index.Numbers(kFolderStarts));
    if (has_labels) {
      FW_ASSIGN_OR_RETURN(dataset->class_starts_, index.Numbers(kClassStarts));
    }
    FW_ASSIGN_OR_RETURN(dataset->names_, index.Texts(kNames));
    FW_ASSIGN_OR_RETURN(dataset->sizes_, index.Numbers(kSizes));
    if (records > kMaxRecords || dataset->names_.size() != records ||
        dataset->sizes_.size() != records || !dataset->folder_starts_.Divides(records) ||
        dataset->folder_starts_.size() != dataset->folders_.size() + 1 ||
        (has_labels && (!dataset->class_starts_.Divides(records) ||
                        dataset->class_starts_.size() != dataset->classes().size() + 1))) {
      return absl::DataLossError("an index of image files whose columns do not fit together");
    }
    return dataset;
  }

  std::string ObjectPath(uint32_t object) const override {
    const size_t folder = folder_starts_.RangeOf(object);
    return parts().location.Below(DatasetLocation::JoinPath(folders_[folder], names_[object]));
  }

  int64_t objects() const override { return size(); }
  int64_t ObjectBytes(uint32_t object) const override { return Bytes(object); }

  void Extents(int64_t record, std::vector<Extent>* extents) const override {
    const auto number = static_cast<uint32_t>(record);
    extents->assign(1, {number, 0, Bytes(number)});
  }

  int64_t LabelOf(int64_t record) const override {
    if (class_starts_.size() == 0) return -1;
    return static_cast<int64_t>(class_starts_.RangeOf(static_cast<uint64_t>(record)));
  }

  absl::Status Parse(int64_t record, absl::Span<const absl::Span<const std::byte>> bytes,
                     Record* out) const override {
    if (bytes.size() != 1) return absl::InternalError("an image is one extent");
    if (bytes[0].empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(root().Describe(ObjectPath(static_cast<uint32_t>(record))),
                       " is empty or a link to nothing"));
    }
    const bool has_label = class_starts_.size() > 0;
    Prepare(out, has_label ? 1 : 0);
    out->fields[0].spec.shape[0] = static_cast<int64_t>(bytes[0].size());
    out->fields[0].data =
        const_cast<std::byte*>(bytes[0].data());  // a Tensor is also how outputs are written
    if (!has_label) return absl::OkStatus();
    out->inline_values[0] = LabelOf(record);
    out->fields[1].data = reinterpret_cast<std::byte*>(out->inline_values.data());
    return absl::OkStatus();
  }

 private:
  using IndexedDataset::IndexedDataset;
  // A size beyond int64 cannot come from a file system; reading such an index must still be safe.
  int64_t Bytes(size_t record) const {
    return static_cast<int64_t>(std::min<uint64_t>(sizes_[record], uint64_t{1} << 61));
  }

  TextColumn folders_, names_;
  NumberColumn folder_starts_, class_starts_, sizes_;
};

}  // namespace

FieldSpec ImageFileField() {
  return {"data", {DType::kUInt8, Layout::kEncoded, {-1}}, "The image file's bytes, for `decode`."};
}

absl::Status IndexImageFiles(const DatasetLocation& location, ScannedClasses scan, Digest digest,
                             IndexBuilder* builder, std::vector<uint64_t>* class_starts) {
  TextList folders, names;
  std::vector<uint64_t> folder_starts = {0}, sizes;
  int64_t absent = 0;
  class_starts->assign(std::max<size_t>(scan.classes.size(), 1) + 1, 0);
  for (ScannedFolder& folder : scan.folders) {
    auto& stamps = folder.files.empty() ? builder->empty_folders : builder->stamps;
    stamps.push_back(std::move(folder.stamp));
    for (const std::string& name : folder.absent) {
      if (!folder.path.empty() && ++absent > kMostAbsent) break;
      const std::string path = DatasetLocation::JoinPath(folder.path, name);
      builder->empty_folders.push_back(Stamp{location.Below(path)});  // shows when it comes
    }
    if (folder.files.empty()) continue;
    folders.Add(folder.path);
    digest.Add(folder.path);
    digest.Add(static_cast<uint64_t>(folder.files.size()));
    for (const ScannedFile& file : folder.files) {
      names.Add(file.name);
      sizes.push_back(file.bytes);
      digest.Add(file.name);
      digest.Add(file.bytes);
    }
    folder_starts.push_back(sizes.size());
    (*class_starts)[folder.class_number + 1] = sizes.size();
    std::vector<ScannedFile>().swap(
        folder.files);  // the names are in two places only while they are copied
  }
  if (sizes.size() > kMaxRecords) {
    return absl::ResourceExhaustedError(
        absl::StrCat(location.Describe(), " has more than ", kMaxRecords, " images"));
  }
  builder->records = static_cast<int64_t>(sizes.size());
  builder->classes = std::move(scan.classes);
  builder->digest = digest.Hex();
  builder->notes = std::move(scan.notes);
  builder->columns.Add(kFolders, folders);
  builder->columns.Add(kFolderStarts, folder_starts);
  builder->columns.Add(kNames, names);
  builder->columns.Add(kSizes, sizes);
  return absl::OkStatus();
}

void AddClassStarts(const std::vector<uint64_t>& class_starts, IndexBuilder* builder) {
  builder->columns.Add(kClassStarts, class_starts);
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenImageFiles(IndexedParts parts, bool has_labels) {
  return ImageFilesDataset::Open(std::move(parts), has_labels);
}

}  // namespace feedwater::server
