// The digest of a pipeline covers everything that can change a byte of a batch except batch size
// and seed, which the cursor keeps beside it: a cursor saved under one digest continues only under
// the same. Comments, formatting, the order of keys, and writing a default out do not change it.
#pragma once

#include <string>

#include "server/graph/op_schema.h"
#include "server/graph/pipeline_spec.h"

namespace feedwater::server {

// The text that is hashed; for tests and for finding out why two digests differ. REQUIRES: ops
// known and checked.
absl::StatusOr<std::string> CanonicalPipeline(const PipelineSpec& spec);
// The part of that text that stands behind the ops on samples: ops on batches in their order, which
// numbers their draws, outputs, and what makes a sample bad.
absl::StatusOr<std::string> CanonicalBehindSamples(const PipelineSpec& spec);
// Stands behind an op's parameters where several fields move together: masks among them, which once
// were resampled like images, are nearest.
std::string JointText(const OpEntry& op, size_t inputs);
// What decides the order, but the seed; part of that text.
std::string SamplerText(const SamplerSpec& sampler);
std::string Digest128(absl::string_view text);  // XXH3-128, 32 hex digits

}  // namespace feedwater::server
