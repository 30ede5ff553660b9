#include "server/pipeline/bad_sample.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

constexpr int64_t kAlwaysAllowed = 32;
constexpr int64_t kAllowedShare = 4;  // one in so many

}  // namespace

int64_t AllowedBadSamples(double max_bad_fraction, int64_t samples) {
  if (!(max_bad_fraction > 0)) return 0;
  if (max_bad_fraction >= 1) return samples;
  const auto by_fraction = static_cast<int64_t>(
      std::floor(max_bad_fraction * static_cast<double>(samples) + 1e-6));  // 0.29 * 100
  const int64_t always =
      std::min(kAlwaysAllowed, samples / kAllowedShare + (samples % kAllowedShare != 0));
  return std::max(by_fraction, always);
}

BatchFailure TooManyBadSamples(double max_bad_fraction, int64_t count, int64_t samples,
                               uint64_t epoch, const BadSample& last) {
  BatchFailure failure;
  failure.record = last.record;
  failure.path = last.path;
  failure.status = absl::DataLossError(absl::StrCat(
      count, " of this rank's ", samples, " samples of epoch ", epoch,
      " are bad, more than max_bad_fraction = ", max_bad_fraction, " allows (",
      AllowedBadSamples(max_bad_fraction, samples),
      "): mend or remove what `feedwater status --bad` lists, or raise max_bad_fraction in the "
      "pipeline; the last one: ",
      last.reason));
  return failure;
}

}  // namespace feedwater::server
