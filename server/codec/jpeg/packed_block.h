// How one block of the coefficient store is packed ("W8"): eight groups of eight coefficients, each
// of a class that says how many bits its values take, so that a block is unpacked without a branch
// per coefficient. Group g holds rows 2 * (g / 2) and the next, columns 4 * (g % 2) .. + 3; value j
// of it stands in row j / 4, column j % 4. Values are the low signed bytes, sign in the lowest bit:
// u = v < 0 ? -2 * v - 1 : 2 * v. DC's place in group 0 holds 0.
//
//   header, 32 bits   bits 3g .. 3g + 2: class of group g; bits 24..31: DC less the DC before, as
//                     int8; -128: an exception
//   payload           [exception: int16 DC, u8 n, n times (u8 position, int8 high byte): value =
//                     low signed byte + 256 * high], then the groups
//   class             0: nothing. 2..6: eight values of that many bits; 7: of eight bits; value j
//                     from bit j * width on, little-endian. 1: one byte: bits 0..2 and 3..5 are two
//                     positions, bits 6 and 7 their values u less 1; the two are ORed, so that the
//                     same position twice is a single value.
#pragma once

#include <cstdint>
#include <cstring>

namespace feedwater::server::jpeg {

inline constexpr int kGroups = 8;
inline constexpr uint32_t kQuarterHeaderBits = 0x1C7;  // groups 0 and 2: rows and columns 0..3
inline constexpr uint8_t kExceptionDc = 0x80;
inline constexpr int kExceptionBytes = 3;  // and two more for each coefficient

inline constexpr int kClassBytes[8] = {0, 1, 2, 3, 4, 5, 6, 8};
inline constexpr int kClassBits[8] = {0, 0, 2, 3, 4, 5, 6, 8};

inline int NaturalPosition(int group, int j) {
  return (group / 2 * 2 + j / 4) * 8 + group % 2 * 4 + j % 4;
}

inline uint64_t ReadU64(const uint8_t* from) {
  uint64_t value;
  std::memcpy(&value, from, 8);
  return value;
}

// Eight bytes of class 1.
constexpr uint64_t TwoValues(uint64_t code) {
  return ((1 + ((code >> 6) & 1)) << ((code & 7) * 8)) |
         ((1 + ((code >> 7) & 1)) << (((code >> 3) & 7) * 8));
}

// Low `bits` of each byte to bits side by side, and back.
inline uint64_t PackBits(uint64_t bytes, int bits) {
  bytes = (bytes & 0x00FF00FF00FF00FFu) | ((bytes >> 8 & 0x00FF00FF00FF00FFu) << bits);
  bytes = (bytes & 0x0000FFFF0000FFFFu) | ((bytes >> 16 & 0x0000FFFF0000FFFFu) << 2 * bits);
  return (bytes & 0xFFFFFFFFu) | ((bytes >> 32) << 4 * bits);
}
inline uint64_t UnpackBits(uint64_t packed, int bits) {
  const auto low = [](int n) { return (uint64_t{1} << n) - 1; };
  packed = (packed & low(4 * bits)) | ((packed >> 4 * bits & low(4 * bits)) << 32);
  const uint64_t two = low(2 * bits) * 0x0000000100000001u;
  packed = (packed & two) | ((packed >> 2 * bits & two) << 16);
  const uint64_t one = low(bits) * 0x0001000100010001u;
  return (packed & one) | ((packed >> bits & one) << 8);
}

// The eight bytes u of a group at `from`, of which eight may be read.
inline uint64_t UnpackGroup(const uint8_t* from, int group_class) {
  const uint64_t raw = ReadU64(from);
  if (group_class == 0) return 0;
  return group_class == 1 ? TwoValues(raw) : UnpackBits(raw, kClassBits[group_class]);
}

// The low bytes of a block's groups to coefficients (DC is 0).
inline void UnpackBlockPlain(uint32_t header, const uint8_t* groups, int16_t* block) {
  for (int g = 0; g < kGroups; ++g) {
    const int group_class = static_cast<int>(header >> (3 * g) & 7);
    const uint64_t u = UnpackGroup(groups, group_class);
    groups += kClassBytes[group_class];
    for (int j = 0; j < 8; ++j) {
      const int value = static_cast<int>(u >> (8 * j) & 0xFF);
      block[NaturalPosition(g, j)] = static_cast<int16_t>((value >> 1) ^ -(value & 1));
    }
  }
}

}  // namespace feedwater::server::jpeg
