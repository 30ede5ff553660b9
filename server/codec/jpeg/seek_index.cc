#include "server/codec/jpeg/seek_index.h"

#include <algorithm>

namespace feedwater::server::jpeg {
namespace {

// Closer points cost memory and spare little: half of the distance is decoded in vain at each row
// of a region. codec/README.md has the measurement.
constexpr size_t kBytesApart = 512;

// Numbers in documents: little-endian groups of seven bits, the last one without a high bit.
void PutNumber(uint64_t number, std::vector<std::byte>* to) {
  for (; number >= 0x80; number >>= 7) to->push_back(static_cast<std::byte>(number | 0x80));
  to->push_back(static_cast<std::byte>(number));
}

bool TakeNumber(absl::Span<const std::byte>* from, uint64_t limit, uint64_t* number) {
  *number = 0;
  for (int shift = 0; shift < 63 && !from->empty(); shift += 7) {
    const auto group = static_cast<uint64_t>(from->front());
    from->remove_prefix(1);
    *number |= (group & 0x7F) << shift;
    if (group < 0x80) return *number <= limit;
  }
  return false;
}

// Small numbers of either sign as small ones without.
uint64_t Fold(int64_t number) {
  return static_cast<uint64_t>(number) << 1 ^ static_cast<uint64_t>(number >> 63);
}
int64_t Unfold(uint64_t number) {
  return static_cast<int64_t>(number >> 1) ^ -static_cast<int64_t>(number & 1);
}

}  // namespace

void SeekIndex::Start(int frame_components, size_t scan_bytes, int frame_mcus) {
  components = frame_components;
  const size_t parts = std::max<size_t>(1, scan_bytes / kBytesApart);
  spacing = static_cast<int>(std::max<size_t>(1, static_cast<size_t>(frame_mcus) / parts));
  mcus = 0;
  points.clear();
}

// Spacing, MCUs, then for each point but the first, which is the scan's beginning, what was added
// to the one before it: bits, and each component's DC.
void SeekIndex::Encode(std::vector<std::byte>* document) const {
  document->clear();
  PutNumber(static_cast<uint64_t>(spacing), document);
  PutNumber(static_cast<uint64_t>(mcus), document);
  for (size_t k = 1; k < points.size(); ++k) {
    const SeekPoint &from = points[k - 1], &to = points[k];
    PutNumber(to.bits() - from.bits(), document);
    for (int c = 0; c < components; ++c) PutNumber(Fold(to.dc[c] - from.dc[c]), document);
  }
}

bool SeekIndex::Decode(absl::Span<const std::byte> document, int frame_components, int frame_mcus) {
  Clear();
  const uint64_t all = static_cast<uint64_t>(frame_mcus);
  uint64_t apart, known;
  if (!TakeNumber(&document, all, &apart) || apart == 0) return false;
  if (!TakeNumber(&document, all, &known) || known == 0) return false;
  const size_t count = (known + apart - 1) / apart + 1;
  // A point takes a byte for each of its numbers at least.
  if (document.size() < (count - 1) * (1 + static_cast<size_t>(frame_components))) return false;
  points.assign(count, SeekPoint());
  for (size_t k = 1; k < count; ++k) {
    uint64_t bits, dc;
    if (!TakeNumber(&document, 8 * kMaxScanBytes, &bits)) return false;
    bits += points[k - 1].bits();
    if (bits > 8 * kMaxScanBytes) return false;
    points[k].byte = static_cast<uint32_t>(bits / 8);
    points[k].bit = static_cast<uint8_t>(bits % 8);
    for (int c = 0; c < frame_components; ++c) {
      if (!TakeNumber(&document, 0x1FFFF, &dc)) return false;
      const int64_t value = points[k - 1].dc[c] + Unfold(dc);
      points[k].dc[c] = static_cast<int16_t>(value);
      if (points[k].dc[c] != value) return false;
    }
  }
  if (!document.empty()) return false;
  components = frame_components;
  spacing = static_cast<int>(apart);
  mcus = static_cast<int>(known);
  return true;
}

}  // namespace feedwater::server::jpeg
