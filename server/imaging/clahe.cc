#include "server/imaging/clahe.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "server/base/status.h"
#include "server/codec/plane_kernels.h"
#include "server/imaging/color_space.h"
#include "server/imaging/filter_kernels.h"
#include "server/imaging/mirror.h"
#include "server/imaging/point_kernels.h"

namespace feedwater::server {
namespace {

constexpr int kBins = 256;
constexpr int kPixelsBetweenLooks = 1 << 14;  // at the clock

constexpr size_t Rounded(size_t bytes) {
  return (bytes + kernels::kPointPadding - 1) / kernels::kPointPadding * kernels::kPointPadding;
}

// One axis of the grid. Where the image does not divide into tiles, it is mirrored as far as
// needed.
struct Axis {
  // `both`: both axes divide; else OpenCV extends even one that does.
  Axis(int pixels, int tiles, bool both)
      : pixels(pixels),
        tiles(tiles),
        tile((both ? pixels : pixels + tiles - pixels % tiles) / tiles),
        inverse(1.0f / static_cast<float>(tile)) {}

  // The two tiles that a pixel lies between, and its share of the second one.
  struct Place {
    int tile;  // the first one, -1 in front of them all
    float share;
  };
  Place At(int i) const {
    const float place = static_cast<float>(i) * inverse - 0.5f;
    const float first = std::floor(place);
    return {static_cast<int>(first), place - first};
  }
  int Clamp(int i) const { return std::clamp(i, 0, tiles - 1); }

  int pixels, tiles, tile;
  float inverse;
};

struct Memory {
  Memory(Size size, Size tiles, std::byte* scratch)
      : row_bytes(Rounded(static_cast<size_t>(size.width))) {
    auto take = [&, at = size_t{0}](size_t bytes) mutable {
      std::byte* const taken = scratch == nullptr ? nullptr : scratch + at;
      at += Rounded(bytes);
      total = at;
      return taken;
    };
    const auto width = static_cast<size_t>(size.width);
    rows = reinterpret_cast<uint8_t*>(take(3 * row_bytes));
    shares = reinterpret_cast<float*>(take(width * sizeof(float)));
    offsets = reinterpret_cast<int32_t*>(take(width * sizeof(int32_t)));
    four = reinterpret_cast<int32_t*>(
        take((static_cast<size_t>(tiles.width) + 1) * kBins * sizeof(int32_t)));
    tables = reinterpret_cast<uint8_t*>(
        take(static_cast<size_t>(tiles.width) * static_cast<size_t>(tiles.height) * kBins));
  }
  size_t row_bytes, total = 0;
  uint8_t* rows;     // three rows: a row of an image as planes
  float* shares;     // of each pixel of a row: Place::share
  int32_t* offsets;  // and where in `four` its tables begin
  int32_t* four;     // tables of four tiles each, whose values are the bytes of one number
  uint8_t* tables;   // of each tile
};

// The table that a tile's values go through, from how many there are of each.
void MakeTable(int* histogram, int pixels, double clip_limit, uint8_t* table) {
  // No bin has more than all pixels, and an int holds these.
  const int most =
      std::max(1, static_cast<int>(std::min<double>(pixels, clip_limit * pixels / kBins)));
  int clipped = 0;
  for (int i = 0; i < kBins; ++i) {
    clipped += std::max(0, histogram[i] - most);
    histogram[i] = std::min(histogram[i], most);
  }
  int rest = clipped % kBins;
  for (int i = 0; i < kBins; ++i) histogram[i] += clipped / kBins;
  if (rest > 0) {
    const int step = std::max(1, kBins / rest);
    for (int i = 0; i < kBins && rest > 0; i += step, --rest) ++histogram[i];
  }
  const float scale = static_cast<float>(kBins - 1) / static_cast<float>(pixels);
  int sum = 0;
  for (int i = 0; i < kBins; ++i) {
    sum += histogram[i];
    table[i] = static_cast<uint8_t>(
        std::clamp(std::nearbyint(static_cast<float>(sum) * scale), 0.0f, 255.0f));
  }
}

// Calls row(y) for each row of values; `step`: numbers from one value to the next one.
template <class Row>
absl::Status MakeTables(const Axis& x, const Axis& y, double clip_limit, Row row, WorkClock& clock,
                        uint8_t* tables) {
  int since = kPixelsBetweenLooks;  // the last look at the clock
  for (int down = 0; down < y.tiles; ++down) {
    for (int across = 0; across < x.tiles; ++across) {
      // Two, because equal neighbours would wait for each other.
      int histogram[kBins] = {}, second[kBins] = {};
      const int first = across * x.tile, end = first + x.tile;
      const int inside = std::clamp(x.pixels, first, end);
      for (int i = down * y.tile; i < (down + 1) * y.tile; ++i) {
        if (since >= kPixelsBetweenLooks) {
          FW_RETURN_IF_ERROR(clock.Check());
          since = 0;
        }
        since += x.tile;
        const uint8_t* const values = row(Mirrored(i, y.pixels));
        int at = first;
        for (; at + 1 < inside; at += 2) {
          ++histogram[values[at]];
          ++second[values[at + 1]];
        }
        for (; at < inside; ++at) ++histogram[values[at]];
        for (; at < end; ++at) ++histogram[values[Mirrored(at, x.pixels)]];
      }
      for (int i = 0; i < kBins; ++i) histogram[i] += second[i];
      MakeTable(histogram, x.tile * y.tile, clip_limit,
                tables + (static_cast<size_t>(down) * x.tiles + across) * kBins);
    }
  }
  return absl::OkStatus();
}

// The tables of the four tiles around places between two rows of tiles, for each gap of columns.
void PackTables(const Axis& x, const uint8_t* above, const uint8_t* below, int32_t* four) {
  for (int gap = 0; gap <= x.tiles; ++gap) {
    const size_t left = static_cast<size_t>(x.Clamp(gap - 1)) * kBins,
                 right = static_cast<size_t>(x.Clamp(gap)) * kBins;
    for (int v = 0; v < kBins; ++v) {
      const uint32_t packed = static_cast<uint32_t>(above[left + v]) |
                              static_cast<uint32_t>(above[right + v]) << 8 |
                              static_cast<uint32_t>(below[left + v]) << 16 |
                              static_cast<uint32_t>(below[right + v]) << 24;
      four[gap * kBins + v] = static_cast<int32_t>(packed);
    }
  }
}

}  // namespace

size_t ClaheScratch(Size size, Size tiles) { return Memory(size, tiles, nullptr).total; }

absl::Status Clahe(const uint8_t* pixels, Size size, int channels, double clip_limit, Size tiles,
                   std::byte* scratch, WorkClock& clock, uint8_t* out) {
  const kernels::PlaneTable& planes = kernels::Planes();
  const Memory memory(size, tiles, scratch);
  const auto width = static_cast<size_t>(size.width);
  const size_t row_bytes = width * static_cast<size_t>(channels);
  const bool is_colour = channels == 3;
  // Lightness, a and b of each row wait in the result, one row after the other.
  for (int y = 0; is_colour && y < size.height; ++y) {
    FW_RETURN_IF_ERROR(clock.Check());
    const size_t at = static_cast<size_t>(y) * row_bytes;
    planes.deinterleave3(pixels + at, width, memory.row_bytes, memory.rows);
    ToLab(memory.rows, memory.row_bytes, width);
    for (size_t c = 0; c < 3; ++c)
      std::memcpy(out + at + c * width, memory.rows + c * memory.row_bytes, width);
  }
  const auto row = [&](int y) {
    return (is_colour ? out : pixels) + static_cast<size_t>(y) * row_bytes;
  };

  const bool divides = size.width % tiles.width == 0 && size.height % tiles.height == 0;
  const Axis x(size.width, tiles.width, divides), y(size.height, tiles.height, divides);
  FW_RETURN_IF_ERROR(MakeTables(x, y, clip_limit, row, clock, memory.tables));
  for (int i = 0; i < size.width; ++i) {
    const Axis::Place place = x.At(i);
    memory.shares[i] = place.share;
    memory.offsets[i] = (place.tile + 1) * kBins;
  }

  const auto tables_of = [&](int tile) {
    return memory.tables + static_cast<size_t>(y.Clamp(tile)) * tiles.width * kBins;
  };
  int packed = -2;  // the row of tiles above those in `four`
  for (int i = 0; i < size.height; ++i) {
    FW_RETURN_IF_ERROR(clock.Check());
    const Axis::Place place = y.At(i);
    if (place.tile != packed)
      PackTables(x, tables_of(place.tile), tables_of(place.tile + 1), memory.four);
    packed = place.tile;
    uint8_t* const to = out + static_cast<size_t>(i) * row_bytes;
    uint8_t* const mixed = is_colour ? memory.rows : to;
    kernels::Filters().mix_tables(memory.four, memory.offsets, memory.shares, place.share, row(i),
                                  width, mixed);
    if (!is_colour) continue;
    std::memcpy(memory.rows + memory.row_bytes, to + width, width);
    std::memcpy(memory.rows + 2 * memory.row_bytes, to + 2 * width, width);
    FromLab(memory.rows, memory.row_bytes, width);
    planes.interleave3_u8(memory.rows, memory.row_bytes, width, to);
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
