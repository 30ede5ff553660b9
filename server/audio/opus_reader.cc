// Ogg Opus through libopus, which gets the packets one by one; pages are ours.
#include <opus/opus_multistream.h>

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/match.h"
#include "server/audio/codec_reader.h"
#include "server/audio/ogg_pages.h"
#include "server/base/status.h"

namespace feedwater::server {
namespace {

constexpr int64_t kRate = 48000;  // of granules, whatever the rate of the samples

absl::string_view Text(absl::Span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class OpusReader final : public CodecReader {
 public:
  explicit OpusReader(const AudioFile& file)
      : CodecReader(file), packets_(file.body), step_(kRate / file.rate) {}
  ~OpusReader() override {
    if (opus_ != nullptr) opus_multistream_decoder_destroy(opus_);
  }

  absl::StatusOr<CodecSound> Open() override {
    const auto head = packets_.Next();
    FW_RETURN_IF_ERROR(MakeDecoder(head ? head->bytes : absl::Span<const uint8_t>()));
    constexpr absl::string_view kTags = "OpusTags";
    const auto tags = packets_.Next(kTags.size());
    if (!tags || !absl::StartsWith(Text(tags->bytes), kTags))
      return Refused("cannot be decoded", "it lacks the header of its tags");
    FW_RETURN_IF_ERROR(FindStart());
    frames_ = (file_.last_granule - page_end_ - skipped_) / step_;
    skipped_ /= step_;
    return CodecSound{frames_, file_.channels, file_.rate};
  }

  // What is beyond the last page's granule fills up its last packet.
  absl::StatusOr<int64_t> Give(int64_t count, float* frames) override {
    if (given_ == frames_) return 0;
    while (next_ == end_) {
      FW_ASSIGN_OR_RETURN(const bool is_over, DecodePacket());
      if (is_over) return 0;
    }
    count = std::min({count, end_ - next_, frames_ - given_});
    std::copy_n(samples_.begin() + next_ * file_.channels, count * file_.channels, frames);
    next_ += count;
    given_ += count;
    return count;
  }

 private:
  // RFC 7845, 5.1. Of its versions those are read that libopus's own tools write.
  absl::Status MakeDecoder(absl::Span<const uint8_t> head) {
    const auto damaged = [&] { return Refused("cannot be decoded", "its header is damaged"); };
    constexpr size_t kFixed = 19;
    if (head.size() < kFixed || head[8] > 1) return damaged();
    const int channels = head[9], family = head[18];
    skipped_ = Little16(&head[10]);
    const auto gain = static_cast<int16_t>(Little16(&head[16]));
    // Family 0 has one stream, of one channel or of two.
    int streams = 1, coupled = channels - 1;
    std::array<uint8_t, 255> stream_of = {0, 1};
    if (family == 0) {
      if (channels > 2 || head.size() != kFixed) return damaged();
    } else {
      if ((family == 1 && channels > 8) ||
          head.size() != kFixed + 2 + static_cast<size_t>(channels))
        return damaged();
      streams = head[kFixed];
      coupled = head[kFixed + 1];
      std::copy(head.begin() + kFixed + 2, head.end(), stream_of.begin());
    }
    int error = OPUS_OK;
    opus_ = opus_multistream_decoder_create(static_cast<opus_int32>(file_.rate), channels, streams,
                                            coupled, stream_of.data(), &error);
    if (opus_ != nullptr && error == OPUS_OK)
      error = opus_multistream_decoder_ctl(opus_, OPUS_SET_GAIN(gain));
    if (error != OPUS_OK) return Refused("cannot be decoded", opus_strerror(error));
    most_ = file_.rate * 120 / 1000;  // RFC 6716: a packet is of at most 120 ms
    samples_.resize(static_cast<size_t>(most_ * channels));
    return absl::OkStatus();
  }

  // The granule before the first packet: that of the first page's end, less the frames of its
  // packets.
  absl::Status FindStart() {
    OggPackets packets = packets_;
    int64_t frames = 0;
    for (bool is_over = false; !is_over;) {
      const auto packet = packets.Next();
      if (!packet) return Refused("cannot be decoded", "it holds no packets of samples");
      frames +=
          std::max(opus_packet_get_nb_samples(packet->bytes.data(),
                                              static_cast<opus_int32>(packet->bytes.size()), kRate),
                   0);
      if (!packet->ends_page) continue;
      page_end_ = packet->granule - frames;
      // Of a stream of one page the end is cut, not the beginning.
      if (packet->is_on_last_page && page_end_ <= 0) page_end_ = 0;
      if (page_end_ < 0 || frames == 0 || (packet->is_on_last_page && page_end_ > 0))
        return Refused("is damaged", "its first page does not hold the samples that it says");
      is_over = true;
    }
    return absl::OkStatus();
  }

  // Whether there are no more.
  absl::StatusOr<bool> DecodePacket() {
    const auto packet = packets_.Next();
    if (!packet) return true;
    if (begins_page_) {
      position_ = page_end_;
      page_end_ = packet->granule;
    }
    begins_page_ = packet->ends_page;
    // libopus takes one without bytes for one that was lost.
    const int made = packet->bytes.empty() ? OPUS_INVALID_PACKET
                                           : opus_multistream_decode_float(
                                                 opus_, packet->bytes.data(),
                                                 static_cast<opus_int32>(packet->bytes.size()),
                                                 samples_.data(), static_cast<int>(most_), 0);
    if (made < 0) return Refused("is damaged", opus_strerror(made));
    end_ = made;
    const int64_t after = position_ + made * step_;
    if (after > page_end_) {
      if (!packet->is_on_last_page)
        return Refused("is damaged", "a page holds more samples than it says");
      end_ = std::max<int64_t>(page_end_ - position_, 0) / step_;
    }
    position_ = after;
    next_ = std::min(skipped_, end_);
    skipped_ -= next_;
    return false;
  }

  OggPackets packets_;
  const int64_t step_;  // of granules, for a frame
  OpusMSDecoder* opus_ = nullptr;
  std::vector<float> samples_;           // of a packet
  int64_t most_ = 0;                     // frames that fit in
  int64_t next_ = 0, end_ = 0;           // of them, to be given
  int64_t skipped_ = 0;                  // frames before the sound begins
  int64_t position_ = 0, page_end_ = 0;  // granules: before the next packet, of its page
  bool begins_page_ = true;              // the next packet
  int64_t frames_ = 0, given_ = 0;
};

}  // namespace

std::unique_ptr<CodecReader> NewOpusReader(const AudioFile& file) {
  return std::make_unique<OpusReader>(file);
}

}  // namespace feedwater::server
