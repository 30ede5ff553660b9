// Text for people in a terminal.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "server/base/yaml.h"

namespace feedwater::cli {

// How wide text for stdout may be: the terminal's width, at most 100; 100 when stdout is none.
size_t TextColumns();

// Words in lines of at most TextColumns(), every line after `indent` spaces, with a line's end
// after each. Line breaks of the text stay.
std::string Wrapped(absl::string_view text, size_t indent);

// A step of a plan, "decode+resize -> image uint8[8,8,3] HWC", behind `first`. Where it is too long
// for a line, lines end between ops, too, and those below begin two further in.
std::string StepLines(absl::string_view first, absl::string_view step);

// A parameter's value in one line: "[224, 224]", "0.5".
std::string InOneLine(const server::YamlNode& node);

// Padded with spaces to `width`, in front of what comes next.
std::string Padded(absl::string_view text, size_t width);

}  // namespace feedwater::cli
