// What `feedwater materialize` makes: the fields of the graph's prefix, and the rest of the
// pipeline that goes on from them.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "client/cli/conversion.h"
#include "server/graph/continuation.h"

namespace feedwater::cli {

inline constexpr const char* kPipelineFile = "pipeline.yaml";  // the rest of it

// `continuation`: receives the rest of the pipeline. InvalidArgument where nothing can be done
// once for all epochs. REQUIRES: Conversion::Open; the conversion outlives what is made.
absl::StatusOr<ConversionWork> MaterializeWork(const Conversion& conversion, int64_t shard_bytes,
                                               server::Continuation* continuation);

}  // namespace feedwater::cli
