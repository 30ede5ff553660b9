#include "client/cli/bad_samples.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "client/cli/json_text.h"
#include "client/cli/text.h"
#include "server/base/escape.h"
#include "server/base/status.h"
#include "server/base/units.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;

std::string TimeText(int64_t seconds) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(seconds),
                          absl::UTCTimeZone());
}

json SampleJson(const v1::BadSample& sample) {
  return {{"dataset", sample.dataset_digest()},
          {"record", sample.record()},
          {"pipeline", sample.pipeline()},
          {"path", sample.path()},
          {"offset", sample.offset()},
          {"length", sample.length()},
          {"reason", sample.reason()},
          {"count", sample.count()},
          {"first_seen", TimeText(sample.first_seen_s())},
          {"last_seen", TimeText(sample.last_seen_s())},
          {"action", sample.action()},
          {"stood_in", sample.stood_in() < 0 ? json() : json(sample.stood_in())},
          {"crashes", sample.crashes()},
          {"signal", sample.signal()},
          {"quarantined", sample.quarantined()}};
}

// The first line is prose; what follows is a traceback, whose lines stay as they are.
std::string ReasonText(absl::string_view reason) {
  std::string text;
  for (const absl::string_view line :
       absl::StrSplit(absl::StripTrailingAsciiWhitespace(reason), '\n')) {
    if (text.empty()) {
      text = Wrapped(server::Escaped(line), 2);
    } else {
      absl::StrAppend(&text, "    ", server::Escaped(line), "\n");
    }
  }
  return text;
}

void PrintText(const v1::ListBadSamplesResponse& list) {
  for (const v1::BadSample& sample : list.samples()) {
    std::cout << Bold(absl::StrCat("record ", sample.record())) << "  "
              << server::Escaped(sample.path())
              << absl::StrFormat(" (offset %d, %d bytes), pipeline %s\n", sample.offset(),
                                 sample.length(), server::Escaped(sample.pipeline()))
              << absl::StrFormat("  %s, %s to %s",
                                 server::FormatCount(static_cast<int64_t>(sample.count()), "time"),
                                 TimeText(sample.first_seen_s()), TimeText(sample.last_seen_s()));
    if (!sample.action().empty()) std::cout << "; " << server::Escaped(sample.action());
    if (sample.stood_in() >= 0) std::cout << ", record " << sample.stood_in() << " stood in";
    if (sample.crashes() > 0) {
      std::cout << absl::StrFormat("; the daemon died of it %s (signal %d)%s",
                                   server::FormatCount(sample.crashes(), "time"), sample.signal(),
                                   sample.quarantined() ? ", put aside" : "");
    }
    std::cout << "\n" << ReasonText(sample.reason());
  }
  std::cout << server::FormatCount(list.samples_size(), "bad record");
  if (list.not_listed() > 0)
    std::cout << ", and " << list.not_listed() << " finds for which the list had no room";
  if (!list.file().empty()) std::cout << "; also in " << server::Escaped(list.file());
  std::cout << "\n";
}

}  // namespace

absl::Status ShowBadSamples(const Context& context) {
  FW_ASSIGN_OR_RETURN(const std::unique_ptr<v1::Control::Stub> control, context.Control());
  grpc::ClientContext call;
  v1::ListBadSamplesResponse list;
  if (const grpc::Status got = control->ListBadSamples(&call, {}, &list); !got.ok())
    return FromGrpc(got);
  if (!context.json) {
    PrintText(list);
    return absl::OkStatus();
  }
  json samples = json::array();
  for (const v1::BadSample& sample : list.samples()) samples.push_back(SampleJson(sample));
  const json document = {
      {"bad_samples", samples}, {"not_listed", list.not_listed()}, {"file", list.file()}};
  PrintJson(document);
  return absl::OkStatus();
}

}  // namespace feedwater::cli
