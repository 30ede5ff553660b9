#include "server/codec/jpeg/markers.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

int ByteAt(absl::Span<const std::byte> bytes, size_t at) { return std::to_integer<int>(bytes[at]); }

int BigEndian16(absl::Span<const std::byte> bytes, size_t at) {
  return ByteAt(bytes, at) << 8 | ByteAt(bytes, at + 1);
}

absl::Status Damaged(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("damaged JPEG: ", what));
}

absl::Status Unsupported(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("unsupported JPEG: ", what));
}

// SOFn: everything but DHT (C4), JPG (C8) and DAC (CC).
bool IsFrame(int marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Two bytes for each coefficient, every component padded to whole MCUs. A factor of 0 is libjpeg's
// to refuse.
int64_t CoefficientBytes(absl::Span<const std::byte> segment, const JpegHeader& header) {
  int h[4], v[4], max_h = 1, max_v = 1;
  for (int c = 0; c < header.components; ++c) {
    const int factors = ByteAt(segment, 7 + 3 * static_cast<size_t>(c));
    h[c] = std::max(1, factors >> 4);
    v[c] = std::max(1, factors & 15);
    max_h = std::max(max_h, h[c]);
    max_v = std::max(max_v, v[c]);
  }
  constexpr int64_t kSide = 8, kBlockBytes = 128;
  int64_t bytes = 0;
  for (int c = 0; c < header.components; ++c) {
    const int64_t wide = DivideUp(int64_t{header.size.width} * h[c], kSide * max_h),
                  high = DivideUp(int64_t{header.size.height} * v[c], kSide * max_v);
    bytes += DivideUp(wide, h[c]) * h[c] * DivideUp(high, v[c]) * v[c] * kBlockBytes;
  }
  return bytes;
}

absl::Status ReadFrame(int marker, absl::Span<const std::byte> segment, JpegHeader& header) {
  if (segment.size() < 6) return Damaged("frame header too short");
  header.frame = marker - 0xC0;
  header.size = {BigEndian16(segment, 3), BigEndian16(segment, 1)};
  header.components = ByteAt(segment, 5);
  const int precision = ByteAt(segment, 0);
  if (header.size.width == 0 || header.size.height == 0) return Damaged("empty image");
  if (segment.size() != 6 + 3 * static_cast<size_t>(header.components)) {
    return Damaged("frame header of wrong length");
  }
  switch (header.frame) {
    case 0:
    case 1:
    case 2:
    case 9:
    case 10:
      break;
    case 3:
      return Unsupported("lossless coding");
    default:
      return Unsupported(absl::StrCat("coding process SOF", header.frame));
  }
  if (precision != 8) return Unsupported(absl::StrCat(precision, " bits per sample"));
  if (header.components != 1 && header.components != 3 && header.components != 4) {
    return Unsupported(absl::StrCat(header.components, " colour components"));
  }
  header.coefficient_bytes = CoefficientBytes(segment, header);
  return absl::OkStatus();
}

}  // namespace

int ReadExifOrientation(absl::Span<const std::byte> tiff) {
  constexpr int kOrientationTag = 0x0112, kByte = 1, kShort = 3, kLong = 4;
  if (tiff.size() < 8) return 1;
  const bool little = ByteAt(tiff, 0) == 'I' && ByteAt(tiff, 1) == 'I';
  if (!little && !(ByteAt(tiff, 0) == 'M' && ByteAt(tiff, 1) == 'M')) return 1;
  auto read16 = [&](size_t at) {
    return little ? ByteAt(tiff, at) | ByteAt(tiff, at + 1) << 8 : BigEndian16(tiff, at);
  };
  auto read32 = [&](size_t at) {
    const uint32_t first = read16(at), second = read16(at + 2);
    return little ? first | second << 16 : first << 16 | second;
  };
  if (read16(2) != 42) return 1;
  const size_t directory = read32(4);
  if (directory > tiff.size() || tiff.size() - directory < 2) return 1;
  const size_t entries = read16(directory);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + 12 * i;
    if (entry + 12 > tiff.size()) return 1;
    if (read16(entry) != kOrientationTag) continue;
    // A short one, as EXIF says, or of another width, as some programs write it.
    const int type = read16(entry + 2);
    const uint32_t value = type == kByte    ? static_cast<uint32_t>(ByteAt(tiff, entry + 8))
                           : type == kShort ? static_cast<uint32_t>(read16(entry + 8))
                           : type == kLong  ? read32(entry + 8)
                                            : 0;
    const bool valid = read32(entry + 4) == 1 && value >= 1 && value <= 8;
    return valid ? static_cast<int>(value) : 1;
  }
  return 1;
}

absl::StatusOr<JpegHeader> ReadJpegHeader(absl::Span<const std::byte> encoded) {
  constexpr absl::string_view kExif("Exif\0\0", 6);
  if (encoded.size() < 4 || BigEndian16(encoded, 0) != 0xFFD8) return Damaged("no start marker");
  JpegHeader header;
  bool have_frame = false, have_exif = false;
  size_t at = 2;
  while (true) {
    // As libjpeg does: skip anything up to FF, then fill bytes, then the code; FF00 is no marker.
    while (at < encoded.size() && ByteAt(encoded, at) != 0xFF) ++at;
    while (at < encoded.size() && ByteAt(encoded, at) == 0xFF) ++at;
    if (at >= encoded.size()) return Damaged("ends before the first scan");
    const int marker = ByteAt(encoded, at++);
    if (marker == 0 || marker == 0x01 || (marker >= 0xD0 && marker <= 0xD7)) continue;
    if (marker == 0xD8) return Damaged("two start markers");
    if (marker == 0xD9) return Damaged("ends before the first scan");
    if (marker == 0xDA) {
      if (!have_frame) return Damaged("scan before the frame header");
      const int scanned = encoded.size() - at > 2 ? ByteAt(encoded, at + 2) : 0;
      header.has_several_scans =
          header.frame == 2 || header.frame == 10 || scanned < header.components;
      return header;
    }
    if (encoded.size() - at < 2) return Damaged("ends before the first scan");
    const size_t length = BigEndian16(encoded, at);
    if (length < 2) return Damaged("segment of wrong length");
    if (encoded.size() - at < length) return Damaged("ends before the first scan");
    const auto segment = encoded.subspan(at + 2, length - 2);
    at += length;
    if (IsFrame(marker)) {
      if (have_frame) return Damaged("two frame headers");
      have_frame = true;
      if (absl::Status status = ReadFrame(marker, segment, header); !status.ok()) return status;
    } else if (marker == 0xE1 && !have_exif && segment.size() >= kExif.size() &&
               std::memcmp(segment.data(), kExif.data(), kExif.size()) == 0) {
      have_exif = true;
      header.orientation = ReadExifOrientation(segment.subspan(kExif.size()));
    }
  }
}

}  // namespace feedwater::server
