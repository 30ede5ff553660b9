// The `dataset:` map of a mix: its sources, their weights, and where an epoch of it ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/base/schema.h"
#include "server/base/yaml.h"
#include "server/source/dataset.h"

namespace feedwater::server {

inline constexpr size_t kMaxMixSources = 64;
inline constexpr int64_t kMaxMixWeights = 1 << 16;  // their sum, once nothing divides them all

struct MixSpec {
  struct Source {
    YamlNode dataset;  // without `weight`
    std::string name, format, place;
    int64_t weight = 1;  // as in DatasetMix
  };
  std::vector<Source> sources;
  DatasetMix::Stop stop = DatasetMix::Stop::kAll;
  int64_t samples = 0;
};

inline bool IsMix(const YamlNode& dataset) {
  return dataset.is_map() && dataset.Find("mix") != nullptr;
}
// InvalidArgument with the place of the mistake. What a source is, its own schema checks.
absl::StatusOr<MixSpec> ReadMix(const YamlNode& node);

// For the reference pages and schemas: the keys of a mix, and those of one of its sources beside
// the dataset's own.
const std::vector<ParamInfo>& MixParams();
const std::vector<ParamInfo>& MixSourceParams();

}  // namespace feedwater::server
