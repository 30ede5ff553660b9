// Ogg: pages, and the packets that lie in them, each in one or going on from page to page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace feedwater::server {

struct OggPage {
  static constexpr uint8_t kContinued = 1, kFirst = 2, kLast = 4;
  uint8_t flags = 0;
  int64_t granule = -1;  // frames up to its end; -1: no packet ends on it
  uint32_t serial = 0, number = 0;
  absl::Span<const uint8_t> segments, body;
  size_t end = 0;  // where the next one begins
};

absl::Status OggDamaged(absl::string_view what, size_t at);
// InvalidArgument: no whole page begins at `at`.
absl::StatusOr<OggPage> ReadOggPage(absl::Span<const uint8_t> bytes, size_t at);
// The same, and its checksum is right.
absl::StatusOr<OggPage> ReadCheckedOggPage(absl::Span<const uint8_t> bytes, size_t at);

struct OggPacket {
  absl::Span<const uint8_t> bytes;  // until the next one is taken
  int64_t number = 0;               // from 0 on
  int64_t granule = -1;             // of the page on which it ends
  bool ends_page = false;           // no other packet ends on that page
  bool is_on_last_page = false;
};

// The packets of a stream, one after the other. libogg would leave out what is damaged without a
// word; here ReadOgg has looked for that. REQUIRES: ReadOgg lets `bytes` through.
class OggPackets {
 public:
  explicit OggPackets(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  // Nothing behind the last one. Of a packet on several pages no more than those with its first
  // `wanted` bytes are put together.
  std::optional<OggPacket> Next(size_t wanted = SIZE_MAX);

 private:
  const absl::Span<const uint8_t> bytes_;
  OggPage page_;
  size_t at_ = 0;                   // of the next page
  size_t segment_ = 0, begin_ = 0;  // within the page, of the next packet
  std::vector<uint8_t> joined_;     // a packet of several pages
  int64_t number_ = 0;
};

}  // namespace feedwater::server
