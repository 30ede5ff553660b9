// feedwater status --all: every daemon of this host that the user can see.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/cli/command.h"

namespace feedwater::cli {

absl::Status ShowAllDaemons(const Context& context);
// A line about private daemons of this user other than the one at `address`. "": there are none.
std::string PrivateDaemonsText(const Context& context, const std::string& address);

}  // namespace feedwater::cli
