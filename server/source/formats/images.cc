// Format `images`: image files without labels, in the folder and at any depth below it. Their order
// is that of their folders' whole paths, and of their names within each, all by bytes.
#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/source/class_scan.h"
#include "server/source/format.h"
#include "server/source/image_files.h"

namespace feedwater::server {
namespace {

class Images final : public Format {
 public:
  struct Params {};
  explicit Images(Params) {}

  std::vector<FieldSpec> fields() const override { return {ImageFileField()}; }
  int64_t sections_version() const override { return 1; }

  absl::Status BuildIndex(const DatasetLocation& location, IndexBuilder* builder) const override {
    FW_ASSIGN_OR_RETURN(struct stat info, location.root->Stat(location.path));
    if (!S_ISDIR(info.st_mode)) {
      return absl::InvalidArgumentError(
          absl::StrCat(location.Describe(), " is a file; images reads a folder"));
    }
    FW_ASSIGN_OR_RETURN(ScannedClasses scan, ScanImages(location, builder));
    Digest digest;
    digest.Add("images");
    std::vector<uint64_t> class_starts;
    return IndexImageFiles(location, std::move(scan), digest, builder, &class_starts);
  }

  absl::StatusOr<std::shared_ptr<const Dataset>> Open(IndexedParts parts) const override {
    return OpenImageFiles(std::move(parts), /*has_labels=*/false);
  }
};

const Registrar kRegistrar(
    "images", DeclareFormat<Images>(
                  absl::StrCat("Image files (", absl::StrJoin(kImageExtensions, " "),
                               ") without labels, at any depth below `path`. Hidden ones, whose "
                               "name begins with a dot, are left out."),
                  "dataset: {format: images, root: photos, path: unlabelled}",
                  FormatSchema<Images::Params>(), /*generality=*/2));

}  // namespace
}  // namespace feedwater::server
