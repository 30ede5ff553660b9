// OpenCV's INTER_LINEAR, for those who want that one. OpenCV's threads are switched off, its
// exceptions end here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "server/codec/row_source.h"

namespace feedwater::server {

class OpenCvResize {
 public:
  OpenCvResize();
  ~OpenCvResize();

  // cv::resize of `size` interleaved pixels. Valid until the next call or Release.
  absl::Status Resize(const uint8_t* pixels, size_t stride, Size size, int channels, Size scaled);

  const uint8_t* pixels() const;
  size_t stride() const;
  void Release();  // gives a large image's memory back

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace feedwater::server
