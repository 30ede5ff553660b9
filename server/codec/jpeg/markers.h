// The markers of a JPEG up to its first scan, read without libjpeg: size, kind and EXIF
// orientation. Costs a fraction of a microsecond, touches nothing beyond the bytes given, and
// follows libjpeg's rules for finding markers, so that both agree.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/codec/row_source.h"

namespace feedwater::server {

struct JpegHeader {
  Size size;            // as stored
  int components = 0;   // 1 gray, 3 colour, 4 CMYK
  int frame = 0;        // 0..15: n of SOFn; 0 and 1 sequential, 2 progressive, 9 and 10 arithmetic
  int orientation = 1;  // EXIF 1..8; 1 where absent or damaged
  // The pixels come in several scans, so that libjpeg keeps all coefficients until the last one.
  bool has_several_scans = false;
  int64_t coefficient_bytes = 0;  // of the whole image, as libjpeg keeps them
};

// InvalidArgument "damaged JPEG: ..." or "unsupported JPEG: ...".
absl::StatusOr<JpegHeader> ReadJpegHeader(absl::Span<const std::byte> encoded);

// The orientation tag of a TIFF structure as EXIF stores it (after "Exif\0\0"); 1 where absent,
// damaged or out of range.
int ReadExifOrientation(absl::Span<const std::byte> tiff);

}  // namespace feedwater::server
