// Level 2: a region of a baseline JPEG by the own decoder. Without a seek index it reads the scan
// from the top to the region's last row, passes over blocks that the region does not need, and
// makes the index on its way; with one it goes to the region's MCUs, two rows of them at once. It
// gives libjpeg-turbo's pixels, bit for bit. What it does not cover goes to libjpeg-turbo
// (turbo_decoder.h), also when that shows only in the middle of the image: Read then fails,
// uncovered() says why, and the caller starts over.
//
// One decoder serves one thread, image after image.
#pragma once

#include <vector>

#include "server/codec/jpeg/coefficient_store.h"
#include "server/codec/jpeg/entropy_decoder.h"
#include "server/codec/jpeg/frame.h"
#include "server/codec/jpeg/planes.h"
#include "server/codec/jpeg/seek_index.h"
#include "server/codec/row_source.h"

namespace feedwater::server::jpeg {

class BaselineDecoder final : public RegionDecoder {
 public:
  // Reads the headers. `encoded` stays until the next Open. kNone, or why the image is not covered.
  Uncovered Open(absl::Span<const uint8_t> encoded, const ImageLimits& limits);
  Size size() const { return frame_.shape.size; }

  // Between Open and Start: makes the decoder keep what it learns of where the image's MCUs stand,
  // and use what is known already. REQUIRES: `known` is empty, or the document of an index that was
  // made from the same bytes.
  void KeepSeekIndex(absl::Span<const std::byte> known);
  const SeekIndex& seek_index() const { return index_; }

  // REQUIRES: Open gave kNone. Rows come out as RGB. FailedPrecondition, here and from Read, when
  // the image turns out not to be covered: uncovered() says why.
  absl::Status Start(const Rect& region, int scale) override;
  absl::Status Read(int count, const uint8_t** rows) override;
  Uncovered uncovered() const { return uncovered_; }

  // The whole image as a coefficient document (coefficient_store.h), instead of Start. Empty where
  // it is not covered; valid until the packer starts again.
  absl::Span<const uint8_t> Pack(StorePacker& packer, int orientation);

  // Copies of the scan that are larger; between images.
  void GiveBackOver(size_t bytes) {
    for (ScanCursor& cursor : cursors_) cursor.GiveBackOver(bytes);
  }

  // Makes seek_index() reach down to the image's end, instead of Start. kNone, or why it does not.
  Uncovered IndexAll();

 private:
  // Coefficients of a row of blocks.
  struct Row {
    std::vector<int16_t> coefficients;
    BlockLists lists;
    void Reserve(size_t blocks);
  };
  struct McuRow {
    int number = -1;
    Row rows[kMaxComponents][4];
  };

  int FirstMcu(int mcu_row) const { return mcu_row * frame_.mcus_wide(); }
  bool IsKnown(int mcu_row) const { return FirstMcu(mcu_row) + end_column_ <= index_.mcus; }
  absl::Status FillMcuRow(int mcu_row);
  void Want(int mcu_row, WantedMcuRow* wanted);
  bool DecodeKnown(int mcu_row);
  bool Seek(int mcu_row, ScanCursor* cursor, int* early) const;
  bool DecodeOn(int mcu_row);
  bool GoTo(int mcu, const WantedMcuRow& wanted);
  void Note();
  int JudgedMcuRows(const Rect& region, int scale) const;
  bool InTime() const;
  absl::Status GiveUp(Uncovered why);

  JpegFrame frame_;
  absl::Span<const uint8_t> scan_;
  EntropyDecoder entropy_;
  Planes planes_;
  int first_column_ = 0, end_column_ = 0;  // of the MCUs that the region needs
  McuRow rows_[2];                         // by turns
  SeekIndex index_;
  bool keeps_index_ = false;
  ScanCursor cursors_[2];
  // Where cursors_[0] stands once the scan is read on, one MCU after the other; -1: not yet.
  int next_mcu_ = -1;
  Uncovered uncovered_ = Uncovered::kNone;
  int judged_mcu_rows_ = 0;  // that the verdict is about
  int rows_left_ = 0;        // of the region
  int64_t limit_ns_ = 0, start_wall_ns_ = 0, start_cpu_ns_ = 0;
};

}  // namespace feedwater::server::jpeg
