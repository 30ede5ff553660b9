#include "tests/testing/photos/photo_file.h"

#include <jpeglib.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>

#include "server/base/status.h"
#include "server/codec/image_writer.h"

namespace feedwater::testing {
namespace {

struct JpegErrors {
  jpeg_error_mgr base;
  std::jmp_buf back;
};

[[noreturn]] void LeaveLibjpeg(j_common_ptr info) {
  std::longjmp(reinterpret_cast<JpegErrors*>(info->err)->back, 1);
}

// Plain C types only, because errors jump over this frame. False when libjpeg failed; *bytes is
// malloc'ed.
bool Compress(const Photo& photo, unsigned char** bytes, unsigned long* size) {
  jpeg_compress_struct jpeg;
  JpegErrors errors;
  jpeg.err = jpeg_std_error(&errors.base);
  errors.base.error_exit = LeaveLibjpeg;
  if (setjmp(errors.back) != 0) {
    jpeg_destroy_compress(&jpeg);
    return false;
  }
  jpeg_create_compress(&jpeg);
  jpeg_mem_dest(&jpeg, bytes, size);
  jpeg.image_width = static_cast<JDIMENSION>(photo.width);
  jpeg.image_height = static_cast<JDIMENSION>(photo.height);
  jpeg.input_components = 3;
  jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&jpeg);
  if (photo.sampling == Photo::Sampling::kGray) jpeg_set_colorspace(&jpeg, JCS_GRAYSCALE);
  jpeg_set_quality(&jpeg, photo.quality, TRUE);
  jpeg.comp_info[0].h_samp_factor =
      photo.sampling == Photo::Sampling::k420 || photo.sampling == Photo::Sampling::k422 ? 2 : 1;
  jpeg.comp_info[0].v_samp_factor = photo.sampling == Photo::Sampling::k420 ? 2 : 1;
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    auto* row =
        const_cast<JSAMPROW>(photo.rgb.data()) + size_t{3} * jpeg.next_scanline * jpeg.image_width;
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  return true;
}

}  // namespace

absl::Status EncodeJpeg(const Photo& photo, std::vector<uint8_t>* bytes) {
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  const bool is_done = Compress(photo, &buffer, &size);
  if (is_done) bytes->assign(buffer, buffer + size);
  std::free(buffer);
  return is_done ? absl::OkStatus() : absl::InternalError("libjpeg could not write a photo");
}

absl::Status EncodePng(const Photo& photo, std::vector<uint8_t>* bytes) {
  FW_ASSIGN_OR_RETURN(
      const std::string file,
      server::WritePicture({photo.rgb.data(), {photo.width, photo.height}, 3}, ".png"));
  bytes->assign(file.begin(), file.end());
  return absl::OkStatus();
}

}  // namespace feedwater::testing
