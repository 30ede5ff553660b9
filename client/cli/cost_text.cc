#include "client/cli/cost_text.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/json_text.h"
#include "client/cli/text.h"
#include "server/base/escape.h"
#include "server/base/units.h"
#include "server/graph/op_schema.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;
using Kind = CostChange::Kind;

constexpr double kWideSpread = 0.1;
constexpr size_t kMostAdvice = 5;
constexpr const char* kMethod =
    "CPU time of one thread. Steps were clocked one by one; what an op in a step costs is what the "
    "sample saves when it is left out, everything else as it is: measured by turns on the same "
    "records with the same draws, medians of the rounds. These figures need not add up: an op may "
    "also decide how fast others run.";

const char* KindName(StepCost::Kind kind) {
  switch (kind) {
    case StepCost::Kind::kRead:
      return "read";
    case StepCost::Kind::kPass:
      return "pass";
    case StepCost::Kind::kCopy:
      return "copy";
    case StepCost::Kind::kBatch:
      return "batch";
  }
  return "";
}

const char* KindName(Kind kind) {
  switch (kind) {
    case Kind::kWithoutOp:
      return "without_op";
    case Kind::kWithoutParameter:
      return "without_parameter";
    case Kind::kFastScale:
      return "fast_scale";
    case Kind::kDecodedCache:
      return "decoded_cache";
    case Kind::kCoefficientCache:
      return "coefficient_cache";
  }
  return "";
}

// Whether it tells what an op of the step costs.
bool IsOf(const CostChange& change, const StepCost& step) {
  if (change.kind != Kind::kWithoutOp) return false;
  if (change.is_batch) {
    return step.kind == StepCost::Kind::kBatch && absl::c_linear_search(step.ops, change.op);
  }
  return step.kind == StepCost::Kind::kPass && absl::c_linear_search(step.places, change.place);
}

bool IsOfCache(const CostChange& change) {
  return change.kind == Kind::kDecodedCache || change.kind == Kind::kCoefficientCache;
}

std::string TimesText(const CostChange& change) {
  const double times = change.TimesAsFast();
  return absl::StrFormat("%.*f times as fast", times < 1.95 ? 2 : 1, times);
}

// The op that costs most by what is known: by itself, else as what is left of its step when all
// that could be left out is taken away. Ops of one name count together.
struct Hottest {
  std::string name;
  double us = 0;
  int count = 0;         // of such ops, or such steps
  bool is_step = false;  // several ops that cannot be told apart
};

Hottest FindHottest(const PlanCost& cost) {
  std::map<std::string, Hottest> found;
  const auto add = [&](const std::vector<std::string>& ops, double us) {
    const std::string name = absl::StrJoin(ops, "+");
    Hottest& hottest = found[name];
    hottest = {name, hottest.us + std::max(0.0, us), hottest.count + 1, ops.size() > 1};
  };
  for (const StepCost& step : cost.steps) {
    if (step.kind != StepCost::Kind::kPass && step.kind != StepCost::Kind::kBatch) continue;
    double rest = step.us;
    std::vector<std::string> kept = step.ops;
    for (const CostChange& change : cost.changes) {
      const auto name = std::find(kept.begin(), kept.end(), change.op);
      if (!IsOf(change, step) || name == kept.end()) continue;
      kept.erase(name);
      rest -= std::max(0.0, change.saved_us);
      if (change.is_clear) add({change.op}, change.saved_us);
    }
    if (!kept.empty()) add(kept, rest);
  }
  Hottest hottest;
  for (const auto& [name, one] : found) {
    if (one.us > hottest.us) hottest = one;
  }
  return hottest;
}

// "decode + resize": several ops, where a line may end between them.
std::string Spaced(absl::string_view ops) {
  return server::Escaped(absl::StrReplaceAll(ops, {{"+", " + "}}));
}

std::string ChangeText(const CostChange& change) {
  const std::string op = server::Escaped(change.op), parameter = server::Escaped(change.parameter);
  const std::string measured = TimesText(change);
  const std::string with =
      absl::StrCat("measured with ", server::FormatCount(change.records, "record"));
  const char* const cache = change.is_in_force ? "in force already: " : "";
  switch (change.kind) {
    case Kind::kWithoutOp:
      return absl::StrCat("without ", op, ": ", measured);
    case Kind::kWithoutParameter:
      return absl::StrCat(op, " without `", parameter, "` (its default instead",
                          change.count > 1 ? absl::StrCat(", in ", change.count, " places") : "",
                          "): ", measured);
    case Kind::kFastScale:
      return absl::StrCat("decode with `fast_scale: true`: ", measured,
                          "; pixels then differ a little from a full decode's");
    case Kind::kDecodedCache:
      return absl::StrCat(cache, "`cache: {kind: decoded}`, which does ", Spaced(change.parameter),
                          " once a record: ", measured, " from the second epoch on, for ",
                          server::FormatBytes(change.kept_bytes),
                          " a record (reading the cache is not counted; ", with, ")");
    case Kind::kCoefficientCache:
      return absl::StrCat(cache, "`cache: {kind: coefficients}`: ", measured,
                          " from the second epoch on, for ", server::FormatBytes(change.kept_bytes),
                          " a record (reading the cache is not counted; ", with, ")");
  }
  return "";
}

}  // namespace

std::string FormatUs(double us) {
  if (us < 9.95) return absl::StrFormat("%.1f", us);
  std::string digits = absl::StrCat(std::llround(us));
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string FormatShare(double share) {
  if (share > 0 && share < 0.005) return "under 1 %";
  return absl::StrFormat("%.0f %%", 100 * share);
}

std::string StepName(const StepCost& step) {
  switch (step.kind) {
    case StepCost::Kind::kRead:
      return "read and parse";
    case StepCost::Kind::kPass:
      return absl::StrJoin(step.ops, "+");
    case StepCost::Kind::kCopy:
      return "copy fields that no op writes";
    case StepCost::Kind::kBatch:
      return step.ops.empty() ? "put the rows of a batch together"
                              : absl::StrCat("batch ", absl::StrJoin(step.ops, ", "));
  }
  return "";
}

void AddCostOptions(CLI::App* command, bool* cost, int64_t* samples, const std::string& help) {
  CLI::Option* flag = command->add_flag("--cost", *cost, help);
  command->add_option("--samples", *samples, "with --cost: records to measure with, at most")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->needs(flag);
}

json CostJson(const PlanCost& cost) {
  json steps = json::array(), changes = json::array();
  for (const StepCost& step : cost.steps) {
    json entry = {{"kind", KindName(step.kind)},
                  {"name", StepName(step)},
                  {"ops", step.ops},
                  {"us", step.us},
                  {"share", step.share}};
    if (step.kind == StepCost::Kind::kPass) {
      entry["pass"] = step.pass;
      entry["places"] = step.places;
      entry["writes"] = step.fields;
      entry["bytes"] = step.bytes >= 0 ? json(step.bytes) : json();
    }
    steps.push_back(std::move(entry));
  }
  for (const CostChange& change : cost.changes) {
    json entry = {{"kind", KindName(change.kind)},
                  {"text", ChangeText(change)},
                  {"us", change.us},
                  {"saved_us", change.saved_us},
                  {"times_as_fast", change.TimesAsFast()},
                  {"records", change.records},
                  {"clear", change.is_clear}};
    if (!change.op.empty()) {
      entry["op"] = change.op;
      entry["place"] = change.place;
      entry["batch_op"] = change.is_batch;
      entry["count"] = change.count;
    }
    if (!change.parameter.empty()) entry["parameter"] = change.parameter;
    if (change.kept_bytes > 0) entry["kept_bytes"] = change.kept_bytes;
    if (IsOfCache(change)) entry["in_force"] = change.is_in_force;
    changes.push_back(std::move(entry));
  }
  return {{"us", cost.us},
          {"spread", cost.spread},
          {"records", cost.records},
          {"bad_records", cost.bad},
          {"rounds", cost.rounds},
          {"method", kMethod},
          {"steps", steps},
          {"changes", changes},
          {"not_left_out", cost.settled},
          {"advice", AdviceOnCost(cost)}};
}

std::vector<std::string> AdviceOnCost(const PlanCost& cost) {
  std::vector<std::string> advice;
  const Hottest hottest = FindHottest(cost);
  if (hottest.name.empty() || cost.us <= 0) return advice;
  std::string first =
      absl::StrCat("change first: ", Spaced(hottest.name), " (", FormatShare(hottest.us / cost.us),
                   " of a sample", hottest.is_step ? " together" : "",
                   hottest.count > 1 ? absl::StrCat(", in ", hottest.count, " places)") : ")");
  const server::OpEntry* entry = server::Registry<server::OpEntry>::Get().Find(hottest.name);
  if (entry != nullptr && !entry->cost.empty())
    absl::StrAppend(&first, ". ", server::Escaped(entry->cost));
  advice.push_back(std::move(first));
  bool is_behind = false;  // the cache that is in force
  for (const CostChange& change : cost.changes) {
    const bool is_cache = IsOfCache(change);
    // Those that save less than the one in force come behind it.
    if (is_cache && change.is_in_force) is_behind = true;
    if (!change.is_clear || advice.size() > kMostAdvice || (is_cache && is_behind)) continue;
    // That it is faster without an op is in the table.
    if (change.kind != Kind::kWithoutOp) advice.push_back(ChangeText(change));
  }
  return advice;
}

void PrintCost(const PlanCost& cost) {
  std::cout << "\n"
            << Bold("cost of one sample") << ": " << FormatUs(cost.us) << " us of one CPU ("
            << server::FormatCount(cost.records, "record") << ", "
            << server::FormatCount(cost.rounds, "round");
  if (cost.bad > 0) std::cout << ", " << cost.bad << " bad left out";
  std::cout << ")\n";
  if (cost.spread > kWideSpread) {
    std::cout << Wrapped(absl::StrCat("rounds differ by ", FormatShare(cost.spread),
                                      ": other work shares this CPU; take small differences for "
                                      "nothing"),
                         2);
  }
  std::cout << "\n  " << absl::StrFormat("%9s %9s", "us", "share") << "  step\n";
  // What is left out saves what stands before it with a minus.
  const auto row = [](const std::string& us, const std::string& share, const std::string& text) {
    std::cout << StepLines(absl::StrFormat("  %9s %9s  ", us, share), text);
  };
  for (const StepCost& step : cost.steps) {
    std::string text = server::Escaped(StepName(step));
    if (!step.fields.empty() && step.kind == StepCost::Kind::kPass) {
      absl::StrAppend(&text, " -> ", server::Escaped(step.fields));
      if (step.bytes >= 0) absl::StrAppend(&text, ", ", server::FormatBytes(step.bytes));
    }
    row(FormatUs(step.us), FormatShare(step.share), text);
    for (const CostChange& change : cost.changes) {
      if (!IsOf(change, step)) continue;
      const std::string without = absl::StrCat("  without ", server::Escaped(change.op), ": ");
      if (change.is_clear) {
        row(absl::StrCat("-", FormatUs(change.saved_us)),
            absl::StrCat("-", FormatShare(change.saved_us / cost.us)),
            absl::StrCat(without, TimesText(change)));
      } else {
        row("", "", absl::StrCat(without, "no clear difference"));
      }
    }
  }
  if (!cost.settled.empty()) {
    std::cout << Wrapped(absl::StrCat("Cannot be left out, since what follows needs them: ",
                                      server::Escaped(absl::StrJoin(cost.settled, ", ")), "."),
                         2);
  }
  for (const CostChange& change : cost.changes) {
    if (change.is_in_force && change.is_clear) std::cout << Wrapped(ChangeText(change) + ".", 2);
  }
  std::cout << Wrapped("Waiting for storage is not counted.", 2);
  if (!cost.changes.empty()) std::cout << Wrapped(kMethod, 2);
  const std::vector<std::string> advice = AdviceOnCost(cost);
  if (advice.empty()) return;
  std::cout << "\n" << Bold("what to change") << ", measured\n";
  for (const std::string& line : advice) std::cout << Wrapped(line, 2);
}

absl::Status DescribeCost(const Context& context, const std::string& pipeline,
                          const ConfigChoice& config, int64_t samples) {
  FW_ASSIGN_OR_RETURN(
      const MeasuredPipeline measured,
      MeasurePipeline(pipeline, config, {.records = samples, .tries_changes = true}));
  if (!context.json) {
    std::cout << Bold(server::Escaped(measured.pipeline.spec.name)) << "\n";
    PrintCost(measured.cost);
    return absl::OkStatus();
  }
  const json document = {{"pipeline", measured.pipeline.spec.name},
                         {"records", measured.pipeline.records},
                         {"plan", measured.pipeline.plan->Describe()},
                         {"cost", CostJson(measured.cost)}};
  PrintJson(document);
  return absl::OkStatus();
}

}  // namespace feedwater::cli
