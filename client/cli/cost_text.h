// Measured costs (plan_cost.h) as text and as JSON: where the microseconds go, and what to change.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/plan_cost.h"

namespace feedwater::cli {

// "1,234", "45.6", "0.7": microseconds as a table shows them.
std::string FormatUs(double us);
std::string FormatShare(double share);  // "62 %"; "under 1 %"

// The name of a row: "decode+random_resized_crop", "read and parse".
std::string StepName(const StepCost& step);

// --cost and --samples, for a command that measures.
void AddCostOptions(CLI::App* command, bool* cost, int64_t* samples, const std::string& help);

nlohmann::json CostJson(const PlanCost& cost);
// The same for people, in lines.
void PrintCost(const PlanCost& cost);
// Measures a pipeline and says what its samples cost, and what would make them cheaper.
absl::Status DescribeCost(const Context& context, const std::string& pipeline,
                          const ConfigChoice& config, int64_t samples);
// What to change, that which helps most first: one sentence each, all of it measured.
std::vector<std::string> AdviceOnCost(const PlanCost& cost);

}  // namespace feedwater::cli
