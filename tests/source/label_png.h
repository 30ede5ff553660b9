// Reads the PNGs that masks are staged as: gray, 8 bits, one IDAT, rows as differences.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

namespace feedwater::server {

struct LabelPng {
  uint32_t width = 0, height = 0;
  std::vector<int> labels;  // row by row
  int at(uint32_t x, uint32_t y) const { return labels[y * width + x]; }
};

inline uint32_t PngNumber(const std::string& png, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(png.at(at + i));
  return value;
}

inline LabelPng ReadLabelPng(const std::string& png) {
  LabelPng image;
  constexpr size_t kPixels = 8 + 25;  // where the chunk of pixels begins
  if (png.size() < kPixels + 24 || png.substr(0, 8) != "\x89PNG\r\n\x1A\n") {
    ADD_FAILURE() << "no PNG: " << png.substr(0, 200);
    return image;
  }
  EXPECT_EQ(png.substr(12, 4), "IHDR");
  EXPECT_EQ(png.substr(24, 5), std::string("\x08\0\0\0\0", 5));
  EXPECT_EQ(png.substr(kPixels + 4, 4), "IDAT");
  EXPECT_EQ(png.substr(png.size() - 8, 4), "IEND");
  image.width = PngNumber(png, 16);
  image.height = PngNumber(png, 20);
  std::vector<uint8_t> rows((image.width + size_t{1}) * image.height);
  uLongf size = rows.size();
  EXPECT_EQ(uncompress(rows.data(), &size, reinterpret_cast<const Bytef*>(png.data()) + kPixels + 8,
                       PngNumber(png, kPixels)),
            Z_OK);
  EXPECT_EQ(size, rows.size());
  image.labels.resize(size_t{image.width} * image.height);
  for (uint32_t y = 0; y < image.height; ++y) {
    const uint8_t* row = rows.data() + y * (image.width + size_t{1});
    EXPECT_EQ(row[0], 2);
    for (uint32_t x = 0; x < image.width; ++x) {
      const int above = y == 0 ? 0 : image.at(x, y - 1);
      image.labels[y * image.width + x] = (row[1 + x] + above) % 256;
    }
  }
  return image;
}

}  // namespace feedwater::server
