#include "server/codec/jpeg/turbo_decoder.h"

#include <algorithm>
#include <csetjmp>
#include <vector>

#include "server/codec/jpeg/libjpeg_reader.h"

namespace feedwater::server {
namespace {

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

struct TurboDecoder::State : LibjpegReader {
  size_t offset_bytes = 0;  // from a row's start in `band` to the region's first pixel
  size_t row_bytes = 0;     // in `band`
  int channels = 3;         // of libjpeg's rows: 4 for CMYK
  std::vector<uint8_t> band;
  std::vector<uint8_t> rgb;  // CMYK only: the converted rows
  int region_width = 0;

  // The functions below are the only ones that libjpeg jumps out of (libjpeg_reader.h).
  static bool Open(State* state, absl::Span<const std::byte> encoded);
  static bool Start(State* state, Rect region, int scale);
  static bool ReadRows(State* state, JSAMPROW* rows, int count);
};

bool TurboDecoder::State::Open(State* state, absl::Span<const std::byte> encoded) {
  if (setjmp(state->jump)) return false;
  state->needs_end = false;
  state->ReadHeader(encoded);
  state->CheckPixels();
  // Else a progressive image without its last scans would pass.
  state->needs_end = jpeg_has_multiple_scans(&state->jpeg);
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

void TurboDecoder::Close() { state_->Close(); }

absl::Status TurboDecoder::Open(absl::Span<const std::byte> encoded, const ImageLimits& limits) {
  state_->Begin(limits);
  return State::Open(state_.get(), encoded) ? absl::OkStatus() : state_->ToStatus();
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
