// Starting a thread where there may be none left to have: pids.max, RLIMIT_NPROC and the memory for
// stacks make std::thread throw, and our own functions do not.
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

}  // namespace feedwater::server
