// A batch through a batch op: sample k is an image whose every value is k + 1, with label k.
#pragma once

#include <string>
#include <vector>

#include "tests/graph/graph_testing.h"

namespace feedwater::server::graph_testing {

// Images and labels of all samples behind `batch_op`.
inline std::vector<std::vector<Bytes>> MixedBatch(const std::string& graph,
                                                  const std::string& batch_op, int64_t samples,
                                                  Size size, uint64_t global_batch) {
  std::vector<TestRecord> records(static_cast<size_t>(samples));
  for (int64_t k = 0; k < samples; ++k) {
    records[static_cast<size_t>(k)]
        .AddPixels(
            size.height, size.width, 3,
            Bytes(static_cast<size_t>(size.height * size.width * 3), static_cast<uint8_t>(k + 1)))
        .AddLabel(k);
  }
  const auto plan = MakePlan(
      PipelineText(graph, "[image, label]", absl::StrCat("batch: {graph: [", batch_op, "]}\n")),
      records[0].fields(), true, samples);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  SampleWorkspace workspace;
  TestBatch batch(**plan, samples);
  for (int64_t k = 0; k < samples; ++k) {
    SampleInput input;
    input.record = records[static_cast<size_t>(k)].record();
    EXPECT_TRUE((*plan)->Run(input, k, batch.memory, workspace).ok());
  }
  const absl::Status finished =
      (*plan)->FinishBatch(samples, global_batch, EpochKey(2, 0), batch.memory, workspace);
  EXPECT_TRUE(finished.ok()) << finished;
  EXPECT_TRUE(batch.GuardsHold());
  std::vector<std::vector<Bytes>> all;
  for (int64_t k = 0; k < samples; ++k) all.push_back(batch.Sample(k));
  return all;
}

}  // namespace feedwater::server::graph_testing
