// Ranges in fields' names: `view_{0..9}` stands for view_0 to view_9. An op whose `in` or `out` has
// such names stands for as many ops, each with draws of its own; an output, for as many outputs.
#pragma once

#include <vector>

#include "server/base/status.h"
#include "server/base/yaml.h"

namespace feedwater::server {

inline constexpr int64_t kMaxRange = 256;

// An entry of `graph:` or `batch: graph:` as the ops that it stands for; one where nothing in it
// has a range. InvalidArgument with place where ranges of one entry differ in length.
absl::StatusOr<std::vector<YamlNode>> ExpandEntry(const YamlNode& entry);

// `outputs` with a name in each entry.
absl::StatusOr<YamlNode> ExpandOutputs(const YamlNode& outputs);

}  // namespace feedwater::server
