// What is left to OpenCV: formats that are rare in training sets, and its own INTER_LINEAR for
// those who want that one. OpenCV's threads are switched off, its exceptions end here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/codec/row_source.h"

namespace feedwater::server {

class OpenCvCodec {
 public:
  OpenCvCodec();
  ~OpenCvCodec();

  // 8 bit RGB of any format but JPEG; 16 bit samples keep their high byte, alpha is dropped. `size`
  // is what the header promised; anything else is an error. Pixels are valid until the next call or
  // Release.
  absl::Status Decode(absl::Span<const std::byte> encoded, Size size);

  // cv::resize of `size` interleaved pixels, INTER_LINEAR. Valid until the next call or Release.
  absl::Status ResizeLinear(const uint8_t* pixels, size_t stride, Size size, int channels,
                            Size scaled);

  const uint8_t* pixels() const;
  size_t stride() const;
  void Release();  // gives a large image's memory back

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace feedwater::server
