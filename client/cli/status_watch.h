// feedwater status --watch: rates between two looks at a daemon, and what each rank waits for.
#pragma once

#include "client/cli/command.h"

namespace feedwater::cli {

// Looks every `interval_s` seconds until SIGINT or SIGTERM. On a terminal the view is redrawn in
// place, elsewhere it is a line for each rank and look; with --json a document a line. A daemon
// that goes away is waited for.
absl::Status WatchStatus(const Context& context, double interval_s);

}  // namespace feedwater::cli
