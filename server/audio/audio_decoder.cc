#include "server/audio/audio_decoder.h"

#include <mpg123.h>
#include <sndfile.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/audio/flac_frames.h"
#include "server/base/status.h"

namespace feedwater::server {
namespace {

AudioDecoder::Input& InputOf(void* data) { return *static_cast<AudioDecoder::Input*>(data); }

sf_count_t Length(void* data) { return InputOf(data).size(); }
sf_count_t Seek(sf_count_t offset, int whence, void* data) {
  AudioDecoder::Input& input = InputOf(data);
  const int64_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? input.at : input.size();
  int64_t to = 0;
  if (__builtin_add_overflow(base, offset, &to) || to < 0) return -1;
  return input.at = std::min(to, input.size());
}
sf_count_t ReadBytes(void* to, sf_count_t count, void* data) {
  return InputOf(data).Read(to, count);
}
sf_count_t WriteNothing(const void*, sf_count_t, void*) { return 0; }
sf_count_t Tell(void* data) { return InputOf(data).at; }

ssize_t ReadForMp3(void* data, void* to, size_t count) {
  return InputOf(data).Read(to, static_cast<int64_t>(count));
}
off_t SeekForMp3(void* data, off_t offset, int whence) { return Seek(offset, whence, data); }

// Those that every CPU of a kind has, so that its bytes do not depend on the CPU.
constexpr const char* kArithmetics[] = {"x86-64", "NEON64", "generic"};

SF_VIRTUAL_IO kCallbacks = {Length, Seek, ReadBytes, WriteNothing, Tell};

}  // namespace

int64_t AudioDecoder::Input::size() const {
  return static_cast<int64_t>(file->head_bytes + file->body.size());
}

int64_t AudioDecoder::Input::Read(void* to, int64_t count) {
  auto* out = static_cast<uint8_t*>(to);
  const auto head = static_cast<int64_t>(file->head_bytes);
  const int64_t wanted = std::clamp<int64_t>(count, 0, size() - at);
  int64_t left = wanted;
  if (at < head && left > 0) {
    const int64_t some = std::min(left, head - at);
    std::memcpy(out, file->head.data() + at, static_cast<size_t>(some));
    out += some, at += some, left -= some;
  }
  if (left > 0) {
    std::memcpy(out, file->body.data() + (at - head), static_cast<size_t>(left));
    at += left;
  }
  return wanted;
}

AudioDecoder::~AudioDecoder() {
  if (sound_ != nullptr) sf_close(sound_);
  if (mp3_ != nullptr) mpg123_delete(mp3_);
}

absl::Status AudioDecoder::Refused(const char* what) const {
  // Without a handle sf_strerror reads a variable of the whole process.
  const char* const why = mp3_ != nullptr     ? mpg123_strerror(mp3_)
                          : sound_ != nullptr ? sf_strerror(sound_)
                                              : "libsndfile refuses it";
  return absl::InvalidArgumentError(absl::StrCat(input_.file->format, " ", what, " (", why, ")"));
}

absl::Status AudioDecoder::Open(const AudioFile& file) {
  input_.file = &file;
  if (file.format == absl::string_view("FLAC")) FW_RETURN_IF_ERROR(CheckFlacFrames(file));
  FW_RETURN_IF_ERROR(file.format == absl::string_view("MP3") ? OpenMp3() : OpenSound());
  if (channels_ != file.channels || rate_ != file.rate || frames_ < 0 ||
      (file.is_exact ? frames_ != file.most_frames : frames_ > file.most_frames)) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.format, " is decoded to ", frames_, " frames of ", channels_,
                     " channels at ", rate_, " Hz, but its header promises ", file.most_frames,
                     " of ", file.channels, " at ", file.rate));
  }
  if (frames_ > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(file.format, " holds no samples"));
}

absl::Status AudioDecoder::OpenSound() {
  SF_INFO info = {};
  sound_ = sf_open_virtual(&kCallbacks, SFM_READ, &info, &input_);
  if (sound_ == nullptr) return Refused("cannot be decoded");
  frames_ = info.frames;
  channels_ = info.channels;
  rate_ = info.samplerate;
  return absl::OkStatus();
}

absl::Status AudioDecoder::OpenMp3() {
  for (const char* arithmetic : kArithmetics) {
    mp3_ = mpg123_new(arithmetic, nullptr);
    if (mp3_ != nullptr) break;
  }
  if (mp3_ == nullptr) return absl::ResourceExhaustedError("no memory for an MP3 decoder");
  const AudioFile& file = *input_.file;
  const bool is_set =
      mpg123_param(mp3_, MPG123_ADD_FLAGS, MPG123_QUIET, 0) == MPG123_OK &&
      mpg123_param(mp3_, MPG123_REMOVE_FLAGS, MPG123_AUTO_RESAMPLE, 0) == MPG123_OK &&
      mpg123_format_none(mp3_) == MPG123_OK &&
      mpg123_format(mp3_, static_cast<long>(file.rate), file.channels, MPG123_ENC_FLOAT_32) ==
          MPG123_OK &&
      mpg123_replace_reader_handle(mp3_, ReadForMp3, SeekForMp3, nullptr) == MPG123_OK;
  long rate = 0;
  int channels = 0, encoding = 0;
  if (!is_set || mpg123_open_handle(mp3_, &input_) != MPG123_OK ||
      mpg123_getformat(mp3_, &rate, &channels, &encoding) != MPG123_OK ||
      mpg123_scan(mp3_) != MPG123_OK) {
    return Refused("cannot be decoded");
  }
  frames_ = mpg123_length(mp3_);
  channels_ = channels;
  rate_ = rate;
  return absl::OkStatus();
}

absl::StatusOr<int64_t> AudioDecoder::Give(int64_t count, float* frames) {
  if (sound_ != nullptr) {
    const int64_t given = sf_readf_float(sound_, frames, count);
    if (sf_error(sound_) != SF_ERR_NO_ERROR) return Refused("is damaged");
    return given;
  }
  const size_t frame_bytes = static_cast<size_t>(channels_) * sizeof(float);
  size_t given = 0;
  int result = MPG123_NEW_FORMAT;
  while (result == MPG123_NEW_FORMAT && given == 0)
    result = mpg123_read(mp3_, frames, static_cast<size_t>(count) * frame_bytes, &given);
  if (result != MPG123_OK && result != MPG123_DONE) return Refused("is damaged");
  return static_cast<int64_t>(given / frame_bytes);
}

absl::Status AudioDecoder::Read(int64_t count, float* frames) {
  for (int64_t done = 0; done < count;) {
    FW_ASSIGN_OR_RETURN(const int64_t some, Give(count - done, frames + done * channels_));
    if (some <= 0) {
      return absl::InvalidArgumentError(absl::StrCat(input_.file->format,
                                                     " is cut off or damaged: of ", frames_,
                                                     " frames ", given_ + done, " are there"));
    }
    done += some;
  }
  given_ += count;
  return absl::OkStatus();
}

absl::Status AudioDecoder::Finish() {
  float frame[kMostAudioChannels];
  FW_ASSIGN_OR_RETURN(const int64_t more, Give(1, frame));
  if (more <= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(input_.file->format, " holds more than the ",
                                                 frames_, " frames that it promises"));
}

}  // namespace feedwater::server
