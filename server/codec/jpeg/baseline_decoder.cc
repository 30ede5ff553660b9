#include "server/codec/jpeg/baseline_decoder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/status.h"
#include "server/codec/jpeg/pixel_kernels.h"

namespace feedwater::server::jpeg {

Uncovered BaselineDecoder::Open(absl::Span<const uint8_t> encoded, const ImageLimits& limits) {
  encoded_ = encoded;
  limit_ns_ = limits.max_decode_ms * 1'000'000;
  start_wall_ns_ = MonotonicNs();
  start_cpu_ns_ = ThreadCpuNs();
  return uncovered_ = ReadFrame(encoded, &frame_);
}

absl::Status BaselineDecoder::GiveUp(Uncovered why) {
  uncovered_ = why;
  return absl::FailedPreconditionError(
      absl::StrCat("not for the own decoder: ", UncoveredName(why)));
}

// An image that takes too long goes to libjpeg-turbo like every other trouble: it takes longer
// still, and says so.
bool BaselineDecoder::InTime() const {
  return MonotonicNs() - start_wall_ns_ <= limit_ns_ || ThreadCpuNs() - start_cpu_ns_ <= limit_ns_;
}

absl::Status BaselineDecoder::Start(const Rect& region) {
  const Uncovered why = entropy_.Start(encoded_, frame_);
  if (why != Uncovered::kNone) return GiveUp(why);
  planes_.Start(frame_.shape, region);
  next_mcu_row_ = 0;
  judged_mcu_rows_ = JudgedMcuRows(region);
  rows_left_ = region.height;
  for (int c = 0; c < frame_.shape.components; ++c) {
    const size_t blocks = static_cast<size_t>(planes_.block_columns(c).count);
    for (int v = 0; v < frame_.shape.v[c]; ++v) {
      Row& row = rows_[c][v];
      const size_t wanted =
          (blocks + 1) * kBlockSamples;  // and one that takes what lies beyond a block
      if (row.coefficients.size() < wanted) row.coefficients.resize(wanted);
      row.lists.Reserve(blocks);
    }
  }
  return absl::OkStatus();
}

// How many rows of MCUs libjpeg-turbo looks at for the region: a little more than the pixels need,
// and damage there counts, or the verdict would depend on who decodes. Where chroma has half the
// height, the last lines of a row of MCUs wait for the next one.
int BaselineDecoder::JudgedMcuRows(const Rect& region) const {
  const FrameShape& shape = frame_.shape;
  const int lines = 8 * shape.max_v(), last = region.y + region.height - 1;
  int row = last / lines;
  bool is_halved = false;
  for (int c = 0; c < shape.components; ++c) is_halved |= shape.v[c] < shape.max_v();
  if (is_halved && last % lines >= lines - shape.max_v()) ++row;
  row = row / frame_.rows_together * frame_.rows_together + frame_.rows_together;
  return std::min(row, frame_.mcus_high());
}

absl::Status BaselineDecoder::SkipTo(int mcu_row) {
  for (; next_mcu_row_ < mcu_row; ++next_mcu_row_) {
    if (!entropy_.SkipMcuRow() || !InTime()) return GiveUp(Uncovered::kDamaged);
  }
  return absl::OkStatus();
}

absl::Status BaselineDecoder::FillMcuRow(int mcu_row) {
  FW_RETURN_IF_ERROR(SkipTo(mcu_row));
  const FrameShape& shape = frame_.shape;
  EntropyDecoder::WantedRow wanted[kMaxComponents][4];
  for (int c = 0; c < shape.components; ++c) {
    const BlockSpan columns = planes_.block_columns(c);
    const BlockSpan block_rows = planes_.block_rows_of_mcu_row(c, mcu_row);
    for (int row = block_rows.first; row < block_rows.end(); ++row) {
      const int v = row - mcu_row * shape.v[c];
      rows_[c][v].lists.Clear();
      wanted[c][v] = {columns.first, columns.end(), rows_[c][v].coefficients.data(),
                      &rows_[c][v].lists};
    }
  }
  if (!entropy_.DecodeMcuRow(wanted) || !InTime()) return GiveUp(Uncovered::kDamaged);
  ++next_mcu_row_;
  const PixelKernels& kernels = ActivePixelKernels();
  for (int c = 0; c < shape.components; ++c) {
    const BlockSpan block_rows = planes_.block_rows_of_mcu_row(c, mcu_row);
    for (int row = block_rows.first; row < block_rows.end(); ++row) {
      Row& from = rows_[c][row - mcu_row * shape.v[c]];
      if (!kernels.transform_row(from.coefficients.data(), from.lists, frame_.quant[c],
                                 planes_.BlockRow(c, row), planes_.stride(c))) {
        return GiveUp(Uncovered::kGuards);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status BaselineDecoder::Read(int count, const uint8_t** rows) {
  FW_RETURN_IF_ERROR(
      planes_.Read(count, rows, [this](int mcu_row) { return FillMcuRow(mcu_row); }));
  rows_left_ -= count;
  return rows_left_ == 0 ? SkipTo(judged_mcu_rows_) : absl::OkStatus();
}

absl::Span<const uint8_t> BaselineDecoder::Pack(StorePacker& packer, int orientation) {
  const FrameShape& shape = frame_.shape;
  uncovered_ = entropy_.Start(encoded_, frame_);
  if (uncovered_ != Uncovered::kNone) return {};
  uncovered_ = Uncovered::kGuards;
  if (!packer.Start(shape, frame_.quant, orientation)) return {};
  EntropyDecoder::WantedRow wanted[kMaxComponents][4];
  for (int c = 0; c < shape.components; ++c) {
    // Also the blocks that fill up the last MCU are decoded, so that every one has its place.
    const size_t blocks = static_cast<size_t>(frame_.mcus_wide()) * shape.h[c];
    for (int v = 0; v < shape.v[c]; ++v) {
      Row& row = rows_[c][v];
      if (row.coefficients.size() < (blocks + 1) * kBlockSamples)
        row.coefficients.resize((blocks + 1) * kBlockSamples);
      wanted[c][v] = {0, static_cast<int>(blocks), row.coefficients.data(), nullptr};
    }
  }
  for (int mcu_row = 0; mcu_row < frame_.mcus_high(); ++mcu_row) {
    if (!entropy_.DecodeMcuRow(wanted) || !InTime()) {
      uncovered_ = Uncovered::kDamaged;
      return {};
    }
    for (int c = 0; c < shape.components; ++c) {
      for (int v = 0; v < shape.v[c] && mcu_row * shape.v[c] + v < shape.blocks_high(c); ++v) {
        if (!packer.AddRow(c, rows_[c][v].coefficients.data())) return {};
      }
    }
  }
  uncovered_ = Uncovered::kNone;
  return packer.Finish();
}

}  // namespace feedwater::server::jpeg
