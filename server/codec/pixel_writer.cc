#include "server/codec/pixel_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "hwy/cache_control.h"
#include "server/codec/row_edit.h"

namespace feedwater::server {
namespace {

template <typename T>
void InterleaveAny(const T* planes, size_t plane, int channels, int width, T* out) {
  for (int x = 0; x < width; ++x) {
    for (int c = 0; c < channels; ++c) *out++ = planes[c * plane + x];
  }
}

bool SameAffine(const PixelFormat& a, const PixelFormat& b) {
  return a.affine == b.affine && std::equal(a.mean, a.mean + 4, b.mean) &&
         std::equal(a.inverse_std, a.inverse_std + 4, b.inverse_std);
}

}  // namespace

size_t ElementBytes(PixelType type) {
  switch (type) {
    case PixelType::kUInt8:
      return 1;
    case PixelType::kFloat16:
    case PixelType::kBFloat16:
      return 2;
    case PixelType::kFloat32:
      return 4;
  }
  return 1;
}

void PixelWriter::Start(const PixelFormat& format, int width, int height, int channels,
                        bool flip_vertical, std::byte* out, const kernels::PlaneTable& kernels) {
  if (!SameAffine(format, format_)) have_table_ = false;
  format_ = format;
  if (!format_.affine) {
    std::fill_n(format_.mean, 4, 0.0f);
    std::fill_n(format_.inverse_std, 4, 1.0f);
  }
  width_ = width;
  height_ = height;
  channels_ = format.edit == nullptr ? channels : format.edit->OutputChannels(channels);
  flip_vertical_ = flip_vertical;
  out_ = out;
  kernels_ = &kernels;
  element_bytes_ = ElementBytes(format.type);
  if (!format_.planar && channels_ > 1) planes_.resize(element_bytes_ * width * channels_);
  if (format_.affine && format_.type == PixelType::kUInt8 && !have_table_) {
    have_table_ = true;
    for (int c = 0; c < kernels::kMaxChannels; ++c) {
      for (int v = 0; v < 256; ++v) {
        const float value = (static_cast<float>(v) - format_.mean[c]) * format_.inverse_std[c];
        // A value that is not a number becomes 0: the comparison is false for it.
        table_[c][v] =
            value > 0 ? static_cast<uint8_t>(std::nearbyint(std::min(value, 255.0f))) : 0;
      }
    }
  }
}

void PixelWriter::ConvertBytes(const uint8_t* in, int channel, uint8_t* out) const {
  if (!format_.affine) {
    std::memcpy(out, in, width_);
  } else {
    for (int x = 0; x < width_; ++x) out[x] = table_[channel][in[x]];
  }
}

void PixelWriter::Convert(const uint8_t* in, int channel, bool stream, std::byte* out) const {
  const float mean = format_.mean[channel], scale = format_.inverse_std[channel];
  switch (format_.type) {
    case PixelType::kUInt8:
      return ConvertBytes(in, channel, reinterpret_cast<uint8_t*>(out));
    case PixelType::kFloat16:
      return kernels_->to_f16(in, width_, mean, scale, stream, reinterpret_cast<uint16_t*>(out));
    case PixelType::kBFloat16:
      return kernels_->to_bf16(in, width_, mean, scale, stream, reinterpret_cast<uint16_t*>(out));
    case PixelType::kFloat32:
      return kernels_->to_f32(in, width_, mean, scale, stream, reinterpret_cast<float*>(out));
  }
}

void PixelWriter::WritePlanes(int y, uint8_t* planes, size_t plane) {
  if (format_.edit != nullptr) format_.edit->Edit(planes, plane, static_cast<size_t>(width_));
  const size_t row = flip_vertical_ ? height_ - 1 - y : y;
  if (format_.planar || channels_ == 1) {
    for (int c = 0; c < channels_; ++c) {
      Convert(planes + c * plane, c, format_.stream,
              out_ + (static_cast<size_t>(c) * height_ + row) * width_ * element_bytes_);
    }
    return;
  }
  std::byte* out = out_ + row * width_ * channels_ * element_bytes_;
  const std::byte* converted = planes_.data();
  size_t converted_plane = width_;
  if (!format_.affine && format_.type == PixelType::kUInt8) {
    converted = reinterpret_cast<const std::byte*>(planes);
    converted_plane = plane;
  } else {
    for (int c = 0; c < channels_; ++c)
      Convert(planes + c * plane, c, false, planes_.data() + c * width_ * element_bytes_);
  }
  auto interleave = [&](auto* typed_out, auto kernel3) {
    using T = std::remove_pointer_t<decltype(typed_out)>;
    const T* in = reinterpret_cast<const T*>(converted);
    if (channels_ == 3) {
      kernel3(in, converted_plane, width_, typed_out);
    } else {
      InterleaveAny(in, converted_plane, channels_, width_, typed_out);
    }
  };
  switch (element_bytes_) {
    case 1:
      return interleave(reinterpret_cast<uint8_t*>(out), kernels_->interleave3_u8);
    case 2:
      return interleave(reinterpret_cast<uint16_t*>(out), kernels_->interleave3_u16);
    case 4:
      return interleave(reinterpret_cast<float*>(out), kernels_->interleave3_f32);
  }
}

void PixelWriter::Finish() const {
  if (format_.stream) hwy::FlushStream();
}

uint8_t* PixelWriter::InterleavedRow(int y) const {
  const size_t row = flip_vertical_ ? height_ - 1 - y : y;
  return reinterpret_cast<uint8_t*>(out_) + row * static_cast<size_t>(width_) * channels_;
}

}  // namespace feedwater::server
