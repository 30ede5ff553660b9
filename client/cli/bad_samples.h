// feedwater status --bad: the daemon's list of bad records.
#pragma once

#include "client/cli/command.h"

namespace feedwater::cli {

absl::Status ShowBadSamples(const Context& context);

}  // namespace feedwater::cli
