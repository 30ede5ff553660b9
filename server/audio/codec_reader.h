// One codec behind AudioDecoder: a file whose header was read, to frames. Each has a file of its
// own. None makes a system call, and all take at most AudioDecoder::kMostLibraryBytes.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/audio/audio_file.h"

namespace feedwater::server {

// What a library sees in a file.
struct CodecSound {
  int64_t frames = 0;
  int channels = 0;
  int64_t rate = 0;
};

class CodecReader {
 public:
  explicit CodecReader(const AudioFile& file) : file_(file) {}
  virtual ~CodecReader() = default;
  CodecReader(const CodecReader&) = delete;
  CodecReader& operator=(const CodecReader&) = delete;

  // Once, before Give. InvalidArgument: the library refuses the file.
  virtual absl::StatusOr<CodecSound> Open() = 0;
  // Some of the next `count` frames, as AudioDecoder::Read says; 0: there are no more.
  // InvalidArgument: damaged.
  virtual absl::StatusOr<int64_t> Give(int64_t count, float* frames) = 0;

 protected:
  absl::Status Refused(absl::string_view what, absl::string_view why) const {
    return absl::InvalidArgumentError(absl::StrCat(file_.format, " ", what, " (", why, ")"));
  }

  const AudioFile& file_;
};

// `file` must stay.
std::unique_ptr<CodecReader> NewWavReader(const AudioFile& file);
std::unique_ptr<CodecReader> NewFlacReader(const AudioFile& file);
std::unique_ptr<CodecReader> NewVorbisReader(const AudioFile& file);
std::unique_ptr<CodecReader> NewOpusReader(const AudioFile& file);
std::unique_ptr<CodecReader> NewMp3Reader(const AudioFile& file);

}  // namespace feedwater::server
