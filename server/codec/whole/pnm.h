// PNM, read by ourselves: PBM, PGM and PPM, as text and binary.
#pragma once

#include <memory>

#include "server/codec/whole/whole_decoder.h"

namespace feedwater::server {

bool IsPnm(absl::Span<const std::byte> encoded);
std::unique_ptr<WholeDecoder> NewPnmDecoder();

}  // namespace feedwater::server
