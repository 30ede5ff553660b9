#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/codec/whole/bmp.h"
#include "server/codec/whole/png.h"
#include "server/codec/whole/pnm.h"
#include "server/codec/whole/tiff.h"
#include "server/codec/whole/webp.h"
#include "server/codec/whole/whole_decoder.h"

namespace feedwater::server {
namespace {

using Bytes = absl::Span<const std::byte>;

constexpr WholeFormat kFormats[] = {
    {"png", IsPng, NewPngDecoder},    {"bmp", IsBmp, NewBmpDecoder},
    {"webp", IsWebp, NewWebpDecoder}, {"pnm", IsPnm, NewPnmDecoder},
    {"tiff", IsTiff, NewTiffDecoder},
};

// Images that people meet and that are not decoded.
struct OtherFormat {
  const char* name;
  size_t at;
  absl::string_view signature;
};
constexpr OtherFormat kOthers[] = {
    {"GIF", 0, "GIF8"},
    {"JPEG 2000", 4, "jP  "},
    {"JPEG 2000", 0, "\xFF\x4F\xFF\x51"},
    {"JPEG XL", 4, "JXL "},
    {"JPEG XL", 0, "\xFF\x0A"},
    {"AVIF", 4, "ftypavif"},
    {"HEIF", 4, "ftyphei"},
    {"HEIF", 4, "ftypmif1"},
    {"Radiance HDR", 0, "#?RADIANCE"},
    {"OpenEXR", 0, "\x76\x2F\x31\x01"},
    {"BigTIFF", 0, absl::string_view("II+\0", 4)},
    {"BigTIFF", 0, absl::string_view("MM\0+", 4)},
    {"Photoshop", 0, "8BPS"},
};

}  // namespace

const WholeFormat* FindWholeFormat(Bytes encoded) {
  for (const WholeFormat& format : kFormats) {
    if (format.matches(encoded)) return &format;
  }
  return nullptr;
}

absl::Status UnknownFormat(Bytes encoded) {
  constexpr const char* kKnown = "JPEG, PNG, BMP, WebP, PNM, TIFF";
  for (const OtherFormat& other : kOthers) {
    if (StartsWith(encoded, other.signature, other.at)) {
      return absl::InvalidArgumentError(
          absl::StrCat("unsupported ", other.name, " image; convert it to one of ", kKnown));
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("not an image of a known format (", kKnown, ")"));
}

bool StartsWith(Bytes bytes, absl::string_view prefix, size_t at) {
  return bytes.size() >= at + prefix.size() &&
         std::memcmp(bytes.data() + at, prefix.data(), prefix.size()) == 0;
}

uint64_t LittleEndian(Bytes bytes, size_t at, int width) {
  uint64_t value = 0;
  for (int i = width - 1; i >= 0; --i)
    value = value << 8 | std::to_integer<uint64_t>(bytes[at + i]);
  return value;
}

uint64_t BigEndian(Bytes bytes, size_t at, int width) {
  uint64_t value = 0;
  for (int i = 0; i < width; ++i) value = value << 8 | std::to_integer<uint64_t>(bytes[at + i]);
  return value;
}

absl::Status DamagedImage(absl::string_view format, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("damaged ", format, ": ", what));
}

absl::Status TwoSizes(absl::string_view format) {
  return DamagedImage(format, "its header can be read as two sizes");
}

absl::Status CheckPixels(uint64_t width, uint64_t height, const ImageLimits& limits) {
  if (width * height <= static_cast<uint64_t>(limits.max_pixels)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("image of ", width, "x", height,
                                                 " pixels is over max_pixels ", limits.max_pixels));
}

absl::StatusOr<Size> CheckedSize(absl::string_view format, uint64_t width, uint64_t height,
                                 const ImageLimits& limits) {
  if (width == 0 || height == 0) return DamagedImage(format, "empty image");
  if (width > kMaxWholeSide || height > kMaxWholeSide) {
    return absl::InvalidArgumentError(absl::StrCat(
        format, " of ", width, "x", height, " pixels has a side of more than ", kMaxWholeSide));
  }
  FW_RETURN_IF_ERROR(CheckPixels(width, height, limits));
  return Size{static_cast<int>(width), static_cast<int>(height)};
}

}  // namespace feedwater::server
