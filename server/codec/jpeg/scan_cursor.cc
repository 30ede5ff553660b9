#include "server/codec/jpeg/scan_cursor.h"

#include <algorithm>

namespace feedwater::server::jpeg {
namespace {

// Zeroes behind the bytes: an MCU of ten blocks cannot take more bits than these, so it is enough
// to look once an MCU whether the data has ended.
constexpr size_t kScanPadding = 10 * 64 * 4 + 64;

}  // namespace

// Copies the bytes without the zeroes stuffed behind 0xFF, up to a marker or the end.
bool ScanCursor::Begin(absl::Span<const uint8_t> scan, const SeekPoint& from, size_t end) {
  end = std::min(end, scan.size());
  if (from.byte >= end && from.byte != 0) return false;
  begin = from.byte;
  if (bytes.size() < end - begin + kScanPadding) bytes.resize(end - begin + kScanPadding);
  left_out.clear();
  const uint8_t* at = scan.data() + begin;
  const uint8_t* const stop = scan.data() + end;
  uint8_t* out = bytes.data();
  while (at < stop) {
    const void* found = std::memchr(at, 0xFF, static_cast<size_t>(stop - at));
    const uint8_t* filled = found == nullptr ? stop : static_cast<const uint8_t*>(found);
    std::memcpy(out, at, static_cast<size_t>(filled - at));
    out += filled - at;
    if (filled == stop) break;
    const uint8_t* const behind = filled + 1;
    if (behind == scan.data() + scan.size() || *behind != 0) break;  // a marker, or nothing
    *out++ = 0xFF;
    at = behind + 1;
    left_out.push_back(static_cast<uint32_t>(out - bytes.data()));
  }
  byte_count = static_cast<size_t>(out - bytes.data());
  std::memset(out, 0, kScanPadding);
  reader = BitReader();
  reader.next = bytes.data();
  if (from.bit > 0) {
    reader.bits = static_cast<uint64_t>(*reader.next++) << (56 + from.bit);
    reader.count = 8 - from.bit;
  }
  std::copy_n(from.dc, kMaxComponents, last_dc);
  return true;
}

void ScanCursor::GiveBackOver(size_t most) {
  if (bytes.capacity() > most) std::vector<uint8_t>().swap(bytes);
  if (left_out.capacity() * sizeof(uint32_t) > most) std::vector<uint32_t>().swap(left_out);
}

bool ScanCursor::Point(int components, SeekPoint* point) const {
  const size_t bits =
      static_cast<size_t>(reader.next - bytes.data()) * 8 - static_cast<size_t>(reader.count);
  const size_t byte = bits / 8;
  const auto behind = std::upper_bound(left_out.begin(), left_out.end(), byte);
  point->byte =
      static_cast<uint32_t>(begin + byte) + static_cast<uint32_t>(behind - left_out.begin());
  point->bit = static_cast<uint8_t>(bits % 8);
  for (int c = 0; c < components; ++c) {
    point->dc[c] = static_cast<int16_t>(last_dc[c]);
    if (point->dc[c] != last_dc[c]) return false;
  }
  return true;
}

}  // namespace feedwater::server::jpeg
