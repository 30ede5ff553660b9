// Progressive and arithmetic-coded JPEGs as baseline ones, without loss: the quantised coefficients
// are read and written again, so that every decoder gives the same pixels. Markers of applications
// (EXIF, ICC profiles) and comments are kept; restart intervals are not. Baseline files enter the
// coefficient cache and have seek indexes, and decode faster.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/codec/row_source.h"

namespace feedwater::server {

// Nothing for a JPEG that is sequential and Huffman-coded already, and for one whose pixels are not
// those of its coefficients (LibjpegReader::DecodesTheseCoefficients). InvalidArgument: damaged, or
// over a limit; what TurboDecoder takes for damage is damage here. Pure; any bytes are safe. All
// coefficients are in memory at once, 2 bytes each: up to 6 bytes a pixel.
absl::StatusOr<std::optional<std::string>> ToBaselineJpeg(absl::Span<const std::byte> encoded,
                                                          const ImageLimits& limits);

}  // namespace feedwater::server
