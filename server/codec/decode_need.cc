#include "server/codec/decode_need.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "server/base/status.h"
#include "server/codec/file_header.h"
#include "server/codec/image.h"
#include "server/codec/jpeg/frame.h"
#include "server/codec/jpeg/libjpeg_packer.h"
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
// The same where nothing is resampled: a row, the same converted, and where pixels are taken from.
constexpr int64_t kCopiedColumnBytes = 48;
// The region of an image that is stored lying, upright once more, beside what the decoder has.
constexpr int64_t kTransposedChannelBytes = 2;
// TIFF: the pixels, a strip or tile in several forms, and its raster in whole tiles.
constexpr int64_t kMostWholePixelBytes = 19;

// Of images that are decoded whole (whole/whole_decoder.h): the pixels, and what the format's
// library keeps beside them.
int64_t WholePixelBytes(const FileHeader& header, PixelValues values) {
  if (header.kind != FileKind::kWhole) return 0;
  if (values == PixelValues::kIndices) return 2;
  const absl::string_view format = header.format;
  if (format == "tiff") return kMostWholePixelBytes;
  return format == "webp" ? 8 : 4;
}

// Our own decoder copies the scan without its stuffed zeroes, and notes where they were: four bytes
// each, in a vector that doubles. They are counted where that is worth a look at every byte.
int64_t ScanBytes(absl::Span<const std::byte> encoded) {
  constexpr size_t kLookedAt = 256 << 10;
  constexpr int64_t kBytesPerStuffed = 8;
  const auto size = static_cast<int64_t>(encoded.size());
  if (encoded.size() <= kLookedAt) return size + size / 2 * kBytesPerStuffed;
  int64_t stuffed = 0;
  const auto* at = reinterpret_cast<const uint8_t*>(encoded.data());
  for (const uint8_t* end = at + size - 1; at < end; ++at) {
    at = static_cast<const uint8_t*>(std::memchr(at, 0xff, static_cast<size_t>(end - at)));
    if (at == nullptr) break;
    stuffed += at[1] == 0;
  }
  return size + stuffed * kBytesPerStuffed;
}

// Lossless WebP, as a picture or as the alpha of one: libwebp makes a table of some 12 KiB for each
// group of Huffman codes; a group takes 20 bits, and stands for 4x4 pixels or more. No encoder
// writes more than 2600 groups; a file made to have 65536 can be known only by decoding it.
int64_t HuffmanBytes(absl::Span<const std::byte> encoded, int64_t pixels) {
  constexpr int64_t kGroupBytes = 12 << 10, kMostGroups = 2600, kGroupPixels = 16;
  constexpr int64_t kGroupBits = 20;
  const absl::string_view bytes(reinterpret_cast<const char*>(encoded.data()), encoded.size());
  if (!absl::StrContains(bytes, "VP8L") && !absl::StrContains(bytes, "ALPH")) return 0;
  const int64_t written = static_cast<int64_t>(encoded.size()) * 8 / kGroupBits;
  return kGroupBytes * std::min({kMostGroups, pixels / kGroupPixels + 1, written + 1});
}

int64_t Pixels(Size size) { return static_cast<int64_t>(size.width) * size.height; }

}  // namespace

absl::StatusOr<DecodeNeed> NeedOfDecoding(absl::Span<const std::byte> encoded,
                                          bool apply_orientation, const ImageLimits& limits,
                                          PixelValues values) {
  FW_ASSIGN_OR_RETURN(const FileHeader header, ReadFileHeader(encoded, limits, values));
  const bool transposed =
      (apply_orientation || header.is_turned_always) && OrientationOf(header.orientation).transpose;
  DecodeNeed need;
  need.size = transposed ? Size{header.size.height, header.size.width} : header.size;
  const int64_t pixels = Pixels(header.size);
  const int64_t transposed_bytes =
      transposed ? kTransposedChannelBytes * ChannelsOf(values) : int64_t{0};
  need.bytes = kStateBytes + header.more_bytes + header.size.width * kColumnBytes +
               pixels * (WholePixelBytes(header, values) + transposed_bytes);
  if (header.format == absl::string_view("webp")) need.bytes += HuffmanBytes(encoded, pixels);
  if (header.kind == FileKind::kJpeg) {
    FW_ASSIGN_OR_RETURN(const JpegHeader jpeg, ReadJpegHeader(encoded));
    need.bytes += ScanBytes(encoded);
    if (jpeg.has_several_scans) need.bytes += jpeg.coefficient_bytes;
  }
  return need;
}

PackingNeed NeedOfPacking(absl::Span<const std::byte> encoded) {
  PackingNeed need;
  const auto header = ReadJpegHeader(encoded);
  if (!header.ok()) return need;
  need.document_bytes = jpeg::MostStoreBytes(static_cast<int64_t>(encoded.size()), header->size);
  jpeg::JpegFrame frame;
  const jpeg::Uncovered why =
      jpeg::ReadFrame({reinterpret_cast<const uint8_t*>(encoded.data()), encoded.size()}, &frame);
  if (!jpeg::LibjpegMayPack(why)) return need;
  need.coefficient_bytes = header->coefficient_bytes;
  need.uncounted_bytes = header->has_several_scans ? 0 : header->coefficient_bytes;
  return need;
}

int64_t MostDecodeBytes(int64_t pixels) {
  return kStateBytes + pixels * (kMostWholePixelBytes + 3 * kTransposedChannelBytes);
}

int64_t RowBytes(Size from, Size to) {
  return int64_t{to.width} * kOutputColumnBytes +
         (int64_t{from.width} + from.height + to.width + to.height) * kFilterBytes;
}

int64_t CopiedRowBytes(Size size) {
  return (int64_t{size.width} + size.height) * kCopiedColumnBytes;
}

}  // namespace feedwater::server
