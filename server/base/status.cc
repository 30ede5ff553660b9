#include "server/base/status.h"

#include <cstring>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace feedwater::server {

absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload([&](absl::string_view type_url, const absl::Cord& payload) {
    annotated.SetPayload(type_url, payload);
  });
  return annotated;
}

absl::Status ErrnoStatus(int error, absl::string_view what) {
  char buffer[128];
  return absl::Status(
      absl::ErrnoToStatusCode(error),
      absl::StrCat(what, ": ", strerror_r(error, buffer, sizeof(buffer)), " (errno ", error, ")"));
}

}  // namespace feedwater::server
