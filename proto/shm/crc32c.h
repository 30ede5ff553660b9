// CRC32C (Castagnoli, reflected polynomial 0x82f63b78, as in RFC 3720), used for cursors and for
// batches on request. Slicing by eight; about 1.5 bytes a cycle.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace feedwater::wire {

namespace crc32c_internal {
constexpr std::array<std::array<uint32_t, 256>, 8> MakeTables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) ? 0x82f63b78u : 0);
    tables[0][i] = c;
  }
  for (uint32_t i = 0; i < 256; ++i) {
    for (size_t t = 1; t < 8; ++t)
      tables[t][i] = (tables[t - 1][i] >> 8) ^ tables[0][tables[t - 1][i] & 0xff];
  }
  return tables;
}
inline constexpr auto kTables = MakeTables();
}  // namespace crc32c_internal

// The CRC of `crc`'s data followed by these bytes; start with 0. "123456789" gives 0xe3069283.
inline uint32_t Crc32c(uint32_t crc, const void* data, size_t size) {
  const auto& t = crc32c_internal::kTables;
  const auto* p = static_cast<const unsigned char*>(data);
  uint32_t c = ~crc;
  for (; size >= 8; size -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    word ^= c;
    c = t[7][word & 0xff] ^ t[6][(word >> 8) & 0xff] ^ t[5][(word >> 16) & 0xff] ^
        t[4][(word >> 24) & 0xff] ^ t[3][(word >> 32) & 0xff] ^ t[2][(word >> 40) & 0xff] ^
        t[1][(word >> 48) & 0xff] ^ t[0][word >> 56];
  }
  for (; size > 0; --size, ++p) c = (c >> 8) ^ t[0][(c ^ *p) & 0xff];
  return ~c;
}

}  // namespace feedwater::wire
