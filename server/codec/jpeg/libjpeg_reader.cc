#include "server/codec/jpeg/libjpeg_reader.h"

#include <jerror.h>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

constexpr unsigned kMarkerBytes = 0xFFFF;  // of a marker that is kept: as long as one can be

// Warnings after which pixels and coefficients are still what the encoder meant.
bool IsHarmless(int warning) {
  return warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_ADOBE_XFORM ||
         warning == JWRN_JFIF_MAJOR || warning == JWRN_BOGUS_ICC;
}

}  // namespace

void LibjpegReader::Begin(const ImageLimits& image_limits) {
  Close();
  limits = image_limits;
  clock.Start(image_limits);
  message_[0] = '\0';
  failure_ = Failure::kDamaged;
  progress_calls_ = 0;
  jpeg.err = jpeg_std_error(&errors);
  errors.error_exit = OnError;
  errors.emit_message = OnMessage;
  errors.output_message = [](j_common_ptr) {};
  jpeg.client_data = this;
}

void LibjpegReader::Close() {
  if (!is_open_) return;
  is_open_ = false;
  jpeg_destroy_decompress(&jpeg);
}

absl::Status LibjpegReader::ToStatus() const {
  switch (failure_) {
    case Failure::kTooManyScans:
      return absl::InvalidArgumentError(
          absl::StrCat("JPEG has more than ", limits.max_scans, " scans, which is over max_scans"));
    case Failure::kTooSlow:
      return clock.Over("JPEG");
    case Failure::kTooLarge:
      return absl::InvalidArgumentError(
          absl::StrCat("JPEG of ", jpeg.image_width, "x", jpeg.image_height,
                       " pixels is over max_pixels ", limits.max_pixels));
    case Failure::kNoMemory:
      return absl::ResourceExhaustedError("JPEG: out of memory");
    case Failure::kDamaged:
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat("damaged JPEG: ", message_));
}

void LibjpegReader::ReadHeader(absl::Span<const std::byte> encoded) {
  jpeg_create_decompress(&jpeg);
  is_open_ = true;
  source_.init_source = [](j_decompress_ptr) {};
  source_.fill_input_buffer = FillSource;
  source_.skip_input_data = SkipSource;
  source_.resync_to_restart = jpeg_resync_to_restart;
  source_.term_source = [](j_decompress_ptr) {};
  source_.next_input_byte = reinterpret_cast<const JOCTET*>(encoded.data());
  source_.bytes_in_buffer = encoded.size();
  jpeg.src = &source_;
  progress_.progress_monitor = OnProgress;
  jpeg.progress = &progress_;
  if (keeps_markers) {
    jpeg_save_markers(&jpeg, JPEG_COM, kMarkerBytes);
    for (int i = 0; i < 16; ++i) jpeg_save_markers(&jpeg, JPEG_APP0 + i, kMarkerBytes);
  }
  jpeg_read_header(&jpeg, TRUE);
}

bool LibjpegReader::DecodesTheseCoefficients() {
  if (!jpeg_has_multiple_scans(&jpeg) && jpeg.input_scan_number != 1) return false;
  if (!jpeg.progressive_mode) return true;
  for (int c = 0; c < jpeg.num_components; ++c) {
    for (int k = 0; k < DCTSIZE2; ++k) {
      if (jpeg.coef_bits[c][k] != 0) return false;  // bits that are not known yet; -1: all
    }
  }
  return true;
}

void LibjpegReader::CheckPixels() {
  if (static_cast<int64_t>(jpeg.image_width) * jpeg.image_height > limits.max_pixels)
    Fail(Failure::kTooLarge);
}

void LibjpegReader::CheckTime() {
  if (clock.IsOver()) Fail(Failure::kTooSlow);
}

void LibjpegReader::Fail(Failure reason) {
  failure_ = reason;
  std::longjmp(jump, 1);
}

void LibjpegReader::OnError(j_common_ptr common) {
  common->err->format_message(common, Of(common).message_);
  // The cases of malloc (jmemmgr.c). The others are blocks of a size that no file needs.
  const int which = common->err->msg_parm.i[0];
  const bool is_shortage =
      common->err->msg_code == JERR_OUT_OF_MEMORY && (which == 0 || which == 2 || which == 4);
  Of(common).Fail(is_shortage ? Failure::kNoMemory : Failure::kDamaged);
}

void LibjpegReader::OnMessage(j_common_ptr common, int level) {
  if (level < 0 && !IsHarmless(common->err->msg_code)) OnError(common);
}

void LibjpegReader::OnProgress(j_common_ptr common) {
  LibjpegReader& self = Of(common);
  if (self.jpeg.input_scan_number > self.limits.max_scans) self.Fail(Failure::kTooManyScans);
  if (++self.progress_calls_ % 16 == 0) self.CheckTime();
}

boolean LibjpegReader::FillSource(j_decompress_ptr jpeg) {
  static const JOCTET kEnd[2] = {0xFF, JPEG_EOI};
  LibjpegReader& self = Of(reinterpret_cast<j_common_ptr>(jpeg));
  if (self.needs_end) {
    std::snprintf(self.message_, sizeof(self.message_), "premature end of file");
    self.Fail(Failure::kDamaged);
  }
  jpeg->src->next_input_byte = kEnd;
  jpeg->src->bytes_in_buffer = sizeof(kEnd);
  return TRUE;
}

void LibjpegReader::SkipSource(j_decompress_ptr jpeg, long bytes) {
  if (bytes <= 0) return;
  if (static_cast<size_t>(bytes) > jpeg->src->bytes_in_buffer) {
    FillSource(jpeg);
    return;
  }
  jpeg->src->next_input_byte += bytes;
  jpeg->src->bytes_in_buffer -= static_cast<size_t>(bytes);
}

}  // namespace feedwater::server
