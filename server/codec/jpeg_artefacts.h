// What an image looks like once it was a JPEG file (jpeg/round_trip.h), by a worker's workspace.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "server/codec/image.h"

namespace feedwater::server {

inline constexpr int kMaxJpegSide = 65'500;

// RGB or grey pixels to pixels of the same kind; the clock is the workspace's. REQUIRES: libjpeg's
// quality of 1..100, sides of 1..kMaxJpegSide, `out` is not `pixels`.
absl::Status AddJpegArtefacts(const uint8_t* pixels, Size size, int channels, int quality,
                              uint8_t* out, ImageWorkspace& workspace);
// What the workspace holds for it.
int64_t NeedOfJpegArtefacts(Size size, int channels);

}  // namespace feedwater::server
