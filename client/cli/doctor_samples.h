// Some records of a dataset, read and made into samples: what `feedwater doctor` says of them.
#pragma once

#include <cstdint>
#include <vector>

#include "client/cli/finding.h"
#include "client/cli/found_dataset.h"

namespace feedwater::cli {

// A few records, spread evenly, for a few seconds at most. Those of a pipeline run through its
// graph, op by op, as `verify` has it; of data alone the images are decoded. Where the daemon would
// decode in a process of its own, so does this. `config`: the daemon's, for data alone.
std::vector<Finding> CheckSamples(const FoundDataset& found, const ConfigChoice& config,
                                  int64_t record_bytes_max);

}  // namespace feedwater::cli
