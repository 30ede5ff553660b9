#include "server/codec/opencv_resize.h"

#include <opencv2/core.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgproc.hpp>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

void SetUpOnce() {
  [[maybe_unused]] static const bool done = [] {
    cv::setNumThreads(0);
    cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
    return true;
  }();
}

}  // namespace

struct OpenCvResize::State {
  cv::Mat image;
};

OpenCvResize::OpenCvResize() : state_(std::make_unique<State>()) { SetUpOnce(); }
OpenCvResize::~OpenCvResize() = default;

absl::Status OpenCvResize::Resize(const uint8_t* pixels, size_t stride, Size size, int channels,
                                  Size scaled) {
  try {
    const cv::Mat in(size.height, size.width, CV_8UC(channels), const_cast<uint8_t*>(pixels),
                     stride);
    cv::resize(in, state_->image, cv::Size(scaled.width, scaled.height), 0, 0, cv::INTER_LINEAR);
    return absl::OkStatus();
  } catch (const cv::Exception& error) {
    if (error.code == cv::Error::StsNoMem)
      return absl::ResourceExhaustedError("resize: out of memory");
    return absl::InvalidArgumentError(absl::StrCat("resize: ", error.err));
  }
}

const uint8_t* OpenCvResize::pixels() const { return state_->image.data; }
size_t OpenCvResize::stride() const { return state_->image.step; }
void OpenCvResize::Release() { state_->image.release(); }

}  // namespace feedwater::server
