#include "tests/testing/test_images.h"

#include <filesystem>
#include <fstream>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>
#include <random>

#include "server/codec/image_writer.h"

namespace feedwater::testing {

std::string DrawImage(int64_t number, int width, int height, const std::string& extension) {
  std::mt19937 random(static_cast<uint32_t>(number));
  cv::Mat image(height, width, CV_8UC3);
  const int tilt = 1 + static_cast<int>(random() % 7);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      image.at<cv::Vec3b>(y, x) =
          cv::Vec3b(static_cast<uchar>(x * tilt), static_cast<uchar>(y * 3 + number),
                    static_cast<uchar>(x + y));
    }
  }
  for (int shape = 0; shape < 4; ++shape) {
    const cv::Point centre(static_cast<int>(random() % width), static_cast<int>(random() % height));
    const cv::Scalar colour(random() % 256, random() % 256, random() % 256);
    cv::circle(image, centre, 1 + static_cast<int>(random() % (1 + height / 3)), colour,
               cv::FILLED);
  }
  cv::cvtColor(image, image, cv::COLOR_BGR2RGB);
  return server::WritePicture({image.data, {width, height}, 3}, extension,
                              70 + static_cast<int>(number % 30))
      .value();
}

void WriteImageFolder(const std::string& folder, int classes, int per_class) {
  for (int c = 0; c < classes; ++c) {
    const std::filesystem::path path = std::filesystem::path(folder) / ("c" + std::to_string(c));
    std::filesystem::create_directories(path);
    for (int i = 0; i < per_class; ++i) {
      const int64_t number = static_cast<int64_t>(c) * per_class + i;
      const std::string extension = number % 4 == 3 ? ".png" : ".jpg";
      const int width = 40 + static_cast<int>(number * 13 % 80),
                height = 40 + static_cast<int>(number * 7 % 60);
      std::ofstream(path / (std::to_string(i) + extension), std::ios::binary)
          << DrawImage(number, width, height, extension);
    }
  }
}

}  // namespace feedwater::testing
