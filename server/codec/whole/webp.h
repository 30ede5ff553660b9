// WebP, by libwebp; of an animation the first frame where it covers the canvas.
#pragma once

#include <memory>

#include "server/codec/whole/whole_decoder.h"

namespace feedwater::server {

bool IsWebp(absl::Span<const std::byte> encoded);
std::unique_ptr<WholeDecoder> NewWebpDecoder();

}  // namespace feedwater::server
