#include "server/codec/file_header.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/codec/jpeg/coefficient_store.h"
#include "server/codec/jpeg/markers.h"

namespace feedwater::server {
namespace {

using Bytes = absl::Span<const std::byte>;

bool StartsWith(Bytes bytes, absl::string_view prefix, size_t at = 0) {
  return bytes.size() >= at + prefix.size() &&
         std::memcmp(bytes.data() + at, prefix.data(), prefix.size()) == 0;
}

// REQUIRES: at + width <= bytes.size().
uint64_t Little(Bytes bytes, size_t at, int width) {
  uint64_t value = 0;
  for (int i = width - 1; i >= 0; --i)
    value = value << 8 | std::to_integer<uint64_t>(bytes[at + i]);
  return value;
}
uint64_t Big(Bytes bytes, size_t at, int width) {
  uint64_t value = 0;
  for (int i = 0; i < width; ++i) value = value << 8 | std::to_integer<uint64_t>(bytes[at + i]);
  return value;
}

absl::Status Damaged(absl::string_view format, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("damaged ", format, ": ", what));
}

// Widths and heights of 2^31 and more never reach an int.
absl::Status SetSize(absl::string_view format, uint64_t width, uint64_t height,
                     FileHeader& header) {
  if (width == 0 || height == 0) return Damaged(format, "empty image");
  if (width > 0x7FFFFFFF || height > 0x7FFFFFFF) return Damaged(format, "impossible size");
  header.size = {static_cast<int>(width), static_cast<int>(height)};
  return absl::OkStatus();
}

absl::Status ReadPng(Bytes bytes, FileHeader& header) {
  if (bytes.size() < 33 || !StartsWith(bytes, "IHDR", 12) || Big(bytes, 8, 4) != 13)
    return Damaged("PNG", "no header");
  FW_RETURN_IF_ERROR(SetSize("PNG", Big(bytes, 16, 4), Big(bytes, 20, 4), header));
  // eXIf may stand anywhere before or after the pixels; chunks are only hopped over.
  for (uint64_t at = 33; bytes.size() - at >= 12;) {
    const uint64_t length = Big(bytes, at, 4);
    if (length > bytes.size() - at - 12) break;
    if (StartsWith(bytes, "eXIf", at + 4)) {
      header.orientation = ReadExifOrientation(bytes.subspan(at + 8, length));
      break;
    }
    at += 12 + length;
  }
  return absl::OkStatus();
}

absl::Status ReadBmp(Bytes bytes, FileHeader& header) {
  if (bytes.size() < 26) return Damaged("BMP", "ends in the header");
  const uint64_t info_bytes = Little(bytes, 14, 4);
  if (info_bytes == 12) return SetSize("BMP", Little(bytes, 18, 2), Little(bytes, 20, 2), header);
  const auto width = static_cast<int32_t>(Little(bytes, 18, 4)),
             height = static_cast<int32_t>(Little(bytes, 22, 4));
  if (info_bytes < 36 || width <= 0 || height == INT32_MIN)
    return Damaged("BMP", "header of a wrong size");
  return SetSize("BMP", width, height < 0 ? -height : height, header);
}

absl::Status ReadWebp(Bytes bytes, FileHeader& header) {
  if (bytes.size() < 30) return Damaged("WebP", "ends in the header");
  if (StartsWith(bytes, "VP8 ", 12)) {
    if (Big(bytes, 23, 3) != 0x9D012A) return Damaged("WebP", "no key frame");
    return SetSize("WebP", Little(bytes, 26, 2) & 0x3FFF, Little(bytes, 28, 2) & 0x3FFF, header);
  }
  if (StartsWith(bytes, "VP8L", 12)) {
    if (Little(bytes, 20, 1) != 0x2F) return Damaged("WebP", "no lossless signature");
    const uint64_t bits = Little(bytes, 21, 4);
    return SetSize("WebP", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, header);
  }
  if (!StartsWith(bytes, "VP8X", 12)) return Damaged("WebP", "unknown first chunk");
  constexpr uint64_t kAnimation = 0x02;
  if (Little(bytes, 20, 1) & kAnimation)
    return absl::InvalidArgumentError("unsupported WebP: animation");
  FW_RETURN_IF_ERROR(SetSize("WebP", Little(bytes, 24, 3) + 1, Little(bytes, 27, 3) + 1, header));
  for (uint64_t at = 12; at + 8 <= bytes.size();) {
    const uint64_t length = Little(bytes, at + 4, 4);
    if (length > bytes.size() - at - 8) break;
    if (StartsWith(bytes, "EXIF", at)) {
      Bytes exif = bytes.subspan(at + 8, length);
      if (StartsWith(exif, absl::string_view("Exif\0\0", 6))) exif = exif.subspan(6);
      header.orientation = ReadExifOrientation(exif);
      break;
    }
    at += 8 + length + (length & 1);
  }
  return absl::OkStatus();
}

// P1..P6: three numbers (two for bitmaps) in ASCII, comments from '#' to the end of the line.
absl::Status ReadPnm(Bytes bytes, FileHeader& header) {
  uint64_t numbers[2];
  size_t at = 2;
  for (uint64_t& number : numbers) {
    auto here = [&] { return at < bytes.size() ? std::to_integer<int>(bytes[at]) : -1; };
    while (here() == ' ' || (here() >= '\t' && here() <= '\r') || here() == '#') {
      if (here() == '#') {
        while (here() != '\n' && here() != '\r' && here() != -1) ++at;
      } else {
        ++at;
      }
    }
    if (here() < '0' || here() > '9') return Damaged("PNM", "no size");
    for (number = 0; here() >= '0' && here() <= '9'; ++at) {
      number = number * 10 + (here() - '0');
      if (number > 0x7FFFFFFF) return Damaged("PNM", "impossible size");
    }
  }
  return SetSize("PNM", numbers[0], numbers[1], header);
}

// The first directory: width, height, tile size. Tiles and strips larger than the image are
// refused, since a decoder allocates one of them.
absl::Status ReadTiff(Bytes bytes, FileHeader& header) {
  if (bytes.size() < 8) return Damaged("TIFF", "ends in the header");
  const bool little = StartsWith(bytes, "II");
  auto read = [&](size_t at, int width) {
    return little ? Little(bytes, at, width) : Big(bytes, at, width);
  };
  const uint64_t directory = read(4, 4);
  if (directory > bytes.size() || bytes.size() - directory < 2)
    return Damaged("TIFF", "no directory");
  const uint64_t entries = read(directory, 2);
  uint64_t width = 0, height = 0, tile_width = 0, tile_height = 0;
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t entry = directory + 2 + 12 * i;
    if (entry + 12 > bytes.size()) return Damaged("TIFF", "ends in the directory");
    constexpr int kShort = 3, kLong = 4;
    const uint64_t tag = read(entry, 2), type = read(entry + 2, 2);
    if (tag != 256 && tag != 257 && tag != 322 && tag != 323) continue;
    if (type != kShort && type != kLong) return Damaged("TIFF", "size of an odd type");
    const uint64_t value = read(entry + 8, type == kShort ? 2 : 4);
    (tag == 256 ? width : tag == 257 ? height : tag == 322 ? tile_width : tile_height) = value;
  }
  constexpr uint64_t kTileStep = 1024;  // an image smaller than one tile is usual
  if (tile_width > std::max(width, kTileStep) + kTileStep ||
      tile_height > std::max(height, kTileStep) + kTileStep) {
    return Damaged("TIFF", "tiles much larger than the image");
  }
  return SetSize("TIFF", width, height, header);
}

absl::Span<const uint8_t> AsUint8(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace

const char* FileKindName(FileKind kind) {
  switch (kind) {
    case FileKind::kJpeg:
      return "jpeg";
    case FileKind::kCoefficients:
      return "coefficients";
    case FileKind::kPng:
      return "png";
    case FileKind::kBmp:
      return "bmp";
    case FileKind::kWebp:
      return "webp";
    case FileKind::kPnm:
      return "pnm";
    case FileKind::kTiff:
      return "tiff";
  }
  return "";
}

absl::StatusOr<FileHeader> ReadFileHeader(absl::Span<const std::byte> encoded,
                                          const ImageLimits& limits) {
  FileHeader header;
  if (encoded.empty()) return absl::InvalidArgumentError("empty image file");
  if (StartsWith(encoded, "\xFF\xD8")) {
    FW_ASSIGN_OR_RETURN(const JpegHeader jpeg, ReadJpegHeader(encoded));
    header.kind = FileKind::kJpeg;
    header.size = jpeg.size;
    header.orientation = jpeg.orientation;
  } else if (jpeg::IsStore(AsUint8(encoded))) {
    FW_ASSIGN_OR_RETURN(const jpeg::StoreInfo info, jpeg::ReadStoreInfo(AsUint8(encoded)));
    header.kind = FileKind::kCoefficients;
    header.size = info.size;
    header.orientation = info.orientation;
  } else if (StartsWith(encoded, "\x89PNG\r\n\x1A\n")) {
    header.kind = FileKind::kPng;
    FW_RETURN_IF_ERROR(ReadPng(encoded, header));
  } else if (StartsWith(encoded, "BM")) {
    header.kind = FileKind::kBmp;
    FW_RETURN_IF_ERROR(ReadBmp(encoded, header));
  } else if (StartsWith(encoded, "RIFF") && StartsWith(encoded, "WEBP", 8)) {
    header.kind = FileKind::kWebp;
    FW_RETURN_IF_ERROR(ReadWebp(encoded, header));
  } else if (encoded.size() > 2 && StartsWith(encoded, "P") && Little(encoded, 1, 1) >= '1' &&
             Little(encoded, 1, 1) <= '6') {
    header.kind = FileKind::kPnm;
    FW_RETURN_IF_ERROR(ReadPnm(encoded, header));
  } else if (StartsWith(encoded, absl::string_view("II*\0", 4)) ||
             StartsWith(encoded, absl::string_view("MM\0*", 4))) {
    header.kind = FileKind::kTiff;
    FW_RETURN_IF_ERROR(ReadTiff(encoded, header));
  } else {
    return absl::InvalidArgumentError(
        "not an image of a known format (JPEG, PNG, BMP, WebP, PNM, TIFF)");
  }
  const int64_t pixels = static_cast<int64_t>(header.size.width) * header.size.height;
  if (pixels > limits.max_pixels) {
    return absl::InvalidArgumentError(
        absl::StrCat("image of ", header.size.width, "x", header.size.height,
                     " pixels is over max_pixels ", limits.max_pixels));
  }
  return header;
}

}  // namespace feedwater::server
