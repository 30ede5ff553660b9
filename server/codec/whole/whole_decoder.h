// Formats that are decoded whole, to rows of 8 bit RGB: PNG, BMP, WebP, PNM, TIFF. The header is
// read by our own code: the daemon asks for the size of an image that only a decoder process may
// decode, and no library meets such a file there. What a format's library then takes for the size
// must be the same, so that the size that is checked against the limits is the size that comes out.
// Each format is one file of this folder and one line of formats.cc.
//
// Memory: the caller gives the pixels' room, 3 bytes each. What a decoder takes beside it is
// bounded by the image's size, never by what else the file says: kMostDecoderBytes for PNG, BMP and
// PNM, that and 5 bytes a pixel for WebP, that and 12 bytes a pixel for TIFF (and of JPEGs in it
// what libtiff allows its libjpeg, 100 MB). Input bytes are hostile. A decoder belongs to one image
// and one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/codec/decode_clock.h"
#include "server/codec/row_source.h"

namespace feedwater::server {

// The longest side of an image that is decoded whole: rows, and tables with an entry a row, stay
// small whatever max_pixels is.
constexpr int kMaxWholeSide = 1 << 20;
constexpr int64_t kMostDecoderBytes = 64 << 20;

struct WholeHeader {
  Size size;                      // as stored
  int orientation = 1;            // EXIF
  bool is_turned_always = false;  // the orientation is the format's own: every reader applies it
  int64_t more_bytes = 0;         // that decoding takes beside what its pixels do
  bool has_indices = false;       // DecodeIndices can be called
};

class WholeDecoder {
 public:
  virtual ~WholeDecoder() = default;

  // Reads the header of `encoded`, which must stay until Decode is done, without any library.
  // InvalidArgument: damaged, over a limit.
  virtual absl::StatusOr<WholeHeader> Open(absl::Span<const std::byte> encoded,
                                           const ImageLimits& limits) = 0;

  // Once, after Open gave a size: writes all rows, width * 3 bytes each, at `rgb`. 16 bit samples
  // keep their high byte and alpha is dropped. InvalidArgument: damaged, cut, a kind that is not
  // decoded, another size than Open's, over max_decode_ms.
  virtual absl::Status Decode(uint8_t* rgb) = 0;
  // After Open, for messages: "RGB PNG of 8 bits"; "": no more is known than the format.
  virtual std::string Kind() const { return ""; }
  // As Decode, in its place, for one byte a pixel: the number that is stored for it, be it a place
  // in the palette or a gray value. REQUIRES: has_indices.
  virtual absl::Status DecodeIndices(uint8_t* /*indices*/) {
    return absl::InternalError("an image without indices is asked for them");
  }
};

struct WholeFormat {
  const char* name;  // "png"
  bool (*matches)(absl::Span<const std::byte> encoded);
  std::unique_ptr<WholeDecoder> (*make)();
};

// By the first bytes of a file; nullptr: none of these.
const WholeFormat* FindWholeFormat(absl::Span<const std::byte> encoded);
// For a file that is no image of any known format: which one it is, or that it is none.
absl::Status UnknownFormat(absl::Span<const std::byte> encoded);

// For the decoders.
bool StartsWith(absl::Span<const std::byte> bytes, absl::string_view prefix, size_t at = 0);
// REQUIRES: at + width <= bytes.size().
uint64_t LittleEndian(absl::Span<const std::byte> bytes, size_t at, int width);
uint64_t BigEndian(absl::Span<const std::byte> bytes, size_t at, int width);
absl::Status DamagedImage(absl::string_view format, absl::string_view what);
absl::Status TwoSizes(absl::string_view format);  // the library's is not Open's
// Against max_pixels.
absl::Status CheckPixels(uint64_t width, uint64_t height, const ImageLimits& limits);
// The size of a header, once it is within the limits. `format` as people write it: "PNG".
absl::StatusOr<Size> CheckedSize(absl::string_view format, uint64_t width, uint64_t height,
                                 const ImageLimits& limits);

}  // namespace feedwater::server
