// A planned graph as a drawing: the text of Graphviz' dot language, and running `dot` on it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/cli/local_pipeline.h"
#include "client/cli/plan_cost.h"
#include "server/graph/plan_graph.h"

namespace feedwater::cli {

// dataset -> fields -> ops -> outputs, with the type on every edge. Ops that run in one pass stand
// in one frame; colours say what is random and what a cache may keep; a legend explains them. With
// a cost each pass is a frame that has its own, the redder the more it is; null: there is none.
std::string ToDot(const PlannedPipeline& pipeline, const server::PlanGraph& graph,
                  const PlanCost* cost = nullptr);

// What the `dot` program makes of it: `format` is svg, png or pdf. FailedPrecondition with the cure
// when there is no such program.
absl::StatusOr<std::string> RunDot(const std::string& text, const std::string& format);

}  // namespace feedwater::cli
