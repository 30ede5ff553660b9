// What each step from the coefficient store to a trainer's tensor costs, against a bare whole
// decode by libjpeg-turbo, by chroma sampling. One pinned thread.
//
//   jpeg_store [FOLDER] [ROUNDS] [CPU]     FOLDER defaults to $FEEDWATER_TEST_DATA/photos
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
#include <map>
#include <random>
#include <string>
#include <vector>

#include "server/base/clock.h"
#include "server/codec/image.h"
#include "server/codec/jpeg/coefficient_store.h"
#include "server/codec/jpeg/pixel_kernels.h"
#include "server/codec/jpeg/store_decoder.h"
#include "server/codec/resampler.h"
#include "tests/codec/coefficient_images.h"

namespace {

using namespace feedwater::server;  // NOLINT: a program of one file
using jpeg::StorePacker;
using testing::CoefficientImage;

constexpr int kSide = 224;

struct Photo {
  std::string encoded;
  CoefficientImage image;
  std::vector<uint8_t> document;
  Geometry geometry;
  std::vector<uint8_t> crop;  // decoded beforehand
  double blocks = 0;          // of the crop
};

// As torchvision's RandomResizedCrop.
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

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
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

bool Pack(const CoefficientImage& image, StorePacker& packer) {
  const jpeg::FrameShape& shape = image.shape;
  if (!packer.Start(shape, image.quant)) return false;
  for (int mcu_row = 0; mcu_row * shape.v[0] < shape.blocks_high(0); ++mcu_row) {
    for (int c = 0; c < shape.components; ++c) {
      for (int row = mcu_row * shape.v[c];
           row < std::min((mcu_row + 1) * shape.v[c], shape.blocks_high(c)); ++row) {
        if (!packer.AddRow(c, image.Row(c, row))) return false;
      }
    }
  }
  return true;
}

// The crop's blocks to samples, and no more.
class BlocksOnly {
 public:
  void Run(const Photo& photo) {
    const auto view = jpeg::StoreView::Open(photo.document);
    Check(view.status());
    planes_.Start(view->shape(), photo.geometry.crop);
    for (int mcu_row = planes_.mcu_rows().first; mcu_row < planes_.mcu_rows().end(); ++mcu_row) {
      for (int c = 0; c < view->shape().components; ++c) {
        const jpeg::BlockSpan columns = planes_.block_columns(c);
        const jpeg::BlockSpan rows = planes_.block_rows_of_mcu_row(c, mcu_row);
        for (int row = rows.first; row < rows.end(); ++row) {
          jpeg::PackedBlocks from;
          int skip;
          if (!view->Seek(c, row, columns.first, &from, &skip) ||
              !jpeg::ActiveStoreKernels().transform_packed(from, skip, columns.count,
                                                           view->quant(c), planes_.BlockRow(c, row),
                                                           planes_.stride(c)))
            std::exit(1);
        }
      }
    }
  }

 private:
  jpeg::Planes planes_;
};

void ReadAll(RowSource& source, int height) {
  const uint8_t* rows[RowSource::kMaxRows];
  for (int y = 0; y < height; y += RowSource::kMaxRows)
    Check(source.Read(std::min(RowSource::kMaxRows, height - y), rows));
}

class MemoryRows final : public RowSource {
 public:
  void Start(const uint8_t* pixels, int width) { at_ = pixels, stride_ = 3 * size_t(width); }
  absl::Status Read(int count, const uint8_t** rows) override {
    for (int i = 0; i < count; ++i, at_ += stride_) rows[i] = at_;
    return absl::OkStatus();
  }

 private:
  const uint8_t* at_ = nullptr;
  size_t stride_ = 0;
};

struct Variant {
  const char* name;
  std::function<void(Photo&)> run;
  double seconds = 0;
};

void Measure(std::vector<Photo*>& photos, std::vector<Variant>& variants, int rounds) {
  constexpr size_t kBatch = 50;
  for (Variant& v : variants) v.seconds = 0;
  for (size_t first = 0; first < photos.size(); first += kBatch) {
    std::vector<std::vector<double>> seconds(variants.size());
    for (int round = 0; round < rounds; ++round) {
      for (size_t v = 0; v < variants.size(); ++v) {
        const int64_t start = MonotonicNs();
        for (size_t i = first; i < std::min(first + kBatch, photos.size()); ++i)
          variants[v].run(*photos[i]);
        seconds[v].push_back(1e-9 * static_cast<double>(MonotonicNs() - start));
      }
    }
    for (size_t v = 0; v < variants.size(); ++v) {
      std::nth_element(seconds[v].begin(), seconds[v].begin() + rounds / 2, seconds[v].end());
      variants[v].seconds += seconds[v][rounds / 2];
    }
  }
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

  std::mt19937 random(1);
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Photo> photos;
  StorePacker packer;
  jpeg::StoreDecoder decoder;
  size_t refused = 0;
  for (const auto& path : paths) {
    Photo photo;
    std::ifstream file(path, std::ios::binary);
    photo.encoded.assign(std::istreambuf_iterator<char>(file), {});
    testing::CoefficientReader reader;
    if (!reader.Read(photo.encoded, &photo.image) || !Pack(photo.image, packer)) {
      ++refused;
      continue;
    }
    const auto document = packer.Finish();
    photo.document.assign(document.begin(), document.end());
    const Rect crop = RandomResizedCrop(photo.image.shape.size, random);
    photo.geometry.crop = crop;
    photo.geometry.scaled = {kSide, kSide};
    photo.geometry.window = {0, 0, kSide, kSide};
    photo.geometry.flip_horizontal = random() % 2 == 0;
    Check(decoder.Open(photo.document));
    Check(decoder.Start(crop));
    jpeg::Planes planes;
    planes.Start(photo.image.shape, crop);
    for (int c = 0; c < photo.image.shape.components; ++c)
      photo.blocks +=
          static_cast<double>(planes.block_columns(c).count) * planes.block_rows(c).count;
    for (int y = 0; y < crop.height; ++y) {
      const uint8_t* row;
      Check(decoder.Read(1, &row));
      photo.crop.insert(photo.crop.end(), row, row + 3 * static_cast<size_t>(crop.width));
    }
    photos.push_back(std::move(photo));
  }
  if (photos.empty()) {
    std::fprintf(stderr, "no JPEGs in %s\n", folder.c_str());
    return 1;
  }

  PixelFormat format;
  format.type = PixelType::kFloat32;
  format.planar = format.affine = true;
  const float mean[] = {123.675f, 116.28f, 103.53f}, deviation[] = {58.395f, 57.12f, 57.375f};
  for (int c = 0; c < 3; ++c) {
    format.mean[c] = mean[c];
    format.inverse_std[c] = 1 / deviation[c];
  }
  std::vector<std::byte> out(kSide * kSide * 3 * sizeof(float));
  BareDecoder bare;
  BlocksOnly blocks_only;
  Resampler resampler;
  MemoryRows memory;
  enum { kBare, kPack, kBlocks, kRegion, kResample, kAll };
  std::vector<Variant> variants = {
      {"bare libjpeg-turbo, whole image", [&](Photo& photo) { bare.Decode(photo.encoded); }},
      {"packing the whole image", [&](Photo& photo) { Pack(photo.image, packer); }},
      {"the crop's blocks to samples", [&](Photo& photo) { blocks_only.Run(photo); }},
      {"the crop's RGB",
       [&](Photo& photo) {
         Check(decoder.Open(photo.document));
         Check(decoder.Start(photo.geometry.crop));
         ReadAll(decoder, photo.geometry.crop.height);
       }},
      {"resize, flip, normalise to float32 CHW",
       [&](Photo& photo) {
         resampler.Plan(photo.geometry, photo.image.shape.size, false, false);
         memory.Start(photo.crop.data(), photo.geometry.crop.width);
         Check(resampler.Run(memory, 3, format, out.data()));
       }},
      {"all: crop, resize, flip, normalise",
       [&](Photo& photo) {
         Check(decoder.Open(photo.document));
         Check(decoder.Start(resampler.Plan(photo.geometry, photo.image.shape.size, false, false)));
         Check(resampler.Run(decoder, 3, format, out.data()));
       }},
  };

  std::map<std::string, std::vector<Photo*>> groups;
  for (Photo& photo : photos) {
    const jpeg::FrameShape& shape = photo.image.shape;
    const std::string name =
        shape.components == 1
            ? "gray"
            : "4:" + std::string(shape.step_x(1) == 2 ? "2" : "4") + ":" +
                  (shape.step_y(1) == 2 ? (shape.step_x(1) == 2 ? "0" : "0 (high)")
                                        : (shape.step_x(1) == 2 ? "2" : "4"));
    groups["all"].push_back(&photo);
    groups[name].push_back(&photo);
  }
  std::printf("%zu photos, %zu not covered, %s\n", photos.size(), refused,
              jpeg::ActiveStoreKernels().target);
  for (auto& [name, group] : groups) {
    Measure(group, variants, rounds);
    double blocks = 0, whole_blocks = 0, pixels = 0, stored = 0, encoded = 0;
    for (const Photo* photo : group) {
      blocks += photo->blocks;
      for (const auto& coefficients : photo->image.coefficients)
        whole_blocks += static_cast<double>(coefficients.size()) / 64;
      pixels += static_cast<double>(photo->crop.size()) / 3;
      stored += static_cast<double>(photo->document.size());
      encoded += static_cast<double>(photo->encoded.size());
    }
    std::printf("\n%s: %zu photos, store / JPEG bytes %.3f\n", name.c_str(), group.size(),
                stored / encoded);
    for (const Variant& v : variants) {
      std::printf("  %-40s %8.1f us/image  bare / this %6.2f\n", v.name,
                  1e6 * v.seconds / static_cast<double>(group.size()),
                  variants[kBare].seconds / v.seconds);
    }
    std::printf(
        "  pack %.1f ns/block, blocks to samples %.1f ns/block, upsampling and colour %.3f ns/px, "
        "resize and normalise %.3f ns/px\n",
        1e9 * variants[kPack].seconds / whole_blocks, 1e9 * variants[kBlocks].seconds / blocks,
        1e9 * (variants[kRegion].seconds - variants[kBlocks].seconds) / pixels,
        1e9 * variants[kResample].seconds / pixels);
  }
  return 0;
}
