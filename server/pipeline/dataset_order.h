// The order of a dataset's epochs, of one dataset or of a mix.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/sampler/order.h"
#include "server/source/dataset.h"

namespace feedwater::server {

// As MakeOrderConfig of the sampler, which says which sizes are refused; of a mix, errors name the
// source.
absl::StatusOr<OrderConfig> MakeOrderConfig(const SamplerSpec& spec, const Dataset& dataset,
                                            int64_t batch_size, int64_t world_size);

// A mix's sources and an epoch's length, for the order; null for one dataset.
absl::StatusOr<std::shared_ptr<const Mix>> MixOrderOf(const Dataset& dataset);

}  // namespace feedwater::server
