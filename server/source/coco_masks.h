// Masks of COCO's images, one for each: maps of labels (instance_map.h) that are made of the
// segmentations when the index is made, and staged (staging.h), so that a record reads its own as
// it is. No segmentation is kept: the first look at the file of annotations notes where each one
// stands, and they are read there once more, image by image.
//
//   staged file   records one after the other; then where each begins, and where the last one ends
//                 (8 bytes each, little-endian)
//   record        as StagedMasks has it
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/base/status.h"
#include "server/source/annotated_images.h"
#include "server/source/coco_annotations.h"
#include "server/source/format.h"

namespace feedwater::server {

inline constexpr char kCureOfSizes[] =
    "cure: write them there (PIL.Image.open(FILE).size has both), or leave `masks` out of `fields`";

// The images in the order of their records, and the instances of each in that of their boxes.
class CocoMaskPlan {
 public:
  absl::Status AddImage(int64_t width, int64_t height, IndexBuilder* builder);
  // Of the image that was added last. `name` is for messages: "the annotation 7".
  absl::Status AddInstance(const CocoAnnotations::Segment& segment, std::string name,
                           IndexBuilder* builder);
  size_t images() const { return sizes_.size(); }

 private:
  friend class CocoMaskWriter;
  struct ImageSize {
    int64_t width, height;
  };
  struct Instance {
    CocoAnnotations::Segment segment;
    std::string name;
  };
  std::vector<ImageSize> sizes_;
  std::vector<size_t> starts_ = {0};  // first instance of each image, and the end
  std::vector<Instance> instances_;
};

// Makes the masks, unless they are staged already, of the file of annotations at `path`, which the
// index depends on. `rule` names whatever else they are made by: other words, other masks.
absl::StatusOr<StagedMasks> StageCocoMasks(const DatasetLocation& location, const std::string& path,
                                           absl::string_view rule, const CocoMaskPlan& plan,
                                           IndexBuilder* builder);

}  // namespace feedwater::server
