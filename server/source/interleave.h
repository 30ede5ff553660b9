// Planes to pixels: for formats that keep an image's red, green and blue apart, while every image
// op takes them together. SIMD by Highway, chosen at run time; every target gives equal bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace feedwater::server {

// pixels[3 * i + c] = planes[c * plane + i] for i < count. The two do not overlap.
void Interleave3(const uint8_t* planes, size_t plane, size_t count, uint8_t* pixels);

}  // namespace feedwater::server
