// BMP, read by ourselves: 1, 4, 8, 16, 24 and 32 bits, runs (RLE4, RLE8), from either end.
#pragma once

#include <memory>

#include "server/codec/whole/whole_decoder.h"

namespace feedwater::server {

bool IsBmp(absl::Span<const std::byte> encoded);
std::unique_ptr<WholeDecoder> NewBmpDecoder();

}  // namespace feedwater::server
