// Photos as files in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "tests/testing/photos/painter.h"

namespace feedwater::testing {

// Baseline JPEG by libjpeg-turbo with the photo's quality and chroma sampling. `bytes` is reused.
absl::Status EncodeJpeg(const Photo& photo, std::vector<uint8_t>* bytes);

absl::Status EncodePng(const Photo& photo, std::vector<uint8_t>* bytes);

}  // namespace feedwater::testing
