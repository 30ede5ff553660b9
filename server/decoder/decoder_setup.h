// What a decoder process must know before its first sample: everything that Plan::Create needs, as
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/graph/plan.h"

namespace feedwater::server {

struct DecoderSetup {
  std::string text, file_name;    // of the pipeline
  std::vector<FieldSpec> fields;  // the dataset's
  int64_t classes = 0;
  PipelineCaps caps = {};
  std::vector<OpFile> files = {};  // of the pipeline's ops, with what they held
  bool fuse = true;                // PlanOptions
};

// For samples of the pipeline's own plan, made as PlanOptions with this `fuse` say.
DecoderSetup SetupOf(const PipelineSpec& spec, const Dataset& dataset, bool fuse = true);

std::string EncodeSetup(const DecoderSetup& setup);
// DataLoss when the bytes are not what EncodeSetup writes.
absl::StatusOr<DecoderSetup> DecodeSetup(absl::Span<const std::byte> bytes);

// The plan of a decoder, the same as the daemon's but that nothing is written past the caches: the
// worker copies samples on at once.
absl::StatusOr<std::shared_ptr<const Plan>> PlanOf(const DecoderSetup& setup);

// What two plans must have in common to be the same: told by the decoder, compared by the worker.
std::string PlanIdentity(const Plan& plan);

}  // namespace feedwater::server
