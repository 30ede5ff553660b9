#include "server/codec/jpeg/seek_index.h"

#include <algorithm>
#include <cstring>

namespace feedwater::server::jpeg {
namespace {

// Closer points cost memory and spare little: half of the distance is decoded in vain at each row
// of a region. codec/README.md has the measurement.
constexpr size_t kBytesApart = 1024;

struct Header {
  uint32_t spacing, mcus;
};

constexpr uint32_t kBitOf = 29;  // a point's first word: the bit stands above the byte
constexpr uint32_t kMaxByte = (1u << kBitOf) - 1;
static_assert(SeekIndex::kMaxScanBytes - 1 <= kMaxByte);

size_t PointBytes(int components) { return 4 + 2 * static_cast<size_t>(components); }
size_t Points(uint32_t mcus, uint32_t spacing) {
  return (static_cast<size_t>(mcus) + spacing - 1) / spacing + 1;
}

}  // namespace

void SeekIndex::Start(int frame_components, size_t scan_bytes, int frame_mcus) {
  components = frame_components;
  const size_t parts = std::max<size_t>(1, scan_bytes / kBytesApart);
  spacing = static_cast<int>(std::max<size_t>(1, static_cast<size_t>(frame_mcus) / parts));
  mcus = 0;
  points.clear();
}

void SeekIndex::Encode(std::vector<std::byte>* document) const {
  const size_t point_bytes = PointBytes(components);
  document->resize(sizeof(Header) + points.size() * point_bytes);
  const Header header = {static_cast<uint32_t>(spacing), static_cast<uint32_t>(mcus)};
  std::byte* to = document->data();
  std::memcpy(to, &header, sizeof(header));
  to += sizeof(header);
  for (const SeekPoint& point : points) {
    const uint32_t place = point.byte | static_cast<uint32_t>(point.bit) << kBitOf;
    std::memcpy(to, &place, sizeof(place));
    std::memcpy(to + sizeof(place), point.dc, point_bytes - sizeof(place));
    to += point_bytes;
  }
}

bool SeekIndex::Decode(absl::Span<const std::byte> document, int frame_components, int frame_mcus) {
  Clear();
  Header header;
  if (document.size() < sizeof(header)) return false;
  std::memcpy(&header, document.data(), sizeof(header));
  if (header.spacing < 1 || header.spacing > static_cast<uint32_t>(frame_mcus)) return false;
  if (header.mcus < 1 || header.mcus > static_cast<uint32_t>(frame_mcus)) return false;
  const size_t count = Points(header.mcus, header.spacing);
  const size_t point_bytes = PointBytes(frame_components);
  if (document.size() != sizeof(header) + count * point_bytes) return false;
  components = frame_components;
  spacing = static_cast<int>(header.spacing);
  points.resize(count);
  const std::byte* from = document.data() + sizeof(header);
  for (SeekPoint& point : points) {
    uint32_t place;
    std::memcpy(&place, from, sizeof(place));
    std::memcpy(point.dc, from + sizeof(place), point_bytes - sizeof(place));
    point.byte = place & kMaxByte;
    point.bit = static_cast<uint8_t>(place >> kBitOf);
    from += point_bytes;
  }
  mcus = static_cast<int>(header.mcus);
  return true;
}

}  // namespace feedwater::server::jpeg
