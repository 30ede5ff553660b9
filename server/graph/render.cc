#include "server/graph/render.h"

#include <algorithm>
#include <cstring>

#include "server/codec/plane_kernels.h"
#include "server/codec/row_edit.h"
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
                      out, sample.images(), source.values);
  }
  Geometry moved = geometry;
  moved.crop.x -= source.part.x;
  moved.crop.y -= source.part.y;
  return ResampleInto(source.pixels, {source.part.width, source.part.height}, source.channels,
                      moved, format, out, sample.images());
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

// Pillow's nearest along one axis, as the codec has it (axis_filter.cc): from which of `in` places
// each of `out` ones comes, from `first` on. The centres are added up, not multiplied.
class NearestAxis {
 public:
  NearestAxis(int in, int out, int first) : in_(in), scale_(static_cast<double>(in) / out) {
    centre_ = scale_ * 0.5;
    for (int i = 0; i < first; ++i) centre_ += scale_;
  }
  int Next() {
    const int at = std::min(static_cast<int>(centre_), in_ - 1);
    centre_ += scale_;
    return at;
  }

 private:
  const int in_;
  const double scale_;
  double centre_;
};

// One plane of pixels of `pixel` bytes, resampled to `placed` on the canvas.
absl::Status CopyNearest(const std::byte* from, Size size, const Geometry& geometry, int64_t pixel,
                         Rect placed, Size canvas, WorkClock& clock, std::byte* to) {
  constexpr int kColumns = 256;
  const Rect& crop = geometry.crop;
  for (int x0 = 0; x0 < placed.width; x0 += kColumns) {
    const int columns = std::min(kColumns, placed.width - x0);
    int64_t offsets[kColumns];
    NearestAxis across(crop.width, geometry.scaled.width, geometry.window.x + x0);
    for (int x = 0; x < columns; ++x) offsets[x] = (crop.x + across.Next()) * pixel;
    NearestAxis down(crop.height, geometry.scaled.height, geometry.window.y);
    for (int y = 0; y < placed.height; ++y) {
      FW_RETURN_IF_ERROR(clock.Check());
      const std::byte* row = from + static_cast<int64_t>(crop.y + down.Next()) * size.width * pixel;
      const int to_y = placed.y + (geometry.flip_vertical ? placed.height - 1 - y : y);
      std::byte* to_row = to + (static_cast<int64_t>(to_y) * canvas.width + placed.x) * pixel;
      for (int x = 0; x < columns; ++x) {
        const int to_x = geometry.flip_horizontal ? placed.width - 1 - x0 - x : x0 + x;
        std::memcpy(to_row + to_x * pixel, row + offsets[x], static_cast<size_t>(pixel));
      }
    }
  }
  return absl::OkStatus();
}

// A tensor of any dtype, HWC or CHW, kept as it is; resampled by nearest.
absl::Status RenderCopy(const Tensor& source, const ImageTransform& transform, WorkClock& clock,
                        std::byte* out) {
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
    const std::byte* const from = source.data + plane * size.height * size.width * pixel;
    std::byte* const to = out + plane * area * pixel;
    if (transform.resampled()) {
      FW_RETURN_IF_ERROR(CopyNearest(from, size, geometry, pixel, placed, canvas, clock, to));
      continue;
    }
    for (int64_t y = 0; y < placed.height; ++y) {
      FW_RETURN_IF_ERROR(clock.Check());
      const int64_t from_y = geometry.crop.y + (geometry.flip_vertical ? placed.height - 1 - y : y);
      const std::byte* from_row = from + (from_y * size.width + geometry.crop.x) * pixel;
      std::byte* to_row = to + ((placed.y + y) * canvas.width + placed.x) * pixel;
      if (!geometry.flip_horizontal) {
        std::memcpy(to_row, from_row, static_cast<size_t>(placed.width * pixel));
        continue;
      }
      kernels::Planes().mirror(reinterpret_cast<const uint8_t*>(from_row),
                               static_cast<size_t>(placed.width), static_cast<size_t>(pixel),
                               reinterpret_cast<uint8_t*>(to_row));
    }
  }
  return absl::OkStatus();
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
  const int channels =
      format.edit == nullptr ? source.channels : format.edit->OutputChannels(source.channels);
  alignas(16) std::byte pattern[4 * sizeof(float)];
  FW_RETURN_IF_ERROR(ResampleInto(fill, {1, 1}, source.channels, ImageTransform({1, 1}).geometry(),
                                  format, pattern, sample.images()));
  const Size canvas = transform.size();
  const int64_t element = PixelBytes(format.type);
  const int64_t planes = format.planar ? channels : 1;
  const int64_t pixel = format.planar ? element : element * channels;
  const int64_t area = static_cast<int64_t>(canvas.width) * canvas.height;
  for (int64_t plane = 0; plane < planes; ++plane) {
    FillPixels(pattern + plane * element, pixel, area, out + plane * area * pixel);
  }
  const Rect placed = transform.placed();
  if (placed.width == 0 || placed.height == 0) return absl::OkStatus();
  const int64_t image_bytes =
      static_cast<int64_t>(placed.width) * placed.height * channels * element;
  FW_ASSIGN_OR_RETURN(std::byte * image, sample.Scratch(static_cast<size_t>(image_bytes)));
  PixelFormat read_again = format;
  read_again.stream = false;
  FW_RETURN_IF_ERROR(RenderImage(source, transform.geometry(), read_again, image, sample));
  CopyToCanvas(image, placed, canvas, planes, pixel, out);
  return absl::OkStatus();
}

absl::Status RenderTensor(const Tensor& source, const ImageTransform& transform, const Tensor& out,
                          Sample& sample) {
  if (source.spec.dtype != DType::kUInt8 || source.spec.layout != Layout::kHWC)
    return RenderCopy(source, transform, sample.clock(), out.data);
  RenderSource pixels;
  pixels.pixels = source.as<const uint8_t>();
  pixels.size = ImageSizeOf(source.spec);
  pixels.part = WholeOf(pixels.size);
  pixels.channels = static_cast<int>(ChannelsOf(source.spec));
  return Render(pixels, transform, PlainPixels(), out.data, sample);
}

void FillRect(const Tensor& image, Rect part, const PixelFill& value) {
  if (part.width == 0) return;
  const Size size = ImageSizeOf(image.spec);
  const int64_t channels = ChannelsOf(image.spec),
                element = static_cast<int64_t>(DTypeSize(image.spec.dtype));
  const bool planar = image.spec.layout == Layout::kCHW;
  const int64_t planes = planar ? channels : 1, pixel = planar ? element : element * channels;
  std::byte pattern[4 * sizeof(double)];
  for (int64_t c = 0; c < channels; ++c)
    StoreDouble(image.spec.dtype, value[static_cast<size_t>(c)], pattern + c * element);
  for (int64_t plane = 0; plane < planes; ++plane) {
    for (int64_t y = part.y; y < part.y + part.height; ++y) {
      FillPixels(pattern + plane * element, pixel, part.width,
                 image.data + ((plane * size.height + y) * size.width + part.x) * pixel);
    }
  }
}

}  // namespace feedwater::server
