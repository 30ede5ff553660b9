// What tests of caches put into them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace feedwater::server {

inline constexpr uint64_t kStamp = 77;

// A payload that follows from the record's number alone.
inline std::vector<std::byte> PayloadOf(int64_t record, size_t bytes) {
  std::mt19937 random(static_cast<uint32_t>(record + 1));
  std::vector<std::byte> payload(bytes);
  for (std::byte& b : payload) b = static_cast<std::byte>(random());
  return payload;
}

}  // namespace feedwater::server
