// The samples of an audio file, from memory: no system call is made. MP3 goes through mpg123, the
// others through libsndfile. libsndfile reads MP3, too, but has mpg123 choose its arithmetic by the
// CPU and write its complaints to standard error. What the libraries allocate is bounded by
// kMostLibraryBytes for every file that ReadAudioFile lets through.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/audio/audio_file.h"

struct sf_private_tag;
struct mpg123_handle_struct;

namespace feedwater::server {

class AudioDecoder {
 public:
  static constexpr int64_t kMostLibraryBytes = 24 << 20;

  AudioDecoder() = default;
  ~AudioDecoder();
  AudioDecoder(const AudioDecoder&) = delete;
  AudioDecoder& operator=(const AudioDecoder&) = delete;

  // `file` must stay while it is decoded. Once. InvalidArgument: the library refuses the file, or
  // sees another one than its header promised.
  absl::Status Open(const AudioFile& file);
  int64_t frames() const { return frames_; }  // that Read gives
  // The next `count` frames, all channels of a frame side by side; whole numbers become floats from
  // -1 to 1. InvalidArgument: damaged, or at its end before that.
  absl::Status Read(int64_t count, float* frames);
  // All frames were read: whether there are more than there should be.
  absl::Status Finish();

  // What the library's callbacks read from.
  struct Input {
    const AudioFile* file = nullptr;
    int64_t at = 0;
    int64_t size() const;
    int64_t Read(void* to, int64_t count);
  };

 private:
  absl::Status OpenSound();
  absl::Status OpenMp3();
  absl::StatusOr<int64_t> Give(int64_t count, float* frames);  // as many as there are
  absl::Status Refused(const char* what) const;

  Input input_;
  sf_private_tag* sound_ = nullptr;
  mpg123_handle_struct* mp3_ = nullptr;
  int64_t channels_ = 0, rate_ = 0;
  int64_t frames_ = 0, given_ = 0;
};

}  // namespace feedwater::server
