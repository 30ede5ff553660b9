// JSON Schemas of the pipeline file and of feedwater.yaml, for editors: draft-07, which YAML
// language servers know best. Written from the registries and from the schemas that read the files
// themselves, so that both refuse the same keys, types, words and ranges. What depends on more than
// one value (low <= high, shapes that must fit) only the programs can tell.
#pragma once

#include <nlohmann/json.hpp>

namespace feedwater::cli {

nlohmann::ordered_json PipelineSchema();
nlohmann::ordered_json DaemonSchema();

}  // namespace feedwater::cli
