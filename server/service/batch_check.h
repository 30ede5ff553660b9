// Whether a pipeline's own batch has room in a slot: what `feedwaterd --check` and `feedwater
// validate --config` tell before anybody opens a stream.
#pragma once

#include "absl/status/status.h"
#include "server/graph/pipeline_spec.h"
#include "server/service/config.h"

namespace feedwater::server {

// InvalidArgument with the product when a batch of `batch.size` samples is larger than
// limits.max_slot or `memory` allow, or than an op on batches takes. Ok where the pipeline leaves
// its batch size to the client.
absl::Status CheckBatchFits(const PipelineSpec& spec, const Settings& settings);

}  // namespace feedwater::server
