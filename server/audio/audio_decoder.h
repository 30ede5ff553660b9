// The samples of an audio file, from memory: no system call is made. A codec each has its own
// reader (codec_reader.h).
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "server/audio/audio_file.h"

namespace feedwater::server {

class CodecReader;

class AudioDecoder {
 public:
  // What a reader and the library behind it allocate at most, for every file that ReadAudioFile
  // lets through. Vorbis takes most: 12 MiB while the code books are made (VorbisSetupReader's
  // bounds), of which 7 stay; 2 MiB of residues; 64 channels of 8,192 floats twice, and as much
  // again to unpack residues; 3 MiB for a packet of several pages as it grows. A file made for it
  // took 16.5. The others: Opus 5 MiB for 255 streams and 2 of samples; FLAC 2 MiB each for
  // samples, residuals and Rice parameters of 8 channels, and for floats; MP3 less than 1; WAV
  // nothing.
  static constexpr int64_t kMostLibraryBytes = 24 << 20;

  AudioDecoder();
  ~AudioDecoder();

  // `file` must stay while it is decoded. Once. InvalidArgument: the library refuses the file, or
  // sees another one than its header promised.
  absl::Status Open(const AudioFile& file);
  int64_t frames() const { return frames_; }  // that Read gives
  // The next `count` frames, all channels of a frame side by side; whole numbers become floats from
  // -1 to 1. InvalidArgument: damaged, or at its end before that.
  absl::Status Read(int64_t count, float* frames);
  // All frames were read: whether there are more than there should be.
  absl::Status Finish();

 private:
  const AudioFile* file_ = nullptr;
  std::unique_ptr<CodecReader> codec_;
  int64_t frames_ = 0, given_ = 0;
};

}  // namespace feedwater::server
