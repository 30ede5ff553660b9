// `feedwater doctor DATASET`: what of a dataset makes reading it slow or impossible where it lies,
// each with its cure: records, index, storage, page cache, reads under the pipeline's shuffle,
// images.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/command.h"
#include "client/cli/finding.h"
#include "client/cli/found_dataset.h"

namespace feedwater::cli {

// One failure, "dataset", where it cannot be opened. Cancelled: by Ctrl-C.
absl::StatusOr<std::vector<Finding>> CheckDataset(const Context& context,
                                                  const DatasetQuestion& question);

}  // namespace feedwater::cli
