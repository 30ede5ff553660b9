#include "server/codec/jpeg/libjpeg_packer.h"

#include <csetjmp>
#include <cstring>
#include <memory>

#include "server/codec/jpeg/libjpeg_reader.h"
#include "server/codec/jpeg/markers.h"

namespace feedwater::server::jpeg {
namespace {

// The library's tables, and what it holds of a few rows.
constexpr int64_t kStateBytes = 1 << 20;

// Libjpeg jumps out of the static functions (libjpeg_reader.h).
struct Reader : LibjpegReader {
  FrameShape shape;
  uint16_t quant[kMaxComponents][64];
  jvirt_barray_ptr* arrays = nullptr;

  // False with and without a jump: the image stays as it is.
  static bool ReadAll(Reader* self, absl::Span<const std::byte> encoded, const JpegHeader* header);
  // A row of blocks of component c; null where the library fails.
  static const int16_t* Row(Reader* self, int c, int row);

  bool TakeShape();
  bool TakeSteps();
};

// Whether documents have such images.
bool Reader::TakeShape() {
  shape.size = {static_cast<int>(jpeg.image_width), static_cast<int>(jpeg.image_height)};
  shape.components = jpeg.num_components;
  const bool is_gray = jpeg.num_components == 1 && jpeg.jpeg_color_space == JCS_GRAYSCALE;
  if (!is_gray && !(jpeg.num_components == 3 && jpeg.jpeg_color_space == JCS_YCbCr)) return false;
  for (int c = 0; !is_gray && c < shape.components; ++c) {
    shape.h[c] = jpeg.comp_info[c].h_samp_factor;
    shape.v[c] = jpeg.comp_info[c].v_samp_factor;
  }
  return PlanesSupport(shape);
}

// The steps as each component's first scan had them, which are those of a decode.
bool Reader::TakeSteps() {
  for (int c = 0; c < shape.components; ++c) {
    const jpeg_component_info& component = jpeg.comp_info[c];
    if (component.quant_table == nullptr) return false;  // it had no scan
    if (component.width_in_blocks != static_cast<JDIMENSION>(shape.blocks_wide(c)) ||
        component.height_in_blocks != static_cast<JDIMENSION>(shape.blocks_high(c))) {
      return false;
    }
    std::memcpy(quant[c], component.quant_table->quantval, sizeof(quant[c]));
  }
  return true;
}

bool Reader::ReadAll(Reader* self, absl::Span<const std::byte> encoded, const JpegHeader* header) {
  jpeg_decompress_struct& jpeg = self->jpeg;
  if (setjmp(self->jump)) return false;
  self->ReadHeader(encoded);
  self->CheckPixels();
  if (jpeg.arith_code || !self->TakeShape()) return false;
  if (!(self->shape.size == header->size)) return false;
  self->needs_end = jpeg_has_multiple_scans(&jpeg);
  jpeg.mem->max_memory_to_use = static_cast<long>(header->coefficient_bytes + kStateBytes);
  self->arrays = jpeg_read_coefficients(&jpeg);
  return self->DecodesTheseCoefficients() && self->TakeSteps();
}

const int16_t* Reader::Row(Reader* self, int c, int row) {
  static_assert(sizeof(JCOEF) == sizeof(int16_t));
  if (setjmp(self->jump)) return nullptr;
  jpeg_decompress_struct& jpeg = self->jpeg;
  JBLOCKARRAY rows =
      (*jpeg.mem->access_virt_barray)(reinterpret_cast<j_common_ptr>(&jpeg), self->arrays[c],
                                      static_cast<JDIMENSION>(row), 1, FALSE);
  return rows[0][0];
}

}  // namespace

absl::Span<const uint8_t> PackByLibjpeg(absl::Span<const std::byte> encoded,
                                        const ImageLimits& limits, StorePacker& packer) {
  const absl::StatusOr<JpegHeader> header = ReadJpegHeader(encoded);
  if (!header.ok()) return {};
  const auto reader = std::make_unique<Reader>();  // frees the coefficients, whatever happens
  reader->Begin(limits);
  if (!Reader::ReadAll(reader.get(), encoded, &*header)) return {};
  const FrameShape& shape = reader->shape;
  const int64_t most_bytes = MostStoreBytes(static_cast<int64_t>(encoded.size()), shape.size);
  if (!packer.Start(shape, reader->quant, header->orientation, most_bytes)) return {};
  // In the order of an interleaved scan, so that what a crop needs lies together.
  for (int mcu_row = 0; mcu_row * shape.v[0] < shape.blocks_high(0); ++mcu_row) {
    if (reader->clock.IsOver()) return {};
    for (int c = 0; c < shape.components; ++c) {
      for (int v = 0; v < shape.v[c] && mcu_row * shape.v[c] + v < shape.blocks_high(c); ++v) {
        const int16_t* row = Reader::Row(reader.get(), c, mcu_row * shape.v[c] + v);
        if (row == nullptr || !packer.AddRow(c, row)) return {};
      }
    }
  }
  return packer.Finish();
}

}  // namespace feedwater::server::jpeg
