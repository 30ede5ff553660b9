#include "server/imaging/color_space.h"

#include <algorithm>
#include <cmath>

#include "server/imaging/lab_kernels.h"

namespace feedwater::server {
namespace {

// What each value of each channel adds to Y, Cb and Cr: Pillow's ConvertYCbCr.c.
struct YcbcrTables {
  static constexpr int kBits = 6;
  int16_t part[3][3][256];  // result, channel, value

  YcbcrTables() {
    constexpr double kWeights[3][3] = {
        {0.29900, 0.58700, 0.11400}, {-0.16874, -0.33126, 0.50000}, {0.50000, -0.41869, -0.08131}};
    for (int to = 0; to < 3; ++to) {
      for (int from = 0; from < 3; ++from) {
        for (int v = 0; v < 256; ++v) {
          part[to][from][v] = static_cast<int16_t>(kWeights[to][from] * (1 << kBits) * v + 0.5);
        }
      }
    }
  }
};

const kernels::LabTables& Tables() {
  static const kernels::LabTables kTables;
  return kTables;
}

int32_t Rounded(double value) { return static_cast<int32_t>(std::nearbyint(value)); }
uint8_t ToByte(int value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }

}  // namespace

kernels::LabTables::LabTables() {
  constexpr double kToXyz[3][3] = {{0.412453, 0.357580, 0.180423},
                                   {0.212671, 0.715160, 0.072169},
                                   {0.019334, 0.119193, 0.950227}};
  constexpr double kToRgb[3][3] = {{3.240479, -1.53715, -0.498535},
                                   {-0.969256, 1.875991, 0.041556},
                                   {0.055648, -0.204043, 1.057311}};
  constexpr double kWhite[3] = {0.950456, 1.0, 1.088754};
  for (int v = 0; v < 256; ++v) {
    const double x = v / 255.0;
    const double linear = x <= 0.04045 ? x / 12.92 : std::pow((x + 0.055) / 1.055, 2.4);
    gamma[v] = Rounded(255.0 * (1 << kGammaBits) * linear);
    const double lightness = v * 100 / 255.0;
    const double f = v <= 20 ? lightness / 903.3 * 7.787 + 16.0 / 116 : (lightness + 16) / 116;
    y[v] = Rounded(kBase * (v <= 20 ? lightness / 903.3 : f * f * f));
    root_of_y[v] = Rounded(kBase * f);
  }
  for (int i = 0; i < kRoots; ++i) {
    const float x = 1.0f / (255.0f * (1 << kGammaBits)) * static_cast<float>(i);
    const double f =
        x < 216.0f / 24389.0f ? double{x} * (841.0 / 108.0) + 16.0 / 116.0 : std::cbrt(double{x});
    root[i] = Rounded((1 << kRootBits) * f);
  }
  root[49] = 9454;  // 9454.50044: OpenCV's cube root is a trifle low
  for (int i = 0; i < kInverseGammas; ++i) {
    const double x = static_cast<double>(i) / kInverseGammas;
    inverse_gamma[i] =
        Rounded(255.0 * (x <= 0.0031308 ? x * 12.92 : 1.055 * std::pow(x, 1 / 2.4) - 0.055));
  }
  for (int i = 0; i < 3; ++i) {
    for (int c = 0; c < 3; ++c) {
      to_xyz[i][c] = Rounded((1 << kBits) * kToXyz[i][c] / kWhite[i]);
      to_rgb[c][i] = Rounded((1 << kBits) * kToRgb[c][i] * kWhite[i]);
    }
  }
}

void ToYcbcr(uint8_t* planes, size_t plane, size_t count) {
  static const YcbcrTables kTables;
  for (size_t i = 0; i < count; ++i, ++planes) {
    const uint8_t rgb[3] = {planes[0], planes[plane], planes[2 * plane]};
    for (int to = 0; to < 3; ++to) {
      const auto& part = kTables.part[to];
      const int sum = part[0][rgb[0]] + part[1][rgb[1]] + part[2][rgb[2]];
      planes[to * plane] = ToByte((sum >> YcbcrTables::kBits) + (to == 0 ? 0 : 128));
    }
  }
}

void ToLab(uint8_t* planes, size_t plane, size_t count) {
  kernels::Lab().to_lab(Tables(), planes, plane, count);
}

void FromLab(uint8_t* planes, size_t plane, size_t count) {
  kernels::Lab().from_lab(Tables(), planes, plane, count);
}

}  // namespace feedwater::server
