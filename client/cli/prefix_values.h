// The values that `feedwater materialize` writes: what the graph's ops before the first random one
// make of a record.
#pragma once

#include <memory>
#include <vector>

#include "client/cli/local_pipeline.h"
#include "client/cli/sample_batch.h"
#include "client/cli/value_maker.h"
#include "server/graph/plan.h"

namespace feedwater::cli {

class PrefixValues final : public ValueMaker {
 public:
  // `local` outlives it. Where the daemon would isolate the images, so does this.
  static absl::StatusOr<std::unique_ptr<ValueMaker>> Create(const LocalPipeline& local);

  absl::StatusOr<const server::Record*> Make(int64_t record, const server::Record& parsed) override;

 private:
  explicit PrefixValues(const LocalPipeline& local) : local_(local) {}
  absl::Status MakeIsolated(const server::SampleInput& input);
  void Copy(const server::Record& kept);

  const LocalPipeline& local_;
  server::SampleWorkspace workspace_;
  std::unique_ptr<SampleBatch> isolated_;  // null: this thread makes the values
  server::Record values_;
  std::vector<std::vector<std::byte>> bytes_;  // by field: what an isolated decoder has shown
};

}  // namespace feedwater::cli
