// One decode of which several steps take parts, such as the views of SimCLR. Before anything is
// decoded these steps are asked which part of the image each of them has drawn, and the smallest
// rectangle with all of them is decoded, once. Parts of a coefficient document may be decoded one
// by one at their own cost, and are where that is less than the rectangle. The bytes are those of
// decoding the whole image.
#pragma once

#include "absl/types/span.h"
#include "server/codec/row_source.h"

namespace feedwater::server {

struct Dataflow;
struct Program;

// Of the sample under way.
struct SharedImage {
  Size size;  // of the whole image
  Rect part;  // that is decoded; empty: each step decodes its own part
};

// `any_part`: decoding a part costs as much as its pixels, wherever it stands.
Rect PartToDecode(Size size, absl::Span<const Rect> parts, bool any_part);

// Finds such decodes among the steps, whose values have their places.
void ShareDecodes(const Dataflow& flow, Program* program);

}  // namespace feedwater::server
