// ImageLimits::max_decode_ms: the CPU time that one image may take. Decoders ask between rows.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/codec/row_source.h"

namespace feedwater::server {

class DecodeClock {
 public:
  void Start(const ImageLimits& limits) {
    limit_ms_ = limits.max_decode_ms;
    start_wall_ns_ = MonotonicNs();
    start_cpu_ns_ = ThreadCpuNs();
  }

  // CPU time never runs ahead of wall time, and asking for the latter costs a tenth.
  bool IsOver() const {
    const int64_t limit_ns = limit_ms_ * 1'000'000;
    return MonotonicNs() - start_wall_ns_ > limit_ns && ThreadCpuNs() - start_cpu_ns_ > limit_ns;
  }

  // What to say of an image of `format` for which it was.
  absl::Status Over(absl::string_view format) const {
    return absl::InvalidArgumentError(
        absl::StrCat(format, " takes more than ", limit_ms_,
                     " ms of CPU, which is over max_decode_ms; if the image is good, raise that"));
  }

 private:
  int64_t limit_ms_ = 0, start_wall_ns_ = 0, start_cpu_ns_ = 0;
};

}  // namespace feedwater::server
