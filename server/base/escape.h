// Text from outside (file names, reasons, names of jobs), made fit for a terminal or a log: nothing
// of it moves the cursor, begins a line of its own or turns the direction of the text around it.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace feedwater::server {

// Bytes of the UTF-8 character with which `text` begins; 0 when that is none. `text` is not empty.
size_t Utf8Length(absl::string_view text);

// C0 controls and bytes that are not UTF-8 become \xNN; DEL, C1 controls, the line separators
// U+2028 and U+2029 and the controls of text direction become \uNNNN. All else stays, backslashes
// too, so what was escaped once does not change again, and a JSON text in one line stays the same
// JSON.
std::string Escaped(absl::string_view text);

// The same for text of several lines: line breaks stay, and every further line is indented, so that
// it cannot be taken for an entry of its own.
std::string EscapedLines(absl::string_view text);

// Text from file names, for a protobuf message: what is no UTF-8 in it is U+FFFD.
std::string ToUtf8(absl::string_view text);

}  // namespace feedwater::server
