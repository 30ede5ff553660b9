// `feedwater describe PIPELINE`: its outputs, its plan and what its data is.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/cli/command.h"

namespace feedwater::cli {

// A file, or a name that the configuration knows, is described by this program; a name alone by the
// daemon. `config`: "" for none.
absl::Status DescribePipeline(const Context& context, const std::string& name,
                              const std::string& config);

}  // namespace feedwater::cli
