// A contact sheet: rows of pictures with captions, column heads, and a title. Knows nothing of
// pipelines. OpenCV's exceptions end here.
#pragma once

#include <opencv2/core.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace feedwater::cli {

struct SheetCell {
  cv::Mat picture;                    // 8 bit BGR, any size; shown whole in the cell
  std::string text;                   // shown in place of the picture, unless empty
  std::string problem;                // shown in a red cell in place of the picture, unless empty
  std::vector<std::string> captions;  // the lines below
  std::string footnote;               // smaller, below that
  std::string path;                   // the same, below that; a long one loses its beginning
};

struct ContactSheet {
  std::string title;
  std::vector<std::string> subtitles;  // wrapped to the sheet's width
  std::vector<std::string> columns;    // heads
  // As many cells as columns, each. Many rows stand in several bands, side by side.
  std::vector<std::vector<SheetCell>> rows;
  int cell_side = 192;  // pixels of a picture's square
  int set_apart = 1;    // so many columns on the left, then a gap
};

absl::StatusOr<cv::Mat> Draw(const ContactSheet& sheet);

// The picture as a cell of that side shows it: whole; a small one grown by a whole factor, so that
// each pixel is seen. Draw does the same; done before, a large picture need not be kept.
absl::StatusOr<cv::Mat> FitIntoCell(const cv::Mat& picture, int cell_side);

}  // namespace feedwater::cli
