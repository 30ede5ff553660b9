// What a pipeline says that is valid and probably not meant.
#pragma once

#include <string>
#include <vector>

#include "server/graph/pipeline_spec.h"
#include "server/sampler/order.h"

namespace feedwater::server {

// One text each, with its place (file:line:column) and what is probably meant.
std::vector<std::string> AdviceOn(const PipelineSpec& spec);

// What of an epoch's batches on so many ranks is probably not meant; "" is nothing.
std::string AdviceOn(const OrderConfig& order);

}  // namespace feedwater::server
