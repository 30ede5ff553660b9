// Boxes, masks and keypoints drawn over a picture: a colour for each class, its name beside each
// box. Draws what fits and says the rest in words, whatever numbers it is given.
//
// OpenCV's exceptions end here.
#pragma once

#include <opencv2/core.hpp>
#include <string>
#include <vector>

#include "client/cli/lettering.h"
#include "server/base/tensor.h"
#include "server/codec/image.h"

namespace feedwater::cli {

// Of a class, as BGR: one of twelve.
cv::Scalar ColorOf(int64_t label);

// Of a mask: [H,W], or an image of one channel in either layout.
server::Size MaskSizeOf(const server::TensorSpec& spec);

class Overlay {
 public:
  // Both outlive it.
  Overlay(const Lettering& lettering, const std::vector<std::string>& classes)
      : lettering_(lettering), classes_(classes) {}

  // Draws over `picture`, which shows an image of `size` at any scale. What is to be said of the
  // field is added to `notes`, a line each.

  // Floats [n,4]: left, top, right, bottom. `labels`: integers [n], or null. `padding`: rows at the
  // end that are all this are none; null: there are none.
  void DrawBoxes(const server::Tensor& boxes, const server::Tensor* labels, const double* padding,
                 server::Size size, cv::Mat* picture, std::vector<std::string>* notes) const;
  // Integers [H,W], [H,W,1] or [1,H,W]: translucent, with an edge; 0 is nothing, 255 is white.
  void DrawMask(const server::Tensor& mask, server::Size size, cv::Mat* picture,
                std::vector<std::string>* notes) const;
  // Floats [n,2], or [n,3] with visibility: those of visibility 0 are left out.
  void DrawKeypoints(const server::Tensor& points, const double* padding, server::Size size,
                     cv::Mat* picture, std::vector<std::string>* notes) const;

  // A mask by itself, on black.
  cv::Mat MaskPicture(const server::Tensor& mask, int side, std::vector<std::string>* notes) const;

  std::string NameOf(int64_t label) const;  // of a class, or its number

 private:
  void DrawTag(const std::string& text, const cv::Scalar& color, int x, int y,
               cv::Mat* picture) const;

  const Lettering& lettering_;
  const std::vector<std::string>& classes_;
};

}  // namespace feedwater::cli
