#include "server/base/work_clock.h"

#include "absl/strings/str_cat.h"

namespace feedwater::server {

absl::Status WorkClock::Look(int64_t now) {
  look_at_ns_ = now + kNextLookNs;
  if (gone_ != nullptr && gone_->load(std::memory_order_relaxed))
    return absl::CancelledError("the sample is no longer needed");
  if (limit_ns_ == 0) return absl::OkStatus();
  const int64_t cpu = ThreadCpuNs();
  if (cpu_start_ns_ < 0) cpu_start_ns_ = cpu;
  if (cpu - cpu_start_ns_ <= limit_ns_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the sample takes more than ", limit_ns_ / 1'000'000,
                   " ms of CPU, which is over max_sample_ms; if the record is good, raise that"));
}

}  // namespace feedwater::server
