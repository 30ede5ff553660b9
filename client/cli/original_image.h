// The image of a record before the graph's ops, as a viewer shows it.
#pragma once

#include <opencv2/core.hpp>

#include "absl/status/statusor.h"
#include "client/cli/local_pipeline.h"
#include "server/base/tensor.h"
#include "server/codec/image.h"

namespace feedwater::cli {

struct OriginalImage {
  cv::Mat pixels;          // 8 bit BGR
  server::Size size;       // of the whole image, turned
  bool is_turned = false;  // by its EXIF data

  // Of a field of the dataset: pixels, or a compressed image, which is turned as its EXIF data says
  // and decoded no larger than `most_side`. The pipeline's limits hold.
  static absl::StatusOr<OriginalImage> Of(const LocalPipeline& local, size_t field,
                                          const server::Tensor& value, int most_side);
};

}  // namespace feedwater::cli
