#include "client/cli/status_document.h"

#include <google/protobuf/message.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "server/base/escape.h"
#include "server/base/units.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

json FieldsJson(const Message& message);

// A field's value, or one of a repeated field's: at `index`, or -1.
json ValueJson(const Message& message, const FieldDescriptor& field, int index) {
  const google::protobuf::Reflection& in = *message.GetReflection();
  const auto get = [&](auto one, auto of_many) -> json {
    return index < 0 ? (in.*one)(message, &field) : (in.*of_many)(message, &field, index);
  };
  using R = google::protobuf::Reflection;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return get(&R::GetInt32, &R::GetRepeatedInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return get(&R::GetInt64, &R::GetRepeatedInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return get(&R::GetUInt32, &R::GetRepeatedUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return get(&R::GetUInt64, &R::GetRepeatedUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return get(&R::GetDouble, &R::GetRepeatedDouble);
    case FieldDescriptor::CPPTYPE_BOOL:
      return get(&R::GetBool, &R::GetRepeatedBool);
    case FieldDescriptor::CPPTYPE_STRING:
      return get(&R::GetString, &R::GetRepeatedString);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return FieldsJson(index < 0 ? in.GetMessage(message, &field)
                                  : in.GetRepeatedMessage(message, &field, index));
    default:
      return nullptr;  // control.proto has none in what is shown
  }
}

// Every field of a message under its name in control.proto.
json FieldsJson(const Message& message) {
  const google::protobuf::Reflection& in = *message.GetReflection();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  json document = json::object();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    json& value = document[std::string(field.name())];
    if (!field.is_repeated()) {
      value = ValueJson(message, field, -1);
      continue;
    }
    value = field.is_map() ? json::object() : json::array();
    for (int n = 0; n < in.FieldSize(message, &field); ++n) {
      json one = ValueJson(message, field, n);
      if (field.is_map()) {
        value[one["key"].get<std::string>()] = one["value"];
      } else {
        value.push_back(std::move(one));
      }
    }
  }
  return document;
}

// Takes a member out of an object.
json Take(json* document, const char* name) {
  json value = std::move((*document)[name]);
  document->erase(name);
  return value;
}

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

json CacheJson(const v1::JobCache& cache) { return FieldsJson(cache); }

absl::StatusOr<v1::GetStatusResponse> GetStatus(v1::Control::Stub& control,
                                                std::chrono::seconds patience) {
  grpc::ClientContext call;
  call.set_deadline(std::chrono::system_clock::now() + patience);
  v1::GetStatusResponse status;
  const grpc::Status got = control.GetStatus(&call, {}, &status);
  if (!got.ok()) return FromGrpc(got);
  return status;
}

json StatusJson(const v1::GetStatusResponse& status) {
  json document = FieldsJson(status);
  for (json& job : document["jobs"]) job["graph_s"] = Take(&job, "run_s");
  document["engine"] = {{"name", Take(&document, "engine_name")},
                        {"reason", Take(&document, "engine_reason")}};
  document["isolation"] = {{"mode", Take(&document, "isolation")},
                           {"decoders", Take(&document, "decoders")}};
  document["memory"] = {{"limit_bytes", Take(&document, "memory_limit_bytes")},
                        {"planned_bytes", Take(&document, "memory_planned_bytes")},
                        {"resident_bytes", Take(&document, "memory_resident_bytes")},
                        {"sum", Take(&document, "memory_sum")}};
  return document;
}

std::string NotListedText(const v1::GetStatusResponse& status) {
  if (status.jobs_not_listed() == 0) return "";
  return absl::StrCat(server::FormatCount(static_cast<int64_t>(status.jobs_not_listed()), "job"),
                      " not listed: one answer has no room for more\n");
}

StageTimes StagesBetween(const v1::Job& before, const v1::Job& after) {
  const auto grown = [](double from, double to) { return std::max(0.0, to - from); };
  StageTimes times;
  times.read_wait = grown(before.read_wait_s(), after.read_wait_s());
  times.read = grown(before.read_s(), after.read_s());
  times.parse = grown(before.parse_s(), after.parse_s());
  times.graph = grown(before.run_s(), after.run_s());
  times.batch = grown(before.batch_s(), after.batch_s());
  return times;
}

json StageShares(const StageTimes& times) {
  const double total = times.total();
  return {{"read_wait", Share(times.read_wait, total)},
          {"read", Share(times.read, total)},
          {"parse", Share(times.parse, total)},
          {"graph", Share(times.graph, total)},
          {"batch", Share(times.batch, total)}};
}

std::string BusyProvider(const v1::GetStatusResponse& before, const v1::GetStatusResponse& after,
                         const v1::Job& job, double wall_s) {
  constexpr double kBusy = 0.7;
  const v1::Provider* busiest = nullptr;
  double most = kBusy;
  for (const v1::Provider& provider : after.providers()) {
    if (provider.owner_uid() != job.owner_uid() ||
        std::find(job.own_code().begin(), job.own_code().end(), provider.name()) ==
            job.own_code().end())
      continue;
    double then_s = 0;
    for (const v1::Provider& other : before.providers()) {
      if (other.name() == provider.name() && other.owner_uid() == provider.owner_uid() &&
          other.busy_s() <= provider.busy_s())
        then_s = other.busy_s();
    }
    const double busy = Share(provider.busy_s() - then_s, wall_s * provider.processes());
    if (busy <= most) continue;
    most = busy;
    busiest = &provider;
  }
  if (busiest == nullptr) return "";
  const bool is_op = busiest->kind() == "op";
  // Another number of its workers is another order.
  const char* const more = busiest->workers() == 0
                               ? "more of them (workers=), or a faster %s, will help."
                               : "a faster %s will help; so will more of them (workers=) in a "
                                 "new run, but then states that were saved before do not fit.";
  return absl::StrFormat(
      "It waits for your own code: %s of %s '%s' %s busy %.0f %% of the time; %s",
      server::FormatCount(busiest->processes(), "process"), busiest->kind(),
      server::Escaped(busiest->name()), busiest->processes() == 1 ? "is" : "are",
      100 * std::min(most, 1.0),
      absl::StrReplaceAll(more, {{"%s", is_op ? "function" : "dataset"}}));
}

std::string ProvidersText(const v1::GetStatusResponse& status) {
  std::string text;
  for (const v1::Provider& provider : status.providers()) {
    const uint64_t answered = provider.made() + provider.failed();
    absl::StrAppend(&text, text.empty() ? "own code " : "         ", provider.kind(), " '",
                    server::Escaped(provider.name()),
                    "': ", server::FormatCount(provider.processes(), "process"), ", ", answered,
                    " answered");
    if (answered > 0) {
      absl::StrAppend(&text, " in ",
                      server::FormatSeconds(provider.busy_s() / static_cast<double>(answered)),
                      " each");
    }
    if (provider.failed() > 0) absl::StrAppend(&text, ", ", provider.failed(), " failed");
    if (provider.died() > 0)
      absl::StrAppend(&text, ", ",
                      server::FormatCount(static_cast<int64_t>(provider.died()), "process"),
                      " died");
    if (provider.waiting() > 0) absl::StrAppend(&text, ", ", provider.waiting(), " waiting");
    if (provider.processes() == 0)
      absl::StrAppend(&text, "; no process serves it: start its program again");
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string Bottleneck(const StageTimes& times, double cpu_s, double wall_s, int workers,
                       double trainer_waits, const v1::JobCache& cache,
                       const std::string& own_code) {
  if (wall_s <= 0 || workers <= 0) return "Nothing was measured.";
  const double capacity = wall_s * workers;
  const double busy = Share(cpu_s, capacity), waiting = Share(times.read_wait, capacity);
  if (trainer_waits < 0.1) {
    return absl::StrFormat(
        "It waits for the trainer, which has a batch ready %.0f %% of the time: nothing to change "
        "here.",
        100 * (1 - trainer_waits));
  }
  if (!own_code.empty() && busy <= 0.7) return own_code;
  if (waiting > 0.3 && waiting > busy) {
    return absl::StrFormat(
        "It waits for the storage %.0f %% of the workers' time: faster storage, larger shards "
        "instead of single "
        "files, or a cache on a local disk (cache.disk) will help.",
        100 * waiting);
  }
  if (busy > 0.7) {
    const bool decodes = times.graph > 0.5 * times.total();
    const bool can_keep = cache.kind() == "none" && decodes;
    return absl::StrFormat(
        "It waits for the CPU: %d workers are busy %.0f %% of the time, %.0f %% of it in the "
        "graph; %s.",
        workers, 100 * busy, 100 * Share(times.graph, times.total()),
        can_keep ? "more CPUs (cpus) or memory for a cache (cache.ram) will help"
                 : "more CPUs (cpus) will help");
  }
  return absl::StrFormat(
      "It waits for the hand-over: workers are busy %.0f %% of the time and wait for storage %.0f "
      "%%; whoever takes the "
      "batches shares these CPUs or takes them one by one: larger batches or more slots will help.",
      100 * busy, 100 * waiting);
}

}  // namespace feedwater::cli
