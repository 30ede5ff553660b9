// What floors above have done to rows of pixels before they are stored (PixelFormat::edit).
#pragma once

#include <cstddef>
#include <cstdint>

namespace feedwater::server {

class RowEdit {
 public:
  virtual ~RowEdit() = default;
  // Of what comes out, where pixels of `channels` channels go in; not more.
  virtual int OutputChannels(int channels) const = 0;
  // Changes `count` pixels in place: channel c at planes + c * plane.
  virtual void Edit(uint8_t* planes, size_t plane, size_t count) = 0;
};

}  // namespace feedwater::server
