// What the commands say of a mix: the sources' shares, and how long an epoch is.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "feedwater/v1/control.pb.h"

namespace feedwater::cli {

// A line for each source; none for one dataset.
std::vector<std::string> MixLines(const v1::DescribePipelineResponse& pipeline);
// A list of the sources; null for one dataset.
nlohmann::json MixJson(const v1::DescribePipelineResponse& pipeline);

}  // namespace feedwater::cli
