// What the commands say of a mix: the sources' shares, and how long an epoch is.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "feedwater/v1/control.pb.h"
#include "server/source/dataset.h"

namespace feedwater::cli {

// A line for each source; none for one dataset.
std::vector<std::string> MixLines(const v1::DescribePipelineResponse& pipeline);
// A list of the sources; null for one dataset.
nlohmann::json MixJson(const v1::DescribePipelineResponse& pipeline);
// How `feedwater convert`, which writes one dataset, is called for all of this one. `options` begin
// with a space.
std::string ConvertText(const server::Dataset& dataset, const std::string& options = "");

}  // namespace feedwater::cli
