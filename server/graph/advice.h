// What a pipeline says that is valid and probably not meant.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/graph/pipeline_spec.h"
#include "server/sampler/order.h"
#include "server/source/dataset.h"

namespace feedwater::server {

// One text each, with its place (file:line:column) and what is probably meant.
std::vector<std::string> AdviceOn(const PipelineSpec& spec);

// Boxes that stay where they are while their image moves, and fields of their rows that stay when
// boxes are dropped. `fields`: the dataset's.
std::vector<std::string> AdviceOnMoves(const PipelineSpec& spec,
                                       absl::Span<const FieldSpec> fields);

// What of an epoch's batches on so many ranks is probably not meant; "" is nothing.
std::string AdviceOn(const OrderConfig& order);

}  // namespace feedwater::server
