#include "server/audio/audio_file.h"

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/audio/audio_tags.h"
#include "server/audio/resampler.h"
#include "server/base/status.h"

namespace feedwater::server {
namespace {

struct Known {
  absl::string_view begins, at_8, is;
};
constexpr Known kOthers[] = {
    {"RIFX", "", "a WAV of the other byte order (RIFX)"},
    {"RF64", "", "a WAV of 64 bits (RF64)"},
    {"BW64", "", "a WAV of 64 bits (BW64)"},
    {"riff", "", "a Wave64 file"},
    {"RIFF", "AVI ", "an AVI film"},
    {"RIFF", "WEBP", "a WebP image, for op decode"},
    {"FORM", "AIF", "an AIFF file"},
    {".snd", "", "an AU file"},
    {"caff", "", "a CAF file"},
    {"MThd", "", "a MIDI file"},
    {"#!AMR", "", "an AMR file"},
    {"wvpk", "", "a WavPack file"},
    {"MAC ", "", "a Monkey's Audio file"},
    {"DSD ", "", "a DSD file"},
    {"OpusHead", "", "an Opus stream without its Ogg container"},
    {"\x1a\x45\xdf\xa3", "", "a WebM or Matroska file"},
    {"\x30\x26\xb2\x75", "", "a WMA or ASF file"},
    {"\xff\xd8\xff", "", "a JPEG image, for op decode"},
    {"\x89PNG", "", "a PNG image, for op decode"},
    {"\x1f\x8b", "", "compressed with gzip"},
    {"PK\x03\x04", "", "a ZIP archive"},
};
constexpr absl::string_view kRead = "WAV, FLAC, Ogg (Vorbis, Opus) and MP3 are read";

}  // namespace

absl::StatusOr<AudioFile> ReadAudioFile(absl::Span<const std::byte> encoded) {
  if (encoded.empty()) return absl::InvalidArgumentError("the audio file is empty");
  const absl::Span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(encoded.data()),
                                        encoded.size());
  const absl::string_view whole(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  // Tags stand before files of every kind, and say nothing of it.
  const std::optional<size_t> begin = BehindTags(bytes, 0);
  if (!begin) return absl::InvalidArgumentError("is cut off within the tag that it begins with");
  const absl::Span<const uint8_t> rest = bytes.subspan(*begin);
  const absl::string_view text = whole.substr(*begin);
  const auto from = [&](size_t at) { return text.size() > at ? text.substr(at) : ""; };
  absl::StatusOr<AudioFile> file = absl::UnknownError("");
  if (absl::StartsWith(text, "RIFF") && absl::StartsWith(from(8), "WAVE")) {
    file = ReadWav(rest);
  } else if (absl::StartsWith(text, "fLaC")) {
    file = ReadFlac(rest);
  } else if (absl::StartsWith(text, "OggS")) {
    file = ReadOgg(rest);
  } else if (rest.size() > 1 && rest[0] == 0xff && (rest[1] & 0xe0) == 0xe0) {
    file = ReadMp3(bytes);
  } else {
    for (const Known& other : kOthers) {
      if (absl::StartsWith(text, other.begins) && absl::StartsWith(from(8), other.at_8))
        return absl::InvalidArgumentError(absl::StrCat("is ", other.is, "; ", kRead));
    }
    if (whole.size() > 4 && absl::StartsWith(whole.substr(4), "ftyp"))
      return absl::InvalidArgumentError(absl::StrCat("is an MP4 file (M4A, AAC); ", kRead));
    if (!absl::StartsWith(whole, "ID3"))
      return absl::InvalidArgumentError(absl::StrCat("is no audio file that is known; ", kRead));
    file = ReadMp3(bytes);  // a damaged one, most likely
  }
  if (!file.ok()) return file;
  if (file->channels < 1 || file->channels > kMostAudioChannels) {
    return absl::InvalidArgumentError(absl::StrCat(file->format, " of ", file->channels,
                                                   " channels; there are from 1 to ",
                                                   kMostAudioChannels));
  }
  if (file->rate < 1 || file->rate > kMostSampleRate) {
    return absl::InvalidArgumentError(absl::StrCat(file->format, " of ", file->rate,
                                                   " Hz; rates are from 1 to ", kMostSampleRate));
  }
  if (file->most_frames < 1)
    return absl::InvalidArgumentError(absl::StrCat(file->format, " holds no samples"));
  return file;
}

}  // namespace feedwater::server
