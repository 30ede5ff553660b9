// How much faster than bare libjpeg-turbo the product decodes for training: DecodeInto with
// random_resized_crop to 224, flip, normalise to float32 CHW, against a full decode to RGB and
// nothing else. One pinned thread.
//
//   decode_kernels [FOLDER] [ROUNDS] [CPU]     FOLDER defaults to $FEEDWATER_TEST_DATA/photos
//
// Machines drift within minutes, so only ratios count: variants alternate in batches of 50 photos,
// each batch takes the median over the rounds, and the medians are summed.
// clang-format off
#include <cstdio>
#include <jpeglib.h>  // needs FILE
// clang-format on
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "server/base/clock.h"
#include "server/codec/image.h"
#include "server/codec/jpeg/turbo_decoder.h"
#include "tests/codec/seek_index_map.h"

namespace {

using namespace feedwater::server;  // NOLINT: a program of one file

struct Photo {
  std::string bytes;
  Size size;
  Geometry geometry;
  std::vector<uint8_t> crop;  // decoded beforehand
  absl::Span<const std::byte> span() const {
    return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
  }
};

// As torchvision's RandomResizedCrop: scale 0.08..1, ratio 3/4..4/3, ten tries, then the centre.
Rect RandomResizedCrop(Size size, std::mt19937& random) {
  std::uniform_real_distribution<double> scale(0.08, 1.0),
      ratio(std::log(3.0 / 4), std::log(4.0 / 3));
  for (int i = 0; i < 10; ++i) {
    const double area = scale(random) * size.width * size.height, aspect = std::exp(ratio(random));
    const int w = static_cast<int>(std::lround(std::sqrt(area * aspect)));
    const int h = static_cast<int>(std::lround(std::sqrt(area / aspect)));
    if (w < 1 || h < 1 || w > size.width || h > size.height) continue;
    return {static_cast<int>(random() % (size.width - w + 1)),
            static_cast<int>(random() % (size.height - h + 1)), w, h};
  }
  const int side = std::min(size.width, size.height);
  return {(size.width - side) / 2, (size.height - side) / 2, side, side};
}

class BareDecoder {
 public:
  BareDecoder() {
    jpeg_.err = jpeg_std_error(&errors_);
    jpeg_create_decompress(&jpeg_);
  }
  ~BareDecoder() { jpeg_destroy_decompress(&jpeg_); }
  void Decode(const std::string& bytes) {
    jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&jpeg_, TRUE);
    jpeg_.out_color_space = JCS_RGB;
    jpeg_.dct_method = JDCT_ISLOW;
    jpeg_start_decompress(&jpeg_);
    const size_t stride = static_cast<size_t>(jpeg_.output_width) * 3;
    pixels_.resize(stride * jpeg_.output_height);
    rows_.resize(jpeg_.output_height);
    for (size_t y = 0; y < rows_.size(); ++y) rows_[y] = pixels_.data() + y * stride;
    while (jpeg_.output_scanline < jpeg_.output_height) {
      jpeg_read_scanlines(&jpeg_, &rows_[jpeg_.output_scanline],
                          jpeg_.output_height - jpeg_.output_scanline);
    }
    jpeg_finish_decompress(&jpeg_);
  }

 private:
  jpeg_decompress_struct jpeg_;
  jpeg_error_mgr errors_;
  std::vector<uint8_t> pixels_;
  std::vector<JSAMPROW> rows_;
};

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const char* data = std::getenv("FEEDWATER_TEST_DATA");
  const std::filesystem::path folder = argc > 1          ? argv[1]
                                       : data != nullptr ? std::string(data) + "/photos"
                                                         : "../shared/data/photos";
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 9;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(argc > 3 ? std::atoi(argv[3]) : 0, &cpus);
  sched_setaffinity(0, sizeof(cpus), &cpus);

  constexpr int kSide = 224;
  ImageWorkspace workspace;
  std::mt19937 random(1);
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Photo> photos;
  double crop_pixels = 0, all_pixels = 0;
  for (const auto& path : paths) {
    Photo photo;
    std::ifstream file(path, std::ios::binary);
    photo.bytes.assign(std::istreambuf_iterator<char>(file), {});
    const auto info = ReadImageInfo(photo.span(), false, ImageLimits(), workspace);
    if (!info.ok() || info->format != "jpeg") continue;
    photo.size = info->size;
    photo.geometry.crop = RandomResizedCrop(photo.size, random);
    photo.geometry.scaled = {kSide, kSide};
    photo.geometry.window = {0, 0, kSide, kSide};
    photo.geometry.flip_horizontal = random() % 2 == 0;
    Geometry whole;
    whole.crop = photo.geometry.crop;
    whole.scaled = {whole.crop.width, whole.crop.height};
    whole.window = {0, 0, whole.crop.width, whole.crop.height};
    photo.crop.resize(static_cast<size_t>(whole.crop.width) * whole.crop.height * 3);
    Check(DecodeInto(photo.span(), false, ImageLimits(), whole, PixelFormat(),
                     reinterpret_cast<std::byte*>(photo.crop.data()), workspace));
    crop_pixels += static_cast<double>(photo.crop.size()) / 3;
    all_pixels += static_cast<double>(photo.size.width) * photo.size.height;
    photos.push_back(std::move(photo));
  }
  if (photos.empty()) {
    std::fprintf(stderr, "no JPEGs in %s\n", folder.c_str());
    return 1;
  }

  PixelFormat normalised;
  normalised.type = PixelType::kFloat32;
  normalised.planar = normalised.affine = true;
  const float mean[] = {123.675f, 116.28f, 103.53f}, deviation[] = {58.395f, 57.12f, 57.375f};
  for (int c = 0; c < 3; ++c) {
    normalised.mean[c] = mean[c];
    normalised.inverse_std[c] = 1 / deviation[c];
  }
  PixelFormat bytes_chw;
  bytes_chw.planar = true;
  std::vector<std::byte> out(kSide * kSide * 3 * sizeof(float));
  BareDecoder bare;
  TurboDecoder region;
  testing::SeekIndexMap indexes;
  ImageWorkspace seeking;
  seeking.UseSeekIndexes(&indexes);
  double jpeg_bytes = 0;
  for (const Photo& photo : photos) {
    MakeSeekIndex(photo.span(), ImageLimits(), seeking);
    jpeg_bytes += static_cast<double>(photo.bytes.size());
  }
  auto resample = [&](Photo& photo, const PixelFormat& format) {
    Geometry geometry = photo.geometry;
    geometry.crop.x = geometry.crop.y = 0;
    Check(ResampleInto(photo.crop.data(), {geometry.crop.width, geometry.crop.height}, 3, geometry,
                       format, out.data(), workspace));
  };
  struct Variant {
    const char* name;
    std::function<void(Photo&)> run;
    double seconds = 0;
  };
  std::vector<Variant> variants = {
      {"bare libjpeg-turbo, whole image", [&](Photo& photo) { bare.Decode(photo.bytes); }},
      {"DecodeInto: crop, resize, flip, normalise",
       [&](Photo& photo) {
         Check(DecodeInto(photo.span(), false, ImageLimits(), photo.geometry, normalised,
                          out.data(), workspace));
       }},
      {"  the same with seek indexes",
       [&](Photo& photo) {
         Check(DecodeInto(photo.span(), false, ImageLimits(), photo.geometry, normalised,
                          out.data(), seeking));
       }},
      {"libjpeg-turbo decoding the region",
       [&](Photo& photo) {
         const uint8_t* rows[RowSource::kMaxRows];
         Check(region.Open(photo.span(), ImageLimits()));
         Check(region.Start(photo.geometry.crop));
         const int height = photo.geometry.crop.height;
         for (int y = 0; y < height; y += RowSource::kMaxRows)
           Check(region.Read(std::min(RowSource::kMaxRows, height - y), rows));
         region.Close();
       }},
      {"  of it: resize to uint8 CHW", [&](Photo& photo) { resample(photo, bytes_chw); }},
      {"  of it: resize, normalise to float32 CHW",
       [&](Photo& photo) { resample(photo, normalised); }},
  };

  constexpr size_t kBatch = 50;
  for (size_t first = 0; first < photos.size(); first += kBatch) {
    std::vector<std::vector<double>> seconds(variants.size());
    for (int round = 0; round < rounds; ++round) {
      for (size_t v = 0; v < variants.size(); ++v) {
        const int64_t start = MonotonicNs();
        for (size_t i = first; i < std::min(first + kBatch, photos.size()); ++i)
          variants[v].run(photos[i]);
        seconds[v].push_back(1e-9 * (MonotonicNs() - start));
      }
    }
    for (size_t v = 0; v < variants.size(); ++v) {
      std::nth_element(seconds[v].begin(), seconds[v].begin() + rounds / 2, seconds[v].end());
      variants[v].seconds += seconds[v][rounds / 2];
    }
  }
  std::printf("%zu photos, crop %.0f%% of the pixels, %s\n", photos.size(),
              100 * crop_pixels / all_pixels, SimdTarget().c_str());
  for (const Variant& v : variants) {
    std::printf("%-44s %8.1f us/image %8.1f images/s  %5.2fx\n", v.name,
                1e6 * v.seconds / photos.size(), photos.size() / v.seconds,
                variants[0].seconds / v.seconds);
  }
  std::printf("ratio DecodeInto / bare decode: %.3f, with seek indexes: %.3f\n",
              variants[0].seconds / variants[1].seconds, variants[0].seconds / variants[2].seconds);
  std::printf("seek indexes / JPEG bytes: %.4f\n", static_cast<double>(indexes.bytes()) / jpeg_bytes);
  return 0;
}
