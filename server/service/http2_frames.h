// The frames of an HTTP/2 connection as its bytes pass by (RFC 9113): where they begin, and whether
// a client may send them. Nothing is decoded but the nine bytes before each frame.
//
// gRPC reads what a client sends into memory of its own, which no budget of ours sees: a header
// block that never ends grows until the process dies. So what reaches it is bounded here.
// Not thread-safe; one object a direction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace feedwater::server {

inline constexpr absl::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
inline constexpr size_t kFrameHeadBytes = 9;

struct Http2Frame {
  // RFC 9113, section 6. Frames of other types are ignored by whoever receives them.
  enum Type : uint8_t {
    kData = 0,
    kHeaders = 1,
    kReset = 3,
    kSettings = 4,
    kGoAway = 7,
    kWindowUpdate = 8,
    kContinuation = 9
  };
  static constexpr uint8_t kEndStream = 0x1, kEndHeaders = 0x4;

  uint32_t length = 0;  // of what follows the head
  uint8_t type = 0, flags = 0;
  uint32_t stream = 0;

  bool ends_stream() const {
    return type == kReset || ((type == kData || type == kHeaders) && (flags & kEndStream) != 0);
  }
};

// REQUIRES: at least kFrameHeadBytes bytes.
Http2Frame ReadFrameHead(absl::string_view bytes);

// A GOAWAY without a stream, error ENHANCE_YOUR_CALM, whose text the client's gRPC puts into its
// error message.
std::string GoAwayFrame(absl::string_view text);

// Cuts a direction's bytes into frames.
class FrameCutter {
 public:
  // The bytes at the front of `bytes` that belong to the frame which has begun.
  size_t Rest(size_t bytes) const { return bytes < left_ ? bytes : left_; }
  void Begin(const Http2Frame& frame) { left_ = kFrameHeadBytes + frame.length; }
  void Pass(size_t bytes) { left_ -= bytes; }
  bool between_frames() const { return left_ == 0; }

 private:
  size_t left_ = 0;
};

// What a client may send, frame by frame. Only what gRPC's own clients never do is refused:
// frames above the size that every endpoint starts with, header blocks above kMaxHeaderBlockBytes
// or broken up by other frames, streams that are not odd and rising.
class ClientFrameRules {
 public:
  static constexpr uint32_t kMaxFrameBytes = 16384;
  static constexpr size_t kMaxHeaderBlockBytes = 16384;

  // InvalidArgument that says what is wrong. `*opens_stream`: whether the frame is a new call.
  absl::Status Check(const Http2Frame& frame, bool* opens_stream);

 private:
  uint32_t last_stream_ = 0;
  uint32_t block_stream_ = 0;  // whose header block has not ended; 0: none
  size_t block_bytes_ = 0;
};

}  // namespace feedwater::server
