// A nameless file of fixed size in memory, for what two processes share: sealed against growing and
// shrinking, so that neither can give the other a SIGBUS.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/base/fd.h"

namespace feedwater::server {

// `name` shows in /proc. `allocate`: all of its memory is there at once, and not when it is first
// written. ResourceExhausted: the machine has no memory or no file for it.
absl::StatusOr<Fd> MakeSealedFile(const char* name, int64_t bytes, bool allocate);

}  // namespace feedwater::server
