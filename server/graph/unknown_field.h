// The error for a name that no field of the dataset and no op before has.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/base/yaml.h"

namespace feedwater::server {

// InvalidArgument with the place: "READER unknown field 'imag', did you mean 'image'? ...", and
// `cure` behind it. `known` are the names that there are.
absl::Status UnknownFieldError(const YamlNode& place, absl::string_view reader,
                               absl::string_view name, const std::vector<std::string>& known,
                               absl::string_view cure = "");

// Whether it is that error, so that whoever knows more of the dataset can add to it.
bool IsUnknownField(const absl::Status& status);

}  // namespace feedwater::server
