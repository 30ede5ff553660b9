// Threads that share one piece of work, while the caller shows how far they are.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace feedwater::cli {

// Runs `work` in `count` threads, or in as many as can be had, until it has returned in all of
// them, and `show` meanwhile, ten times a second and when a thread has ended. The first error
// makes `stop` true, which `work` looks at, and is given.
absl::Status RunInThreads(size_t count, const std::string& name,
                          const std::function<absl::Status()>& work,
                          const std::function<void()>& show, std::atomic<bool>* stop);

}  // namespace feedwater::cli
