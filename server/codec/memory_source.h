// Rows of an image that is in memory already.
#pragma once

#include <cstddef>
#include <cstdint>

#include "server/codec/row_source.h"

namespace feedwater::server {

class MemorySource final : public RowSource {
 public:
  // `pixels` must stay while the source is read. Rows follow each other every `stride` bytes.
  MemorySource(const uint8_t* pixels, size_t stride, int channels, const Rect& region)
      : next_(pixels + region.y * stride + static_cast<size_t>(region.x) * channels),
        stride_(stride) {}

  absl::Status Read(int count, const uint8_t** rows) override {
    for (int i = 0; i < count; ++i, next_ += stride_) rows[i] = next_;
    return absl::OkStatus();
  }

 private:
  const uint8_t* next_;
  size_t stride_;
};

}  // namespace feedwater::server
