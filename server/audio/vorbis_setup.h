// The setup header of a Vorbis stream, as far as it says what libvorbis will allocate: some bytes
// can ask for code books of gigabytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace feedwater::server {

class VorbisSetupReader {
 public:
  // Numbers in all code books. Those of encoders have some 50,000.
  static constexpr int64_t kMostNumbers = 1 << 19;
  // Of one code book: libvorbis takes 8 bytes of the stack for each. Those of encoders have up to
  // 6,561.
  static constexpr int64_t kMostEntries = 1 << 14;
  // Of the tables that libvorbis makes for all residues. Those of encoders take some 100 KiB.
  static constexpr int64_t kMostResidueBytes = 2 << 20;

  // The next page behind the first one. InvalidArgument: over one of these, or damaged.
  absl::Status Add(absl::Span<const uint8_t> segments, absl::Span<const uint8_t> body,
                   bool is_continued);
  bool is_done() const { return packet_ > 1; }

 private:
  static constexpr size_t kMostParts = 8;

  std::array<absl::Span<const uint8_t>, kMostParts> parts_;  // of the setup header
  size_t count_ = 0;
  int packet_ = 0;  // 0: comments, 1: setup
};

}  // namespace feedwater::server
