#include "server/audio/audio_tags.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "server/audio/audio_file.h"

namespace feedwater::server {
namespace {

constexpr size_t kId3v1 = 128, kEnhanced = 227, kId3Header = 10, kApe = 32;  // APE: either end

absl::string_view Text(absl::Span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Lyrics3 ends in one of two words, the old one and the new one, or is cut off with the file. The
// next place that looks like either is taken: so all tags together take one look at each byte.
size_t LyricsBytes(absl::string_view text) {
  constexpr absl::string_view kName = "LYRICS";
  constexpr size_t kEnd = 9;  // LYRICSEND, LYRICS200
  for (size_t at = kName.size();;) {
    at = text.find(kName, at);
    if (at == absl::string_view::npos) return text.size();
    const absl::string_view word = text.substr(at, kEnd);
    if (word == "LYRICSEND" || word == "LYRICS200") return at + kEnd;
    at += kName.size();
  }
}

// How many bytes of a tag begin here; 0: none does.
size_t TagBytes(absl::Span<const uint8_t> rest) {
  const auto is = [&](absl::string_view name, size_t least) {
    return rest.size() >= least && absl::StartsWith(Text(rest), name);
  };
  if (is("TAG+", kEnhanced + kId3v1)) return kEnhanced;  // before a TAG, as which it begins, too
  if (is("TAG", kId3v1)) return kId3v1;
  if (is("ID3", kId3Header)) {
    size_t bytes = 0;
    for (size_t i = 6; i < kId3Header; ++i) bytes = bytes << 7 | (rest[i] & 0x7f);
    return kId3Header + bytes + ((rest[5] & 0x10) != 0 ? kId3Header : 0);
  }
  // The size counts the footer, and not the header.
  if (is("APETAGEX", kApe))
    return Little32(&rest[12]) + ((Little32(&rest[20]) & 0x80000000u) != 0 ? kApe : 0);
  if (is("LYRICSBEGIN", 0)) return LyricsBytes(Text(rest));
  return 0;
}

// How many bytes of a tag end here; 0: none does.
size_t TagBytesBefore(absl::Span<const uint8_t> bytes) {
  const auto is = [&](absl::string_view name, size_t before) {
    return bytes.size() >= before && absl::StartsWith(Text(bytes.last(before)), name);
  };
  if (is("TAG", kId3v1) && !is("APETAGEX", kId3v1 + 3))  // within the other's name
    return is("TAG+", kEnhanced + kId3v1) ? kEnhanced + kId3v1 : kId3v1;
  if (!is("APETAGEX", kApe)) return 0;
  const uint8_t* const footer = &bytes[bytes.size() - kApe];
  const size_t tag =
      Little32(footer + 12) + ((Little32(footer + 20) & 0x80000000u) != 0 ? kApe : 0);
  return tag >= kApe && tag <= bytes.size() ? tag : 0;
}

}  // namespace

std::optional<size_t> BehindTags(absl::Span<const uint8_t> bytes, size_t at) {
  while (at < bytes.size()) {
    const size_t tag = bytes[at] == 0 ? 1 : TagBytes(bytes.subspan(at));
    if (tag == 0) break;
    if (tag > bytes.size() - at) return std::nullopt;
    at += tag;
  }
  return at;
}

size_t TagsAtEnd(absl::Span<const uint8_t> bytes) {
  size_t begin = bytes.size();
  for (size_t tag = 1; tag > 0;) {
    // Zeros may stand behind a tag, and be the last bytes of it.
    size_t end = begin;
    while (end > 0 && bytes[end - 1] == 0) --end;
    const size_t last = std::min(begin, end + kId3v1);
    for (tag = TagBytesBefore(bytes.first(end)); tag == 0 && end < last;)
      tag = TagBytesBefore(bytes.first(++end));
    if (tag > 0) begin = end - tag;
  }
  return begin;
}

bool AreTags(absl::Span<const uint8_t> bytes) {
  const auto behind = BehindTags(bytes, 0);
  return behind && TagsAtEnd(bytes.subspan(*behind)) == 0;
}

}  // namespace feedwater::server
