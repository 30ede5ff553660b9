// Ogg: every page is looked at here, and then taken for good by the codecs' readers.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/audio/audio_file.h"
#include "server/audio/audio_tags.h"
#include "server/audio/ogg_pages.h"
#include "server/audio/vorbis_setup.h"
#include "server/base/status.h"

namespace feedwater::server {
namespace {

constexpr int64_t kOpusRate = 48000;
constexpr size_t kMostHeaderBytes = 4 << 20;  // tags, of which nothing is kept
constexpr size_t kMostPacketBytes = 1 << 20;  // of samples; one of several pages is put together
constexpr int64_t kMostGranule = int64_t{1} << 40;

// That packets go on from page to page as the pages say.
class PacketWalk {
 public:
  // The next page, which begins at `at`.
  absl::Status Add(const OggPage& page, bool is_of_headers, size_t at) {
    if (is_begun_ && page.number != next_) return OggDamaged("lacks a page", at);
    if (((page.flags & OggPage::kContinued) != 0) != is_open_)
      return OggDamaged("has a packet that does not go on where it must", at);
    is_begun_ = true;
    next_ = page.number + 1;
    for (const uint8_t segment : page.segments) {
      bytes_ += segment;
      if (bytes_ > kMostPacketBytes && !is_of_headers)
        return OggDamaged("has a packet of more than 1 MiB", at);
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
    // Decoded at the rate that was encoded, where Opus has it.
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
  int64_t skipped = 0, granule = 0, headers = 1;
  uint32_t serial = 0;
  bool is_vorbis = false, is_over = false;
  size_t at = 0;
  while (at < bytes.size()) {
    if (is_over) {
      if (AreTags(bytes.subspan(at))) break;
      return OggDamaged("has another stream, or other bytes, behind its end", at);
    }
    FW_ASSIGN_OR_RETURN(const OggPage page, ReadCheckedOggPage(bytes, at));
    const bool is_of_headers = packets.whole() < headers;
    FW_RETURN_IF_ERROR(packets.Add(page, is_of_headers, at));
    if (at == 0) {
      if ((page.flags & OggPage::kFirst) == 0)
        return OggDamaged("does not begin with its first page", at);
      serial = page.serial;
      FW_ASSIGN_OR_RETURN(file, ReadIdentification(page.body, &skipped));
      is_vorbis = absl::string_view(file.format) == "Ogg Vorbis";
      headers = is_vorbis ? 3 : 2;
      // Else headers in it would reach the library unread.
      if (packets.whole() != 1 || packets.is_open())
        return OggDamaged("has a first page with more than its identification", at);
    } else if (page.serial != serial || (page.flags & OggPage::kFirst) != 0) {
      return OggDamaged("holds several streams; one is read", at);
    } else if (is_vorbis) {
      FW_RETURN_IF_ERROR(
          setup.Add(page.segments, page.body, (page.flags & OggPage::kContinued) != 0));
    }
    if (is_of_headers && packets.whole() + (packets.is_open() ? 1 : 0) > headers)
      return OggDamaged("has samples on a page of its headers", at);
    if (is_of_headers && at > kMostHeaderBytes)
      return OggDamaged("holds more than 4 MiB of tags before its samples", at);
    if (page.granule >= 0) {
      if (page.granule < granule) return OggDamaged("has pages out of order", at);
      if (page.granule > kMostGranule)
        return OggDamaged("says that it has more than 2^40 frames", at);
      granule = page.granule;
    }
    is_over = (page.flags & OggPage::kLast) != 0;
    at = page.end;
  }
  if (!is_over) {
    return absl::InvalidArgumentError(
        "Ogg is cut off: no page says that it is the last one (write it anew, as `oggz` or ffmpeg "
        "with `-c copy` do)");
  }
  if (packets.is_open()) return OggDamaged("is cut off within a packet", at);
  file.last_granule = granule;
  file.most_frames = is_vorbis ? granule : (granule - skipped) * file.rate / kOpusRate;
  file.body = bytes.first(at);
  return file;
}

}  // namespace feedwater::server
