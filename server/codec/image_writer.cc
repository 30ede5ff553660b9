#include "server/codec/image_writer.h"

#include <png.h>
#include <webp/encode.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

// libjpeg's headers need <cstdio> before them.
#include <jpeglib.h>

namespace feedwater::server {
namespace {

constexpr int kMaxJpegSide = JPEG_MAX_DIMENSION, kMaxWebpSide = WEBP_MAX_DIMENSION;
constexpr int kMaxOtherSide = 1 << 20;

absl::Status OutOfMemory() { return absl::ResourceExhaustedError("picture: out of memory"); }

size_t RowBytes(const PictureView& picture) {
  return static_cast<size_t>(picture.size.width) * picture.channels;
}
size_t AllBytes(const PictureView& picture) { return RowBytes(picture) * picture.size.height; }

void Append(std::string& file, uint64_t value, int bytes) {  // little endian
  for (int i = 0; i < bytes; ++i) file.push_back(static_cast<char>(value >> (8 * i)));
}

absl::StatusOr<std::string> WritePng(const PictureView& picture) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = picture.size.width;
  image.height = picture.size.height;
  image.format = picture.channels == 1   ? PNG_FORMAT_GRAY
                 : picture.channels == 3 ? PNG_FORMAT_RGB
                                         : PNG_FORMAT_RGBA;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(bytes, '\0');
  if (!png_image_write_to_memory(&image, file.data(), &bytes, 0, picture.pixels, 0, nullptr))
    return absl::InternalError(absl::StrCat("libpng cannot write a picture: ", image.message));
  file.resize(bytes);
  return file;
}

struct JpegFile {
  jpeg_compress_struct jpeg;
  jpeg_error_mgr errors;
  std::jmp_buf jump;
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
};

// Ends in libjpeg's longjmp, so nothing with a destructor may live here.
bool Compress(const PictureView& picture, int quality, JpegFile* file) {
  jpeg_compress_struct& jpeg = file->jpeg;
  jpeg.err = jpeg_std_error(&file->errors);
  jpeg.client_data = file;
  file->errors.error_exit = [](j_common_ptr common) {
    std::longjmp(static_cast<JpegFile*>(common->client_data)->jump, 1);
  };
  jpeg_create_compress(&jpeg);
  if (setjmp(file->jump) != 0) {
    jpeg_destroy_compress(&jpeg);
    return false;
  }
  jpeg_mem_dest(&jpeg, &file->bytes, &file->size);
  jpeg.image_width = picture.size.width;
  jpeg.image_height = picture.size.height;
  jpeg.input_components = picture.channels;
  jpeg.in_color_space = picture.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, quality, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(picture.pixels + jpeg.next_scanline * RowBytes(picture));
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  return true;
}

absl::StatusOr<std::string> WriteJpeg(const PictureView& picture, int quality) {
  JpegFile file;
  const bool is_done = Compress(picture, quality, &file);
  const absl::Cleanup freed = [&file] { std::free(file.bytes); };
  if (!is_done) return OutOfMemory();
  return std::string(reinterpret_cast<char*>(file.bytes), file.size);
}

absl::StatusOr<std::string> WriteWebp(const PictureView& picture) {
  const int width = picture.size.width, height = picture.size.height;
  std::vector<uint8_t> colour;
  const uint8_t* pixels = picture.pixels;
  if (picture.channels == 1) {
    colour.resize(AllBytes(picture) * 3);
    for (size_t i = 0; i < colour.size(); ++i) colour[i] = picture.pixels[i / 3];
    pixels = colour.data();
  }
  uint8_t* bytes = nullptr;
  const size_t size = picture.channels == 4
                          ? WebPEncodeLosslessRGBA(pixels, width, height, width * 4, &bytes)
                          : WebPEncodeLosslessRGB(pixels, width, height, width * 3, &bytes);
  const absl::Cleanup freed = [bytes] { WebPFree(bytes); };
  if (size == 0) return OutOfMemory();
  return std::string(reinterpret_cast<char*>(bytes), size);
}

std::string WriteBmp(const PictureView& picture) {
  const size_t stride = (RowBytes(picture) + 3) / 4 * 4;
  const size_t palette = picture.channels == 1 ? 256 * 4 : 0;
  const size_t start = 54 + palette;
  std::string file = "BM";
  Append(file, start + stride * picture.size.height, 4);
  Append(file, 0, 4);
  Append(file, start, 4);
  Append(file, 40, 4);
  Append(file, picture.size.width, 4);
  Append(file, picture.size.height, 4);
  Append(file, 1, 2);
  Append(file, 8 * picture.channels, 2);
  file.append(24, '\0');
  for (size_t i = 0; i < palette / 4; ++i) Append(file, i * 0x010101, 4);
  for (int y = picture.size.height - 1; y >= 0; --y) {
    const uint8_t* row = picture.pixels + y * RowBytes(picture);
    for (int x = 0; x < picture.size.width; ++x, row += picture.channels) {
      if (picture.channels >= 3) Append(file, row[2] | row[1] << 8 | row[0] << 16, 3);
      if (picture.channels != 3) Append(file, row[picture.channels - 1], 1);
    }
    file.append(stride - RowBytes(picture), '\0');
  }
  return file;
}

std::string WritePnm(const PictureView& picture) {
  std::string file = absl::StrCat(picture.channels == 1 ? "P5" : "P6", "\n", picture.size.width,
                                  " ", picture.size.height, "\n255\n");
  file.append(reinterpret_cast<const char*>(picture.pixels), AllBytes(picture));
  return file;
}

std::string WriteTiff(const PictureView& picture) {
  constexpr int kShort = 3, kLong = 4, kEntries = 10;
  constexpr uint32_t kBitsAt = 8 + 2 + 12 * kEntries + 4, kPixelsAt = kBitsAt + 4 * 2;
  std::string file("II*\0\x08\0\0\0", 8);
  Append(file, kEntries, 2);
  const auto add = [&](int tag, int type, uint32_t count, uint64_t value) {
    Append(file, tag, 2);
    Append(file, type, 2);
    Append(file, count, 4);
    Append(file, value, 4);
  };
  const int channels = picture.channels;
  add(256, kLong, 1, picture.size.width);
  add(257, kLong, 1, picture.size.height);
  add(258, kShort, channels, channels == 1 ? 8 : kBitsAt);
  add(259, kShort, 1, 1);                      // no compression
  add(262, kShort, 1, channels == 1 ? 1 : 2);  // gray from black, or RGB
  add(273, kLong, 1, kPixelsAt);
  add(277, kShort, 1, channels);
  add(278, kLong, 1, picture.size.height);
  add(279, kLong, 1, AllBytes(picture));
  add(338, kShort, channels == 4 ? 1 : 0, channels == 4 ? 2 : 0);  // alpha
  Append(file, 0, 4);
  for (int i = 0; i < 4; ++i) Append(file, 8, 2);
  file.append(reinterpret_cast<const char*>(picture.pixels), AllBytes(picture));
  return file;
}

}  // namespace

absl::StatusOr<std::string> WritePicture(const PictureView& picture, absl::string_view extension,
                                         int jpeg_quality) {
  const bool is_jpeg = extension == ".jpg" || extension == ".jpeg";
  const int most = is_jpeg ? kMaxJpegSide : extension == ".webp" ? kMaxWebpSide : kMaxOtherSide;
  if (picture.size.width < 1 || picture.size.height < 1 || picture.size.width > most ||
      picture.size.height > most) {
    return absl::InvalidArgumentError(absl::StrCat(picture.size.width, "x", picture.size.height,
                                                   " pixels do not fit into a ", extension,
                                                   " file, which has 1 to ", most, " a side"));
  }
  const int channels = picture.channels;
  if (channels != 1 && channels != 3 && (channels != 4 || is_jpeg)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", extension, " file of ", channels, " channels"));
  }
  if (extension == ".png") return WritePng(picture);
  if (is_jpeg) return WriteJpeg(picture, jpeg_quality);
  if (extension == ".webp") return WriteWebp(picture);
  if (extension == ".bmp") return WriteBmp(picture);
  if (extension == ".tiff" || extension == ".tif") return WriteTiff(picture);
  if ((extension == ".ppm" && channels == 3) || (extension == ".pgm" && channels == 1))
    return WritePnm(picture);
  return absl::InvalidArgumentError(
      absl::StrCat("no picture is written as '", extension, "' with ", channels, " channels"));
}

}  // namespace feedwater::server
