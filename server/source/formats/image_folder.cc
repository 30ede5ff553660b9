// Format `image_folder`: one folder per class, image files at any depth below it, as torchvision's
// ImageFolder reads it.
//
// Order: classes sorted by name, labels 0..C-1. Within a class, folders sorted by their whole path
// and files sorted by name inside each, which is sorted(os.walk(...)) and sorted(fnames) in Python;
// all by bytes. Hidden files and folders, files that are no images and special files are left out,
// counted, and the first few of each kind named. Symbolic links are followed where they stay inside
// the root. `classes` gives them other numbers.
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
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
  struct Params {
    std::vector<std::string> classes;
  };
  explicit ImageFolder(Params params) : params_(std::move(params)) {}

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
    if (!params_.classes.empty()) {
      FW_RETURN_IF_ERROR(Renumber(location, &scan));
      for (const std::string& name : params_.classes) digest.Add(name);
    }
    const std::vector<std::string> classes = scan.classes;
    std::vector<uint64_t> class_starts;
    FW_RETURN_IF_ERROR(IndexImageFiles(location, std::move(scan), digest, builder, &class_starts));
    const std::vector<std::string> empty = FindEmpty(classes, &class_starts);
    if (params_.classes.empty()) FW_RETURN_IF_ERROR(RefuseEmpty(location, empty));
    AddClassStarts(class_starts, builder);
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const Dataset>> Open(IndexedParts parts) const override {
    return OpenImageFiles(std::move(parts), /*has_labels=*/true);
  }

 private:
  // Numbers the classes that were found as `classes` has them.
  absl::Status Renumber(const DatasetLocation& location, ScannedClasses* scan) const {
    absl::flat_hash_map<absl::string_view, size_t> numbers;
    for (const std::string& name : params_.classes) {
      if (numbers.emplace(name, numbers.size()).second) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("'classes' names '", Printable(name), "' twice"));
    }
    std::vector<size_t> renumbered;
    for (const std::string& name : scan->classes) {
      const auto number = numbers.find(name);
      if (number == numbers.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat(location.Describe(), " has the class folder '", Printable(name),
                         "', which 'classes' does not name; cure: add it there, or move the folder "
                         "away"));
      }
      renumbered.push_back(number->second);
    }
    for (ScannedFolder& folder : scan->folders) {
      // The dataset's own folder is of no class, and stays the first.
      if (!folder.path.empty()) folder.class_number = renumbered[folder.class_number];
    }
    std::stable_sort(scan->folders.begin(), scan->folders.end(),
                     [](const ScannedFolder& a, const ScannedFolder& b) {
                       return a.class_number < b.class_number;
                     });
    scan->classes = params_.classes;
    return absl::OkStatus();
  }

  // The names of the classes without images, whose starts are set.
  static std::vector<std::string> FindEmpty(const std::vector<std::string>& classes,
                                            std::vector<uint64_t>* starts) {
    std::vector<std::string> empty;
    for (size_t i = 0; i < classes.size(); ++i) {
      if ((*starts)[i + 1] == 0) {
        empty.push_back(absl::StrCat("'", Printable(classes[i]), "'"));
        (*starts)[i + 1] = (*starts)[i];
      }
    }
    return empty;
  }

  // torchvision's rule: a class without images is an error, since labels would shift when it is
  // cleaned up. Where `classes` numbers them, none would.
  static absl::Status RefuseEmpty(const DatasetLocation& location, std::vector<std::string> empty) {
    if (empty.empty()) return absl::OkStatus();
    const size_t count = empty.size();
    if (count > 5) empty.resize(5);
    return absl::InvalidArgumentError(absl::StrCat(
        location.Describe(), ": ", count,
        count == 1 ? " class folder holds" : " class folders hold",
        " no images: ", absl::StrJoin(empty, ", "), count > 5 ? ", ..." : "",
        "; cure: add images (", absl::StrJoin(kImageExtensions, " "), ") or move the folder away"));
  }

  const Params params_;
};

const Registrar kRegistrar(
    "image_folder",
    DeclareFormat<ImageFolder>(
        absl::StrCat(
            "One folder per class with image files (", absl::StrJoin(kImageExtensions, " "),
            ") at any depth, in torchvision's order. Hidden ones, whose name begins with a "
            "dot, are left out, which torchvision takes."),
        "dataset: {format: image_folder, root: photos, path: train}",
        FormatSchema<ImageFolder::Params>().LaterParam(
            "classes", &ImageFolder::Params::classes,
            "Names of the class folders in the order of their labels, also of some that are not "
            "there: so sources of a mix, or train and val, number them alike. Left out: the "
            "folders that are there, sorted."),
        /*generality=*/1));

}  // namespace
}  // namespace feedwater::server
