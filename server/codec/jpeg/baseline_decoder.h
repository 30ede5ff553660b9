// Level 2: a region of a baseline JPEG by the own decoder. It reads the scan from the top to the
// region's last row, passes over blocks that the region does not need, and gives libjpeg-turbo's
// pixels, bit for bit. What it does not cover goes to libjpeg-turbo (turbo_decoder.h), also when
// that shows only in the middle of the image: Read then fails, covered() says why, and the caller
// starts over.
//
// One decoder serves one thread, image after image.
#pragma once

#include <vector>

#include "server/codec/jpeg/coefficient_store.h"
#include "server/codec/jpeg/entropy_decoder.h"
#include "server/codec/jpeg/frame.h"
#include "server/codec/jpeg/planes.h"
#include "server/codec/row_source.h"

namespace feedwater::server::jpeg {

class BaselineDecoder final : public RegionDecoder {
 public:
  // Reads the headers. `encoded` stays until the next Open. kNone, or why the image is not covered.
  Uncovered Open(absl::Span<const uint8_t> encoded, const ImageLimits& limits);
  Size size() const { return frame_.shape.size; }

  // REQUIRES: Open gave kNone; region lies within size() and is not empty. Rows come out as RGB.
  // FailedPrecondition, here and from Read, when the image turns out not to be covered: uncovered()
  // says why.
  absl::Status Start(const Rect& region) override;
  absl::Status Read(int count, const uint8_t** rows) override;
  Uncovered uncovered() const { return uncovered_; }

  // The whole image as a coefficient document (coefficient_store.h), instead of Start. Empty where
  // it is not covered; valid until the packer starts again.
  absl::Span<const uint8_t> Pack(StorePacker& packer, int orientation);

 private:
  absl::Status FillMcuRow(int mcu_row);
  absl::Status SkipTo(int mcu_row);
  int JudgedMcuRows(const Rect& region) const;
  bool InTime() const;
  absl::Status GiveUp(Uncovered why);

  struct Row {
    std::vector<int16_t> coefficients;
    BlockLists lists;
  };

  JpegFrame frame_;
  absl::Span<const uint8_t> encoded_;
  EntropyDecoder entropy_;
  Planes planes_;
  Row rows_[kMaxComponents][4];
  Uncovered uncovered_ = Uncovered::kNone;
  int next_mcu_row_ = 0;
  int judged_mcu_rows_ = 0;  // that the verdict is about
  int rows_left_ = 0;        // of the region
  int64_t limit_ns_ = 0, start_wall_ns_ = 0, start_cpu_ns_ = 0;
};

}  // namespace feedwater::server::jpeg
