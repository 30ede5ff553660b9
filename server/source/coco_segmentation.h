// One segmentation of COCO's: the JSON value as it stands in the file of annotations, and which
// pixels it covers. Polygons, runs as a list of numbers, and runs as pycocotools writes them as a
// text. Bytes are hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/base/status.h"
#include "server/source/instance_map.h"

namespace feedwater::server {

inline constexpr size_t kMaxSegmentationBytes = 1 << 20;
// What CoverSegmentation takes at most: the value's numbers, in a list that doubles, and outlines.
inline constexpr int64_t kMaxSegmentationMemory =
    int64_t{3 * sizeof(int64_t) * kMaxSegmentationBytes} + InstanceMap::kMaxOutlineBytes;

// InvalidArgument: of what is neither polygons nor runs.
absl::Status OddSegmentation();

// The runs that pycocotools has written as a text. InvalidArgument: it is none.
absl::Status ReadRuns(absl::string_view text, std::vector<int64_t>* runs);

// Covers the pixels with `label`. InvalidArgument with what is wrong, to stand behind the
// annotation's name: "has a polygon of 5 numbers"; the map is of no use then.
absl::Status CoverSegmentation(absl::string_view json, uint8_t label, InstanceMap* map);

}  // namespace feedwater::server
