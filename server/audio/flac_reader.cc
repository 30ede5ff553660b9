// FLAC through libFLAC, which gets the stream info and the frames behind it.
#include <FLAC/stream_decoder.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "server/audio/codec_reader.h"
#include "server/audio/flac_frames.h"
#include "server/base/status.h"

namespace feedwater::server {
namespace {

class FlacReader final : public CodecReader {
 public:
  using CodecReader::CodecReader;
  ~FlacReader() override {
    if (flac_ != nullptr) FLAC__stream_decoder_delete(flac_);
  }

  absl::StatusOr<CodecSound> Open() override {
    FW_ASSIGN_OR_RETURN(frames_, CountFlacSamples(file_));
    flac_ = FLAC__stream_decoder_new();
    if (flac_ == nullptr) return absl::ResourceExhaustedError("no memory for a FLAC decoder");
    const auto begun = FLAC__stream_decoder_init_stream(
        flac_, ReadBytes, nullptr, nullptr, nullptr, nullptr, TakeFrame, nullptr, TakeError, this);
    if (begun != FLAC__STREAM_DECODER_INIT_STATUS_OK)
      return Refused("cannot be decoded", FLAC__StreamDecoderInitStatusString[begun]);
    if (FLAC__stream_decoder_process_until_end_of_metadata(flac_) == 0 || error_ != nullptr)
      return Refused("cannot be decoded", Why());
    return CodecSound{frames_, file_.channels, file_.rate};
  }

  absl::StatusOr<int64_t> Give(int64_t count, float* frames) override {
    // CountFlacSamples has seen that there is nothing behind them but perhaps zeros.
    if (given_ == frames_) return 0;
    while (next_ == decoded_.size()) {
      if (FLAC__stream_decoder_process_single(flac_) == 0 || error_ != nullptr)
        return Refused("is damaged", Why());
      if (FLAC__stream_decoder_get_state(flac_) == FLAC__STREAM_DECODER_END_OF_STREAM) break;
    }
    const auto channels = static_cast<size_t>(file_.channels);
    const size_t samples = std::min(static_cast<size_t>(count) * channels, decoded_.size() - next_);
    std::copy_n(decoded_.begin() + static_cast<std::ptrdiff_t>(next_), samples, frames);
    next_ += samples;
    given_ += static_cast<int64_t>(samples / channels);
    return static_cast<int64_t>(samples / channels);
  }

 private:
  static FLAC__StreamDecoderReadStatus ReadBytes(const FLAC__StreamDecoder*, FLAC__byte to[],
                                                 size_t* count, void* data) {
    auto& reader = *static_cast<FlacReader*>(data);
    const AudioFile& file = reader.file_;
    const auto head = absl::MakeConstSpan(file.head).first(file.head_bytes);
    const auto some = reader.at_ < head.size()
                          ? head.subspan(reader.at_, *count)
                          : file.body.subspan(reader.at_ - head.size(), *count);
    if (!some.empty()) std::memcpy(to, some.data(), some.size());
    reader.at_ += some.size();
    *count = some.size();
    return some.empty() ? FLAC__STREAM_DECODER_READ_STATUS_END_OF_STREAM
                        : FLAC__STREAM_DECODER_READ_STATUS_CONTINUE;
  }

  static FLAC__StreamDecoderWriteStatus TakeFrame(const FLAC__StreamDecoder*,
                                                  const FLAC__Frame* frame,
                                                  const FLAC__int32* const channels[], void* data) {
    auto& reader = *static_cast<FlacReader*>(data);
    const FLAC__FrameHeader& header = frame->header;
    const auto count = static_cast<size_t>(reader.file_.channels);
    if (header.channels != count || header.sample_rate != reader.file_.rate) {
      reader.error_ = "a frame of other channels or of another rate";
      return FLAC__STREAM_DECODER_WRITE_STATUS_ABORT;
    }
    const float step = 1.0f / static_cast<float>(uint32_t{1} << (header.bits_per_sample - 1));
    reader.decoded_.resize(header.blocksize * count);
    reader.next_ = 0;
    for (size_t c = 0; c < count; ++c) {
      float* const to = reader.decoded_.data() + c;
      for (size_t i = 0; i < header.blocksize; ++i)
        to[i * count] = static_cast<float>(channels[c][i]) * step;
    }
    return FLAC__STREAM_DECODER_WRITE_STATUS_CONTINUE;
  }

  static void TakeError(const FLAC__StreamDecoder*, FLAC__StreamDecoderErrorStatus status,
                        void* data) {
    static_cast<FlacReader*>(data)->error_ = FLAC__StreamDecoderErrorStatusString[status];
  }

  const char* Why() const {
    return error_ != nullptr ? error_ : FLAC__stream_decoder_get_resolved_state_string(flac_);
  }

  FLAC__StreamDecoder* flac_ = nullptr;
  size_t at_ = 0;  // of head and body, one behind the other
  const char* error_ = nullptr;
  std::vector<float> decoded_;  // a frame of FLAC, all channels of a sample side by side
  size_t next_ = 0;             // of it, to be given
  int64_t frames_ = 0, given_ = 0;
};

}  // namespace

std::unique_ptr<CodecReader> NewFlacReader(const AudioFile& file) {
  return std::make_unique<FlacReader>(file);
}

}  // namespace feedwater::server
