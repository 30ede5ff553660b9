// The last step of every path: planar uint8 rows become elements of the output, in its type, layout
// and mirroring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/codec/image.h"
#include "server/codec/plane_kernels.h"

namespace feedwater::server {

class PixelWriter {
 public:
  // Output is width x height pixels at `out`, of `channels` or what an edit makes of them. Rows
  // given to Write are mirrored vertically if `flip_vertical`.
  void Start(const PixelFormat& format, int width, int height, int channels, bool flip_vertical,
             std::byte* out, const kernels::PlaneTable& kernels);

  // Row y of the image before the vertical mirroring; channel c at planes + c * plane. An edit
  // changes it there.
  void WritePlanes(int y, uint8_t* planes, size_t plane);

  // After the last row.
  void Finish() const;

  size_t HeldBytes() const { return planes_.capacity(); }

  // Where the caller writes the same row itself, interleaved, when IsPlainBytes().
  uint8_t* InterleavedRow(int y) const;
  bool IsPlainBytes() const {
    return !format_.planar && !format_.affine && format_.type == PixelType::kUInt8 &&
           format_.edit == nullptr;
  }

 private:
  void ConvertBytes(const uint8_t* in, int channel, uint8_t* out) const;
  void Convert(const uint8_t* in, int channel, bool stream, std::byte* out) const;

  PixelFormat format_;
  int width_ = 0, height_ = 0, channels_ = 0;
  bool flip_vertical_ = false;
  std::byte* out_ = nullptr;
  const kernels::PlaneTable* kernels_ = nullptr;
  size_t element_bytes_ = 1;
  std::vector<std::byte> planes_;  // one row converted, before it is interleaved
  // uint8 through an affine: per channel all 256 results, kept while the format stays.
  bool have_table_ = false;
  uint8_t table_[kernels::kMaxChannels][256];
};

size_t ElementBytes(PixelType type);

}  // namespace feedwater::server
