#include "server/pipeline/substitution.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"

namespace feedwater::server {

std::optional<Pick> SubstituteFor(int64_t position, int64_t tries, const EpochOrder& order,
                                  int64_t positions, int64_t workers) {
  if (tries > std::min(kMaxSubstitutes, positions - 1)) return std::nullopt;
  if (workers > 0) {
    const int64_t next = position + tries * workers;
    return next < positions ? std::optional(order.PickAt(next)) : std::nullopt;
  }
  return order.PickAt((position + tries) % positions);
}

std::optional<Pick> Substitution::Next(int64_t position, const EpochOrder& order, int64_t positions,
                                       int64_t workers) {
  const std::optional<Pick> next = SubstituteFor(position, tries_ + 1, order, positions, workers);
  if (next.has_value()) ++tries_;
  return next;
}

BatchFailure Substitution::Failure(BadSamplePolicy policy, int64_t workers) const {
  std::string reason = bad_.reason;
  if (policy == BadSamplePolicy::kFail)
    return {absl::Status(bad_.code, reason), bad_.record, bad_.path, wire::FailReason::kBadRecord};
  // Clients advise a policy that replaces records where the reason is kBadRecord.
  if (tries_ == 0) {
    absl::StrAppend(&reason, "; no record after it", workers > 0 ? " of its worker" : "",
                    " is left in the epoch to stand in");
  } else {
    absl::StrAppend(&reason, "; none of the ", tries_, " records after it can stand in");
  }
  return {absl::Status(bad_.code, reason), bad_.record, bad_.path, wire::FailReason::kOther};
}

BatchFailure MachineFailure(const BadSample& unread, const absl::Status& status) {
  const absl::Status named = Annotate(status, NameOf(unread));
  if (!absl::IsNotFound(status)) return {named, -1, ""};
  return {absl::NotFoundError(absl::StrCat(named.message(),
                                           "; it was there when the dataset was indexed. Open a "
                                           "new loader: it takes the files as they are now")),
          -1, ""};
}

}  // namespace feedwater::server
