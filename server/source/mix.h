// A mix: several datasets, its sources, as one. Its records are those of the sources, one after the
// other; its fields those that all sources have, and `dataset_id`, the number of the source. Which
// record stands where in an epoch is the sampler's (server/sampler/mix.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/base/schema.h"
#include "server/base/yaml.h"
#include "server/source/dataset.h"

namespace feedwater::server {

inline constexpr char kDatasetIdField[] = "dataset_id";
inline constexpr size_t kMaxMixSources = 64;
inline constexpr int64_t kMaxMixWeights = 1 << 16;  // their sum, once nothing divides them all

// The `dataset:` map of a mix.
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

// The fields of a mix, of those of its sources, each null where only its files tell them; null
// where no source's are known. InvalidArgument that names two sources and what differs.
absl::StatusOr<std::optional<std::vector<FieldSpec>>> FieldsOfMix(
    const MixSpec& spec, const std::vector<std::optional<std::vector<FieldSpec>>>& fields);

// A dataset of the opened sources. InvalidArgument that names two sources whose fields or classes
// differ.
absl::StatusOr<std::shared_ptr<const Dataset>> MixOf(
    const MixSpec& spec, std::vector<std::shared_ptr<const Dataset>> sources);

}  // namespace feedwater::server
