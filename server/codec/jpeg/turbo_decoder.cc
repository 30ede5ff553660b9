#include "server/codec/jpeg/turbo_decoder.h"

#include <csetjmp>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/codec/decode_clock.h"

// libjpeg's headers need stdio first and are C.
#include <jerror.h>
#include <jpeglib.h>

namespace feedwater::server {
namespace {

enum class Failure { kDamaged, kNoMemory, kTooManyScans, kTooSlow };

// Warnings after which the pixels are still what the encoder meant.
bool IsHarmless(int warning) {
  return warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_ADOBE_XFORM ||
         warning == JWRN_JFIF_MAJOR || warning == JWRN_BOGUS_ICC;
}

// Pillow's CMYK -> RGB of the inverted samples that Adobe writes: `ink` is 255 minus the ink.
inline uint8_t InkToColour(int ink, int black) {
  const int product = (255 - ink) * black + 128;
  const int absorbed = ((product >> 8) + product) >> 8;
  return static_cast<uint8_t>(absorbed > black ? 0 : black - absorbed);
}

// Never shrinks: a vector that shrinks and grows again clears what it grows by.
void Grow(std::vector<uint8_t>& buffer, size_t bytes) {
  if (buffer.size() < bytes) buffer.resize(bytes);
}

}  // namespace

struct TurboDecoder::State {
  jpeg_decompress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg_source_mgr source;
  jpeg_progress_mgr progress;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
  Failure failure = Failure::kDamaged;

  ImageLimits limits;
  DecodeClock clock;
  unsigned progress_calls = 0;
  bool open = false;
  bool multiple_scans = false;

  size_t offset_bytes = 0;  // from a row's start in `band` to the region's first pixel
  size_t row_bytes = 0;     // in `band`
  int channels = 3;         // of libjpeg's rows: 4 for CMYK
  std::vector<uint8_t> band;
  std::vector<uint8_t> rgb;  // CMYK only: the converted rows
  int region_width = 0;

  absl::Status ToStatus() const {
    switch (failure) {
      case Failure::kTooManyScans:
        return absl::InvalidArgumentError(absl::StrCat("JPEG has more than ", limits.max_scans,
                                                       " scans, which is over max_scans"));
      case Failure::kTooSlow:
        return clock.Over("JPEG");
      case Failure::kNoMemory:
        return absl::ResourceExhaustedError("JPEG: out of memory");
      case Failure::kDamaged:
        break;
    }
    return absl::InvalidArgumentError(absl::StrCat("damaged JPEG: ", message));
  }

  [[noreturn]] void Fail(Failure reason) {
    failure = reason;
    std::longjmp(jump, 1);
  }

  void CheckTime() {
    if (clock.IsOver()) Fail(Failure::kTooSlow);
  }

  static State& Of(j_common_ptr common) { return *static_cast<State*>(common->client_data); }
  static State& Of(j_decompress_ptr jpeg) { return *static_cast<State*>(jpeg->client_data); }

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
  static void OnOutput(j_common_ptr) {}

  static void OnProgress(j_common_ptr common) {
    State& state = Of(common);
    if (state.jpeg.input_scan_number > state.limits.max_scans) state.Fail(Failure::kTooManyScans);
    if (++state.progress_calls % 16 == 0) state.CheckTime();
  }

  static void InitSource(j_decompress_ptr) {}
  static void TermSource(j_decompress_ptr) {}
  // The bytes are used up. An end marker is put in their place: the bit reader looks ahead and may
  // ask for bytes that no pixel needs. If one does need them, libjpeg meets the marker and warns,
  // and that is an error here.
  static boolean FillSource(j_decompress_ptr jpeg) {
    static const JOCTET kEnd[2] = {0xFF, JPEG_EOI};
    if (Of(jpeg).multiple_scans) {  // else a progressive image without its last scans would pass
      std::snprintf(Of(jpeg).message, sizeof(Of(jpeg).message), "premature end of file");
      Of(jpeg).Fail(Failure::kDamaged);
    }
    jpeg->src->next_input_byte = kEnd;
    jpeg->src->bytes_in_buffer = 2;
    return TRUE;
  }
  static void SkipSource(j_decompress_ptr jpeg, long bytes) {
    if (bytes <= 0) return;
    if (static_cast<size_t>(bytes) > jpeg->src->bytes_in_buffer) {
      FillSource(jpeg);
      return;
    }
    jpeg->src->next_input_byte += bytes;
    jpeg->src->bytes_in_buffer -= bytes;
  }

  // The functions below are the only ones that libjpeg jumps out of. None has an object with a
  // destructor, and none reads a local variable after the jump.
  static bool Open(State* state, const JOCTET* data, size_t bytes);
  static bool Start(State* state, Rect region, int scale);
  static bool ReadRows(State* state, JSAMPROW* rows, int count);
};

bool TurboDecoder::State::Open(State* state, const JOCTET* data, size_t bytes) {
  state->jpeg.err = jpeg_std_error(&state->errors);
  state->errors.error_exit = OnError;
  state->errors.emit_message = OnMessage;
  state->errors.output_message = OnOutput;
  state->jpeg.client_data = state;
  if (setjmp(state->jump)) return false;
  jpeg_create_decompress(&state->jpeg);
  state->open = true;
  state->source.init_source = InitSource;
  state->source.fill_input_buffer = FillSource;
  state->source.skip_input_data = SkipSource;
  state->source.resync_to_restart = jpeg_resync_to_restart;
  state->source.term_source = TermSource;
  state->source.next_input_byte = data;
  state->source.bytes_in_buffer = bytes;
  state->jpeg.src = &state->source;
  state->progress.progress_monitor = OnProgress;
  state->jpeg.progress = &state->progress;
  state->multiple_scans = false;
  jpeg_read_header(&state->jpeg, TRUE);
  state->multiple_scans = jpeg_has_multiple_scans(&state->jpeg);
  return true;
}

bool TurboDecoder::State::Start(State* state, Rect region, int scale) {
  jpeg_decompress_struct& jpeg = state->jpeg;
  if (setjmp(state->jump)) return false;
  const bool cmyk = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
  jpeg.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  jpeg.dct_method = JDCT_ISLOW;
  jpeg.do_fancy_upsampling = TRUE;
  jpeg.scale_num = 1;
  jpeg.scale_denom = static_cast<unsigned>(scale);
  jpeg_start_decompress(&jpeg);

  // Fancy upsampling looks one sample to each side, and within the cropped row it treats the row's
  // ends as the image's. So the crop that libjpeg sees is at least a pixel wider than the region
  // wherever the image goes on, and its ends lie on borders of iMCUs. It must not be so narrow
  // either that libjpeg would choose another upsampler for it. Scaled, it takes the whole width: of
  // components that are scaled by different amounts, libjpeg-turbo 2.1 crops too little or too
  // much.
  bool upsampled = false;
  for (int c = 0; c < jpeg.num_components; ++c) {
    upsampled |= jpeg.comp_info[c].h_samp_factor != jpeg.max_h_samp_factor;
  }
  const int width = static_cast<int>(jpeg.output_width);
  const int step = jpeg.max_h_samp_factor * DCTSIZE, margin = upsampled ? 1 : 0;
  int left = (region.x > margin ? region.x - margin : 0) / step * step;
  int right = (region.x + region.width + margin + step - 1) / step * step;
  if (right > width) right = width;
  if (upsampled && right - left < 2 * step) left = left > step ? left - step : 0;
  if (scale > 1) {
    left = 0;
  } else if (left > 0 || right < width) {
    JDIMENSION crop_left = left, crop_width = right - left;
    jpeg_crop_scanline(&jpeg, &crop_left, &crop_width);
    left = static_cast<int>(crop_left);
  }
  state->channels = jpeg.output_components;
  state->row_bytes = static_cast<size_t>(jpeg.output_width) * state->channels;
  state->offset_bytes = static_cast<size_t>(region.x - left) * state->channels;

  // In pieces, because libjpeg does not look at the clock while it skips.
  const int piece = 1 + 4'000'000 / (width * scale * scale);
  for (int skipped = 0; skipped < region.y;) {
    const int rows = region.y - skipped < piece ? region.y - skipped : piece;
    jpeg_skip_scanlines(&jpeg, rows);
    skipped += rows;
    if (skipped < region.y) state->CheckTime();
  }
  return true;
}

bool TurboDecoder::State::ReadRows(State* state, JSAMPROW* rows, int count) {
  if (setjmp(state->jump)) return false;
  state->CheckTime();
  for (JDIMENSION done = 0; done < static_cast<JDIMENSION>(count);) {
    done += jpeg_read_scanlines(&state->jpeg, rows + done, count - done);
  }
  return true;
}

TurboDecoder::TurboDecoder() : state_(std::make_unique<State>()) {}
TurboDecoder::~TurboDecoder() { Close(); }

void TurboDecoder::Close() {
  if (!state_->open) return;
  state_->open = false;
  jpeg_destroy_decompress(&state_->jpeg);
}

absl::Status TurboDecoder::Open(absl::Span<const std::byte> encoded, const ImageLimits& limits) {
  Close();
  state_->limits = limits;
  state_->clock.Start(limits);
  state_->progress_calls = 0;
  if (!State::Open(state_.get(), reinterpret_cast<const JOCTET*>(encoded.data()), encoded.size())) {
    return state_->ToStatus();
  }
  const int64_t pixels = static_cast<int64_t>(state_->jpeg.image_width) * state_->jpeg.image_height;
  if (pixels > limits.max_pixels) {
    return absl::InvalidArgumentError(
        absl::StrCat("JPEG of ", pixels, " pixels is over max_pixels ", limits.max_pixels));
  }
  return absl::OkStatus();
}

Size TurboDecoder::size() const {
  return {static_cast<int>(state_->jpeg.image_width), static_cast<int>(state_->jpeg.image_height)};
}

absl::Status TurboDecoder::Start(const Rect& region, int scale) {
  if (!State::Start(state_.get(), region, scale)) return state_->ToStatus();
  state_->region_width = region.width;
  Grow(state_->band, state_->row_bytes * kMaxRows);
  if (state_->channels == 4) Grow(state_->rgb, static_cast<size_t>(region.width) * 3 * kMaxRows);
  return absl::OkStatus();
}

absl::Status TurboDecoder::Read(int count, const uint8_t** rows) {
  State& state = *state_;
  JSAMPROW buffers[kMaxRows];
  for (int i = 0; i < count; ++i) buffers[i] = state.band.data() + i * state.row_bytes;
  if (!State::ReadRows(&state, buffers, count)) return state.ToStatus();
  for (int i = 0; i < count; ++i) {
    const uint8_t* row = buffers[i] + state.offset_bytes;
    if (state.channels == 4) {
      uint8_t* rgb = state.rgb.data() + static_cast<size_t>(i) * state.region_width * 3;
      for (int x = 0; x < state.region_width; ++x) {
        for (int c = 0; c < 3; ++c) rgb[3 * x + c] = InkToColour(row[4 * x + c], row[4 * x + 3]);
      }
      row = rgb;
    }
    rows[i] = row;
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
