// Where a block lies: a segment, an offset and a length, in one number that a table keeps for every
// record. 0 is "nowhere", 1 is "somebody is at it", so that two workers do not keep a record twice.
#pragma once

#include <cstdint>

#include "server/cache/block.h"

namespace feedwater::server {

inline constexpr uint64_t kNowhere = 0, kClaimed = 1;

struct BlockPlace {
  static constexpr int kSegmentBits = 20, kOffsetBits = 21, kLengthBits = 22;

  uint32_t segment = 0;
  uint64_t offset = 0, length = 0;  // bytes, multiples of kBlockUnit; length is not 0

  uint64_t Pack() const {
    return uint64_t{1} << 63 | uint64_t{segment} << (kOffsetBits + kLengthBits) |
           offset / kBlockUnit << kLengthBits | length / kBlockUnit;
  }
  static bool IsPlace(uint64_t packed) { return packed >> 63 != 0; }
  static BlockPlace Unpack(uint64_t packed) {  // REQUIRES: IsPlace(packed)
    BlockPlace place;
    place.segment =
        static_cast<uint32_t>(packed >> (kOffsetBits + kLengthBits)) & ((1u << kSegmentBits) - 1);
    place.offset = (packed >> kLengthBits & ((uint64_t{1} << kOffsetBits) - 1)) * kBlockUnit;
    place.length = (packed & ((uint64_t{1} << kLengthBits) - 1)) * kBlockUnit;
    return place;
  }
};

inline constexpr uint64_t kMaxSegments = uint64_t{1} << BlockPlace::kSegmentBits;
inline constexpr uint64_t kMaxSegmentBytes = (uint64_t{1} << BlockPlace::kOffsetBits) * kBlockUnit;
static_assert(kMaxBlockBytes <= kMaxSegmentBytes);

}  // namespace feedwater::server
