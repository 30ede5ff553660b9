// Opens datasets and reads their records for tests: with plain pread, no engine between.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "server/base/yaml.h"
#include "server/source/dataset.h"
#include "server/source/staging.h"
#include "tests/storage/temp_folder.h"

namespace feedwater::server {

inline YamlNode ParseNode(const std::string& yaml) {
  auto node = ParseYaml(yaml, "test.yaml");
  EXPECT_TRUE(node.ok()) << node.status();
  return node.ok() ? *node : YamlNode();
}

// What a record's extents hold.
inline std::vector<std::string> ReadExtents(const Dataset& dataset, int64_t record) {
  std::vector<Extent> extents;
  dataset.Extents(record, &extents);
  std::vector<std::string> bytes;
  for (const Extent& extent : extents) {
    auto fd = dataset.RootOf(extent.object).OpenFile(dataset.ObjectPath(extent.object), false);
    EXPECT_TRUE(fd.ok()) << fd.status();
    std::string text(static_cast<size_t>(extent.length), '\0');
    if (fd.ok()) {
      EXPECT_EQ(pread(fd->get(), text.data(), text.size(), extent.offset), extent.length);
    }
    bytes.push_back(std::move(text));
  }
  return bytes;
}

inline absl::Status ParseBytes(const Dataset& dataset, int64_t record,
                               const std::vector<std::string>& bytes, Record* out) {
  std::vector<absl::Span<const std::byte>> spans;
  for (const std::string& text : bytes) {
    spans.emplace_back(reinterpret_cast<const std::byte*>(text.data()), text.size());
  }
  return dataset.Parse(record, spans, out);
}

// Every field's bytes, or the error, of one record.
inline std::vector<std::string> ReadFields(const Dataset& dataset, int64_t record,
                                           Record* scratch) {
  const std::vector<std::string> bytes = ReadExtents(dataset, record);
  absl::Status status = ParseBytes(dataset, record, bytes, scratch);
  if (!status.ok()) return {status.ToString()};
  std::vector<std::string> fields;
  for (const Tensor& field : scratch->fields) {
    fields.emplace_back(reinterpret_cast<const char*>(field.data), field.bytes());
  }
  return fields;
}

inline std::vector<std::string> ReadFields(const Dataset& dataset, int64_t record) {
  Record scratch;
  return ReadFields(dataset, record, &scratch);
}

// Numbers as a field holds them.
template <typename T>
std::string BytesOf(std::initializer_list<T> values) {
  std::string bytes;
  for (const T value : values) bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
  return bytes;
}

inline int64_t LabelOf(const Dataset& dataset, int64_t record) {
  Record scratch;
  const std::vector<std::string> fields = ReadFields(dataset, record, &scratch);
  int64_t label = -1;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (dataset.fields()[i].name == "label" && fields[i].size() == sizeof(label))
      std::memcpy(&label, fields[i].data(), sizeof(label));
  }
  return label;
}

// The folder of outside data, or "" where it is absent.
inline std::string OutsideData() {
  const char* variable = std::getenv("FEEDWATER_TEST_DATA");
  std::string path = variable != nullptr ? variable : FEEDWATER_SOURCE_DIR "/../shared/data";
  return std::filesystem::is_directory(path) ? path : "";
}

// Opens `yaml` over the root "root" at `folder`. Counts the builds through the progress callback.
struct Opener {
  explicit Opener(const std::string& folder) : folder(folder) {}

  absl::StatusOr<std::shared_ptr<const Dataset>> Open(const std::string& yaml) {
    auto roots = Roots::Create({{"root", folder}});
    if (!roots.ok()) return roots.status();
    DatasetOptions options;
    options.roots = *roots;
    options.state_dir = state_dir;
    options.budget = budget;
    options.staging = staging;
    options.rebuild = rebuild;
    options.given_up = given_up;
    options.user = user;
    options.progress = [this](int64_t done, int64_t total) {
      builds += total > 0 && done == total ? 1 : 0;
    };
    return OpenDataset(ParseNode(yaml), options);
  }
  std::shared_ptr<const Dataset> MustOpen(const std::string& yaml) {
    auto dataset = Open(yaml);
    if (!dataset.ok()) throw std::runtime_error(dataset.status().ToString());  // ends this test
    return *dataset;
  }

  std::string folder, state_dir;
  std::shared_ptr<MemoryBudget> budget;
  std::shared_ptr<StagingArea> staging;
  bool rebuild = false;
  int64_t user = 0;
  std::function<bool()> given_up;
  std::atomic<int> builds{0};
};

}  // namespace feedwater::server
