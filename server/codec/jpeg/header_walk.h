// Reading the headers of packed blocks, and the tables that unpacking looks things up in.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "server/codec/jpeg/packed_block.h"
#include "server/codec/jpeg/store_kernels.h"

namespace feedwater::server::jpeg {

constexpr std::array<uint8_t, 4096> MakeLengths() {
  std::array<uint8_t, 4096> lengths{};
  for (int i = 0; i < 4096; ++i) {
    for (int g = 0; g < 4; ++g) lengths[i] += static_cast<uint8_t>(kClassBytes[i >> 3 * g & 7]);
  }
  return lengths;
}
// Bytes of four groups by their twelve header bits.
inline constexpr std::array<uint8_t, 4096> kLengths = MakeLengths();

constexpr std::array<uint64_t, 8> MakeValueMasks() {
  std::array<uint64_t, 8> masks{};
  for (int c = 0; c < 8; ++c) masks[c] = 0x0101010101010101u * ((1u << kClassBits[c]) - 1);
  return masks;
}
// By class: the bits of a value, in each of eight bytes.
inline constexpr std::array<uint64_t, 8> kValueMasks = MakeValueMasks();

constexpr std::array<uint64_t, 256> MakeTwoValues() {
  std::array<uint64_t, 256> groups{};
  for (uint64_t code = 0; code < 256; ++code) groups[code] = TwoValues(code);
  return groups;
}
inline constexpr std::array<uint64_t, 256> kTwoValues = MakeTwoValues();

// Walks over blocks: where each one's groups stand, its DC and its exceptions. Never looks behind
// the payload.
class HeaderWalk {
 public:
  explicit HeaderWalk(const PackedBlocks& from) : from_(from), dc_(from.dc) {}

  // The next block. False where its exception lies outside the payload; whether the groups do, only
  // WithinPayload says. REQUIRES: there is one more header.
  bool Next() {
    uint32_t next;
    std::memcpy(&next, from_.headers, sizeof(next));
    return Next(next, static_cast<size_t>(kLengths[next & 4095]) + kLengths[next >> 12 & 4095]);
  }
  // The same for a caller who has read the header and knows how long its groups are.
  bool Next(uint32_t next_header, size_t group_bytes) {
    header = next_header;
    from_.headers += kBlockHeaderBytes;
    exceptions = 0;
    if (header >> 24 == kExceptionDc) [[unlikely]] {
      if (at_ + kExceptionBytes > from_.payload_bytes) return false;
      const uint8_t* p = from_.payload + at_;
      dc_ = static_cast<int16_t>(p[0] | p[1] << 8);
      exceptions = p[2];
      exception = p + kExceptionBytes;
      at_ += kExceptionBytes + 2 * static_cast<size_t>(exceptions);
      if (at_ > from_.payload_bytes) return false;
    } else {
      dc_ += static_cast<int8_t>(header >> 24);
    }
    groups = at_;
    at_ += group_bytes;
    return true;
  }
  const uint8_t* next_headers() const { return from_.headers; }
  bool WithinPayload() const { return at_ <= from_.payload_bytes; }

  // Of the block that Next came to:
  uint32_t header = 0;
  size_t groups = 0;  // offset in the payload
  int exceptions = 0;
  const uint8_t* exception = nullptr;
  int dc() const { return static_cast<int16_t>(dc_); }

 private:
  PackedBlocks from_;
  size_t at_ = 0;
  int dc_;
};

// Adds the high bytes to a block; dequantised unless `quant` is null.
inline void ApplyExceptions(const uint8_t* exception, int count, const uint16_t* quant,
                            int16_t* block) {
  for (int i = 0; i < count; ++i) {
    const int at = exception[2 * i] & 63;
    const int high = 256 * static_cast<int8_t>(exception[2 * i + 1]);
    block[at] = static_cast<int16_t>(block[at] + (quant == nullptr ? high : high * quant[at]));
  }
}

}  // namespace feedwater::server::jpeg
