// What kind of image a file is, and its size, from its first bytes. Whatever is decoded was
// understood here first, and is within its limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/codec/row_source.h"
#include "server/codec/whole/whole_decoder.h"

namespace feedwater::server {

enum class FileKind { kJpeg, kCoefficients, kWhole };

struct FileHeader {
  const char* format = "";  // "jpeg", "coefficients", or a WholeFormat's name
  FileKind kind = FileKind::kJpeg;
  Size size;                            // as stored
  int orientation = 1;                  // EXIF
  bool is_turned_always = false;        // whether the orientation is applied unasked
  int64_t more_bytes = 0;               // WholeHeader::more_bytes
  bool has_indices = false;             // of the pixels: PixelValues::kIndices is possible
  std::unique_ptr<WholeDecoder> whole;  // kWhole: has read the header, and no library has
};

// InvalidArgument: empty, unknown format, damaged header, over limits.max_pixels; an image without
// indices where `values` are these.
absl::StatusOr<FileHeader> ReadFileHeader(absl::Span<const std::byte> encoded,
                                          const ImageLimits& limits,
                                          PixelValues values = PixelValues::kRgb);

}  // namespace feedwater::server
