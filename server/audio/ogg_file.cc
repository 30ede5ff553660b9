// Ogg: pages, each with a checksum. Every page is looked at before libogg, which would leave out
// what is damaged without a word.
#include <array>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/audio/audio_file.h"
#include "server/audio/vorbis_setup.h"
#include "server/base/status.h"

namespace feedwater::server {
namespace {

constexpr size_t kPageHeader = 27;
constexpr uint8_t kContinued = 1, kFirst = 2, kLast = 4;
constexpr int64_t kOpusRate = 48000;
constexpr size_t kMostTagBytes = 4 << 20;     // the libraries keep copies of them
constexpr size_t kMostPacketBytes = 1 << 20;  // of samples; libogg gathers a packet in memory
constexpr int64_t kMostGranule = int64_t{1} << 40;

absl::Status Damaged(absl::string_view what, size_t at) {
  return absl::InvalidArgumentError(absl::StrCat("Ogg ", what, " (byte ", at, ")"));
}

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

struct Page {
  uint8_t flags = 0;
  int64_t granule = -1;  // frames up to its end
  uint32_t serial = 0, number = 0;
  absl::Span<const uint8_t> segments, body;
  size_t end = 0;
};

absl::StatusOr<Page> ReadPage(absl::Span<const uint8_t> bytes, size_t at) {
  if (bytes.size() - at < kPageHeader) return Damaged("is cut off within a page", at);
  const uint8_t* const header = &bytes[at];
  if (std::memcmp(header, "OggS", 4) != 0 || header[4] != 0)
    return Damaged("has no page where one must begin", at);
  Page page;
  page.flags = header[5];
  page.granule = static_cast<int64_t>(Little32(header + 6) | uint64_t{Little32(header + 10)} << 32);
  page.serial = Little32(header + 14);
  page.number = Little32(header + 18);
  const size_t segments = header[26];
  size_t length = 0;
  if (bytes.size() - at - kPageHeader < segments) return Damaged("is cut off within a page", at);
  page.segments = bytes.subspan(at + kPageHeader, segments);
  for (const uint8_t segment : page.segments) length += segment;
  if (bytes.size() - at - kPageHeader - segments < length)
    return Damaged("is cut off within a page", at);
  page.body = bytes.subspan(at + kPageHeader + segments, length);
  page.end = at + kPageHeader + segments + length;
  const uint8_t none[4] = {};
  uint32_t sum = Checksum(0, {header, 22});
  sum = Checksum(Checksum(sum, none), bytes.subspan(at + 26, 1 + segments + length));
  if (sum != Little32(header + 22)) return Damaged("has a damaged page", at);
  return page;
}

// That packets go on from page to page as the pages say. libogg leaves out what does not, and takes
// what comes then for the next packet.
class PacketWalk {
 public:
  // The next page, which begins at `at`.
  absl::Status Add(const Page& page, bool is_among_tags, size_t at) {
    if (is_begun_ && page.number != next_) return Damaged("lacks a page", at);
    if (((page.flags & kContinued) != 0) != is_open_)
      return Damaged("has a packet that does not go on where it must", at);
    is_begun_ = true;
    next_ = page.number + 1;
    for (const uint8_t segment : page.segments) {
      bytes_ += segment;
      if (bytes_ > kMostPacketBytes && !is_among_tags)
        return Damaged("has a packet of more than 1 MiB", at);
      is_open_ = segment == 255;
      if (!is_open_) bytes_ = 0, ++whole_;
    }
    return absl::OkStatus();
  }
  int64_t whole() const { return whole_; }
  bool is_open() const { return is_open_; }

 private:
  bool is_begun_ = false, is_open_ = false;
  uint32_t next_ = 0;
  size_t bytes_ = 0;   // of the packet that goes on
  int64_t whole_ = 0;  // packets
};

absl::StatusOr<AudioFile> ReadIdentification(absl::Span<const uint8_t> body, int64_t* skipped) {
  const absl::string_view text(reinterpret_cast<const char*>(body.data()), body.size());
  AudioFile file;
  if (absl::StartsWith(text, "\x01vorbis") && body.size() >= 30) {
    file.format = "Ogg Vorbis";
    file.channels = body[11];
    file.rate = Little32(&body[12]);
    return file;
  }
  if (absl::StartsWith(text, "OpusHead") && body.size() >= 19) {
    file.format = "Ogg Opus";
    file.channels = body[9];
    *skipped = Little16(&body[10]);
    // libsndfile decodes at the rate that was encoded, where Opus has it.
    file.rate = Little32(&body[12]);
    if (file.rate != 8000 && file.rate != 12000 && file.rate != 16000 && file.rate != 24000)
      file.rate = kOpusRate;
    return file;
  }
  absl::string_view is = "an unknown codec";
  if (absl::StartsWith(text,
                       "\x7f"
                       "FLAC"))
    is = "FLAC in Ogg";
  if (absl::StartsWith(text, "Speex")) is = "Speex";
  if (absl::StartsWith(text, "\x80theora")) is = "Theora, a film";
  if (absl::StartsWith(text, "fishead")) is = "several streams (Skeleton)";
  return absl::InvalidArgumentError(
      absl::StrCat("Ogg of ", is, " is not read; Vorbis and Opus are"));
}

}  // namespace

absl::StatusOr<AudioFile> ReadOgg(absl::Span<const uint8_t> bytes) {
  AudioFile file;
  VorbisSetupReader setup;
  PacketWalk packets;
  int64_t skipped = 0, granule = 0;
  uint32_t serial = 0;
  bool is_over = false;
  for (size_t at = 0; at < bytes.size();) {
    if (is_over) return Damaged("has another stream, or other bytes, behind its end", at);
    FW_ASSIGN_OR_RETURN(const Page page, ReadPage(bytes, at));
    FW_RETURN_IF_ERROR(packets.Add(page, granule == 0, at));
    if (at == 0) {
      if ((page.flags & kFirst) == 0) return Damaged("does not begin with its first page", at);
      serial = page.serial;
      FW_ASSIGN_OR_RETURN(file, ReadIdentification(page.body, &skipped));
      // Else headers in it would reach the library unread.
      if (packets.whole() != 1 || packets.is_open())
        return Damaged("has a first page with more than its identification", at);
    } else if (page.serial != serial || (page.flags & kFirst) != 0) {
      return Damaged("holds several streams; one is read", at);
    } else if (absl::string_view(file.format) == "Ogg Vorbis") {
      FW_RETURN_IF_ERROR(setup.Add(page.segments, page.body, (page.flags & kContinued) != 0));
    }
    if (page.granule >= 0) {
      if (page.granule < granule) return Damaged("has pages out of order", at);
      if (page.granule > kMostGranule) return Damaged("says that it has more than 2^40 frames", at);
      granule = page.granule;
    }
    if (granule == 0 && at > kMostTagBytes)
      return Damaged("holds more than 4 MiB of tags before its samples", at);
    is_over = (page.flags & kLast) != 0;
    at = page.end;
  }
  if (!is_over) {
    return absl::InvalidArgumentError(
        "Ogg is cut off: no page says that it is the last one (write it anew, as `oggz` or ffmpeg "
        "with `-c copy` do)");
  }
  if (absl::string_view(file.format) == "Ogg Opus")
    granule = (granule - skipped) * file.rate / kOpusRate;
  file.most_frames = granule;
  file.body = bytes;
  return file;
}

}  // namespace feedwater::server
