#include "server/audio/audio_decoder.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/audio/codec_reader.h"
#include "server/base/status.h"

namespace feedwater::server {
namespace {

constexpr struct {
  absl::string_view format;
  std::unique_ptr<CodecReader> (*make)(const AudioFile& file);
} kReaders[] = {{"WAV", NewWavReader},
                {"FLAC", NewFlacReader},
                {"Ogg Vorbis", NewVorbisReader},
                {"Ogg Opus", NewOpusReader},
                {"MP3", NewMp3Reader}};

}  // namespace

AudioDecoder::AudioDecoder() = default;
AudioDecoder::~AudioDecoder() = default;

absl::Status AudioDecoder::Open(const AudioFile& file) {
  file_ = &file;
  for (const auto& reader : kReaders) {
    if (reader.format == file.format) codec_ = reader.make(file);
  }
  FW_ASSIGN_OR_RETURN(const CodecSound sound, codec_->Open());
  frames_ = sound.frames;
  if (sound.channels != file.channels || sound.rate != file.rate || frames_ < 0 ||
      (file.is_exact ? frames_ != file.most_frames : frames_ > file.most_frames)) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.format, " is decoded to ", frames_, " frames of ", sound.channels,
                     " channels at ", sound.rate, " Hz, but its header promises ", file.most_frames,
                     " of ", file.channels, " at ", file.rate));
  }
  if (frames_ > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(file.format, " holds no samples"));
}

absl::Status AudioDecoder::Read(int64_t count, float* frames) {
  for (int64_t done = 0; done < count;) {
    FW_ASSIGN_OR_RETURN(const int64_t some,
                        codec_->Give(count - done, frames + done * file_->channels));
    if (some <= 0) {
      return absl::InvalidArgumentError(absl::StrCat(file_->format, " is cut off or damaged: of ",
                                                     frames_, " frames ", given_ + done,
                                                     " are there"));
    }
    done += some;
  }
  given_ += count;
  return absl::OkStatus();
}

absl::Status AudioDecoder::Finish() {
  float frame[kMostAudioChannels];
  FW_ASSIGN_OR_RETURN(const int64_t more, codec_->Give(1, frame));
  if (more <= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(file_->format, " holds more than the ", frames_, " frames that it promises"));
}

}  // namespace feedwater::server
