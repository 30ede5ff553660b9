// What a decoder process gives up before it sees the first record: everything but computing, its
// own memory, and the socket that it has.
#pragma once

#include <cstdint>

#include "server/base/status.h"

namespace feedwater::server {

// Ends this process with its parent and, where memory runs out, before it; makes it unreadable for
// others (no core file, no debugger), and closes all descriptors from `first_to_close` on.
void BecomeAlone(int first_to_close);

// From here on any system call that is not on the list ends the process with SIGSYS: there is no
// file, no network, no other process and no new code to reach. `memory_bytes`: of its own, at most.
// `file`: a descriptor that may be read at any place besides, or -1.
// Sanitizers' builds, which need more, are only limited. FailedPrecondition where the kernel has no
// seccomp filters.
absl::Status EnterSandbox(int socket, uint64_t memory_bytes, int file = -1);

}  // namespace feedwater::server
