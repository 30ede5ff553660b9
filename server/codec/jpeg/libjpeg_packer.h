// JPEGs that the own decoder does not cover, as coefficient documents (coefficient_store.h): their
// coefficients are read by libjpeg-turbo. Progressive files, several scans, restart intervals,
// headers out of the ordinary; gray and YCbCr of every sampling that documents have. A document
// gives the pixels of libjpeg-turbo's decode of the file, bit for bit, or there is none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "server/codec/jpeg/coefficient_store.h"
#include "server/codec/jpeg/frame.h"
#include "server/codec/row_source.h"

namespace feedwater::server::jpeg {

// Whether an image that the own decoder leaves for this reason may become a document. Files that
// are coded arithmetically are decoded by libjpeg-turbo only.
constexpr bool LibjpegMayPack(Uncovered why) {
  return why == Uncovered::kProgressive || why == Uncovered::kRestart ||
         why == Uncovered::kTables || why == Uncovered::kDamaged;
}

// Empty for what is damaged at any place, over a limit, beyond the guards, of colours or samplings
// that documents do not have, and where a decode would show other pixels than the coefficients say
// (LibjpegReader::DecodesTheseCoefficients). Valid until the packer starts again. All coefficients
// are in memory at once meanwhile: JpegHeader::coefficient_bytes, and never more. Any bytes are
// safe.
absl::Span<const uint8_t> PackByLibjpeg(absl::Span<const std::byte> encoded,
                                        const ImageLimits& limits, StorePacker& packer);

}  // namespace feedwater::server::jpeg
