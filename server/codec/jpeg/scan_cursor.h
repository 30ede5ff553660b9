// A place in a JPEG's scan at which it is being decoded: a bit, and the DC predictors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "server/codec/jpeg/huffman_table.h"
#include "server/codec/jpeg/seek_index.h"

namespace feedwater::server::jpeg {

struct BitReader {
  const uint8_t* next = nullptr;
  uint64_t bits = 0;  // left aligned
  int count = 0;      // valid ones, at least

  uint32_t Look() const { return static_cast<uint32_t>(bits >> (64 - kLookBits)); }
};

struct ScanCursor {
  // Goes to `from`. Bytes from `end` of the scan on are not looked at. False when there is no such
  // place.
  bool Begin(absl::Span<const uint8_t> scan, const SeekPoint& from, size_t end);
  // The place as a point of a seek index. False when the DC values do not fit.
  bool Point(int components, SeekPoint* point) const;
  void GiveBackOver(size_t bytes);  // buffers that are larger

  BitReader reader;
  int64_t last_dc[kMaxComponents] = {};
  std::vector<uint8_t> bytes;  // the scan's, without the stuffed zeroes, and zeroes behind them
  size_t byte_count = 0;
  size_t begin = 0;                // of `bytes` in the scan
  std::vector<uint32_t> left_out;  // in front of these of `bytes` a stuffed zero was left out
};

}  // namespace feedwater::server::jpeg
