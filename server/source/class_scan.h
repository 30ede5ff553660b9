// Lists the folders of a dataset of image files: one folder per class, or any folders.
//
// Scanning is waiting: for a folder's list and for each file's size, so a few threads share the
// folders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/source/format.h"

namespace feedwater::server {

// The extensions of image files, in any case.
inline constexpr const char* kImageExtensions[] = {".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
                                                   ".pgm", ".tif",  ".tiff", ".webp"};

struct ScannedFile {
  std::string name;
  uint64_t bytes;
};

struct ScannedFolder {
  size_t class_number = 0;
  std::string path;  // below the dataset's; "" for the dataset's own folder
  Stamp stamp;
  std::vector<ScannedFile> files;  // sorted by name
  // Names of links that lead nowhere; they may lead to a folder later.
  std::vector<std::string> absent;
};

struct ScannedClasses {
  std::vector<std::string> classes;    // sorted
  std::vector<ScannedFolder> folders;  // sorted by class and path; those without images, too
  std::string notes;  // what was left out, and what is kept but bad, for people; may be empty
};

// Takes memory from `builder` before it is used, and tells it of the progress. The first error in
// path order, as far as threads allow; InvalidArgument where there is no class.
absl::StatusOr<ScannedClasses> ScanClasses(const DatasetLocation& location, IndexBuilder* builder);
// The same without classes: the images of the folder and of all folders below it, of class 0.
absl::StatusOr<ScannedClasses> ScanImages(const DatasetLocation& location, IndexBuilder* builder);

}  // namespace feedwater::server
