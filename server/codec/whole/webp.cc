#include "server/codec/whole/webp.h"

#include <webp/decode.h>

#include <algorithm>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "server/base/status.h"
#include "server/codec/jpeg/markers.h"

namespace feedwater::server {
namespace {

using Bytes = absl::Span<const std::byte>;

class WebpDecoder final : public WholeDecoder {
 public:
  absl::StatusOr<WholeHeader> Open(Bytes encoded, const ImageLimits& limits) override {
    clock_.Start(limits);
    bytes_ = encoded;
    WholeHeader header;
    FW_ASSIGN_OR_RETURN(header.size, ReadSize(limits));
    header.orientation = Orientation();
    canvas_ = header.size;
    return header;
  }

  absl::Status Decode(uint8_t* rgb) override {
    WebPBitstreamFeatures features;
    if (WebPGetFeatures(Data(), bytes_.size(), &features) != VP8_STATUS_OK)
      return DamagedImage("WebP", "its header cannot be read");
    if (Size{features.width, features.height} != canvas_) return TwoSizes("WebP");
    frame_ = {0, 0, canvas_.width, canvas_.height};
    if (features.has_animation) FW_RETURN_IF_ERROR(TakeFirstFrame());
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config)) return absl::InternalError("libwebp of another version");
    config.output.colorspace = MODE_RGB;
    config.output.is_external_memory = 1;
    const size_t row_bytes = static_cast<size_t>(canvas_.width) * 3;
    const size_t frame_at =
        static_cast<size_t>(frame_.y) * row_bytes + static_cast<size_t>(frame_.x) * 3;
    if (Size{frame_.width, frame_.height} != canvas_)
      std::memset(rgb, 0, row_bytes * static_cast<size_t>(canvas_.height));
    config.output.u.RGBA.rgba = rgb + frame_at;
    config.output.u.RGBA.stride = static_cast<int>(row_bytes);
    config.output.u.RGBA.size = row_bytes * static_cast<size_t>(canvas_.height) - frame_at;
    WebPIDecoder* decoder = WebPIDecode(nullptr, 0, &config);
    if (decoder == nullptr) return absl::ResourceExhaustedError("WebP: out of memory");
    const absl::Cleanup ended = [decoder] { WebPIDelete(decoder); };
    // In pieces, so that the clock is looked at.
    const size_t step = std::max(bytes_.size() / 64 + 1, size_t{64} << 10);
    VP8StatusCode code = VP8_STATUS_SUSPENDED;
    for (size_t given = 0; given < bytes_.size() && code == VP8_STATUS_SUSPENDED;) {
      if (clock_.IsOver()) return clock_.Over("WebP");
      given += std::min(step, bytes_.size() - given);
      code = WebPIUpdate(decoder, Data(), given);
    }
    switch (code) {
      case VP8_STATUS_OK:
        return absl::OkStatus();
      case VP8_STATUS_OUT_OF_MEMORY:
        return absl::ResourceExhaustedError("WebP: out of memory");
      case VP8_STATUS_SUSPENDED:
      case VP8_STATUS_NOT_ENOUGH_DATA:
        return DamagedImage("WebP", "the file is cut");
      default:
        return DamagedImage("WebP", "its pixels cannot be read");
    }
  }

 private:
  const uint8_t* Data() const { return reinterpret_cast<const uint8_t*>(bytes_.data()); }

  // Of the picture: in VP8X, or in the one chunk that there is.
  absl::StatusOr<Size> ReadSize(const ImageLimits& limits) const {
    constexpr size_t kChunk = 12, kContent = 20, kNeeded = 30;
    constexpr absl::string_view kKeyFrame("\x9d\x01\x2a", 3);
    uint64_t width = 0, height = 0;
    if (bytes_.size() < kNeeded) return DamagedImage("WebP", "the file is cut");
    if (StartsWith(bytes_, "VP8X", kChunk)) {
      width = LittleEndian(bytes_, kContent + 4, 3) + 1;
      height = LittleEndian(bytes_, kContent + 7, 3) + 1;
    } else if (StartsWith(bytes_, "VP8L", kChunk)) {
      const uint64_t sizes = LittleEndian(bytes_, kContent + 1, 4);
      width = (sizes & 0x3fff) + 1;
      height = (sizes >> 14 & 0x3fff) + 1;
    } else if (StartsWith(bytes_, "VP8 ", kChunk) && StartsWith(bytes_, kKeyFrame, kContent + 3)) {
      width = LittleEndian(bytes_, kContent + 6, 2) & 0x3fff;
      height = LittleEndian(bytes_, kContent + 8, 2) & 0x3fff;
    } else {
      return DamagedImage("WebP", "no header");
    }
    return CheckedSize("WebP", width, height, limits);
  }

  // Calls use(name's place, content) for each chunk of the file until it returns true.
  template <typename Use>
  void ForEachChunk(Use use) const {
    for (uint64_t at = 12; at + 8 <= bytes_.size();) {
      const uint64_t length = LittleEndian(bytes_, at + 4, 4);
      if (length > bytes_.size() - at - 8 || use(at, bytes_.subspan(at + 8, length))) return;
      at += 8 + length + (length & 1);
    }
  }

  int Orientation() const {
    int orientation = 1;
    if (!StartsWith(bytes_, "VP8X", 12)) return orientation;
    ForEachChunk([&](uint64_t at, Bytes exif) {
      if (!StartsWith(bytes_, "EXIF", at)) return false;
      if (StartsWith(exif, absl::string_view("Exif\0\0", 6))) exif = exif.subspan(6);
      orientation = ReadExifOrientation(exif);
      return true;
    });
    return orientation;
  }

  // From now on bytes_ is the first frame, an image of its own without a header around it.
  absl::Status TakeFirstFrame() {
    Bytes frame;
    ForEachChunk([&](uint64_t at, Bytes content) {
      if (!StartsWith(bytes_, "ANMF", at)) return false;
      frame = content;
      return true;
    });
    constexpr size_t kFrameHeader = 16;
    if (frame.size() <= kFrameHeader) return DamagedImage("WebP", "an animation without a frame");
    // At even places, in units of two pixels.
    const uint64_t x = 2 * LittleEndian(frame, 0, 3), y = 2 * LittleEndian(frame, 3, 3);
    frame = frame.subspan(kFrameHeader);
    WebPBitstreamFeatures features;
    if (WebPGetFeatures(reinterpret_cast<const uint8_t*>(frame.data()), frame.size(), &features) !=
            VP8_STATUS_OK ||
        features.has_animation)
      return DamagedImage("WebP", "its first frame has no header");
    if (features.width < 1 || features.height < 1 ||
        x + static_cast<uint64_t>(features.width) > static_cast<uint64_t>(canvas_.width) ||
        y + static_cast<uint64_t>(features.height) > static_cast<uint64_t>(canvas_.height)) {
      return DamagedImage("WebP", "its first frame lies outside the picture");
    }
    frame_ = {static_cast<int>(x), static_cast<int>(y), features.width, features.height};
    bytes_ = frame;
    return absl::OkStatus();
  }

  Bytes bytes_;
  Size canvas_;
  Rect frame_;  // in it; what is around a first frame is black
  DecodeClock clock_;
};

}  // namespace

bool IsWebp(Bytes encoded) { return StartsWith(encoded, "RIFF") && StartsWith(encoded, "WEBP", 8); }
std::unique_ptr<WholeDecoder> NewWebpDecoder() { return std::make_unique<WebpDecoder>(); }

}  // namespace feedwater::server
