// Format `image_folder`: one folder per class, image files at any depth below it, as torchvision's
// ImageFolder reads it.
//
// Order: classes sorted by name, labels 0..C-1. Within a class, folders sorted by their whole path
// and files sorted by name inside each, which is sorted(os.walk(...)) and sorted(fnames) in Python;
// all by bytes. Hidden files and folders, files that are no images and special files are left out,
// counted, and the first few of each kind named. Symbolic links are followed where they stay inside
// the root.
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/source/class_scan.h"
#include "server/source/digest.h"
#include "server/source/format.h"
#include "server/source/image_files.h"

namespace feedwater::server {
namespace {

class ImageFolder final : public Format {
 public:
  struct Params {};
  explicit ImageFolder(Params) {}

  std::vector<FieldSpec> fields() const override {
    return {ImageFileField(),
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
    const std::vector<std::string> classes = scan.classes;
    std::vector<uint64_t> class_starts;
    FW_RETURN_IF_ERROR(IndexImageFiles(location, std::move(scan), digest, builder, &class_starts));
    FW_RETURN_IF_ERROR(CheckClasses(location, classes, &class_starts));
    AddClassStarts(class_starts, builder);
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const Dataset>> Open(IndexedParts parts) const override {
    return OpenImageFiles(std::move(parts), /*has_labels=*/true);
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
        FormatSchema<ImageFolder::Params>(), /*generality=*/1));

}  // namespace
}  // namespace feedwater::server
