#include "server/codec/jpeg/baseline_transcoder.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "server/codec/decode_clock.h"

// libjpeg's headers need stdio first and are C.
#include <jerror.h>
#include <jpeglib.h>

namespace feedwater::server {
namespace {

constexpr unsigned kMarkerBytes = 0xFFFF;  // of a marker that is kept: as long as one can be

// Warnings after which the coefficients are still what the encoder meant, as in turbo_decoder.cc.
bool IsHarmless(int warning) {
  return warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_ADOBE_XFORM ||
         warning == JWRN_JFIF_MAJOR || warning == JWRN_BOGUS_ICC;
}

bool StartsWith(jpeg_saved_marker_ptr marker, const char* text, unsigned length) {
  return marker->data_length >= length && std::memcmp(marker->data, text, length) == 0;
}

struct Transcoder {
  enum class Failure { kDamaged, kNoMemory, kTooManyScans, kTooSlow, kTooLarge };

  jpeg_decompress_struct from;
  jpeg_compress_struct to;
  jpeg_error_mgr errors;
  jpeg_source_mgr source;
  jpeg_progress_mgr progress;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX] = "";
  Failure failure = Failure::kDamaged;
  ImageLimits limits;
  DecodeClock clock;
  unsigned progress_calls = 0;
  bool from_is_made = false, to_is_made = false, is_needed = false;
  jpeg_destination_mgr destination;
  JOCTET* bytes = nullptr;  // malloc's. Not jpeg_mem_dest's: after an error nobody knows its buffer
  size_t capacity = 0, size = 0;

  ~Transcoder() {
    if (to_is_made) jpeg_destroy_compress(&to);
    if (from_is_made) jpeg_destroy_decompress(&from);
    std::free(bytes);
  }

  static Transcoder& Of(j_common_ptr common) {
    return *static_cast<Transcoder*>(common->client_data);
  }
  [[noreturn]] void Fail(Failure reason) {
    failure = reason;
    std::longjmp(jump, 1);
  }
  static void OnError(j_common_ptr common) {
    common->err->format_message(common, Of(common).message);
    // The cases of malloc (jmemmgr.c). The others are blocks of a size that no file needs.
    const int which = common->err->msg_parm.i[0];
    const bool is_shortage =
        common->err->msg_code == JERR_OUT_OF_MEMORY && (which == 0 || which == 2 || which == 4);
    Of(common).Fail(is_shortage ? Failure::kNoMemory : Failure::kDamaged);
  }
  static void OnMessage(j_common_ptr common, int level) {
    if (level < 0 && !IsHarmless(common->err->msg_code)) OnError(common);
  }
  static void OnProgress(j_common_ptr common) {
    Transcoder& self = Of(common);
    if (self.from.input_scan_number > self.limits.max_scans) self.Fail(Failure::kTooManyScans);
    if (++self.progress_calls % 16 == 0 && self.clock.IsOver()) self.Fail(Failure::kTooSlow);
  }
  // Coefficients of a file that ends early would be invented.
  static boolean FillSource(j_decompress_ptr jpeg) {
    Transcoder& self = Of(reinterpret_cast<j_common_ptr>(jpeg));
    std::snprintf(self.message, sizeof(self.message), "premature end of file");
    self.Fail(Failure::kDamaged);
  }
  static void SkipSource(j_decompress_ptr jpeg, long count) {
    if (count <= 0) return;
    if (static_cast<size_t>(count) > jpeg->src->bytes_in_buffer) FillSource(jpeg);
    jpeg->src->next_input_byte += count;
    jpeg->src->bytes_in_buffer -= static_cast<size_t>(count);
  }

  // Doubles the room for what is written.
  static void Grow(j_compress_ptr jpeg) {
    Transcoder& self = Of(reinterpret_cast<j_common_ptr>(jpeg));
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
    Transcoder& self = Of(reinterpret_cast<j_common_ptr>(jpeg));
    self.size = self.capacity - self.destination.free_in_buffer;
  }

  // Libjpeg jumps out of this one. It has no object with a destructor, and reads no local variable
  // after the jump.
  static bool Run(Transcoder* self, const JOCTET* data, size_t length);
  void CopyMarkers();

  absl::Status ToStatus() const {
    switch (failure) {
      case Failure::kTooManyScans:
        return absl::InvalidArgumentError(absl::StrCat("JPEG has more than ", limits.max_scans,
                                                       " scans, which is over max_scans"));
      case Failure::kTooSlow:
        return clock.Over("JPEG");
      case Failure::kTooLarge:
        return absl::InvalidArgumentError(
            absl::StrCat("JPEG of ", from.image_width, "x", from.image_height,
                         " pixels is over max_pixels ", limits.max_pixels));
      case Failure::kNoMemory:
        return absl::ResourceExhaustedError("JPEG: out of memory");
      case Failure::kDamaged:
        break;
    }
    return absl::InvalidArgumentError(absl::StrCat("damaged JPEG: ", message));
  }
};

// Those of JFIF and Adobe the library writes itself.
void Transcoder::CopyMarkers() {
  for (jpeg_saved_marker_ptr marker = from.marker_list; marker != nullptr; marker = marker->next) {
    if (to.write_JFIF_header && marker->marker == JPEG_APP0 && StartsWith(marker, "JFIF", 5))
      continue;
    if (to.write_Adobe_marker && marker->marker == JPEG_APP0 + 14 && StartsWith(marker, "Adobe", 5))
      continue;
    jpeg_write_marker(&to, marker->marker, marker->data, marker->data_length);
  }
}

bool Transcoder::Run(Transcoder* self, const JOCTET* data, size_t length) {
  jpeg_decompress_struct& from = self->from;
  jpeg_compress_struct& to = self->to;
  from.err = jpeg_std_error(&self->errors);
  self->errors.error_exit = OnError;
  self->errors.emit_message = OnMessage;
  self->errors.output_message = [](j_common_ptr) {};
  from.client_data = self;
  if (setjmp(self->jump)) return false;
  jpeg_create_decompress(&from);
  self->from_is_made = true;
  self->source.init_source = [](j_decompress_ptr) {};
  self->source.fill_input_buffer = FillSource;
  self->source.skip_input_data = SkipSource;
  self->source.resync_to_restart = jpeg_resync_to_restart;
  self->source.term_source = [](j_decompress_ptr) {};
  self->source.next_input_byte = data;
  self->source.bytes_in_buffer = length;
  from.src = &self->source;
  self->progress.progress_monitor = OnProgress;
  from.progress = &self->progress;
  jpeg_save_markers(&from, JPEG_COM, kMarkerBytes);
  for (int i = 0; i < 16; ++i) jpeg_save_markers(&from, JPEG_APP0 + i, kMarkerBytes);
  jpeg_read_header(&from, TRUE);
  self->is_needed = from.progressive_mode || from.arith_code;
  if (!self->is_needed) return true;
  if (static_cast<int64_t>(from.image_width) * from.image_height > self->limits.max_pixels)
    self->Fail(Failure::kTooLarge);

  jvirt_barray_ptr* coefficients = jpeg_read_coefficients(&from);
  to.err = &self->errors;
  to.client_data = self;
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
  transcoder->limits = limits;
  transcoder->clock.Start(limits);
  if (!Transcoder::Run(transcoder.get(), reinterpret_cast<const JOCTET*>(encoded.data()),
                       encoded.size())) {
    return transcoder->ToStatus();
  }
  if (!transcoder->is_needed) return std::nullopt;
  return std::string(reinterpret_cast<char*>(transcoder->bytes), transcoder->size);
}

}  // namespace feedwater::server
