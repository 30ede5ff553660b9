// Our own functions do not throw; the libraries below them may, and neither a sample nor a command
// may end its process by that.
#pragma once

#include <exception>
#include <new>

#include "absl/status/status.h"

namespace feedwater::server {

// The status of `function()`, or what it threw as one.
template <typename F>
absl::Status NoThrow(const F& function) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  } catch (...) {
    return absl::InternalError("unknown exception");
  }
}

}  // namespace feedwater::server
