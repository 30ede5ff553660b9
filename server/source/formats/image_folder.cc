// Format `image_folder`: one folder per class, image files at any depth below it, as torchvision's
// ImageFolder reads it.
//
// Order: classes sorted by name, labels 0..C-1. Within a class, folders sorted by their whole path
// and files sorted by name inside each, which is sorted(os.walk(...)) and sorted(fnames) in Python;
// all by bytes. Hidden files and folders, files that are no images and special files are left out,
// counted, and the first few of each kind named. Symbolic links are followed where they stay inside
// the root.
//
// The index keeps 8 bytes and the file name for each record. It depends on every folder, not on
// every file: a file that is added, removed or renamed changes its folder; one that is rewritten in
// place is found only by its reader.
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/source/class_scan.h"
#include "server/source/digest.h"
#include "server/source/format.h"

namespace feedwater::server {
namespace {

constexpr IndexTag kFolders = MakeIndexTag("fold");  // paths below the dataset's, in record order
constexpr IndexTag kFolderStarts =
    MakeIndexTag("fsta");                                // first record of each folder, and the end
constexpr IndexTag kClassStarts = MakeIndexTag("csta");  // first record of each class, and the end
constexpr IndexTag kNames = MakeIndexTag("name");
constexpr IndexTag kSizes = MakeIndexTag("size");

constexpr uint64_t kMaxRecords = UINT32_MAX;  // an object's number has 32 bits

class ImageFolderDataset final : public IndexedDataset {
 public:
  static absl::StatusOr<std::shared_ptr<const Dataset>> Open(IndexedParts parts) {
    const auto records = static_cast<uint64_t>(parts.records);
    std::shared_ptr<ImageFolderDataset> dataset(new ImageFolderDataset(std::move(parts)));
    const Index& index = *dataset->parts().index;
    FW_ASSIGN_OR_RETURN(dataset->folders_, index.Texts(kFolders));
    FW_ASSIGN_OR_RETURN(dataset->folder_starts_, index.Numbers(kFolderStarts));
    FW_ASSIGN_OR_RETURN(dataset->class_starts_, index.Numbers(kClassStarts));
    FW_ASSIGN_OR_RETURN(dataset->names_, index.Texts(kNames));
    FW_ASSIGN_OR_RETURN(dataset->sizes_, index.Numbers(kSizes));
    if (records > kMaxRecords || dataset->names_.size() != records ||
        dataset->sizes_.size() != records || !dataset->folder_starts_.Divides(records) ||
        !dataset->class_starts_.Divides(records) ||
        dataset->folder_starts_.size() != dataset->folders_.size() + 1 ||
        dataset->class_starts_.size() != dataset->classes().size() + 1) {
      return absl::DataLossError("an image_folder index whose columns do not fit together");
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
    Prepare(out, 1);
    out->fields[0].spec.shape[0] = static_cast<int64_t>(bytes[0].size());
    out->fields[0].data =
        const_cast<std::byte*>(bytes[0].data());  // a Tensor is also how outputs are written
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

class ImageFolder final : public Format {
 public:
  struct Params {};
  explicit ImageFolder(Params) {}

  std::vector<FieldSpec> fields() const override {
    return {
        {"data", {DType::kUInt8, Layout::kEncoded, {-1}}, "The image file's bytes, for `decode`."},
        {"label",
         {DType::kInt64, Layout::kPlain, {}},
         "Number of the class folder, sorted by name."}};
  }
  int64_t sections_version() const override { return 1; }

  absl::Status BuildIndex(const DatasetLocation& location, IndexBuilder* builder) const override {
    FW_ASSIGN_OR_RETURN(struct stat info, location.root->Stat(location.path));
    if (!S_ISDIR(info.st_mode)) {
      return absl::InvalidArgumentError(
          absl::StrCat(location.Describe(), " is a file; image_folder reads a folder"));
    }
    FW_ASSIGN_OR_RETURN(ScannedClasses scan, ScanClasses(location, builder));

    Digest digest;
    digest.Add("image_folder");
    TextList folders, names;
    std::vector<uint64_t> folder_starts = {0}, class_starts(scan.classes.size() + 1, 0), sizes;
    for (ScannedFolder& folder : scan.folders) {
      auto& stamps = folder.files.empty() ? builder->empty_folders : builder->stamps;
      stamps.push_back(std::move(folder.stamp));
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
      class_starts[folder.class_number + 1] = sizes.size();
      std::vector<ScannedFile>().swap(
          folder.files);  // the names are in two places only while they are copied
    }
    if (sizes.size() > kMaxRecords) {
      return absl::ResourceExhaustedError(
          absl::StrCat(location.Describe(), " has more than ", kMaxRecords, " images"));
    }
    FW_RETURN_IF_ERROR(CheckClasses(location, scan.classes, &class_starts));
    builder->records = static_cast<int64_t>(sizes.size());
    builder->classes = std::move(scan.classes);
    builder->digest = digest.Hex();
    builder->notes = std::move(scan.notes);
    builder->columns.Add(kFolders, folders);
    builder->columns.Add(kFolderStarts, folder_starts);
    builder->columns.Add(kClassStarts, class_starts);
    builder->columns.Add(kNames, names);
    builder->columns.Add(kSizes, sizes);
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const Dataset>> Open(IndexedParts parts) const override {
    return ImageFolderDataset::Open(std::move(parts));
  }

 private:
  // torchvision's rule: a class without images is an error, since labels would shift when it is
  // cleaned up.
  static absl::Status CheckClasses(const DatasetLocation& location,
                                   const std::vector<std::string>& classes,
                                   std::vector<uint64_t>* starts) {
    std::vector<std::string> empty;
    for (size_t i = 0; i < classes.size(); ++i) {
      if ((*starts)[i + 1] == 0) {
        empty.push_back(absl::StrCat("'", Printable(classes[i]), "'"));
        (*starts)[i + 1] = (*starts)[i];
      }
    }
    if (empty.empty()) return absl::OkStatus();
    const size_t count = empty.size();
    if (count > 5) empty.resize(5);
    return absl::InvalidArgumentError(absl::StrCat(
        location.Describe(), ": ", count,
        count == 1 ? " class folder holds" : " class folders hold",
        " no images: ", absl::StrJoin(empty, ", "), count > 5 ? ", ..." : "",
        "; cure: add images (", absl::StrJoin(kImageExtensions, " "), ") or move the folder away"));
  }
};

const Registrar kRegistrar(
    "image_folder",
    DeclareFormat<ImageFolder>(
        absl::StrCat(
            "One folder per class with image files (", absl::StrJoin(kImageExtensions, " "),
            ") at any depth, in torchvision's order. Hidden ones, whose name begins with a "
            "dot, are left out, which torchvision takes."),
        "dataset: {format: image_folder, root: photos, path: train}",
        FormatSchema<ImageFolder::Params>()));

}  // namespace
}  // namespace feedwater::server
