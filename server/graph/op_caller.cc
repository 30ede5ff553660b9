#include "server/graph/op_caller.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/units.h"

namespace feedwater::server {
namespace {

// INT64_MAX where that overflows.
int64_t SumOf(absl::Span<const TensorSpec> specs) {
  int64_t sum = 0;
  for (const TensorSpec& spec : specs) {
    if (!spec.IsStatic()) continue;
    const absl::StatusOr<int64_t> bytes = spec.ByteSize();
    if (!bytes.ok() || __builtin_add_overflow(sum, *bytes, &sum)) return INT64_MAX;
  }
  return sum;
}

}  // namespace

void SuspendedCalls::Suspend(const OpCall& call, std::unique_ptr<SuspendedCall> suspended) {
  last_ = KeyOf(call);
  calls_[last_] = std::move(suspended);
}

void SuspendedCalls::Keep(const OpCall& call, std::unique_ptr<SuspendedCall> made) {
  calls_[KeyOf(call)] = std::move(made);
}

std::unique_ptr<SuspendedCall> SuspendedCalls::Take(const OpCall& call) {
  const auto found = calls_.find(KeyOf(call));
  if (found == calls_.end()) return nullptr;
  std::unique_ptr<SuspendedCall> suspended = std::move(found->second);
  calls_.erase(found);
  return suspended;
}

bool SuspendedCalls::IsReady() const {
  const auto found = calls_.find(last_);
  return found == calls_.end() || found->second->IsReady();
}

absl::Status CheckCallBytes(absl::Span<const TensorSpec> inputs,
                            absl::Span<const TensorSpec> outputs) {
  const int64_t taken = SumOf(inputs), made = SumOf(outputs);
  if (taken <= kMostCallBytes && made <= kMostCallBytes - taken) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "takes ", FormatBytes(taken), " and makes ", FormatBytes(made), "; together it may be ",
      FormatBytes(kMostCallBytes), " at most: make the fields of `in` smaller first"));
}

absl::Status CheckBatchCallBytes(absl::Span<const TensorSpec> inputs,
                                 absl::Span<const TensorSpec> outputs, int64_t samples) {
  FW_RETURN_IF_ERROR(CheckCallBytes(inputs, outputs));
  const int64_t taken = SumOf(inputs), made = SumOf(outputs);
  const int64_t most = kMostCallBytes / std::max<int64_t>(1, taken + made);
  if (samples <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("takes ", FormatBytes(taken), " and makes ", FormatBytes(made), " of each of ",
                   samples, " samples; together a batch may be ", FormatBytes(kMostCallBytes),
                   " at most: a batch.size of at most ", most,
                   " fits, or make the fields of `in` smaller first"));
}

}  // namespace feedwater::server
