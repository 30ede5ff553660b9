// What entropy decoding hands to the inverse DCT: one row of 8x8 blocks of one component.
// Coefficients are quantised, int16, in natural order, 64 a block, blocks side by side. The lists
// name every wanted block once, by the cheapest transform that is exact for it, so that the
// transform takes blocks of one kind together and no branch depends on a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace feedwater::server::jpeg {

enum BlockKind : int {
  kDcOnly = 0,   // no AC coefficient
  kQuarter = 1,  // coefficients in rows 0..3 and columns 0..3 only
  kFull = 2,
};
inline constexpr int kBlockKinds = 3;
inline constexpr int kBlockSamples = 64;
// A list may be padded by so many entries: transforms take up to eight blocks at once.
inline constexpr size_t kListPadding = 8;

// Indices of blocks within the row (0 is the first wanted one). Reused from row to row.
// At least `numbers` of them and room for no more: resize alone may double what was there.
template <typename T>
void GrowExactly(std::vector<T>& buffer, size_t numbers) {
  if (buffer.size() >= numbers) return;
  buffer.reserve(numbers);
  buffer.resize(numbers);
}

struct BlockLists {
  std::vector<uint16_t> blocks[kBlockKinds];  // capacity: the row's blocks + kListPadding
  size_t count[kBlockKinds] = {0, 0, 0};

  void Reserve(size_t row_blocks) {
    for (auto& list : blocks) GrowExactly(list, row_blocks + kListPadding);
  }
  void Clear() { count[0] = count[1] = count[2] = 0; }
  void Add(BlockKind kind, uint16_t block) { blocks[kind][count[kind]++] = block; }
};

}  // namespace feedwater::server::jpeg
