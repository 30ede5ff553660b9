// feedwater status --all: every daemon of this host that the user can see.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/cli/command.h"

namespace feedwater::cli {

absl::Status ShowAllDaemons(const Context& context);
// Where no daemon is at the default place and this user has one private daemon, asks that one: sets
// the address, and says so in a line on stderr. Unavailable where there are several, with `command`
// ("status --bad") for each. Else nothing: who asks the daemon gets the error.
absl::Status UseOwnDaemon(Context& context, const std::string& command);
// A line about private daemons of this user other than the one at `address`. "": there are none.
std::string PrivateDaemonsText(const Context& context, const std::string& address);

}  // namespace feedwater::cli
