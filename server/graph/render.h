// Carries out an ImageTransform: through the codec for uint8 HWC pixels and for compressed images,
// by copying for everything else. Padding is drawn here, because the codec knows none.
#pragma once

#include "server/graph/image_transform.h"
#include "server/graph/op.h"

namespace feedwater::server {

inline Rect WholeOf(Size size) { return {0, 0, size.width, size.height}; }

// What is rendered: a compressed image, or uint8 HWC pixels.
struct RenderSource {
  absl::Span<const std::byte> encoded;
  bool apply_orientation = false;
  bool fast_scale = false;                 // of an encoded image
  PixelValues values = PixelValues::kRgb;  // of an encoded image, as many as it has channels
  const uint8_t* pixels = nullptr;         // null: encoded
  Rect part;                               // of the image that `pixels` are
  Size size;                               // of the whole image
  int channels = 3;
};

// Writes transform.size() pixels of source.channels channels at `out` in `format`.
absl::Status Render(const RenderSource& source, const ImageTransform& transform,
                    const PixelFormat& format, std::byte* out, Sample& sample);

// The same for a tensor: as above for uint8 HWC; one of another dtype or layout stays what it is
// and is resampled by nearest.
absl::Status RenderTensor(const Tensor& source, const ImageTransform& transform, const Tensor& out,
                          Sample& sample);

// Covers a part of an image (HWC or CHW, any dtype) with one value. REQUIRES: within the image.
void FillRect(const Tensor& image, Rect part, const PixelFill& value);

PixelFormat PlainPixels();                       // uint8 HWC as they are
bool PixelTypeOf(DType dtype, PixelType* type);  // false when the codec does not write it
int64_t PixelBytes(PixelType type);              // of one channel

}  // namespace feedwater::server
