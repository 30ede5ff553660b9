// Byte strings with a number each, looked up byte by byte. Made once, then read by all threads.
// A node takes 9 bytes, and there is at most one for each byte of the keys.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace feedwater::server {

class ByteTrie {
 public:
  static constexpr uint32_t kRoot = 0;
  struct Key {
    absl::string_view text;  // needed by Build alone
    int32_t value;           // from 0 on
  };

  // What was there is gone. False: a key is empty or stands there twice; it is `*wrong`.
  bool Build(std::vector<Key> keys, Key* wrong) {
    std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) { return a.text < b.text; });
    size_t nodes = 1;
    for (size_t i = 0; i < keys.size(); ++i) {
      const absl::string_view text = keys[i].text;
      const absl::string_view before = i == 0 ? absl::string_view() : keys[i - 1].text;
      if (text.empty() || text == before) {
        *wrong = keys[i];
        return false;
      }
      const size_t most = std::min(text.size(), before.size());
      nodes +=
          text.size() - static_cast<size_t>(
                            std::mismatch(text.begin(), text.begin() + most, before.begin()).first -
                            text.begin());
    }
    first_.assign(nodes + 1, static_cast<uint32_t>(nodes));
    values_.assign(nodes, -1);
    bytes_.assign(nodes, 0);
    // Level by level: the keys below each node of one.
    struct Range {
      uint32_t begin, end;
    };
    std::vector<Range> level = {{0, static_cast<uint32_t>(keys.size())}}, below;
    uint32_t node = 0, made = 1;
    for (size_t depth = 0; !level.empty(); ++depth, level.swap(below)) {
      below.clear();
      for (const auto& [begin, end] : level) {
        uint32_t i = begin;
        first_[node] = made;
        if (i < end && keys[i].text.size() == depth) values_[node] = keys[i++].value;
        while (i < end) {
          const uint32_t from = i;
          const char byte = keys[i].text[depth];
          while (i < end && keys[i].text[depth] == byte) ++i;
          bytes_[made++] = static_cast<unsigned char>(byte);
          below.push_back({from, i});
        }
        ++node;
      }
    }
    return true;
  }

  // One byte further from `*node`. False: nothing goes on like that.
  bool Step(uint32_t* node, char byte) const {
    const auto begin = bytes_.begin() + first_[*node], end = bytes_.begin() + first_[*node + 1];
    const auto found = std::lower_bound(begin, end, static_cast<unsigned char>(byte));
    if (found == end || *found != static_cast<unsigned char>(byte)) return false;
    *node = static_cast<uint32_t>(found - bytes_.begin());
    return true;
  }
  int32_t value(uint32_t node) const { return values_[node]; }  // -1: no key ends here

  // The longest key that `text` begins with: its value, or -1.
  int32_t LongestPrefix(absl::string_view text, size_t* bytes) const {
    int32_t found = -1;
    uint32_t node = kRoot;
    for (size_t at = 0; at < text.size() && Step(&node, text[at]); ++at) {
      if (values_[node] < 0) continue;
      found = values_[node];
      *bytes = at + 1;
    }
    return found;
  }

 private:
  // By node, in the order of their depth: those below one lie together, in the order of bytes.
  std::vector<uint32_t> first_ = {1, 1};  // below it; the next one's is behind the last
  std::vector<int32_t> values_ = {-1};
  std::vector<unsigned char> bytes_ = {0};  // that leads to it
};

}  // namespace feedwater::server
