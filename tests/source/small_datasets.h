// A small dataset in every format, for suites that enumerate the registry: each is a file of
// small_datasets/ that registers itself under its format's name. The suites fail until a new format
// has one.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "server/base/registry.h"
#include "tests/storage/temp_folder.h"

namespace feedwater::server {

struct SmallDataset {
  static constexpr const char* kKind = "small dataset";
  std::string yaml;  // over the root "root"
  std::function<void(const TempFolder&)> make;
  int64_t records;
  std::string one_file;  // one that holds records; "": its size cannot change alone
  size_t
      record_bytes;  // a size change that keeps the format valid: so many bytes, once more; 0: none
  // Of a format whose files are unpacked by a program that need not be there: a text in `one_file`
  // whose first byte may be another one, the memory that unpacking takes, and why it cannot be done
  // here, "" where it can.
  std::string flip = "";
  int64_t build_bytes = 0;
  std::function<std::string()> why_absent = nullptr;
};

inline std::string BigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}
template <typename T>
std::string LittleEndian(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

inline std::string CifarRecord(int label, uint64_t seed) {
  return std::string(1, static_cast<char>(label)) + RandomBytes(3072, seed);
}

// By format.
inline const std::map<std::string, SmallDataset>& SmallDatasets() {
  static const auto* all = [] {
    auto* datasets = new std::map<std::string, SmallDataset>;
    for (const std::string& format : Registry<SmallDataset>::Get().Names())
      datasets->emplace(format, *Registry<SmallDataset>::Get().Find(format));
    return datasets;
  }();
  return *all;
}

}  // namespace feedwater::server
