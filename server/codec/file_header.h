// What kind of image a file is, and its size, from its first bytes. Decoders other than the JPEG
// one are only called for files that this has understood, because they allocate what the header
// asks for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/codec/row_source.h"

namespace feedwater::server {

enum class FileKind { kJpeg, kCoefficients, kPng, kBmp, kWebp, kPnm, kTiff };

struct FileHeader {
  FileKind kind = FileKind::kJpeg;
  Size size;            // as stored
  int orientation = 1;  // EXIF
};

const char* FileKindName(FileKind kind);  // "jpeg", "png", ...

// InvalidArgument: empty, unknown format, damaged header, over limits.max_pixels.
absl::StatusOr<FileHeader> ReadFileHeader(absl::Span<const std::byte> encoded,
                                          const ImageLimits& limits);

}  // namespace feedwater::server
