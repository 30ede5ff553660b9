#include "server/graph/render.h"

#include <algorithm>
#include <cstring>

#include "server/graph/element.h"
#include "server/graph/geometry_op.h"

namespace feedwater::server {
namespace {

// Copies `pixel`, `bytes` long, over `count` places, in steps that double.
void FillPixels(const std::byte* pixel, int64_t bytes, int64_t count, std::byte* to) {
  if (count == 0) return;
  std::memcpy(to, pixel, static_cast<size_t>(bytes));
  for (int64_t done = 1; done < count;) {
    const int64_t next = std::min(done, count - done);
    std::memcpy(to + done * bytes, to, static_cast<size_t>(next * bytes));
    done += next;
  }
}

absl::Status RenderImage(const RenderSource& source, const Geometry& geometry,
                         const PixelFormat& format, std::byte* out, Sample& sample) {
  if (source.pixels == nullptr) {
    Geometry scaled = geometry;
    scaled.fast_scale = source.fast_scale;
    return DecodeInto(source.encoded, source.apply_orientation, sample.limits(), scaled, format,
                      out, sample.images());
  }
  return ResampleInto(source.pixels, source.size, source.channels, geometry, format, out,
                      sample.images());
}

// Copies an image of the size of `placed` to its place on the canvas; `pixel` bytes for each pixel
// of each of `planes` planes.
void CopyToCanvas(const std::byte* image, Rect placed, Size canvas, int64_t planes, int64_t pixel,
                  std::byte* out) {
  for (int64_t plane = 0; plane < planes; ++plane) {
    for (int64_t y = 0; y < placed.height; ++y) {
      const int64_t row = (plane * canvas.height + placed.y + y) * canvas.width + placed.x;
      std::memcpy(out + row * pixel, image, static_cast<size_t>(placed.width * pixel));
      image += placed.width * pixel;
    }
  }
}

}  // namespace

PixelFormat PlainPixels() { return PixelFormat{}; }

bool PixelTypeOf(DType dtype, PixelType* type) {
  switch (dtype) {
    case DType::kUInt8:
      *type = PixelType::kUInt8;
      return true;
    case DType::kFloat16:
      *type = PixelType::kFloat16;
      return true;
    case DType::kBFloat16:
      *type = PixelType::kBFloat16;
      return true;
    case DType::kFloat32:
      *type = PixelType::kFloat32;
      return true;
    default:
      return false;
  }
}

int64_t PixelBytes(PixelType type) {
  return type == PixelType::kUInt8 ? 1 : type == PixelType::kFloat32 ? 4 : 2;
}

absl::Status Render(const RenderSource& source, const ImageTransform& transform,
                    const PixelFormat& format, std::byte* out, Sample& sample) {
  if (!transform.padded()) return RenderImage(source, transform.geometry(), format, out, sample);

  // The fill goes through the same conversion as the pixels: one pixel of it, converted, is the
  // pattern.
  uint8_t fill[4];
  for (int c = 0; c < source.channels; ++c) {
    StoreDouble(DType::kUInt8, transform.fill()[c], reinterpret_cast<std::byte*>(&fill[c]));
  }
  alignas(16) std::byte pattern[4 * sizeof(float)];
  FW_RETURN_IF_ERROR(ResampleInto(fill, {1, 1}, source.channels, ImageTransform({1, 1}).geometry(),
                                  format, pattern, sample.images()));
  const Size canvas = transform.size();
  const int64_t element = PixelBytes(format.type);
  const int64_t planes = format.planar ? source.channels : 1;
  const int64_t pixel = format.planar ? element : element * source.channels;
  const int64_t area = static_cast<int64_t>(canvas.width) * canvas.height;
  for (int64_t plane = 0; plane < planes; ++plane) {
    FillPixels(pattern + plane * element, pixel, area, out + plane * area * pixel);
  }
  const Rect placed = transform.placed();
  if (placed.width == 0 || placed.height == 0) return absl::OkStatus();
  const int64_t image_bytes =
      static_cast<int64_t>(placed.width) * placed.height * source.channels * element;
  FW_ASSIGN_OR_RETURN(std::byte * image, sample.Scratch(static_cast<size_t>(image_bytes)));
  PixelFormat read_again = format;
  read_again.stream = false;
  FW_RETURN_IF_ERROR(RenderImage(source, transform.geometry(), read_again, image, sample));
  CopyToCanvas(image, placed, canvas, planes, pixel, out);
  return absl::OkStatus();
}

void RenderCopy(const Tensor& source, const ImageTransform& transform, std::byte* out) {
  const Size size = ImageSizeOf(source.spec);
  const int64_t channels = ChannelsOf(source.spec);
  const int64_t element = static_cast<int64_t>(DTypeSize(source.spec.dtype));
  const bool planar = source.spec.layout == Layout::kCHW;
  const int64_t planes = planar ? channels : 1, pixel = planar ? element : element * channels;
  const Size canvas = transform.size();
  const Rect placed = transform.placed();
  const Geometry& geometry = transform.geometry();
  const int64_t area = static_cast<int64_t>(canvas.width) * canvas.height;
  if (transform.padded()) {
    std::byte pattern[4 * sizeof(double)];
    for (int64_t c = 0; c < channels; ++c)
      StoreDouble(source.spec.dtype, transform.fill()[c], pattern + c * element);
    for (int64_t plane = 0; plane < planes; ++plane) {
      FillPixels(pattern + plane * element, pixel, area, out + plane * area * pixel);
    }
  }
  for (int64_t plane = 0; plane < planes; ++plane) {
    for (int64_t y = 0; y < placed.height; ++y) {
      const int64_t from_y = geometry.crop.y + (geometry.flip_vertical ? placed.height - 1 - y : y);
      const std::byte* from =
          source.data + ((plane * size.height + from_y) * size.width + geometry.crop.x) * pixel;
      std::byte* to =
          out + ((plane * canvas.height + placed.y + y) * canvas.width + placed.x) * pixel;
      if (!geometry.flip_horizontal) {
        std::memcpy(to, from, static_cast<size_t>(placed.width * pixel));
        continue;
      }
      for (int64_t x = 0; x < placed.width; ++x) {
        std::memcpy(to + x * pixel, from + (placed.width - 1 - x) * pixel,
                    static_cast<size_t>(pixel));
      }
    }
  }
}

}  // namespace feedwater::server
