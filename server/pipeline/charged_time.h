// CPU time that a user pays for outside of workers.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "server/base/clock.h"
#include "server/pipeline/runtime.h"

namespace feedwater::server {

// The CPU time of a scope is its user's.
class ChargedTime {
 public:
  ChargedTime(Runtime* runtime, std::optional<uid_t> user)
      : runtime_(runtime), user_(user), begin_ns_(ThreadCpuNs()) {}
  ~ChargedTime() {
    if (user_.has_value()) runtime_->ChargeUser(*user_, ThreadCpuNs() - begin_ns_);
  }
  ChargedTime(const ChargedTime&) = delete;

 private:
  Runtime* const runtime_;
  const std::optional<uid_t> user_;
  const int64_t begin_ns_;
};

}  // namespace feedwater::server
