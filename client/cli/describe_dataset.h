// `feedwater describe dataset`: what a dataset's records hold, and the `dataset:` section that
// reads it; also of a folder of which nothing else is known.
#pragma once

#include "absl/status/status.h"
#include "client/cli/command.h"
#include "client/cli/found_dataset.h"

namespace feedwater::cli {

// InvalidArgument where no format reads the data, with what the nearest ones say.
absl::Status DescribeDatasetOf(const Context& context, const DatasetQuestion& question);

}  // namespace feedwater::cli
