// From coefficients to RGB: the inner loops of the own JPEG decoder, once in source and compiled
// for every SIMD target by Highway (server/codec/resample_kernels.h says how one is chosen). All
// targets give the bytes of libjpeg-turbo 2.1 with the accurate integer transform and fancy
// upsampling.
#pragma once

#include <cstddef>
#include <cstdint>

#include "server/codec/jpeg/block_row.h"

namespace feedwater::server::jpeg {

// Bytes behind the end of an output row that a kernel may write, and behind the end of an input row
// that it may read.
inline constexpr size_t kRowPadding = 128;

struct PixelKernels {
  const char* target;

  // Dequantises and transforms the blocks that `lists` names: block i stands at coefficients + 64 *
  // i, its samples go to out + side * i, `side` (8, 4, 2 or 1) rows `stride` apart. `quant`: 64
  // steps in natural order, each 1..255. Pads the lists. False when a block lies beyond the guards
  // within which every path of libjpeg-turbo agrees (block_guard.h): the samples are then worthless
  // and the image is one for libjpeg-turbo.
  bool (*transform_row)(const int16_t* coefficients, BlockLists& lists, const uint16_t* quant,
                        int side, uint8_t* out, size_t stride);

  // Whether transform_row would accept all `blocks` blocks, whatever the side: for images whose
  // samples are made later.
  bool (*check_row)(const int16_t* coefficients, size_t blocks, const uint16_t* quant);

  // Fancy upsampling of one row to twice its width: `in` is a row of `width` (> 2) real samples, of
  // which in[0] is sample number `first`; writes the upsampled samples x0 .. x0 + count - 1 (of 2 *
  // width) at `out`. Neighbours that do not exist are the sample itself. `in` holds all samples
  // that are needed: (x0 - 1) / 2 .. (x0 + count) / 2, cut to the row.
  void (*upsample_h2v1)(const uint8_t* in, int first, int width, int x0, int count, uint8_t* out);
  // The same for half height, too: `near` is the row of samples that covers the output row, `far`
  // the next one in the direction of its half (the near row itself at the image's edge).
  void (*upsample_h2v2)(const uint8_t* near, const uint8_t* far, int first, int width, int x0,
                        int count, uint8_t* out);
  // Half height alone, for `count` samples: `below` says that `far` is the row below `near`.
  void (*upsample_h1v2)(const uint8_t* near, const uint8_t* far, bool below, size_t count,
                        uint8_t* out);

  // rgb[3 * i ..] for i < count.
  void (*ycc_to_rgb)(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, size_t count,
                     uint8_t* rgb);
  void (*gray_to_rgb)(const uint8_t* y, size_t count, uint8_t* rgb);
};

// The table for this CPU. Cheap; a test that restricts Highway's targets sees the change at its
// next call.
const PixelKernels& ActivePixelKernels();

}  // namespace feedwater::server::jpeg
