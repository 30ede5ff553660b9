#include "server/audio/ogg_pages.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/audio/audio_file.h"
#include "server/base/status.h"

namespace feedwater::server {
namespace {

constexpr size_t kPageHeader = 27;

std::array<uint32_t, 256> ChecksumTable() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i << 24;
    for (int bit = 0; bit < 8; ++bit) value = value << 1 ^ ((value >> 31) != 0 ? 0x04c11db7u : 0);
    table[i] = value;
  }
  return table;
}

uint32_t Checksum(uint32_t sum, absl::Span<const uint8_t> bytes) {
  static const std::array<uint32_t, 256> kTable = ChecksumTable();
  for (const uint8_t byte : bytes) sum = sum << 8 ^ kTable[(sum >> 24) ^ byte];
  return sum;
}

}  // namespace

absl::Status OggDamaged(absl::string_view what, size_t at) {
  return absl::InvalidArgumentError(absl::StrCat("Ogg ", what, " (byte ", at, ")"));
}

absl::StatusOr<OggPage> ReadOggPage(absl::Span<const uint8_t> bytes, size_t at) {
  if (bytes.size() - at < kPageHeader) return OggDamaged("is cut off within a page", at);
  const uint8_t* const header = &bytes[at];
  if (std::memcmp(header, "OggS", 4) != 0 || header[4] != 0)
    return OggDamaged("has no page where one must begin", at);
  OggPage page;
  page.flags = header[5];
  page.granule = static_cast<int64_t>(Little32(header + 6) | uint64_t{Little32(header + 10)} << 32);
  page.serial = Little32(header + 14);
  page.number = Little32(header + 18);
  const size_t segments = header[26];
  size_t length = 0;
  if (bytes.size() - at - kPageHeader < segments) return OggDamaged("is cut off within a page", at);
  page.segments = bytes.subspan(at + kPageHeader, segments);
  for (const uint8_t segment : page.segments) length += segment;
  if (bytes.size() - at - kPageHeader - segments < length)
    return OggDamaged("is cut off within a page", at);
  page.body = bytes.subspan(at + kPageHeader + segments, length);
  page.end = at + kPageHeader + segments + length;
  return page;
}

absl::StatusOr<OggPage> ReadCheckedOggPage(absl::Span<const uint8_t> bytes, size_t at) {
  FW_ASSIGN_OR_RETURN(const OggPage page, ReadOggPage(bytes, at));
  constexpr size_t kSum = 22;  // which is taken for 0
  const uint8_t none[4] = {};
  uint32_t sum = Checksum(0, bytes.subspan(at, kSum));
  sum = Checksum(Checksum(sum, none), bytes.subspan(at + kSum + 4, page.end - at - kSum - 4));
  if (sum != Little32(&bytes[at + kSum])) return OggDamaged("has a damaged page", at);
  return page;
}

std::optional<OggPacket> OggPackets::Next(size_t wanted) {
  joined_.clear();
  for (;;) {
    if (segment_ == page_.segments.size()) {
      if (at_ == bytes_.size()) return std::nullopt;
      const auto page = ReadOggPage(bytes_, at_);
      if (!page.ok()) return std::nullopt;
      page_ = *page;
      at_ = page_.end;
      segment_ = begin_ = 0;
      continue;
    }
    bool is_whole = false;
    size_t length = 0;
    while (segment_ < page_.segments.size() && !is_whole) {
      const uint8_t segment = page_.segments[segment_++];
      length += segment;
      is_whole = segment < 255;
    }
    const auto part = page_.body.subspan(begin_, length);
    begin_ += length;
    const bool is_joined = !is_whole || !joined_.empty();
    if (is_joined && joined_.size() < wanted)
      joined_.insert(joined_.end(), part.begin(), part.end());
    if (!is_whole) continue;
    const auto rest = page_.segments.subspan(segment_);
    return OggPacket{is_joined ? absl::MakeConstSpan(joined_) : part, number_++, page_.granule,
                     std::all_of(rest.begin(), rest.end(), [](uint8_t s) { return s == 255; }),
                     (page_.flags & OggPage::kLast) != 0};
  }
}

}  // namespace feedwater::server
