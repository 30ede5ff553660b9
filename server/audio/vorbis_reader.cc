// Ogg Vorbis through libvorbis, which gets the packets one by one; pages are ours.
#include <vorbis/codec.h>

#include <algorithm>

#include "server/audio/codec_reader.h"
#include "server/audio/ogg_pages.h"

namespace feedwater::server {
namespace {

// For libvorbis, which copies all comments, instead of the file's.
constexpr uint8_t kNoComments[] = {3, 'v', 'o', 'r', 'b', 'i', 's', 0, 0, 0, 0, 0, 0, 0, 0, 1};

class VorbisReader final : public CodecReader {
 public:
  explicit VorbisReader(const AudioFile& file) : CodecReader(file), packets_(file.body) {
    vorbis_info_init(&info_);
    vorbis_comment_init(&comment_);
  }
  ~VorbisReader() override {
    vorbis_block_clear(&block_);
    vorbis_dsp_clear(&state_);
    vorbis_comment_clear(&comment_);
    vorbis_info_clear(&info_);
  }

  absl::StatusOr<CodecSound> Open() override {
    for (int header = 0; header < 3; ++header) {
      constexpr int kComments = 1;
      auto packet = packets_.Next(header == kComments ? std::size(kNoComments) : SIZE_MAX);
      if (!packet) return Refused("cannot be decoded", "it lacks a header");
      if (header == kComments) packet->bytes = kNoComments;
      ogg_packet given = Given(*packet);
      given.b_o_s = header == 0 ? 1 : 0;
      if (vorbis_synthesis_headerin(&info_, &comment_, &given) != 0)
        return Refused("cannot be decoded", "a header is damaged");
    }
    if (vorbis_synthesis_init(&state_, &info_) != 0 || vorbis_block_init(&state_, &block_) != 0)
      return Refused("cannot be decoded", "a header is damaged");
    frames_ = file_.last_granule - FindStart();
    return CodecSound{frames_, info_.channels, info_.rate};
  }

  // What is beyond the last page's granule fills up its last packet.
  absl::StatusOr<int64_t> Give(int64_t count, float* frames) override {
    while (given_ < frames_) {
      float** channels = nullptr;
      int64_t there = vorbis_synthesis_pcmout(&state_, &channels);
      if (there <= 0) {
        const auto packet = packets_.Next();
        if (!packet) return 0;
        ogg_packet given = Given(*packet);
        // A packet that is no sound has no frames; where it should have some, they are missed.
        if (vorbis_synthesis(&block_, &given) == 0) vorbis_synthesis_blockin(&state_, &block_);
        continue;
      }
      const bool is_skipped = skipped_ > 0;
      there = std::min(there, is_skipped ? skipped_ : std::min(count, frames_ - given_));
      for (int c = 0; c < info_.channels && !is_skipped; ++c) {
        for (int64_t i = 0; i < there; ++i) frames[i * info_.channels + c] = channels[c][i];
      }
      vorbis_synthesis_read(&state_, static_cast<int>(there));
      if (is_skipped) {
        skipped_ -= there;
        continue;
      }
      given_ += there;
      return there;
    }
    return 0;
  }

 private:
  ogg_packet Given(const OggPacket& packet) const {
    ogg_packet given = {};
    given.packet = const_cast<uint8_t*>(packet.bytes.data());  // libvorbis only reads it
    given.bytes = static_cast<long>(packet.bytes.size());
    given.e_o_s = packet.ends_page && packet.is_on_last_page ? 1 : 0;
    given.granulepos = packet.ends_page && packet.granule >= 0 ? packet.granule + before_ : -1;
    given.packetno = packet.number;
    return given;
  }

  // The granule of the first frame: that of the first page's end, less the frames of its packets.
  // Where that is before 0, so many frames are skipped, and libvorbis gets granules from 0 on.
  int64_t FindStart() {
    OggPackets packets = packets_;
    int64_t frames = 0;
    for (long before = -1;;) {
      const auto packet = packets.Next();
      if (!packet) return 0;
      ogg_packet given = Given(*packet);
      const long block = vorbis_packet_blocksize(&info_, &given);
      if (block >= 0) {
        if (before >= 0) frames += (before + block) / 4;
        before = block;
      }
      if (!packet->ends_page) continue;
      const int64_t start = packet->granule - frames;
      if (start >= 0) return start;
      // Of a stream of one page the end is cut, not the beginning.
      if (!packet->is_on_last_page && packet->granule >= 0) before_ = skipped_ = -start;
      return 0;
    }
  }

  OggPackets packets_;
  vorbis_info info_ = {};
  vorbis_comment comment_ = {};
  vorbis_dsp_state state_ = {};
  vorbis_block block_ = {};
  int64_t frames_ = 0, given_ = 0;
  int64_t before_ = 0;   // frames before granule 0
  int64_t skipped_ = 0;  // of them, still to be skipped
};

}  // namespace

std::unique_ptr<CodecReader> NewVorbisReader(const AudioFile& file) {
  return std::make_unique<VorbisReader>(file);
}

}  // namespace feedwater::server
