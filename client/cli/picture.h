// Fields of a sample as pictures for people: whatever dtype and layout they have, with the mean and
// std that the pipeline took away put back. Pure functions; OpenCV's exceptions end here.
#pragma once

#include <opencv2/core.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/tensor.h"
#include "server/codec/image.h"
#include "server/graph/plan_graph.h"

namespace feedwater::cli {

// Whether a field is an image: HWC or CHW with 1 or 3 channels.
bool IsPicture(const server::TensorSpec& spec);

// The edge that leads into an input of a node, its first one where that is not known; null: none
// does.
const server::PlanGraph::Edge* EdgeInto(const server::PlanGraph& graph, int node, int port);

// How the pixels of an output were changed from 0..255 on their way, first change first.
// `output` counts the pipeline's outputs.
std::vector<server::PixelFormat> PixelChanges(const server::PlanGraph& graph, size_t output);

struct Picture {
  cv::Mat image;              // 8 bit BGR
  bool is_stretched = false;  // the values were of no known range and were spread over 0..255
};
// REQUIRES: IsPicture(tensor.spec).
absl::StatusOr<Picture> ToPicture(const server::Tensor& tensor,
                                  const std::vector<server::PixelFormat>& changes);

// The bytes of a file of the kind that `path` ends with: .png, .jpg, .jpeg, .webp or .bmp.
// InvalidArgument for another one.
absl::StatusOr<std::string> EncodePicture(const cv::Mat& image, const std::string& path);
// Whether EncodePicture will know what to write.
absl::Status CheckPictureName(const std::string& path);

}  // namespace feedwater::cli
