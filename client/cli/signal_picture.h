// Fields that are no images as pictures: floats of two axes as a heat map, sound as a waveform; and
// fields that are read rather than looked at as a line of text. Pure functions.
#pragma once

#include <cstdint>
#include <opencv2/core.hpp>
#include <string>

#include "server/base/tensor.h"

namespace feedwater::cli {

struct SignalPicture {
  cv::Mat image;      // 8 bit BGR
  std::string range;  // "-11.5 to 4.2", and how many values are not finite
};

// A colour for each value, dark to bright (viridis); the first row at the bottom, as a spectrogram
// has the lowest frequency. REQUIRES: two axes. Grows or shrinks each axis for itself.
SignalPicture HeatMap(const server::Tensor& values, int side);

// What the samples reach up and down to in each column; channels below each other. REQUIRES: one
// axis, or two with the channels first.
SignalPicture Waveform(const server::Tensor& samples, int side);

// uint8 as UTF-8 text, other integers as numbers with spaces between them; what is long is cut.
// Nothing in it controls a terminal.
std::string TextOf(const server::Tensor& field);

}  // namespace feedwater::cli
