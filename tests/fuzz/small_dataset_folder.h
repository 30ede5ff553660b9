// The small dataset of a format (tests/source/small_datasets.h) in a folder of its own, for fuzzers
// that change its files or its index. Formats come from the registry, so a new one is fuzzed as
// soon as it has its small dataset.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/source/format.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/start_inputs.h"
#include "tests/source/small_datasets.h"

namespace feedwater::fuzz {

class SmallDatasetFolder {
 public:
  explicit SmallDatasetFolder(const std::string& format)
      : small_(server::SmallDatasets().at(format)) {
    small_.make(folder_);
    const size_t prefix = folder_.path().size() + 1;
    for (const auto& path : FilesBelow(folder_.path())) {
      names_.push_back(path.string().substr(prefix));
      contents_.push_back(ReadFile(path));
    }
    roots_ = folder_.AsRoot();
    auto node = server::ParseYaml(small_.yaml, "fuzz.yaml");
    Require(node.ok(), "the small dataset's yaml is right");
    node_ = *std::move(node);
  }

  const std::vector<std::string>& names() const { return names_; }
  const std::string& content(size_t file) const { return contents_[file]; }
  const server::TempFolder& folder() const { return folder_; }

  absl::StatusOr<std::shared_ptr<const server::Dataset>> Open(const std::string& state_dir = "",
                                                              bool save = false) const {
    server::DatasetOptions options;
    options.roots = roots_;
    options.state_dir = state_dir;
    options.save = save;
    options.staging = staging_;
    return server::OpenDataset(node_, options);
  }

  // One for each format of the registry that can be read here.
  static std::map<std::string, std::unique_ptr<SmallDatasetFolder>>& All() {
    static auto* all = [] {
      auto* made = new std::map<std::string, std::unique_ptr<SmallDatasetFolder>>;
      const auto& formats = server::Registry<server::FormatEntry>::Get();
      for (const std::string& format : formats.Names()) {
        if (!formats.Find(format)->has_files) continue;
        Require(server::SmallDatasets().count(format) > 0,
                "tests/source/small_datasets.h has a dataset for every format");
        const auto& why_absent = server::SmallDatasets().at(format).why_absent;
        if (why_absent != nullptr && !why_absent().empty()) continue;
        (*made)[format] = std::make_unique<SmallDatasetFolder>(format);
      }
      std::atexit([] { all_made()->clear(); });
      all_made() = made;
      return made;
    }();
    return *all;
  }

 private:
  static std::map<std::string, std::unique_ptr<SmallDatasetFolder>>*& all_made() {
    static std::map<std::string, std::unique_ptr<SmallDatasetFolder>>* made = nullptr;
    return made;
  }

  const server::SmallDataset& small_;
  server::TempFolder folder_, unpacked_;
  // Of formats whose files are unpacked; what is there for earlier inputs goes for later ones.
  const std::shared_ptr<server::StagingArea> staging_ =
      server::StagingArea::Below(unpacked_.path(), 4 << 20);
  std::vector<std::string> names_, contents_;
  std::shared_ptr<const server::Roots> roots_;
  server::YamlNode node_;
};

// What is asked of a dataset whatever it was made from. `sound`: its files are as its index says,
// so that every extent lies within them.
inline void Exercise(const server::Dataset& dataset, bool sound) {
  Require(dataset.size() > 0, "a dataset has records");
  int64_t last_start = 0;  // shards may be empty
  for (const int64_t start : dataset.shard_starts()) {
    Require(start >= last_start && start <= dataset.size(), "shards follow each other");
    last_start = start;
  }
  std::vector<server::Extent> extents;
  server::Record record;
  const int64_t step = std::max<int64_t>(1, dataset.size() / 64);
  for (int64_t i = 0; i < dataset.size(); i += step) {
    dataset.Extents(i, &extents);
    std::vector<std::string> bytes;
    for (const server::Extent& extent : extents) {
      Require(extent.offset >= 0 && extent.length >= 0 &&
                  extent.offset <= std::numeric_limits<int64_t>::max() - extent.length,
              "an extent is a range");
      const std::string path = dataset.ObjectPath(extent.object);
      auto file = dataset.RootOf(extent.object).OpenFile(path, /*direct_io=*/false);
      if (!file.ok() || extent.length > 1 << 20) continue;
      std::string text(static_cast<size_t>(extent.length), '\0');
      const ssize_t got = pread(file->get(), text.data(), text.size(), extent.offset);
      Require(!sound || got == extent.length, "an extent lies within its file");
      bytes.push_back(std::move(text));
    }
    if (bytes.size() != extents.size()) continue;
    std::vector<absl::Span<const std::byte>> spans;
    for (const std::string& text : bytes)
      spans.emplace_back(reinterpret_cast<const std::byte*>(text.data()), text.size());
    if (!dataset.Parse(i, spans, &record).ok()) continue;
    Require(record.fields.size() == dataset.fields().size(), "a record has the described fields");
    for (const server::Tensor& field : record.fields) {
      Require(field.spec.IsStatic(), "a parsed field has a shape");
      volatile unsigned sum = 0;
      for (size_t k = 0; k < field.bytes(); ++k) sum = sum + static_cast<uint8_t>(field.data[k]);
    }
  }
}

}  // namespace feedwater::fuzz
