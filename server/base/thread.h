// Starting a thread where there may be none left to have: pids.max, RLIMIT_NPROC and the memory for
// stacks make std::thread throw, and our own functions do not. And how soon one runs that others
// wait for.
#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"

namespace feedwater::server {

// `what` completes "no thread for ".
template <typename F>
absl::StatusOr<std::thread> StartThread(absl::string_view what, F&& run) {
  try {
    return std::thread(std::forward<F>(run));
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no thread for ", what, ": ", error.what(),
                     "; cure: raise TasksMax= (pids.max) or LimitNPROC="));
  }
}

// For a thread that others wait for and that needs next to no CPU: from now on the calling thread
// runs soon after it wakes, also where every CPU is busy decoding. It asks the kernel for short
// turns (Linux 6.12 and later grant them to everybody, and who wants little is let in first), and
// for a lower nice value, which needs RLIMIT_NICE (LimitNICE=) or CAP_SYS_NICE. Best effort: what
// is refused stays as it was. Threads that it starts inherit both.
void RunSoonAfterWaking();

// For a thread whose work can wait: from now on the calling thread, and threads that it starts, get
// what others leave of a busy CPU. For good: a nice value is not lowered again without a right.
void StepBack();

}  // namespace feedwater::server
