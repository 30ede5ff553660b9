#include "server/codec/opencv_codec.h"

#include <opencv2/core.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "absl/strings/str_cat.h"
#include "server/codec/png_messages.h"

namespace feedwater::server {
namespace {

void SetUpOnce() {
  [[maybe_unused]] static const bool done = [] {
    cv::setNumThreads(0);
    cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
    return true;
  }();
}

// Runs `work`, turning what OpenCV throws into a status.
template <typename Work>
absl::Status Catching(const char* what, Work work) {
  try {
    return work();
  } catch (const cv::Exception& error) {
    if (error.code == cv::Error::StsNoMem)
      return absl::ResourceExhaustedError(absl::StrCat(what, ": out of memory"));
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", error.err));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(what, ": out of memory"));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", error.what()));
  }
}

}  // namespace

struct OpenCvCodec::State {
  cv::Mat image;
};

OpenCvCodec::OpenCvCodec() : state_(std::make_unique<State>()) { SetUpOnce(); }
OpenCvCodec::~OpenCvCodec() = default;

absl::Status OpenCvCodec::Decode(absl::Span<const std::byte> encoded, Size size) {
  return Catching("damaged image", [&]() -> absl::Status {
    if (encoded.size() > 0x7FFFFFFF)
      return absl::InvalidArgumentError("image file of more than 2 GiB");
    const cv::Mat bytes(1, static_cast<int>(encoded.size()), CV_8UC1,
                        const_cast<std::byte*>(encoded.data()));
    TakePngError();  // of another image
    cv::imdecode(bytes, cv::IMREAD_COLOR | cv::IMREAD_IGNORE_ORIENTATION, &state_->image);
    cv::Mat& image = state_->image;
    if (image.empty()) {
      const std::string why = TakePngError();
      return absl::InvalidArgumentError(
          absl::StrCat("damaged image: the decoder gave up", why.empty() ? "" : ": ", why));
    }
    if (image.type() != CV_8UC3 || image.cols != size.width || image.rows != size.height) {
      return absl::InvalidArgumentError("damaged image: not what its header says");
    }
    cv::cvtColor(image, image, cv::COLOR_BGR2RGB);
    return absl::OkStatus();
  });
}

absl::Status OpenCvCodec::ResizeLinear(const uint8_t* pixels, size_t stride, Size size,
                                       int channels, Size scaled) {
  return Catching("resize", [&]() -> absl::Status {
    const cv::Mat in(size.height, size.width, CV_8UC(channels), const_cast<uint8_t*>(pixels),
                     stride);
    cv::resize(in, state_->image, cv::Size(scaled.width, scaled.height), 0, 0, cv::INTER_LINEAR);
    return absl::OkStatus();
  });
}

const uint8_t* OpenCvCodec::pixels() const { return state_->image.data; }
size_t OpenCvCodec::stride() const { return state_->image.step; }
void OpenCvCodec::Release() { state_->image.release(); }

}  // namespace feedwater::server
