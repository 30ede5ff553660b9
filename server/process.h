// What feedwaterd does to its own process before and around the daemon: hardening, limits, and
// signals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace feedwater::server {

// Other processes of the same user may not attach to this one or read its memory (which holds every
// user's batches), and no core is dumped. Not under sanitizers, which need it.
void ForbidAttaching();

// One heap a CPU instead of glibc's eight, so that memory stays bounded when gRPC's threads come
// and go. Called first of all.
void BoundHeaps();

// The soft limit of open files to the hard one. Called before threads.
void RaiseFileLimit();
int64_t OpenFileLimit();  // the soft limit

// Whether the daemon with so many workers has descriptors, threads and memory for its start: gRPC
// aborts where one is missing. ResourceExhausted naming the limit and the cure.
absl::Status ProbeResources(size_t workers);

// An allocation that fails where no work can be given up for it ends the process with status 1 and
// a line that says so, instead of a signal and a core.
void InstallTerminateHandler();

// Blocks the signals that WaitForSignal waits for, in this thread and all that it starts; ignores
// those that nobody here needs and that would end the process. server/README.md has the list.
void BlockSignals();
// The next SIGTERM, SIGINT or SIGHUP.
struct Signal {
  int number = 0;
  std::string sender;  // "process 12 (systemd) of user 0", for the log
};
Signal WaitForSignal();

// Ends the process with status 0 after `seconds` unless it has ended before: nothing that a drain
// waits for, such as a dataset being opened on storage that stands still, may hold it up longer.
// `last` is called just before.
void ExitWithin(double seconds, std::function<void()> last);

}  // namespace feedwater::server
