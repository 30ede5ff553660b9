// Errors are values. Every fallible function of the server returns absl::Status or absl::StatusOr;
// the code says what the caller can do next, the message names the thing, the place and the likely
// cure. No abort is reachable from input.
//
// Abseil of Debian 12 has its own string_view, so interfaces of the server take absl::string_view.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace feedwater::server {

// The same code, with "context: " before the message. Payloads are kept. OK stays OK.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

// A status for an errno: code as absl::ErrnoToStatusCode gives it, message "what: strerror (errno
// N)".
absl::Status ErrnoStatus(int error, absl::string_view what);

}  // namespace feedwater::server

#define FW_CONCAT_INNER_(a, b) a##b
#define FW_CONCAT_(a, b) FW_CONCAT_INNER_(a, b)

#define FW_RETURN_IF_ERROR(expr)                                               \
  do {                                                                         \
    if (absl::Status fw_status_ = (expr); !fw_status_.ok()) return fw_status_; \
  } while (false)

#define FW_ASSIGN_OR_RETURN_INNER_(var, lhs, expr) \
  auto var = (expr);                               \
  if (!var.ok()) return std::move(var).status();   \
  lhs = *std::move(var)
#define FW_ASSIGN_OR_RETURN(lhs, expr) \
  FW_ASSIGN_OR_RETURN_INNER_(FW_CONCAT_(fw_or_, __LINE__), lhs, expr)
