#include "server/codec/jpeg/baseline_transcoder.h"

#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "server/codec/jpeg/libjpeg_reader.h"

namespace feedwater::server {
namespace {

bool StartsWith(jpeg_saved_marker_ptr marker, const char* text, unsigned length) {
  return marker->data_length >= length && std::memcmp(marker->data, text, length) == 0;
}

struct Transcoder : LibjpegReader {
  jpeg_compress_struct to;
  bool to_is_made = false, is_needed = false;
  jpeg_destination_mgr destination;
  JOCTET* bytes = nullptr;  // malloc's. Not jpeg_mem_dest's: after an error nobody knows its buffer
  size_t capacity = 0, size = 0;

  ~Transcoder() {
    if (to_is_made) jpeg_destroy_compress(&to);
    std::free(bytes);
  }

  static Transcoder& Of(j_compress_ptr jpeg) {
    return static_cast<Transcoder&>(LibjpegReader::Of(reinterpret_cast<j_common_ptr>(jpeg)));
  }

  // Doubles the room for what is written.
  static void Grow(j_compress_ptr jpeg) {
    Transcoder& self = Of(jpeg);
    constexpr size_t kFirstBytes = 64 << 10;
    const size_t before = self.capacity, now = before == 0 ? kFirstBytes : 2 * before;
    auto* grown = static_cast<JOCTET*>(std::realloc(self.bytes, now));
    if (grown == nullptr) self.Fail(Failure::kNoMemory);
    self.bytes = grown;
    self.capacity = now;
    self.destination.next_output_byte = grown + before;
    self.destination.free_in_buffer = now - before;
  }
  static boolean FullDestination(j_compress_ptr jpeg) {
    Grow(jpeg);
    return TRUE;
  }
  static void TermDestination(j_compress_ptr jpeg) {
    Transcoder& self = Of(jpeg);
    self.size = self.capacity - self.destination.free_in_buffer;
  }

  // Libjpeg jumps out of this one (libjpeg_reader.h).
  static bool Run(Transcoder* self, absl::Span<const std::byte> encoded);
  void CopyMarkers();
};

// Those of JFIF and Adobe the library writes itself.
void Transcoder::CopyMarkers() {
  for (jpeg_saved_marker_ptr marker = jpeg.marker_list; marker != nullptr; marker = marker->next) {
    if (to.write_JFIF_header && marker->marker == JPEG_APP0 && StartsWith(marker, "JFIF", 5))
      continue;
    if (to.write_Adobe_marker && marker->marker == JPEG_APP0 + 14 && StartsWith(marker, "Adobe", 5))
      continue;
    jpeg_write_marker(&to, marker->marker, marker->data, marker->data_length);
  }
}

bool Transcoder::Run(Transcoder* self, absl::Span<const std::byte> encoded) {
  jpeg_decompress_struct& from = self->jpeg;
  jpeg_compress_struct& to = self->to;
  if (setjmp(self->jump)) return false;
  self->needs_end = true;  // coefficients of a file that ends early would be invented
  self->keeps_markers = true;
  self->ReadHeader(encoded);
  self->is_needed = from.progressive_mode || from.arith_code;
  if (!self->is_needed) return true;
  self->CheckPixels();

  jvirt_barray_ptr* coefficients = jpeg_read_coefficients(&from);
  self->is_needed = self->DecodesTheseCoefficients();
  if (!self->is_needed) return true;
  to.err = &self->errors;
  to.client_data = static_cast<LibjpegReader*>(self);
  jpeg_create_compress(&to);
  self->to_is_made = true;
  self->destination.init_destination = Grow;
  self->destination.empty_output_buffer = FullDestination;
  self->destination.term_destination = TermDestination;
  to.dest = &self->destination;
  jpeg_copy_critical_parameters(&from, &to);
  // Readers turn CMYK over where Adobe's marker says so.
  if (from.num_components == 4) to.write_Adobe_marker = from.saw_Adobe_marker;
  to.optimize_coding = TRUE;  // tables of the image's own, as progressive files have
  jpeg_write_coefficients(&to, coefficients);
  self->CopyMarkers();
  jpeg_finish_compress(&to);
  return true;
}

}  // namespace

absl::StatusOr<std::optional<std::string>> ToBaselineJpeg(absl::Span<const std::byte> encoded,
                                                          const ImageLimits& limits) {
  const auto transcoder = std::make_unique<Transcoder>();
  transcoder->Begin(limits);
  if (!Transcoder::Run(transcoder.get(), encoded)) return transcoder->ToStatus();
  if (!transcoder->is_needed) return std::nullopt;
  return std::string(reinterpret_cast<char*>(transcoder->bytes), transcoder->size);
}

}  // namespace feedwater::server
