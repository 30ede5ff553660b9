// A mix: several datasets, its sources, as one. Its records are those of the sources, one after the
// other; its fields those that all sources have, and `dataset_id`, the number of the source. Which
// record stands where in an epoch is the sampler's (server/sampler/mix.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/source/dataset.h"
#include "server/source/mix_spec.h"

namespace feedwater::server {

inline constexpr char kDatasetIdField[] = "dataset_id";

// The fields of a mix, of those of its sources, each null where only its files tell them; null
// where no source's are known. InvalidArgument that names two sources and what differs.
absl::StatusOr<std::optional<std::vector<FieldSpec>>> FieldsOfMix(
    const MixSpec& spec, const std::vector<std::optional<std::vector<FieldSpec>>>& fields);

// A dataset of the opened sources. InvalidArgument that names two sources whose fields or classes
// differ.
absl::StatusOr<std::shared_ptr<const Dataset>> MixOf(
    const MixSpec& spec, std::vector<std::shared_ptr<const Dataset>> sources);

}  // namespace feedwater::server
