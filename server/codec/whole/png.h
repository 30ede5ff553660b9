// PNG, by libpng. Chunks that change no pixel are not even read: no text, profile or gamma costs
// memory.
#pragma once

#include <memory>

#include "server/codec/whole/whole_decoder.h"

namespace feedwater::server {

bool IsPng(absl::Span<const std::byte> encoded);
std::unique_ptr<WholeDecoder> NewPngDecoder();

}  // namespace feedwater::server
