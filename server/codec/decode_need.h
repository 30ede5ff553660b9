// How much memory an image takes while it is decoded, from its header: known before anything is
// allocated, so that it can be asked for in the memory budget. An upper bound, close for large
// images; the rows that are under way in a decoder and in the resampler are counted with the
// widest.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/codec/row_source.h"

namespace feedwater::server {

struct DecodeNeed {
  Size size;          // as the pixels come out
  int64_t bytes = 0;  // of decoders' own buffers; neither the file's bytes nor the result
};

// For DecodeInto with the same arguments. Errors are ReadImageInfo's.
absl::StatusOr<DecodeNeed> NeedOfDecoding(absl::Span<const std::byte> encoded,
                                          bool apply_orientation, const ImageLimits& limits,
                                          PixelValues values = PixelValues::kRgb);

// Of PackCoefficients. What is no JPEG takes nothing.
struct PackingNeed {
  int64_t coefficient_bytes = 0;  // all coefficients at once, where libjpeg-turbo reads them
  // Of these, what NeedOfDecoding of the same image does not count: to decode a file of one scan
  // takes some rows of them. The others are freed before the image is decoded.
  int64_t uncounted_bytes = 0;
  int64_t document_bytes = 0;  // at most
};
PackingNeed NeedOfPacking(absl::Span<const std::byte> encoded);

// The most that any image of so many pixels takes, rows aside.
int64_t MostDecodeBytes(int64_t pixels);

// What the rows of an image under way take while it is resampled from `from` to `to`, and while a
// part of it is taken as it is.
int64_t RowBytes(Size from, Size to);
int64_t CopiedRowBytes(Size size);

}  // namespace feedwater::server
