// Pictures as files: what `feedwater preview` and `convert` write, and what tests decode. Nothing
// of the daemon calls it. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/codec/row_source.h"

namespace feedwater::server {

// Interleaved 8 bit samples, rows without gaps: gray, RGB or RGBA. Does not own them.
struct PictureView {
  const uint8_t* pixels = nullptr;
  Size size;
  int channels = 3;
};

constexpr int kDefaultJpegQuality = 95;

// A file of the kind that `extension` names: .png, .jpg, .jpeg, .webp (lossless), .bmp, .tiff
// (uncompressed), .ppm or .pgm. InvalidArgument: another extension, more pixels a side than the
// kind has, or channels that it does not have.
absl::StatusOr<std::string> WritePicture(const PictureView& picture, absl::string_view extension,
                                         int jpeg_quality = kDefaultJpegQuality);

}  // namespace feedwater::server
