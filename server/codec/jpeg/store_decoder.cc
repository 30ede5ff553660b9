#include "server/codec/jpeg/store_decoder.h"

namespace feedwater::server::jpeg {

absl::Status StoreDecoder::Open(absl::Span<const uint8_t> document) {
  auto view = StoreView::Open(document);
  if (!view.ok()) return view.status();
  view_ = *view;
  return absl::OkStatus();
}

absl::Status StoreDecoder::Start(const Rect& region, int scale) {
  planes_.Start(view_.shape(), region, scale);
  return absl::OkStatus();
}

absl::Status StoreDecoder::FillMcuRow(int mcu_row) {
  for (int c = 0; c < planes_.shape().components; ++c) {
    const BlockSpan columns = planes_.block_columns(c);
    const BlockSpan rows = planes_.block_rows_of_mcu_row(c, mcu_row);
    for (int row = rows.first; row < rows.end(); ++row) {
      PackedBlocks from;
      int skip;
      if (!view_.Seek(c, row, columns.first, &from, &skip) ||
          !TransformPacked(from, skip, columns.count, view_.quant(c), planes_.block_side(c),
                           planes_.BlockRow(c, row), planes_.stride(c))) {
        return absl::DataLossError("coefficient document: a row's blocks lie outside");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status StoreDecoder::Read(int count, const uint8_t** rows) {
  return planes_.Read(count, rows, [this](int mcu_row) { return FillMcuRow(mcu_row); });
}

}  // namespace feedwater::server::jpeg
