#include "server/service/http2_frames.h"

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

uint32_t BigEndian(absl::string_view bytes) {
  uint32_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

void AppendBigEndian(uint32_t value, int bytes, std::string* out) {
  for (int i = bytes - 1; i >= 0; --i) out->push_back(static_cast<char>(value >> (8 * i)));
}

}  // namespace

Http2Frame ReadFrameHead(absl::string_view bytes) {
  Http2Frame frame;
  frame.length = BigEndian(bytes.substr(0, 3));
  frame.type = static_cast<uint8_t>(bytes[3]);
  frame.flags = static_cast<uint8_t>(bytes[4]);
  frame.stream = BigEndian(bytes.substr(5, 4)) & 0x7fffffff;
  return frame;
}

std::string GoAwayFrame(absl::string_view text) {
  constexpr uint32_t kEnhanceYourCalm = 0xb;
  std::string frame;
  AppendBigEndian(static_cast<uint32_t>(8 + text.size()), 3, &frame);
  frame.push_back(Http2Frame::kGoAway);
  AppendBigEndian(0, 1, &frame);  // no flags
  AppendBigEndian(0, 4, &frame);  // of the whole connection
  AppendBigEndian(0x7fffffff, 4, &frame);
  AppendBigEndian(kEnhanceYourCalm, 4, &frame);
  return absl::StrCat(frame, text);
}

absl::Status ClientFrameRules::Check(const Http2Frame& frame, bool* opens_stream) {
  *opens_stream = false;
  if (frame.length > kMaxFrameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a frame of ", frame.length, " bytes, more than ", kMaxFrameBytes));
  }
  const bool continues = frame.type == Http2Frame::kContinuation;
  if (continues != (block_stream_ != 0) || (continues && frame.stream != block_stream_)) {
    return absl::InvalidArgumentError("a header block that other frames break up");
  }
  if (frame.type == Http2Frame::kHeaders) {
    block_bytes_ = 0;
    // HEADERS of an open stream are trailers, which clients of gRPC never send.
    if (frame.stream % 2 == 0 || frame.stream <= last_stream_) {
      return absl::InvalidArgumentError(
          absl::StrCat("a call on stream ", frame.stream, " after stream ", last_stream_));
    }
    last_stream_ = frame.stream;
    *opens_stream = true;
  }
  if (continues || frame.type == Http2Frame::kHeaders) {
    block_bytes_ += frame.length + kFrameHeadBytes;
    if (block_bytes_ > kMaxHeaderBlockBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("headers of more than ", kMaxHeaderBlockBytes, " bytes"));
    }
    block_stream_ = (frame.flags & Http2Frame::kEndHeaders) != 0 ? 0 : frame.stream;
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
