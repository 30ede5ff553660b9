// What feedwaterd does to its own process before and around the daemon: hardening, limits, and
// signals.
#pragma once

#include "absl/status/status.h"

namespace feedwater::server {

// Other processes of the same user may not attach to this one or read its memory (which holds every
// user's batches), and no core is dumped. Not under sanitizers, which need it.
void ForbidAttaching();

// The soft limit of open files to the hard one. Called before threads.
void RaiseFileLimit();

// Blocks the signals that WaitForSignal waits for, in this thread and all that it starts; ignores
// SIGPIPE.
void BlockSignals();
// The next SIGTERM, SIGINT or SIGHUP.
int WaitForSignal();

// Ends the process with status 0 after `seconds` unless it has ended before: nothing that a drain
// waits for, such as a dataset being opened on storage that stands still, may hold it up longer.
void ExitWithin(double seconds);

}  // namespace feedwater::server
