// Any bytes as an image of any kind: header, then a geometry and a pixel format that follow from
// the bytes. A worker's workspace that has seen thousands of images gives what a fresh one gives.
// LIBS: feedwater_codec ZLIB::ZLIB
#include <utility>

#include "server/codec/image.h"
#include "server/codec/image_writer.h"
#include "tests/codec/jpeg_levels.h"
#include "tests/codec/whole_images.h"
#include "tests/fuzz/fuzzer.h"

namespace feedwater::fuzz {
namespace {

using namespace server;           // NOLINT: image.h
using namespace server::testing;  // NOLINT: the images of the codec's tests

constexpr int kMaxSide = 100;

ImageLimits Limits() {
  ImageLimits limits;
  limits.max_pixels = 1 << 18;
  limits.max_scans = 20;
  limits.max_decode_ms = 1'000'000;
  return limits;
}

Geometry RandomGeometry(Size size, std::mt19937& random) {
  Geometry geometry;
  geometry.crop = RandomRect(size, random);
  geometry.scaled = random() % 4 == 0 ? Size{geometry.crop.width, geometry.crop.height}
                                      : Size{1 + static_cast<int>(random() % kMaxSide),
                                             1 + static_cast<int>(random() % kMaxSide)};
  geometry.window = RandomRect(geometry.scaled, random);
  geometry.flip_horizontal = random() % 2 == 0;
  geometry.flip_vertical = random() % 2 == 0;
  geometry.interpolation = static_cast<Interpolation>(random() % 4);
  geometry.fast_scale = random() % 2 == 0;
  return geometry;
}

PixelFormat RandomFormat(std::mt19937& random) {
  PixelFormat format;
  format.type = static_cast<PixelType>(random() % 4);
  format.planar = random() % 2 == 0;
  format.affine = random() % 2 == 0;
  for (int c = 0; c < 4; ++c) format.mean[c] = static_cast<float>(random() % 256);
  return format;
}

void Run(Input input) {
  static auto* used = new ImageWorkspace;
  const PaddedBytes file({reinterpret_cast<const std::byte*>(input.data()), input.size()}, 0);
  std::mt19937 random(SeedOf(input));
  for (const auto& [orient, values] :
       {std::pair(false, PixelValues::kRgb), std::pair(true, PixelValues::kRgb),
        std::pair(false, PixelValues::kIndices), std::pair(true, PixelValues::kIndices)}) {
    const auto info = ReadImageInfo(file.span(), orient, Limits(), *used, values);
    if (!info.ok()) return;
    Require(info->size.width > 0 && info->size.height > 0 &&
                int64_t{info->size.width} * info->size.height <= Limits().max_pixels,
            "a size within the limits");
    const Geometry geometry = RandomGeometry(info->size, random);
    const PixelFormat format = RandomFormat(random);
    const size_t bytes = static_cast<size_t>(geometry.window.width) * geometry.window.height *
                         ChannelsOf(values) *
                         (format.type == PixelType::kFloat32 ? 4
                          : format.type == PixelType::kUInt8 ? 1
                                                             : 2);
    std::vector<std::byte> first(bytes), second(bytes);
    const absl::Status once =
        DecodeInto(file.span(), orient, Limits(), geometry, format, first.data(), *used, values);
    ImageWorkspace fresh;
    const absl::Status again =
        DecodeInto(file.span(), orient, Limits(), geometry, format, second.data(), fresh, values);
    Require(once == again, "a used workspace gives the same verdict");
    Require(!once.ok() || first == second, "a used workspace gives the same pixels");
  }
}

std::vector<std::string> Seeds() {
  std::mt19937 random(1);
  std::vector<std::string> seeds;
  for (const char* kind : {".png", ".bmp", ".ppm", ".pgm", ".webp", ".tiff", ".jpg"}) {
    for (const int channels : {1, 3, 4}) {
      const Pixels pixels = NoisyImage({23, 17}, channels, random);
      const auto file = WritePicture({pixels.bytes.data(), pixels.size, channels}, kind);
      if (file.ok()) seeds.push_back(*file);  // others have no such channels
    }
  }
  // Kinds that WritePicture does not write.
  const std::string noise(64, '\x35'), palette(1024, '\x77');
  seeds.push_back(MakePng(3, 2, 8, 0, std::string("\0a\0b\0c\0def", 10), "", true));
  seeds.push_back(MakePng(3, 1, 2, 3, std::string("\0\x18", 2), PngChunk("PLTE", "123456789")));
  seeds.push_back(MakePng(1, 1, 16, 6, std::string("\0aabbccdd", 9)));
  seeds.push_back(
      MakeBmp(6, 2, 8, 1, std::string("\2\7\0\2\1\0\0\3\1\2\3\0\0\0\1\x09\0\1", 18), palette));
  seeds.push_back(
      MakeBmp(6, 1, 4, 2, std::string("\3V\0\3\x12\x30\0\1", 8), palette.substr(0, 64)));
  seeds.push_back(MakeBmp(3, 2, 16, 0, noise.substr(0, 16)));
  seeds.push_back("P3 2 1 100\n1 2 3 # c\n4 5 100");
  seeds.push_back("P4 9 2\nabcd");
  const std::string strip = Deflated(noise);
  for (const uint64_t compression : {1, 5, 8, 32773, 4, 7}) {
    const std::string& data = compression == 8 ? strip : noise;
    for (const bool big : {false, true}) {
      seeds.push_back(MakeTiff(data,
                               {{256, 4, {8}},
                                {257, 4, {8}},
                                {258, 3, {static_cast<uint64_t>(compression == 4 ? 1 : 8)}},
                                {259, 3, {compression}},
                                {262, 3, {1}},
                                {273, 4, {8}},
                                {277, 3, {1}},
                                {278, 4, {8}},
                                {279, 4, {data.size()}}},
                               big));
    }
  }
  for (const bool four : {false, true}) {
    JpegOptions options;
    options.progressive = !four;
    options.ycck = four;
    seeds.push_back(EncodeJpeg(NoisyImage({30, 20}, four ? 4 : 3, random), options));
  }
  return seeds;
}

}  // namespace

const FuzzTarget& Target() {
  static const FuzzTarget target = {
      Run, Seeds, {"hostile/png", "hostile/jpeg", "hostile/jpeg_bugs"}, nullptr, 1 << 14};
  return target;
}

}  // namespace feedwater::fuzz
