// feedwater status --all: every daemon of this host that the user can see.
#pragma once

#include "absl/status/status.h"
#include "client/cli/command.h"

namespace feedwater::cli {

absl::Status ShowAllDaemons(const Context& context);

}  // namespace feedwater::cli
