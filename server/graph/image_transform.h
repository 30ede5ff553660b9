// Where the pixels of an image go: crops, at most one resize, flips and padding, composed into one
// Geometry that the codec carries out at once, plus a canvas when padding is visible. A value; the
// order of the calls is the order of the ops.
//
// Why composition is exact: a crop after a resize is a window of it, a crop after a flip is the
// mirrored window before it, and a crop after padding sees at most a part of the image. A resize
// after a flip or after padding is not the same as before it (rounding is not symmetric), so Resize
// may only follow crops; the planner starts a new run there.
#pragma once

#include <array>

#include "server/codec/image.h"

namespace feedwater::server {

using PixelFill = std::array<double, 4>;  // per channel

class ImageTransform {
 public:
  explicit ImageTransform(Size source);

  Size size() const { return canvas_; }  // of the image as it is after the calls so far

  void Crop(Rect rect);                                 // REQUIRES: not empty, within size()
  void Resize(Size size, Interpolation interpolation);  // REQUIRES: only crops so far
  void UseNearest() { geometry_.interpolation = Interpolation::kNearest; }  // of a mask
  void UseFill(const PixelFill& fill) { fill_ = fill; }
  void FlipHorizontal();
  void FlipVertical();
  void Pad(int left, int top, int right, int bottom,
           const PixelFill& fill);  // REQUIRES: sizes >= 0, no Pad so far

  // The image's part of the result; its window is placed()'s size. Meaningless when placed() is
  // empty.
  const Geometry& geometry() const { return geometry_; }
  bool resampled() const { return resampled_; }
  // Whether something of the result is not image.
  bool padded() const { return placed_ != Rect{0, 0, canvas_.width, canvas_.height}; }
  Rect placed() const { return placed_; }  // of the image on the canvas; may be empty
  const PixelFill& fill() const { return fill_; }
  // Where a point of the source comes to lie, also beside the canvas. A pixel reaches from its
  // number to the next one.
  double MoveX(double x) const { return x * scale_x_ + offset_x_; }
  double MoveY(double y) const { return y * scale_y_ + offset_y_; }

 private:
  void CropImage(Rect rect);

  Geometry geometry_;
  bool resampled_ = false;
  Size canvas_;
  Rect placed_;
  PixelFill fill_{};
  double scale_x_ = 1, scale_y_ = 1, offset_x_ = 0, offset_y_ = 0;
};

}  // namespace feedwater::server
