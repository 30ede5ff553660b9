// What `feedwater convert` makes of the records it copies.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace feedwater::cli {

class Conversion;
struct ConversionWork;

struct ConvertOptions {
  int64_t shard_bytes = 256 << 20;
  std::optional<uint64_t> shuffle;         // the seed
  int resize_max = 0;                      // longer sides become this at most; 0: images stay
  std::vector<std::string> resize_fields;  // whose images those are; none: all but masks
  int quality = 90;                        // of what is written anew
  enum class Jpeg { kKeep, kBaseline, kCoefficients } jpeg = Jpeg::kKeep;

  bool reads_images() const { return resize_max > 0 || jpeg != Jpeg::kKeep; }
};

// "keep", "baseline" and "coefficients"; nothing for other words.
std::optional<ConvertOptions::Jpeg> JpegOf(absl::string_view name);
absl::string_view NameOf(ConvertOptions::Jpeg jpeg);

// What a folder was made with, from its journal. InvalidArgument: these are no such options.
absl::StatusOr<ConvertOptions> ConvertOptionsOf(const nlohmann::ordered_json& made_from);

// REQUIRES: Conversion::Open. InvalidArgument: the dataset has no such fields, or one whose images
// seem to be masks.
absl::StatusOr<ConversionWork> ConvertWork(const Conversion& conversion,
                                           const ConvertOptions& options);

// InvalidArgument: images are shrunk, and a field tells of places or sizes in their pixels, which
// would stay as it is: of formats coco and voc boxes, keypoints, width, height and area; of others,
// unless options.resize_fields names the images, plain numbers that have the shape of a box ([4],
// [?,4]) or, floats, of keypoints ([?,2], [?,3], [?,?,2], [?,?,3]). For a run that writes: shards
// that are there are compared all the same.
absl::Status CheckNothingIsInPixels(const Conversion& conversion, const ConvertOptions& options,
                                    const ConversionWork& work);

}  // namespace feedwater::cli
