// Reads a file of COCO's instances: images, categories and boxes. Of segmentations it notes where
// they stand, when asked; captions, keypoints and whatever else is there is passed over.
//
// nlohmann-json's SAX reader does the parsing, as in json_line.h, from a stream: the file is never
// in memory as a whole, and no text in it may be longer than kMaxCocoText.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "server/base/status.h"
#include "server/source/file_stream.h"

namespace feedwater::server {

struct CocoAnnotations {
  struct Image {
    int64_t id = 0;
    int64_t width = 0, height = 0;  // 0: not given
    std::string file_name;          // where the file gives none, that of its coco_url (LVIS)
  };
  struct Category {
    int64_t id = 0;
    std::string name;
  };
  struct Instance {
    int64_t image_id = 0, category_id = 0;
    std::array<double, 4> box = {};  // left, top, width, height
    double area = 0;                 // of the box where the file gives none
    bool is_crowd = false;
    int64_t id = -1;  // -1: it has none, or one that is no number from 0 on
  };
  struct Segment {
    int64_t offset = 0, bytes = 0;  // in the file; 0 bytes: there is none; -1: a text or a number
  };
  // In the file's order.
  std::vector<Image> images;
  std::vector<Category> categories;
  std::vector<Instance> instances;
  std::vector<Segment> segments;  // of the instances, where they were asked for
};

inline constexpr size_t kMaxCocoText = 16 << 20;

// InvalidArgument naming the byte, or the entry by its list and number ("annotations[7]"). Memory
// is counted with `builder` before it is taken.
absl::StatusOr<CocoAnnotations> ReadCocoAnnotations(FileStream* stream, IndexBuilder* builder,
                                                    bool with_segments = false);

}  // namespace feedwater::server
