// Where a graph can be cut so that what lies before the cut need be done once for each record and
// not in every epoch: the longest prefix without randomness.
//
// An op belongs to it when neither it nor anything before it draws. Then ops at its end are taken
// off again that only store the same numbers in more bytes (normalize to float32, one_hot): doing
// them again costs less than keeping four times as much. Decoders and ops that move pixels always
// stay in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/graph/dataflow.h"

namespace feedwater::server {

struct Prefix {
  std::vector<bool> nodes;  // by node: whether it belongs to the prefix
  // What the nodes behind the cut, or the batch, need of what is before it: fields of the dataset
  // first. Small fields of fixed size, such as labels, are kept whether needed or not, so that more
  // pipelines have the same prefix.
  std::vector<int> kept;
  std::string digest;  // PlanPrefix::digest
};

// REQUIRES: `flow` is what Settle made of `spec`; the dataset has `dataset_fields` fields.
absl::StatusOr<Prefix> FindPrefix(const Dataflow& flow, size_t dataset_fields,
                                  const PipelineSpec& spec, int64_t classes);

}  // namespace feedwater::server
