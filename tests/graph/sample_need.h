// What tests of the memory of samples share.
#pragma once

#include <utility>

#include "server/graph/workspace.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server::graph_testing {

inline TensorSpec OpenSpec(DType dtype, Shape shape) {
  return {dtype, Layout::kPlain, std::move(shape)};
}

inline int64_t NeedOf(const Plan& plan, TestRecord& record) {
  SampleInput input;
  input.record = record.record();
  SampleWorkspace workspace;
  return plan.NeedOf(input, SampleWay::kWhole, workspace).bytes;
}

}  // namespace feedwater::server::graph_testing
