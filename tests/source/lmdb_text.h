// LMDB files for tests, written page by page as LMDB 0.9 does.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace feedwater::server {

class LmdbText {
 public:
  static constexpr size_t kPage = 4096;
  static constexpr size_t kMain = kPage + 88;  // the database of the newer meta page

  // Values of more than `largest` bytes lie on pages of their own. A leaf holds `per_leaf` records.
  explicit LmdbText(const std::map<std::string, std::string>& records, size_t per_leaf = 2,
                    size_t largest = 1000)
      : text_(2 * kPage, '\0') {
    std::vector<std::pair<std::string, uint64_t>> below;  // first key and page of each
    for (auto it = records.begin(); it != records.end();) {
      std::vector<std::string> nodes;
      const std::string first = it->first;
      for (size_t i = 0; i < per_leaf && it != records.end(); ++i, ++it) {
        const bool is_large = it->second.size() > largest;
        nodes.push_back(Node(static_cast<uint32_t>(it->second.size()), is_large ? 1 : 0, it->first,
                             is_large ? Number(AddLarge(it->second)) : it->second));
      }
      below.emplace_back(first, AddPage(2, nodes));
    }
    const size_t leaves = below.size();
    size_t branches = 0, depth = below.empty() ? 0 : 1;
    for (; below.size() > 1; ++depth) {
      std::vector<std::pair<std::string, uint64_t>> above;
      for (size_t at = 0; at < below.size(); at += 3, ++branches) {
        std::vector<std::string> nodes;
        for (size_t i = at; i < std::min(at + 3, below.size()); ++i) {
          const uint64_t page = below[i].second;
          nodes.push_back(Node(static_cast<uint32_t>(page), static_cast<uint16_t>(page >> 32),
                               i == at ? "" : below[i].first, ""));
        }
        above.emplace_back(below[at].first, AddPage(1, nodes));
      }
      below = std::move(above);
    }
    AddMeta(0, 0, 0, UINT64_MAX, 0);
    AddMeta(1, records.size(), depth, below.empty() ? UINT64_MAX : below[0].second,
            leaves + branches);
  }

  const std::string& text() const { return text_; }
  template <typename T>
  void Put(size_t at, T value) {
    std::memcpy(&text_[at], &value, sizeof(value));
  }
  template <typename T>
  T Get(size_t at) const {
    T value;
    std::memcpy(&value, &text_[at], sizeof(value));
    return value;
  }
  // Where the node `i` of a page begins, and the page that is the root.
  size_t NodeAt(uint64_t page, size_t i) const {
    return page * kPage + Get<uint16_t>(page * kPage + 16 + 2 * i);
  }
  uint64_t root() const { return Get<uint64_t>(kMain + 40); }

 private:
  template <typename T>
  static std::string Number(T value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
  }
  static std::string Node(uint32_t low, uint16_t flags, const std::string& key,
                          const std::string& data) {
    return Number(low) + Number(flags) + Number(static_cast<uint16_t>(key.size())) + key + data;
  }
  uint64_t NextPage() const { return text_.size() / kPage; }
  uint64_t AddLarge(const std::string& value) {
    const uint64_t page = NextPage();
    const auto pages = static_cast<uint32_t>((16 + value.size() + kPage - 1) / kPage);
    text_ += Number(page) + Number(uint16_t{0}) + Number(uint16_t{4}) + Number(pages) + value;
    text_.resize((page + pages) * kPage);
    return page;
  }
  uint64_t AddPage(uint16_t flags, const std::vector<std::string>& nodes) {
    const uint64_t page = NextPage();
    std::string body(kPage, '\0');
    size_t upper = kPage;
    std::string places;
    for (const std::string& node : nodes) {
      upper -= (node.size() + 1) / 2 * 2;
      body.replace(upper, node.size(), node);
      places += Number(static_cast<uint16_t>(upper));
    }
    const std::string header = Number(page) + Number(uint16_t{0}) + Number(flags) +
                               Number(static_cast<uint16_t>(16 + places.size())) +
                               Number(static_cast<uint16_t>(upper)) + places;
    body.replace(0, header.size(), header);
    text_ += body;
    return page;
  }
  void AddMeta(uint64_t page, uint64_t entries, size_t depth, uint64_t root, uint64_t pages) {
    const auto database = [&](uint32_t pad, size_t levels, uint64_t count, uint64_t first) {
      return Number(pad) + Number(uint16_t{0}) + Number(static_cast<uint16_t>(levels)) +
             Number(uint64_t{0}) + Number(pages) + Number(uint64_t{0}) + Number(count) +
             Number(first);
    };
    const std::string meta = Number(page) + Number(uint16_t{0}) + Number(uint16_t{8}) +
                             Number(uint32_t{0}) + Number(uint32_t{0xBEEFC0DE}) +
                             Number(uint32_t{1}) + Number(uint64_t{0}) + Number(uint64_t{1} << 40) +
                             database(kPage, 0, 0, UINT64_MAX) + database(0, depth, entries, root) +
                             Number(NextPage() - 1) + Number(page);
    text_.replace(page * kPage, meta.size(), meta);
  }

  std::string text_;
};

}  // namespace feedwater::server
