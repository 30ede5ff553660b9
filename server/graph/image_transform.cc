#include "server/graph/image_transform.h"

#include <algorithm>

namespace feedwater::server {

ImageTransform::ImageTransform(Size source)
    : canvas_(source), placed_{0, 0, source.width, source.height} {
  geometry_.crop = geometry_.window = placed_;
  geometry_.scaled = source;
}

void ImageTransform::Crop(Rect rect) {
  offset_x_ -= rect.x;
  offset_y_ -= rect.y;
  Rect seen;
  seen.x = std::max(rect.x, placed_.x);
  seen.y = std::max(rect.y, placed_.y);
  seen.width = std::max(0, std::min(rect.x + rect.width, placed_.x + placed_.width) - seen.x);
  seen.height = std::max(0, std::min(rect.y + rect.height, placed_.y + placed_.height) - seen.y);
  canvas_ = {rect.width, rect.height};
  if (seen.width == 0 || seen.height == 0) {
    placed_ = Rect{};
    return;
  }
  CropImage({seen.x - placed_.x, seen.y - placed_.y, seen.width, seen.height});
  placed_ = {seen.x - rect.x, seen.y - rect.y, seen.width, seen.height};
}

void ImageTransform::CropImage(Rect rect) {
  Rect& window = geometry_.window;
  if (geometry_.flip_horizontal) rect.x = window.width - rect.x - rect.width;
  if (geometry_.flip_vertical) rect.y = window.height - rect.y - rect.height;
  if (resampled_) {
    window = {window.x + rect.x, window.y + rect.y, rect.width, rect.height};
    return;
  }
  geometry_.crop = {geometry_.crop.x + rect.x, geometry_.crop.y + rect.y, rect.width, rect.height};
  geometry_.scaled = {rect.width, rect.height};
  window = {0, 0, rect.width, rect.height};
}

void ImageTransform::Resize(Size size, Interpolation interpolation) {
  const double x = static_cast<double>(size.width) / canvas_.width,
               y = static_cast<double>(size.height) / canvas_.height;
  scale_x_ *= x, offset_x_ *= x;
  scale_y_ *= y, offset_y_ *= y;
  geometry_.scaled = size;
  geometry_.window = placed_ = {0, 0, size.width, size.height};
  geometry_.interpolation = interpolation;
  canvas_ = size;
  resampled_ = true;
}

void ImageTransform::FlipHorizontal() {
  geometry_.flip_horizontal = !geometry_.flip_horizontal;
  scale_x_ = -scale_x_, offset_x_ = canvas_.width - offset_x_;
  placed_.x = placed_.width == 0 ? 0 : canvas_.width - placed_.x - placed_.width;
}

void ImageTransform::FlipVertical() {
  geometry_.flip_vertical = !geometry_.flip_vertical;
  scale_y_ = -scale_y_, offset_y_ = canvas_.height - offset_y_;
  placed_.y = placed_.height == 0 ? 0 : canvas_.height - placed_.y - placed_.height;
}

void ImageTransform::Pad(int left, int top, int right, int bottom, const PixelFill& fill) {
  offset_x_ += left;
  offset_y_ += top;
  placed_.x += left;
  placed_.y += top;
  canvas_.width += left + right;
  canvas_.height += top + bottom;
  fill_ = fill;
}

}  // namespace feedwater::server
