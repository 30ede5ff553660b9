// `feedwater describe dataset`: what a dataset's records hold, and the `dataset:` section that
// reads it; also of a folder of which nothing else is known.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/cli/command.h"

namespace feedwater::cli {

struct DatasetQuestion {
  std::string name;    // a pipeline's name or .yaml file; a folder or file of data
  std::string config;  // the daemon's configuration; may be empty
  bool guess = false;  // `name` is data, and its format is to be found out
};

// InvalidArgument where no format reads the data, with what the nearest ones say.
absl::Status DescribeDatasetOf(const Context& context, const DatasetQuestion& question);

}  // namespace feedwater::cli
