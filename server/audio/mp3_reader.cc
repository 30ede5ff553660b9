// MP3 through mpg123. It is told its instruction set, so that its sums do not depend on the CPU,
// and to keep its complaints off standard error.
#include <mpg123.h>

#include <algorithm>
#include <cstring>

#include "server/audio/codec_reader.h"

namespace feedwater::server {
namespace {

// Those that every CPU of a kind has.
constexpr const char* kArithmetics[] = {"x86-64", "NEON64", "generic"};

class Mp3Reader final : public CodecReader {
 public:
  using CodecReader::CodecReader;
  ~Mp3Reader() override { mpg123_delete(mp3_); }

  absl::StatusOr<CodecSound> Open() override {
    for (const char* arithmetic : kArithmetics) {
      mp3_ = mpg123_new(arithmetic, nullptr);
      if (mp3_ != nullptr) break;
    }
    if (mp3_ == nullptr) return absl::ResourceExhaustedError("no memory for an MP3 decoder");
    const bool is_set =
        mpg123_param(mp3_, MPG123_ADD_FLAGS, MPG123_QUIET, 0) == MPG123_OK &&
        mpg123_param(mp3_, MPG123_REMOVE_FLAGS, MPG123_AUTO_RESAMPLE, 0) == MPG123_OK &&
        mpg123_format_none(mp3_) == MPG123_OK &&
        mpg123_format(mp3_, static_cast<long>(file_.rate), file_.channels, MPG123_ENC_FLOAT_32) ==
            MPG123_OK &&
        mpg123_replace_reader_handle(mp3_, ReadBytes, Seek, nullptr) == MPG123_OK;
    long rate = 0;
    int channels = 0, encoding = 0;
    if (!is_set || mpg123_open_handle(mp3_, this) != MPG123_OK ||
        mpg123_getformat(mp3_, &rate, &channels, &encoding) != MPG123_OK ||
        mpg123_scan(mp3_) != MPG123_OK) {
      return Refused("cannot be decoded", mpg123_strerror(mp3_));
    }
    return CodecSound{mpg123_length(mp3_), channels, rate};
  }

  absl::StatusOr<int64_t> Give(int64_t count, float* frames) override {
    const size_t frame_bytes = static_cast<size_t>(file_.channels) * sizeof(float);
    size_t given = 0;
    int result = MPG123_NEW_FORMAT;
    while (result == MPG123_NEW_FORMAT && given == 0)
      result = mpg123_read(mp3_, frames, static_cast<size_t>(count) * frame_bytes, &given);
    if (result != MPG123_OK && result != MPG123_DONE)
      return Refused("is damaged", mpg123_strerror(mp3_));
    return static_cast<int64_t>(given / frame_bytes);
  }

 private:
  static ssize_t ReadBytes(void* data, void* to, size_t count) {
    auto& reader = *static_cast<Mp3Reader*>(data);
    const auto some = reader.file_.body.subspan(reader.at_, count);
    std::memcpy(to, some.data(), some.size());
    reader.at_ += some.size();
    return static_cast<ssize_t>(some.size());
  }
  static off_t Seek(void* data, off_t offset, int whence) {
    auto& reader = *static_cast<Mp3Reader*>(data);
    const auto size = static_cast<int64_t>(reader.file_.body.size());
    const int64_t base = whence == SEEK_SET   ? 0
                         : whence == SEEK_CUR ? static_cast<int64_t>(reader.at_)
                                              : size;
    int64_t to = 0;
    if (__builtin_add_overflow(base, offset, &to) || to < 0) return -1;
    to = std::min(to, size);
    reader.at_ = static_cast<size_t>(to);
    return to;
  }

  mpg123_handle* mp3_ = nullptr;
  size_t at_ = 0;
};

}  // namespace

std::unique_ptr<CodecReader> NewMp3Reader(const AudioFile& file) {
  return std::make_unique<Mp3Reader>(file);
}

}  // namespace feedwater::server
