// JPEGs as coefficients, by libjpeg-turbo's transcoding interface: read from a file, and written
// from arbitrary numbers.
#pragma once

#include <jpeglib.h>

#include <csetjmp>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "server/codec/jpeg/planes.h"

namespace feedwater::server::testing {

// Real blocks only, row by row, 64 coefficients each in natural order.
struct CoefficientImage {
  jpeg::FrameShape shape;
  uint16_t quant[jpeg::kMaxComponents][64] = {};
  std::vector<int16_t> coefficients[jpeg::kMaxComponents];

  const int16_t* Row(int c, int block_row) const {
    return coefficients[c].data() + static_cast<size_t>(block_row) * shape.blocks_wide(c) * 64;
  }
};

// A baseline file, unless `arrange` makes another one. REQUIRES: the magnitudes are those of 8-bit
// JPEG (DC and AC below 1,024).
inline std::string EncodeCoefficients(
    const CoefficientImage& image,
    const std::function<void(jpeg_compress_struct&)>& arrange = [](jpeg_compress_struct&) {}) {
  jpeg_compress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* out = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&jpeg, &out, &bytes);
  const jpeg::FrameShape& shape = image.shape;
  jpeg.image_width = shape.size.width;
  jpeg.image_height = shape.size.height;
  jpeg.input_components = shape.components;
  jpeg.in_color_space = shape.components == 1 ? JCS_GRAYSCALE : JCS_YCbCr;
  jpeg_set_defaults(&jpeg);
  jpeg.optimize_coding = TRUE;
  jvirt_barray_ptr arrays[jpeg::kMaxComponents];
  for (int c = 0; c < shape.components; ++c) {
    jpeg_component_info& info = jpeg.comp_info[c];
    info.h_samp_factor = shape.h[c];
    info.v_samp_factor = shape.v[c];
    info.quant_tbl_no = c;
    if (jpeg.quant_tbl_ptrs[c] == nullptr) {
      jpeg.quant_tbl_ptrs[c] = jpeg_alloc_quant_table(reinterpret_cast<j_common_ptr>(&jpeg));
    }
    std::memcpy(jpeg.quant_tbl_ptrs[c]->quantval, image.quant[c], sizeof(image.quant[c]));
    jpeg.quant_tbl_ptrs[c]->sent_table = FALSE;
    const auto up = [](int n, int unit) { return (n + unit - 1) / unit * unit; };
    arrays[c] = (*jpeg.mem->request_virt_barray)(reinterpret_cast<j_common_ptr>(&jpeg), JPOOL_IMAGE,
                                                 TRUE, up(shape.blocks_wide(c), shape.h[c]),
                                                 up(shape.blocks_high(c), shape.v[c]), shape.v[c]);
  }
  arrange(jpeg);
  jpeg_write_coefficients(&jpeg, arrays);
  for (int c = 0; c < shape.components; ++c) {
    for (int row = 0; row < shape.blocks_high(c); ++row) {
      JBLOCKARRAY blocks = (*jpeg.mem->access_virt_barray)(reinterpret_cast<j_common_ptr>(&jpeg),
                                                           arrays[c], row, 1, TRUE);
      std::memcpy(blocks[0], image.Row(c, row), static_cast<size_t>(shape.blocks_wide(c)) * 128);
    }
  }
  jpeg_finish_compress(&jpeg);
  std::string encoded(reinterpret_cast<char*>(out), bytes);
  jpeg_destroy_compress(&jpeg);
  std::free(out);
  return encoded;
}

struct CoefficientReader {
  jpeg_decompress_struct jpeg;
  jpeg_error_mgr errors;
  std::jmp_buf jump;

  // False where the file is damaged, or not gray or YCbCr of one scan as planes support it.
  bool Read(const std::string& encoded, CoefficientImage* image) {
    jpeg.err = jpeg_std_error(&errors);
    jpeg.client_data = this;
    errors.error_exit = [](j_common_ptr common) {
      std::longjmp(static_cast<CoefficientReader*>(common->client_data)->jump, 1);
    };
    errors.output_message = [](j_common_ptr) {};
    if (setjmp(jump)) {
      jpeg_destroy_decompress(&jpeg);
      return false;
    }
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(encoded.data()), encoded.size());
    jpeg_read_header(&jpeg, TRUE);
    jpeg::FrameShape& shape = image->shape;
    shape = {};
    shape.size = {static_cast<int>(jpeg.image_width), static_cast<int>(jpeg.image_height)};
    shape.components = jpeg.num_components;
    bool ok = jpeg.num_components == 1 ||
              (jpeg.num_components == 3 && jpeg.jpeg_color_space == JCS_YCbCr);
    for (int c = 0; ok && c < shape.components; ++c) {
      shape.h[c] = shape.components == 1 ? 1 : jpeg.comp_info[c].h_samp_factor;
      shape.v[c] = shape.components == 1 ? 1 : jpeg.comp_info[c].v_samp_factor;
    }
    ok = ok && jpeg::PlanesSupport(shape) && !jpeg.progressive_mode && !jpeg.arith_code;
    if (ok) {
      jvirt_barray_ptr* arrays = jpeg_read_coefficients(&jpeg);
      for (int c = 0; c < shape.components; ++c) {
        const size_t row_coefficients = static_cast<size_t>(shape.blocks_wide(c)) * 64;
        for (int i = 0; i < 64; ++i) {
          image->quant[c][i] = jpeg.comp_info[c].quant_table->quantval[i];
          ok = ok && image->quant[c][i] >= 1 && image->quant[c][i] <= 255;
        }
        image->coefficients[c].resize(row_coefficients * shape.blocks_high(c));
        for (int row = 0; row < shape.blocks_high(c); ++row) {
          JBLOCKARRAY blocks = (*jpeg.mem->access_virt_barray)(
              reinterpret_cast<j_common_ptr>(&jpeg), arrays[c], row, 1, FALSE);
          std::memcpy(&image->coefficients[c][row * row_coefficients], blocks[0],
                      row_coefficients * sizeof(int16_t));
        }
      }
    }
    ok = ok && errors.num_warnings == 0;
    jpeg_destroy_decompress(&jpeg);
    return ok;
  }
};

}  // namespace feedwater::server::testing
