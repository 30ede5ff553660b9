#include "server/codec/decode_need.h"

#include "absl/strings/string_view.h"
#include "server/base/status.h"
#include "server/codec/file_header.h"
#include "server/codec/image.h"
#include "server/codec/jpeg/markers.h"
#include "server/codec/orientation.h"

namespace feedwater::server {
namespace {

// Decoders' tables and state, and buffers whose size the image does not change.
constexpr int64_t kStateBytes = 1 << 20;
// For each column: two rows of MCUs as coefficients and as samples, upsampled and as RGB.
constexpr int64_t kColumnBytes = 640;
// For each output column: the ring of filtered rows and sums; for each column and row of either
// side: the filters' tables.
constexpr int64_t kOutputColumnBytes = 640, kFilterBytes = 96;
// The region of an image that is stored lying, upright once more, beside what the decoder has.
constexpr int64_t kTransposedPixelBytes = 6;
// TIFF: the pixels, and a strip or tile in several forms.
constexpr int64_t kMostWholePixelBytes = 15;

// Of images that are decoded whole (whole/whole_decoder.h): the pixels, and what the format's
// library keeps beside them.
int64_t WholePixelBytes(const FileHeader& header) {
  if (header.kind != FileKind::kWhole) return 0;
  const absl::string_view format = header.format;
  if (format == "tiff") return kMostWholePixelBytes;
  return format == "webp" ? 8 : 4;
}

int64_t Pixels(Size size) { return static_cast<int64_t>(size.width) * size.height; }

}  // namespace

absl::StatusOr<DecodeNeed> NeedOfDecoding(absl::Span<const std::byte> encoded,
                                          bool apply_orientation, const ImageLimits& limits) {
  FW_ASSIGN_OR_RETURN(const FileHeader header, ReadFileHeader(encoded, limits));
  const bool transposed =
      (apply_orientation || header.is_turned_always) && OrientationOf(header.orientation).transpose;
  DecodeNeed need;
  need.size = transposed ? Size{header.size.height, header.size.width} : header.size;
  const int64_t pixels = Pixels(header.size);
  need.bytes = kStateBytes + header.size.width * kColumnBytes +
               pixels * (WholePixelBytes(header) + (transposed ? kTransposedPixelBytes : 0));
  if (header.kind == FileKind::kJpeg) {
    FW_ASSIGN_OR_RETURN(const JpegHeader jpeg, ReadJpegHeader(encoded));
    if (jpeg.has_several_scans) need.bytes += jpeg.coefficient_bytes;
  }
  return need;
}

int64_t MostDecodeBytes(int64_t pixels) {
  return kStateBytes + pixels * (kMostWholePixelBytes + kTransposedPixelBytes);
}

int64_t RowBytes(Size from, Size to) {
  return int64_t{to.width} * kOutputColumnBytes +
         (int64_t{from.width} + from.height + to.width + to.height) * kFilterBytes;
}

}  // namespace feedwater::server
