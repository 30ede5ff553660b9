// What a user asked `feedwater convert` for, as far as it decides which bytes come out.
#pragma once

#include <cstdint>
#include <optional>

namespace feedwater::cli {

struct ConvertOptions {
  int64_t shard_bytes = 256 << 20;
  std::optional<uint64_t> shuffle;  // the seed
  int resize_max = 0;               // longer sides become this at most; 0: images stay
  int quality = 90;                 // of what is written anew
  bool makes_baseline = false;

  bool decodes() const { return resize_max > 0 || makes_baseline; }
};

}  // namespace feedwater::cli
