// Where a daemon is found when nobody says.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace feedwater {

// $FEEDWATER_ADDRESS, or "". An empty one names no place: it is as if it were not set.
std::string AddressOfEnvironment();

// The runtime folders to look in, best first: $FEEDWATER_ADDRESS alone when it names one, else for
// this process's NUMA node and then node 0: $XDG_RUNTIME_DIR/feedwater/NODE,
// /run/feedwater/NODE,
// /tmp/feedwater-UID/NODE (only when it is this user's or root's).
std::vector<std::string> CandidateAddresses();

// `address`, or FindAmong the candidates.
absl::StatusOr<std::string> FindAddress(absl::string_view address);
// The first of these folders that holds a control.sock; of several, the first in which a daemon
// listens, if there is one: what a daemon that was killed has left must not hide another. One that
// a person has given (`is_given`) may be anybody's. Unavailable with what was tried and how to
// start a daemon. PermissionDenied where one of these places may not be looked into and no other
// has one.
absl::StatusOr<std::string> FindAmong(const std::vector<std::string>& folders, bool is_given);

// Why this process may not reach a daemon's socket, for people: the path, and the cure.
absl::Status NoPermission(const std::string& socket_path);
// Whether it is such an error. It may pass: a daemon that is starting opens its folder and its
// sockets to others only when it is ready to serve.
bool IsNoPermission(const absl::Status& status);

}  // namespace feedwater
