// Errors that a program can tell apart by the functions of client.h. What tells them apart is a
// payload, which survives a copy of the status.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/shm/wire.h"

namespace feedwater {

absl::Status StalledError(absl::string_view message);
absl::Status ChecksumError(absl::string_view message);
absl::Status DaemonLostError(absl::string_view message);
// Of a daemon that is there; a DaemonLostError, too.
absl::Status NotServedError(absl::string_view message);

// Of a batch that could not be made; with the bad sample, if that is why.
absl::Status FailureOf(const wire::FailedWithReason& message);
// Why the daemon ends the session.
absl::Status ReasonOf(const wire::Closing& closing);

}  // namespace feedwater
