// Files of the formats that are decoded whole, written by hand: kinds that no writer of ours makes,
// and lies. And one decode of a whole image, as the product does it.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/codec/image.h"
#include "tests/codec/test_images.h"

namespace feedwater::server::testing {

struct WholeImage {
  absl::Status status;
  Size size;
  std::vector<uint8_t> rgb;  // or indices
};

inline WholeImage DecodeWhole(absl::string_view file, const ImageLimits& limits = ImageLimits(),
                              bool upright = false, PixelValues values = PixelValues::kRgb) {
  ImageWorkspace workspace;
  // Of its own size, so that a sanitizer sees a byte behind it; only JPEGs need padding.
  const auto* first = reinterpret_cast<const std::byte*>(file.data());
  const std::vector<std::byte> bytes(first, first + file.size());
  WholeImage image;
  const auto info = ReadImageInfo(absl::MakeConstSpan(bytes), upright, limits, workspace, values);
  image.status = info.status();
  if (!info.ok()) return image;
  image.size = info->size;
  image.rgb.resize(static_cast<size_t>(image.size.width) * image.size.height * ChannelsOf(values));
  Geometry whole;
  whole.crop = whole.window = {0, 0, image.size.width, image.size.height};
  whole.scaled = image.size;
  image.status = DecodeInto(absl::MakeConstSpan(bytes), upright, limits, whole, PixelFormat(),
                            reinterpret_cast<std::byte*>(image.rgb.data()), workspace, values);
  return image;
}

inline std::string Number(uint64_t value, int bytes, bool big = false) {
  std::string text(bytes, '\0');
  for (int i = 0; i < bytes && i < 8; ++i)
    text[big ? bytes - 1 - i : i] = static_cast<char>(value >> (8 * i));
  return text;
}

inline std::string Deflated(absl::string_view bytes) {
  uLongf size = compressBound(bytes.size());
  std::string out(size, '\0');
  compress2(reinterpret_cast<Bytef*>(out.data()), &size,
            reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), 9);
  out.resize(size);
  return out;
}

inline std::string PngChunk(absl::string_view name, absl::string_view content) {
  const std::string body = std::string(name) + std::string(content);
  return Number(content.size(), 4, true) + body +
         Number(crc32(0, reinterpret_cast<const Bytef*>(body.data()), body.size()), 4, true);
}

// `kind`: 0 gray, 2 RGB, 3 palette, 4 gray with alpha, 6 RGBA. `rows`: as they are compressed, with
// a filter byte before each. `more` stands before the pixels.
inline std::string MakePng(uint32_t width, uint32_t height, int depth, int kind,
                           absl::string_view rows, absl::string_view more = "",
                           bool interlaced = false) {
  return "\x89PNG\r\n\x1A\n" +
         PngChunk("IHDR", Number(width, 4, true) + Number(height, 4, true) + Number(depth, 1) +
                              Number(kind, 1) + Number(0, 2) + Number(interlaced, 1)) +
         std::string(more) + PngChunk("IDAT", Deflated(rows)) + PngChunk("IEND", "");
}

// `info` as it stands behind the file header; 40 bytes for everything but its size. `tail`: masks
// or palette.
inline std::string MakeBmp(int width, int height, int bits, int compression, absl::string_view data,
                           absl::string_view tail = "") {
  const uint64_t start = 54 + tail.size();
  return "BM" + Number(start + data.size(), 4) + Number(0, 4) + Number(start, 4) + Number(40, 4) +
         Number(width, 4) + Number(height, 4) + Number(1, 2) + Number(bits, 2) +
         Number(compression, 4) + Number(data.size(), 4) + Number(0, 16) + std::string(tail) +
         std::string(data);
}

struct TiffEntry {
  int tag;
  int type;  // 3: 16 bit, 4: 32 bit
  std::vector<uint64_t> values;
  int64_t count = -1;  // what the directory says; -1: as many as there are
};

// `data` lies at byte 8. Entries are written in the order given, so that a tag may come twice.
inline std::string MakeTiff(absl::string_view data, const std::vector<TiffEntry>& entries,
                            bool big = false) {
  std::string file = big ? std::string("MM\0*", 4) : std::string("II*\0", 4);
  const uint64_t directory = 8 + data.size() + data.size() % 2;
  uint64_t lists_at = directory + 2 + 12 * entries.size() + 4;
  std::string lists;
  file += Number(directory, 4, big) + std::string(data) + std::string(data.size() % 2, '\0') +
          Number(entries.size(), 2, big);
  for (const TiffEntry& entry : entries) {
    const int width = entry.type == 3 ? 2 : 4;
    std::string values;
    for (const uint64_t value : entry.values) values += Number(value, width, big);
    const uint64_t count = entry.count < 0 ? entry.values.size() : entry.count;
    file += Number(entry.tag, 2, big) + Number(entry.type, 2, big) + Number(count, 4, big);
    if (values.size() <= 4) {
      values.resize(4, '\0');
      file += values;
    } else {
      file += Number(lists_at + lists.size(), 4, big);
      lists += values;
    }
  }
  return file + Number(0, 4, big) + lists;
}

// One strip, or one tile where the entries say so, of MakeTiff's `data`.
inline std::vector<TiffEntry> TiffOf(int width, int height, std::vector<uint64_t> bits,
                                     int photometric, uint64_t bytes) {
  const uint64_t samples = bits.size();
  return {{256, 4, {static_cast<uint64_t>(width)}},
          {257, 4, {static_cast<uint64_t>(height)}},
          {258, 3, std::move(bits)},
          {259, 3, {1}},
          {262, 3, {static_cast<uint64_t>(photometric)}},
          {273, 4, {8}},
          {277, 3, {samples}},
          {278, 4, {static_cast<uint64_t>(height)}},
          {279, 4, {bytes}}};
}

}  // namespace feedwater::server::testing
