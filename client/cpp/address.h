// Where a daemon is found when nobody says.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace feedwater {

// The runtime folders to look in, best first: $FEEDWATER_ADDRESS alone when it is set, else for
// this process's NUMA node and then node 0: $XDG_RUNTIME_DIR/feedwater/NODE,
// /run/feedwater/NODE,
// /tmp/feedwater-UID/NODE (only when it is this user's or root's).
std::vector<std::string> CandidateAddresses();

// `address`, or the first candidate that holds a control.sock. Unavailable with what was tried and
// how to start a daemon.
absl::StatusOr<std::string> FindAddress(absl::string_view address);

}  // namespace feedwater
