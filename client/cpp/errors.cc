#include "client/cpp/errors.h"

#include <cstring>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "feedwater/client.h"

namespace feedwater {
namespace {

constexpr const char* kStalledUrl = "feedwater/stalled";
constexpr const char* kChecksumUrl = "feedwater/checksum";
constexpr const char* kLostUrl = "feedwater/daemon-lost";
constexpr const char* kNotServedUrl = "feedwater/not-served";
constexpr const char* kRecordUrl = "feedwater/bad-sample-record";
constexpr const char* kPathUrl = "feedwater/bad-sample-path";
constexpr const char* kReasonUrl = "feedwater/bad-sample-reason";

// As in client/python/feedwater/errors.py.
constexpr const char* kBadSampleCure =
    ". Mend or remove it, or let the pipeline say 'on_bad_sample: substitute' or "
    "'skip_with_count'";

std::string Text(const char* bytes, size_t capacity) {
  return std::string(bytes, strnlen(bytes, capacity));
}

absl::Status Marked(absl::Status status, const char* url) {
  status.SetPayload(url, absl::Cord("1"));
  return status;
}

}  // namespace

absl::Status StalledError(absl::string_view message) {
  return Marked(absl::DeadlineExceededError(message), kStalledUrl);
}
absl::Status ChecksumError(absl::string_view message) {
  return Marked(absl::DataLossError(message), kChecksumUrl);
}
absl::Status DaemonLostError(absl::string_view message) {
  return Marked(absl::UnavailableError(message), kLostUrl);
}
absl::Status NotServedError(absl::string_view message) {
  return Marked(DaemonLostError(message), kNotServedUrl);
}

absl::Status FailureOf(const wire::FailedWithReason& message) {
  const wire::Failed& failed = message.failed;
  const std::string reason = Text(failed.message, sizeof(failed.message)),
                    path = Text(failed.path, sizeof(failed.path));
  const absl::string_view text = absl::StripTrailingAsciiWhitespace(reason);  // of a traceback
  const auto is = [&](wire::FailReason one) {
    return message.reason == static_cast<uint32_t>(one);
  };
  if (is(wire::FailReason::kNotServed)) {
    return NotServedError(absl::StrCat(text, ". Then Load(State()) goes on with this batch"));
  }
  const bool is_bad_sample = failed.record >= 0;
  absl::Status status(
      static_cast<absl::StatusCode>(failed.code),
      is_bad_sample ? absl::StrCat("record ", failed.record,
                                   path.empty() ? "" : absl::StrCat(" (", path, ")"), " at epoch ",
                                   failed.epoch, ", step ", failed.step, ": ", text,
                                   is(wire::FailReason::kBadRecord) ? kBadSampleCure : "")
                    : std::string(text));
  if (status.ok()) status = absl::UnknownError("the daemon could not make this batch");
  if (is_bad_sample) {
    status.SetPayload(kRecordUrl, absl::Cord(absl::StrCat(failed.record)));
    status.SetPayload(kPathUrl, absl::Cord(path));
    status.SetPayload(kReasonUrl, absl::Cord(reason));
  }
  return status;
}

absl::Status ReasonOf(const wire::Closing& closing) {
  return absl::Status(static_cast<absl::StatusCode>(closing.code),
                      Text(closing.message, sizeof(closing.message)));
}

std::optional<BadSample> BadSampleOf(const absl::Status& status) {
  const absl::optional<absl::Cord> record = status.GetPayload(kRecordUrl);
  const absl::optional<absl::Cord> path = status.GetPayload(kPathUrl);
  const absl::optional<absl::Cord> reason = status.GetPayload(kReasonUrl);
  if (!record || !path || !reason) return std::nullopt;
  BadSample sample;
  if (!absl::SimpleAtoi(std::string(*record), &sample.record)) return std::nullopt;
  sample.path = std::string(*path);
  sample.reason = std::string(*reason);
  return sample;
}
bool IsStalled(const absl::Status& status) { return status.GetPayload(kStalledUrl).has_value(); }
bool IsChecksumMismatch(const absl::Status& status) {
  return status.GetPayload(kChecksumUrl).has_value();
}
bool IsDaemonLost(const absl::Status& status) { return status.GetPayload(kLostUrl).has_value(); }
bool IsNotServed(const absl::Status& status) {
  return status.GetPayload(kNotServedUrl).has_value();
}

}  // namespace feedwater
