// What a pipeline says that is valid and probably not meant.
#pragma once

#include <string>
#include <vector>

#include "server/graph/pipeline_spec.h"

namespace feedwater::server {

// One text each, with its place (file:line:column) and what is probably meant.
std::vector<std::string> AdviceOn(const PipelineSpec& spec);

}  // namespace feedwater::server
