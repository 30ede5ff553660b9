// Seek indexes in a map, and what happened to them.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "server/codec/seek_indexes.h"

namespace feedwater::server::testing {

class SeekIndexMap final : public SeekIndexes {
 public:
  bool Find(const ContentHash& image, std::vector<std::byte>* document) const override {
    document->clear();
    const auto it = documents_.find({image.low, image.high});
    if (it == documents_.end()) return false;
    *document = it->second;
    return true;
  }
  void Put(const ContentHash& image, absl::Span<const std::byte> document) override {
    std::vector<std::byte>& kept = documents_[{image.low, image.high}];
    if (document.size() > kept.size()) kept.assign(document.begin(), document.end());
    ++puts;
  }

  size_t size() const { return documents_.size(); }
  size_t bytes() const {
    size_t sum = 0;
    for (const auto& [image, document] : documents_) sum += document.size();
    return sum;
  }
  std::map<std::pair<uint64_t, uint64_t>, std::vector<std::byte>>& documents() {
    return documents_;
  }
  int puts = 0;

 private:
  std::map<std::pair<uint64_t, uint64_t>, std::vector<std::byte>> documents_;
};

}  // namespace feedwater::server::testing
