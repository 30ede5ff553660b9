// One encoded image for `feedwater convert`: kept as it is, resized, made baseline, or packed as a
// coefficient document. Belongs to one thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cli/convert_options.h"
#include "server/codec/file_header.h"
#include "server/codec/image.h"

namespace feedwater::cli {

// Whether an image seems to hold numbers, of classes or of objects, and no photo: a PNG of one
// channel or with a palette, or a PGM. As a JPEG its pixels would have others.
bool SeemsMask(absl::Span<const std::byte> encoded);

// What --resize-max does to an image.
enum class Shrinking { kNo, kUnlessMask, kYes };

// A mask that would be shrunk is an error with this cure.
inline constexpr const char* kMaskCure =
    "seems to be a mask, a PNG of one channel or with a palette, and --resize-max writes JPEG, "
    "which changes its values; cure: resize in the graph, where a mask moves with its image, or, "
    "where the field is no mask of the image that shrinks, name the fields that are to be shrunk "
    "with --resize-fields: the others keep their bytes and their size";

class ImageConverter {
 public:
  // `limits`: the pipeline's, for images that are decoded.
  ImageConverter(const ConvertOptions& options, const server::ImageLimits& limits)
      : options_(options), limits_(limits) {}

  // The bytes to write: `encoded`, or what was made into `made`. Bytes that are no image of a known
  // format stay, and so do those that documents do not cover. InvalidArgument: an image that is
  // damaged or over a limit, where it has to be looked at, or a mask that is not to be shrunk.
  // `encoded` is followed by kReadPadding readable bytes.
  absl::StatusOr<absl::Span<const std::byte>> Convert(absl::Span<const std::byte> encoded,
                                                      Shrinking shrinking, std::string* made);
  // Whether --resize-max would shrink it. An error: as of Convert.
  absl::StatusOr<bool> IsLarge(absl::Span<const std::byte> encoded) const;

 private:
  // False, and nothing in `made`: documents do not cover the image.
  bool Pack(absl::Span<const std::byte> encoded, std::string* made);
  absl::StatusOr<std::string> Resized(absl::Span<const std::byte> encoded,
                                      const server::FileHeader& header);

  const ConvertOptions options_;
  const server::ImageLimits limits_;
  server::ImageWorkspace workspace_;
  std::vector<uint8_t> pixels_;
};

}  // namespace feedwater::cli
