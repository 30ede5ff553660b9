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

class ImageConverter {
 public:
  // `limits`: the pipeline's, for images that are decoded.
  ImageConverter(const ConvertOptions& options, const server::ImageLimits& limits)
      : options_(options), limits_(limits) {}

  // The bytes to write: `encoded`, or what was made into `made`. Bytes that are no image of a known
  // format stay, and so do those that documents do not cover. InvalidArgument: an image that is
  // damaged or over a limit, where it has to be looked at. `encoded` is followed by kReadPadding
  // readable bytes.
  absl::StatusOr<absl::Span<const std::byte>> Convert(absl::Span<const std::byte> encoded,
                                                      std::string* made);

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
