// Words as they are written into a YAML file that others read. What a digest is made of is
// ParamType<std::string>::Text (schema.h), which stays as it is.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace feedwater::server {

// Plain where every reader, also one of YAML 1.1, takes it for this text, else in double quotes
// with the escapes of YAML. Bytes that are not UTF-8 stay.
std::string YamlWord(absl::string_view word);

}  // namespace feedwater::server
