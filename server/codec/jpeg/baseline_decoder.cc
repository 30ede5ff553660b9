#include "server/codec/jpeg/baseline_decoder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/status.h"
#include "server/codec/jpeg/pixel_kernels.h"

namespace feedwater::server::jpeg {
namespace {

constexpr WantedMcuRow kNothing = {};

}  // namespace

void BaselineDecoder::Row::Reserve(size_t blocks) {
  const size_t wanted =
      (blocks + 1) * kBlockSamples;  // and one that takes what lies beyond a block
  if (coefficients.size() < wanted) coefficients.resize(wanted);
  lists.Reserve(blocks);
}

Uncovered BaselineDecoder::Open(absl::Span<const uint8_t> encoded, const ImageLimits& limits) {
  limit_ns_ = limits.max_decode_ms * 1'000'000;
  start_wall_ns_ = MonotonicNs();
  start_cpu_ns_ = ThreadCpuNs();
  uncovered_ = ReadFrame(encoded, &frame_);
  if (uncovered_ == Uncovered::kNone) scan_ = encoded.subspan(frame_.scan);
  keeps_index_ = false;
  index_.Clear();
  return uncovered_;
}

void BaselineDecoder::KeepSeekIndex(absl::Span<const std::byte> known) {
  const int components = frame_.shape.components, mcus = frame_.mcus_wide() * frame_.mcus_high();
  keeps_index_ = scan_.size() <= SeekIndex::kMaxScanBytes;
  if (!index_.Decode(known, components, mcus)) index_.Start(components, scan_.size(), mcus);
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

absl::Status BaselineDecoder::Start(const Rect& region, int scale) {
  const Uncovered why = entropy_.Start(frame_);
  if (why != Uncovered::kNone) return GiveUp(why);
  planes_.Start(frame_.shape, region, scale);
  next_mcu_ = -1;
  judged_mcu_rows_ = JudgedMcuRows(region, scale);
  rows_left_ = region.height;
  first_column_ = frame_.mcus_wide();
  end_column_ = 0;
  for (McuRow& row : rows_) row.number = -1;
  for (int c = 0; c < frame_.shape.components; ++c) {
    const BlockSpan columns = planes_.block_columns(c);
    const int h = frame_.shape.h[c];
    first_column_ = std::min(first_column_, columns.first / h);
    end_column_ = std::max(end_column_, (columns.end() - 1) / h + 1);
    for (McuRow& mcu_row : rows_) {
      for (int v = 0; v < frame_.shape.v[c]; ++v)
        mcu_row.rows[c][v].Reserve(static_cast<size_t>(columns.count));
    }
  }
  return absl::OkStatus();
}

// How many rows of MCUs libjpeg-turbo looks at for the region: a little more than the pixels need,
// and damage there counts, or the verdict would depend on who decodes. Where rows of chroma are
// blended, the last lines of a row of MCUs wait for the next one.
int BaselineDecoder::JudgedMcuRows(const Rect& region, int scale) const {
  const int max_v = frame_.shape.max_v();
  const int lines = 8 / scale * max_v, last = region.y + region.height - 1;
  int row = last / lines;
  if (planes_.waits_for_next() && last % lines >= lines - max_v) ++row;
  row = row / frame_.rows_together * frame_.rows_together + frame_.rows_together;
  return std::min(row, frame_.mcus_high());
}

// The blocks of the row that the region needs, into their place in rows_.
void BaselineDecoder::Want(int mcu_row, WantedMcuRow* wanted) {
  McuRow& into = rows_[mcu_row % 2];
  into.number = mcu_row;
  for (int c = 0; c < frame_.shape.components; ++c) {
    const BlockSpan columns = planes_.block_columns(c);
    const BlockSpan block_rows = planes_.block_rows_of_mcu_row(c, mcu_row);
    for (int row = block_rows.first; row < block_rows.end(); ++row) {
      const int v = row - mcu_row * frame_.shape.v[c];
      into.rows[c][v].lists.Clear();
      (*wanted)[c][v] = {columns.first, columns.end(), into.rows[c][v].coefficients.data(),
                         &into.rows[c][v].lists, planes_.block_side(c) == 1};
    }
  }
}

// Puts the cursor in front of the row's first wanted MCU, or `early` MCUs before it.
bool BaselineDecoder::Seek(int mcu_row, ScanCursor* cursor, int* early) const {
  const int mcu = FirstMcu(mcu_row) + first_column_;
  const size_t end = index_.Behind(FirstMcu(mcu_row) + end_column_).byte + size_t{1};
  *early = mcu % index_.spacing;
  return cursor->Begin(scan_, index_.Before(mcu), end);
}

bool BaselineDecoder::DecodeKnown(int mcu_row) {
  WantedMcuRow wanted = {}, wanted_below = {};
  int early, early_below;
  Want(mcu_row, &wanted);
  if (!Seek(mcu_row, &cursors_[0], &early)) return false;
  const int below = mcu_row + 1;
  if (below >= planes_.mcu_rows().end() || !IsKnown(below)) {
    return entropy_.Skip(cursors_[0], early) &&
           entropy_.Decode(cursors_[0], first_column_, end_column_, wanted);
  }
  Want(below, &wanted_below);
  return Seek(below, &cursors_[1], &early_below) &&
         entropy_.DecodeBoth({&cursors_[0], early, &wanted},
                             {&cursors_[1], early_below, &wanted_below}, first_column_,
                             end_column_);
}

bool BaselineDecoder::DecodeOn(int mcu_row) {
  WantedMcuRow wanted = {};
  Want(mcu_row, &wanted);
  const int first = FirstMcu(mcu_row);
  return GoTo(first + first_column_, kNothing) && GoTo(first + end_column_, wanted);
}

// Reads the scan up to the MCU, from where it was left or from the last place that is known.
// `wanted` is of the last one's row.
bool BaselineDecoder::GoTo(int mcu, const WantedMcuRow& wanted) {
  if (next_mcu_ < 0) {
    const bool is_behind = mcu >= index_.mcus;
    next_mcu_ = is_behind ? index_.mcus : mcu / index_.spacing * index_.spacing;
    const SeekPoint from = index_.empty() ? SeekPoint()
                           : is_behind    ? index_.points.back()
                                          : index_.Before(mcu);
    if (!cursors_[0].Begin(scan_, from, scan_.size())) return false;
    if (keeps_index_ && index_.empty()) index_.points.assign(1, from);
  }
  while (next_mcu_ < mcu) {
    const int row_start = next_mcu_ / frame_.mcus_wide() * frame_.mcus_wide();
    int stop = std::min(mcu, row_start + frame_.mcus_wide());
    if (keeps_index_) stop = std::min(stop, (next_mcu_ / index_.spacing + 1) * index_.spacing);
    if (!entropy_.Decode(cursors_[0], next_mcu_ - row_start, stop - row_start, wanted))
      return false;
    next_mcu_ = stop;
    if (keeps_index_ && stop % index_.spacing == 0) Note();
    if (stop == row_start + frame_.mcus_wide() && !InTime()) return false;
  }
  return true;
}

// Puts the place into the index, unless it is there.
void BaselineDecoder::Note() {
  SeekPoint point;
  if (next_mcu_ <= index_.mcus) return;
  if (!cursors_[0].Point(frame_.shape.components, &point)) {
    keeps_index_ = false;
    return;
  }
  if (index_.mcus % index_.spacing != 0) {  // the last point stood between two places for points
    index_.points.back() = point;
  } else {
    index_.points.push_back(point);
  }
  index_.mcus = next_mcu_;
}

absl::Status BaselineDecoder::FillMcuRow(int mcu_row) {
  McuRow& from = rows_[mcu_row % 2];
  if (from.number != mcu_row &&
      !(IsKnown(mcu_row) && next_mcu_ < 0 ? DecodeKnown(mcu_row) : DecodeOn(mcu_row))) {
    return GiveUp(Uncovered::kDamaged);
  }
  if (!InTime()) return GiveUp(Uncovered::kDamaged);
  const FrameShape& shape = frame_.shape;
  const PixelKernels& kernels = ActivePixelKernels();
  for (int c = 0; c < shape.components; ++c) {
    const BlockSpan block_rows = planes_.block_rows_of_mcu_row(c, mcu_row);
    for (int row = block_rows.first; row < block_rows.end(); ++row) {
      Row& blocks = from.rows[c][row - mcu_row * shape.v[c]];
      if (!kernels.transform_row(blocks.coefficients.data(), blocks.lists, frame_.quant[c],
                                 planes_.block_side(c), planes_.BlockRow(c, row),
                                 planes_.stride(c))) {
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
  if (rows_left_ > 0) return absl::OkStatus();
  const int judged = FirstMcu(judged_mcu_rows_);
  if (judged > index_.mcus && !GoTo(judged, kNothing)) return GiveUp(Uncovered::kDamaged);
  if (keeps_index_ && next_mcu_ >= 0) Note();
  return absl::OkStatus();
}

Uncovered BaselineDecoder::IndexAll() {
  uncovered_ = entropy_.Start(frame_);
  if (uncovered_ != Uncovered::kNone) return uncovered_;
  next_mcu_ = -1;
  const int mcus = FirstMcu(frame_.mcus_high());
  if (index_.mcus == mcus) return uncovered_;
  if (!GoTo(mcus, kNothing)) return uncovered_ = Uncovered::kDamaged;
  Note();
  return uncovered_;
}

absl::Span<const uint8_t> BaselineDecoder::Pack(StorePacker& packer, int orientation) {
  const FrameShape& shape = frame_.shape;
  uncovered_ = entropy_.Start(frame_);
  if (uncovered_ != Uncovered::kNone) return {};
  uncovered_ = Uncovered::kGuards;
  const int64_t most_bytes = MostStoreBytes(static_cast<int64_t>(scan_.size()), shape.size);
  if (!packer.Start(shape, frame_.quant, orientation, most_bytes)) return {};
  uncovered_ = Uncovered::kDamaged;
  ScanCursor& cursor = cursors_[0];
  if (!cursor.Begin(scan_, SeekPoint(), scan_.size())) return {};
  WantedMcuRow wanted = {};
  for (int c = 0; c < shape.components; ++c) {
    // Also the blocks that fill up the last MCU are decoded, so that every one has its place.
    const size_t blocks = static_cast<size_t>(frame_.mcus_wide()) * shape.h[c];
    for (int v = 0; v < shape.v[c]; ++v) {
      Row& row = rows_[0].rows[c][v];
      row.Reserve(blocks);
      wanted[c][v] = {0, static_cast<int>(blocks), row.coefficients.data(), nullptr, false};
    }
  }
  for (int mcu_row = 0; mcu_row < frame_.mcus_high(); ++mcu_row) {
    if (!entropy_.Decode(cursor, 0, frame_.mcus_wide(), wanted) || !InTime()) return {};
    for (int c = 0; c < shape.components; ++c) {
      for (int v = 0; v < shape.v[c] && mcu_row * shape.v[c] + v < shape.blocks_high(c); ++v) {
        if (!packer.AddRow(c, rows_[0].rows[c][v].coefficients.data())) {
          uncovered_ = Uncovered::kGuards;
          return {};
        }
      }
    }
  }
  uncovered_ = Uncovered::kNone;
  return packer.Finish();
}

}  // namespace feedwater::server::jpeg
