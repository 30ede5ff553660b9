#include "server/base/status_message.h"

#include "absl/strings/cord.h"

namespace feedwater::server {

absl::Status WithMessage(const absl::Status& status, absl::string_view message) {
  absl::Status reworded(status.code(), message);
  status.ForEachPayload([&](absl::string_view type_url, const absl::Cord& payload) {
    reworded.SetPayload(type_url, payload);
  });
  return reworded;
}

}  // namespace feedwater::server
