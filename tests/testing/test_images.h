// Small image folders drawn for tests: gradients and shapes that differ from image to image, in
// several formats, sizes and JPEG samplings. The same number always gives the same file.
#pragma once

#include <cstdint>
#include <string>

namespace feedwater::testing {

// An encoded image. `extension`: ".jpg", ".png", ".bmp" or ".webp".
std::string DrawImage(int64_t number, int width, int height, const std::string& extension);

// `classes` folders named c0, c1, ... below `folder`, with `per_class` images each, JPEG and PNG
// mixed.
void WriteImageFolder(const std::string& folder, int classes, int per_class);

}  // namespace feedwater::testing
