// TIFF, by libtiff, its first image. Kinds and compressions: README.md.
#pragma once

#include <memory>

#include "server/codec/whole/whole_decoder.h"

namespace feedwater::server {

bool IsTiff(absl::Span<const std::byte> encoded);
std::unique_ptr<WholeDecoder> NewTiffDecoder();

}  // namespace feedwater::server
