// What the decoding benchmarks share: the photos of a folder in memory, each with the random crop
// of classic ImageNet training; libjpeg-turbo alone, to compare with; and timing by turns.
//
// Machines drift within minutes, so only ratios count: MeasureByTurns alternates its variants in
// batches of 50 photos, takes the median over the rounds for each batch, and sums the medians.
#pragma once

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
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/base/clock.h"
#include "server/codec/image.h"
#include "server/codec/jpeg/frame.h"
#include "server/storage/engine.h"

namespace feedwater::bench {

inline constexpr int kSide = 224;  // of what the network takes

// Benchmarks read what they were given by the person who runs them: an error ends the program.
inline void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

inline void PinTo(int cpu) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(cpu, &cpus);
  sched_setaffinity(0, sizeof(cpus), &cpus);
}

struct Photo {
  std::string bytes;  // with kReadPadding behind the file
  size_t encoded_bytes = 0;
  server::Size size;
  std::string sampling;       // "4:4:4", "4:2:0", ...; "libjpeg-turbo's" for what only that decodes
  server::Geometry geometry;  // random crop to kSide x kSide, mirrored or not

  absl::Span<const std::byte> encoded() const {
    return {reinterpret_cast<const std::byte*>(bytes.data()), encoded_bytes};
  }
  absl::Span<const uint8_t> scan_bytes() const {
    return {reinterpret_cast<const uint8_t*>(bytes.data()), encoded_bytes};
  }
};

// As torchvision's RandomResizedCrop: scale 0.08..1, ratio 3/4..4/3, ten tries, then the centre.
inline server::Rect RandomResizedCrop(server::Size size, std::mt19937& random) {
  std::uniform_real_distribution<double> scale(0.08, 1.0),
      ratio(std::log(3.0 / 4), std::log(4.0 / 3));
  for (int i = 0; i < 10; ++i) {
    const double area = scale(random) * size.width * size.height, aspect = std::exp(ratio(random));
    const int w = static_cast<int>(std::lround(std::sqrt(area * aspect)));
    const int h = static_cast<int>(std::lround(std::sqrt(area / aspect)));
    if (w < 1 || h < 1 || w > size.width || h > size.height) continue;
    return {static_cast<int>(random() % static_cast<unsigned>(size.width - w + 1)),
            static_cast<int>(random() % static_cast<unsigned>(size.height - h + 1)), w, h};
  }
  const int side = std::min(size.width, size.height);
  return {(size.width - side) / 2, (size.height - side) / 2, side, side};
}

inline std::string SamplingName(absl::Span<const uint8_t> encoded) {
  server::jpeg::JpegFrame frame;
  if (server::jpeg::ReadFrame(encoded, &frame) != server::jpeg::Uncovered::kNone)
    return "libjpeg-turbo's";
  const server::jpeg::FrameShape& shape = frame.shape;
  if (shape.components == 1) return "gray";
  if (shape.step_x(1) == 2) return shape.step_y(1) == 2 ? "4:2:0" : "4:2:2";
  return shape.step_y(1) == 2 ? "4:4:0" : "4:4:4";
}

// The JPEGs below `folder`, in the order of their names. Ends the program where there is none.
inline std::vector<Photo> LoadPhotos(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(folder, error), end; at != end && !error;
       at.increment(error)) {
    if (at->is_regular_file()) paths.push_back(at->path());
  }
  std::sort(paths.begin(), paths.end());
  std::mt19937 random(1);
  server::ImageWorkspace workspace;
  std::vector<Photo> photos;
  for (const auto& path : paths) {
    Photo photo;
    std::ifstream file(path, std::ios::binary);
    photo.bytes.assign(std::istreambuf_iterator<char>(file), {});
    photo.encoded_bytes = photo.bytes.size();
    photo.bytes.append(server::kReadPadding, '\0');
    const auto info =
        server::ReadImageInfo(photo.encoded(), false, server::ImageLimits(), workspace);
    if (!info.ok() || info->format != "jpeg") continue;
    photo.size = info->size;
    photo.sampling = SamplingName(photo.scan_bytes());
    photo.geometry.crop = RandomResizedCrop(photo.size, random);
    photo.geometry.scaled = {kSide, kSide};
    photo.geometry.window = {0, 0, kSide, kSide};
    photo.geometry.flip_horizontal = random() % 2 == 0;
    photos.push_back(std::move(photo));
  }
  if (photos.empty()) {
    std::fprintf(stderr, "no JPEGs in %s\n", folder.c_str());
    std::exit(1);
  }
  return photos;
}

// "all", and each sampling of which there are enough to measure.
inline std::map<std::string, std::vector<Photo*>> BySampling(std::vector<Photo>& photos) {
  std::map<std::string, std::vector<Photo*>> groups;
  for (Photo& photo : photos) {
    groups["all"].push_back(&photo);
    groups[photo.sampling].push_back(&photo);
  }
  for (auto at = groups.begin(); at != groups.end();) {
    at = at->first != "all" && at->second.size() < 20 ? groups.erase(at) : std::next(at);
  }
  return groups;
}

// float32 CHW, normalised as ImageNet training does.
inline server::PixelFormat Normalised() {
  server::PixelFormat format;
  format.type = server::PixelType::kFloat32;
  format.planar = format.affine = true;
  const float mean[] = {123.675f, 116.28f, 103.53f}, deviation[] = {58.395f, 57.12f, 57.375f};
  for (int c = 0; c < 3; ++c) {
    format.mean[c] = mean[c];
    format.inverse_std[c] = 1 / deviation[c];
  }
  return format;
}

// libjpeg-turbo's whole decode to RGB, with the accurate integer transform and fancy upsampling.
class BareDecoder {
 public:
  BareDecoder() {
    jpeg_.err = jpeg_std_error(&errors_);
    jpeg_create_decompress(&jpeg_);
  }
  ~BareDecoder() { jpeg_destroy_decompress(&jpeg_); }
  BareDecoder(const BareDecoder&) = delete;
  BareDecoder& operator=(const BareDecoder&) = delete;

  void Decode(const Photo& photo) {
    jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(photo.bytes.data()),
                 photo.encoded_bytes);
    jpeg_read_header(&jpeg_, TRUE);
    jpeg_.out_color_space = JCS_RGB;
    jpeg_.dct_method = JDCT_ISLOW;
    jpeg_start_decompress(&jpeg_);
    const size_t stride = static_cast<size_t>(jpeg_.output_width) * 3;
    if (pixels_.size() < stride * jpeg_.output_height) pixels_.resize(stride * jpeg_.output_height);
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

struct Variant {
  std::string name;
  std::function<void(Photo&)> run;
  double wall_s = 0, cpu_s = 0;  // of all photos
};

inline void MeasureByTurns(const std::vector<Photo*>& photos, std::vector<Variant>& variants,
                           int rounds) {
  constexpr size_t kBatch = 50;
  const auto median = [](std::vector<int64_t>& ns) {
    std::nth_element(ns.begin(), ns.begin() + ns.size() / 2, ns.end());
    return 1e-9 * static_cast<double>(ns[ns.size() / 2]);
  };
  for (Variant& v : variants) v.wall_s = v.cpu_s = 0;
  for (size_t first = 0; first < photos.size(); first += kBatch) {
    const size_t end = std::min(first + kBatch, photos.size());
    std::vector<std::vector<int64_t>> wall(variants.size()), cpu(variants.size());
    for (int round = 0; round < rounds; ++round) {
      for (size_t v = 0; v < variants.size(); ++v) {
        const int64_t wall_start = server::MonotonicNs(), cpu_start = server::ThreadCpuNs();
        for (size_t i = first; i < end; ++i) variants[v].run(*photos[i]);
        cpu[v].push_back(server::ThreadCpuNs() - cpu_start);
        wall[v].push_back(server::MonotonicNs() - wall_start);
      }
    }
    for (size_t v = 0; v < variants.size(); ++v) {
      variants[v].wall_s += median(wall[v]);
      variants[v].cpu_s += median(cpu[v]);
    }
  }
}

}  // namespace feedwater::bench
