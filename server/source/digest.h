// A digest over a sequence of texts and numbers: XXH3, 128 bits, as 32 hex digits. Texts carry
// their length, so that no two sequences look alike.
#pragma once

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace feedwater::server {

class Digest {
 public:
  Digest() { XXH3_128bits_reset(&state_); }
  void Add(absl::string_view text) {
    Add(static_cast<uint64_t>(text.size()));
    XXH3_128bits_update(&state_, text.data(), text.size());
  }
  // A part of something longer; whoever adds it tells where it ends.
  void AddPart(absl::string_view bytes) {
    XXH3_128bits_update(&state_, bytes.data(), bytes.size());
  }
  void Add(uint64_t number) { XXH3_128bits_update(&state_, &number, sizeof(number)); }
  std::string Hex() const {
    XXH128_hash_t hash = XXH3_128bits_digest(&state_);
    return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
  }

 private:
  XXH3_state_t state_;
};

}  // namespace feedwater::server
