// Images for the codec's tests: JPEGs made on the spot with any sampling, the files of
// FEEDWATER_TEST_DATA, and the plain decode that everything is compared with.
#pragma once

#include <jpeglib.h>

#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/codec/image.h"

namespace feedwater::server::testing {

struct Pixels {
  Size size;
  int channels = 3;
  std::vector<uint8_t> bytes;
  const uint8_t* at(int x, int y) const {
    return &bytes[(static_cast<size_t>(y) * size.width + x) * channels];
  }
};

struct JpegOptions {
  int quality = 85;
  int luma_h = 1, luma_v = 1;  // sampling factors of luma; chroma has 1x1
  bool gray = false, progressive = false, arithmetic = false, interleaved = true;
  bool cmyk = false, ycck = false;
  int restart_rows = 0;
  unsigned restart_mcus = 0;
  bool optimised = false;                  // Huffman tables made for the image
  std::vector<jpeg_scan_info> scans = {};  // where not empty: these, whatever the others say
};

// Noise over slow gradients: edges for the upsampler, and no two samples alike.
inline Pixels NoisyImage(Size size, int channels, std::mt19937& random) {
  Pixels image{size, channels, {}};
  image.bytes.resize(static_cast<size_t>(size.width) * size.height * channels);
  size_t i = 0;
  const int grain = std::uniform_int_distribution<int>(1, 120)(random);
  for (int y = 0; y < size.height; ++y) {
    for (int x = 0; x < size.width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const int base = 60 + (x * (3 + c) + y * (5 - c)) % 160;
        const int noise = static_cast<int>(random() % (2 * grain + 1)) - grain;
        image.bytes[i++] = static_cast<uint8_t>(std::min(255, std::max(0, base + noise)));
      }
    }
  }
  return image;
}

inline std::string EncodeJpeg(const Pixels& image, const JpegOptions& options) {
  jpeg_compress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* out = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&jpeg, &out, &bytes);
  jpeg.image_width = image.size.width;
  jpeg.image_height = image.size.height;
  jpeg.input_components = image.channels;
  jpeg.in_color_space = image.channels == 1   ? JCS_GRAYSCALE
                        : image.channels == 4 ? JCS_CMYK
                                              : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  if (options.ycck) jpeg_set_colorspace(&jpeg, JCS_YCCK);
  jpeg_set_quality(&jpeg, options.quality, TRUE);
  jpeg.comp_info[0].h_samp_factor = options.luma_h;
  jpeg.comp_info[0].v_samp_factor = options.luma_v;
  if (image.channels == 4) {
    jpeg.comp_info[3].h_samp_factor = options.luma_h;
    jpeg.comp_info[3].v_samp_factor = options.luma_v;
  }
  jpeg.restart_in_rows = options.restart_rows;
  jpeg.restart_interval = options.restart_mcus;
  jpeg.arith_code = options.arithmetic ? TRUE : FALSE;
  jpeg.optimize_coding = options.optimised ? TRUE : FALSE;
  if (options.progressive) jpeg_simple_progression(&jpeg);
  jpeg_scan_info scans[4] = {};
  if (!options.interleaved) {
    for (int c = 0; c < jpeg.num_components; ++c) {
      scans[c].comps_in_scan = 1;
      scans[c].component_index[0] = c;
      scans[c].Se = 63;
    }
    jpeg.scan_info = scans;
    jpeg.num_scans = jpeg.num_components;
  }
  if (!options.scans.empty()) {
    jpeg.scan_info = options.scans.data();
    jpeg.num_scans = static_cast<int>(options.scans.size());
  }
  jpeg_start_compress(&jpeg, TRUE);
  for (int y = 0; y < image.size.height; ++y) {
    JSAMPROW row = const_cast<JSAMPROW>(image.at(0, y));
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string encoded(reinterpret_cast<char*>(out), bytes);
  jpeg_destroy_compress(&jpeg);
  std::free(out);
  return encoded;
}

// A progressive script of scans drawn at random: bands, bits and components in many orders. All of
// it sends all bits of all coefficients.
inline std::vector<jpeg_scan_info> RandomScript(int components, std::mt19937& random) {
  std::vector<std::vector<jpeg_scan_info>> chains;  // of each the order is fixed
  const auto add = [&](jpeg_scan_info scan) {
    chains.emplace_back();
    const int low = static_cast<int>(random() % 3);
    for (int bit = low; bit >= 0; --bit) {
      scan.Ah = bit == low ? 0 : bit + 1;
      scan.Al = bit;
      chains.back().push_back(scan);
    }
  };
  const bool together = random() % 2 == 0;
  for (int c = 0; c < (together ? 1 : components); ++c) {  // DC
    jpeg_scan_info scan = {};
    scan.comps_in_scan = together ? components : 1;
    for (int i = 0; i < scan.comps_in_scan; ++i) scan.component_index[i] = together ? i : c;
    add(scan);
  }
  std::vector<jpeg_scan_info> script;  // a component's DC comes before its AC
  for (auto& chain : chains) {
    script.push_back(chain.front());
    chain.erase(chain.begin());
  }
  for (int c = 0; c < components; ++c) {
    jpeg_scan_info scan = {};
    scan.comps_in_scan = 1;
    scan.component_index[0] = c;
    for (scan.Ss = 1; scan.Ss <= 63; scan.Ss = scan.Se + 1) {
      scan.Se = std::min<int>(63, scan.Ss + static_cast<int>(random() % 63));
      add(scan);
    }
  }
  for (;;) {
    std::vector<size_t> open;
    for (size_t i = 0; i < chains.size(); ++i) {
      if (!chains[i].empty()) open.push_back(i);
    }
    if (open.empty()) return script;
    auto& chain = chains[open[random() % open.size()]];
    script.push_back(chain.front());
    chain.erase(chain.begin());
  }
}

// The whole image as any program gets it from libjpeg-turbo with its defaults. `warnings`: as
// libjpeg counts them. False on an error. CMYK stays CMYK. At 1 / scale of its size.
struct PlainDecoder {
  jpeg_decompress_struct jpeg;
  jpeg_error_mgr errors;
  std::jmp_buf jump;

  bool Decode(const std::string& encoded, Pixels* image, long* warnings, int scale = 1) {
    jpeg.err = jpeg_std_error(&errors);
    jpeg.client_data = this;
    errors.error_exit = [](j_common_ptr common) {
      std::longjmp(static_cast<PlainDecoder*>(common->client_data)->jump, 1);
    };
    errors.output_message = [](j_common_ptr) {};
    if (setjmp(jump)) {
      jpeg_destroy_decompress(&jpeg);
      return false;
    }
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(encoded.data()), encoded.size());
    jpeg_read_header(&jpeg, TRUE);
    const bool four = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
    jpeg.out_color_space = four ? JCS_CMYK : JCS_RGB;
    jpeg.scale_num = 1;
    jpeg.scale_denom = static_cast<unsigned>(scale);
    jpeg_start_decompress(&jpeg);
    image->size = {static_cast<int>(jpeg.output_width), static_cast<int>(jpeg.output_height)};
    image->channels = jpeg.output_components;
    image->bytes.resize(static_cast<size_t>(image->size.width) * image->size.height *
                        image->channels);
    while (jpeg.output_scanline < jpeg.output_height) {
      JSAMPROW row = const_cast<JSAMPROW>(image->at(0, jpeg.output_scanline));
      jpeg_read_scanlines(&jpeg, &row, 1);
    }
    *warnings = errors.num_warnings;
    jpeg_destroy_decompress(&jpeg);
    return true;
  }
};

inline absl::Span<const std::byte> AsBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Files of a folder of the outside test data, in order of name; empty where the data is absent.
inline std::vector<std::filesystem::path> TestDataFiles(const std::string& folder) {
  const char* root = std::getenv("FEEDWATER_TEST_DATA");
  const auto base = root != nullptr ? std::filesystem::path(root)
                                    : std::filesystem::path(FEEDWATER_SOURCE_DIR).parent_path() /
                                          "shared" / "data";
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator it(base / folder, error), end;
       !error && it != end; it.increment(error)) {
    if (it->is_regular_file()) files.push_back(it->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

inline Geometry CropOnly(const Rect& crop) {
  Geometry geometry;
  geometry.crop = crop;
  geometry.scaled = {crop.width, crop.height};
  geometry.window = {0, 0, crop.width, crop.height};
  return geometry;
}

// The crop at 1 / scale, decoded so; the same pixels as RandomRect(ScaledSize(...)) of such an
// image where the crop's edges are multiples of the scale.
inline Geometry ScaledCrop(const Rect& crop, int scale) {
  Geometry geometry = CropOnly(crop);
  geometry.scaled = {crop.width / scale, crop.height / scale};
  geometry.window = {0, 0, geometry.scaled.width, geometry.scaled.height};
  geometry.fast_scale = true;
  return geometry;
}

inline Rect RandomRect(Size size, std::mt19937& random) {
  Rect r;
  r.width = std::uniform_int_distribution<int>(1, size.width)(random);
  r.height = std::uniform_int_distribution<int>(1, size.height)(random);
  if (random() % 4 == 0) r.width = std::min<int>(size.width, 1 + random() % 40);
  if (random() % 4 == 0) r.height = std::min<int>(size.height, 1 + random() % 40);
  r.x = std::uniform_int_distribution<int>(0, size.width - r.width)(random);
  r.y = std::uniform_int_distribution<int>(0, size.height - r.height)(random);
  return r;
}

}  // namespace feedwater::server::testing
