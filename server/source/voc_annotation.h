// Reads one annotation of Pascal VOC: an XML file with the size of an image and its objects.
//
// libexpat does the parsing. Debian 12 has it as a static archive, it is small and well kept, and
// it tells of a document type before anything of it is used: files with one are refused, so that no
// entity is ever declared, expanded or fetched. pugixml would do, too; Debian has it as a shared
// library only.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/base/status.h"

namespace feedwater::server {

struct VocAnnotation {
  struct Object {
    std::string name;
    // Left, top, right, bottom as they are written: pixels are counted from 1, and the box holds
    // those of its edges.
    std::array<double, 4> box = {};
    bool is_difficult = false;
  };
  int64_t width = 0, height = 0;  // 0: not given
  std::vector<Object> objects;
};

inline constexpr size_t kMaxVocBytes = 16 << 20;  // of a file

// InvalidArgument with the line where it is no such annotation.
absl::StatusOr<VocAnnotation> ReadVocAnnotation(absl::string_view xml);

}  // namespace feedwater::server
