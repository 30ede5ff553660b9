#include "server/base/crc32c.h"

#include <cstring>

#include "proto/shm/crc32c.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace feedwater::server {
namespace {

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t ByInstruction(uint32_t crc, absl::string_view bytes) {
  uint64_t c = ~crc;
  const char* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    c = _mm_crc32_u64(c, word);
  }
  auto c32 = static_cast<uint32_t>(c);
  for (; left > 0; --left, ++p) c32 = _mm_crc32_u8(c32, static_cast<uint8_t>(*p));
  return ~c32;
}
#endif

}  // namespace

uint32_t Crc32c(uint32_t crc, absl::string_view bytes) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ByInstruction(crc, bytes);
#endif
  return wire::Crc32c(crc, bytes.data(), bytes.size());
}

}  // namespace feedwater::server
