// The entries of `outputs:` as the pipeline file has them, read and checked: names, and how fields
// of varying rows are given. Pure functions.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "server/base/schema.h"
#include "server/graph/pipeline_spec.h"

namespace feedwater::server {

// In order; each name once, at least one.
absl::StatusOr<std::vector<OutputSpec>> ReadOutputs(const YamlNode& node);

// What an entry may say of a field, for help and schemas.
std::vector<ParamInfo> OutputParameters();

}  // namespace feedwater::server
