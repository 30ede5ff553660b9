#include "server/base/status.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/base/status_message.h"

namespace feedwater::server {

absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  return status.ok() ? status : WithMessage(status, absl::StrCat(context, ": ", status.message()));
}

absl::Status ErrnoStatus(int error, absl::string_view what) {
  char buffer[128];
  return absl::Status(
      absl::ErrnoToStatusCode(error),
      absl::StrCat(what, ": ", strerror_r(error, buffer, sizeof(buffer)), " (errno ", error, ")"));
}

}  // namespace feedwater::server
