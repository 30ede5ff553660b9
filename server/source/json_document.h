// A JSON text from outside as a document, for files that describe a dataset. Rows of data are read
// by json_line.h, which makes no document.
#pragma once

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace feedwater::server {

// Memory that a document takes for each byte of its text, at the most.
inline constexpr int64_t kJsonDocumentGrowth = 20;

// A discarded value where the text is no JSON, or nested too deep.
inline nlohmann::json ParseJsonDocument(absl::string_view text, int max_depth = 16) {
  bool is_deep = false;
  nlohmann::json parsed = nlohmann::json::parse(
      text.begin(), text.end(),
      [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
        is_deep = is_deep || depth > max_depth;
        return !is_deep;
      },
      /*allow_exceptions=*/false);
  return is_deep ? nlohmann::json(nlohmann::json::value_t::discarded) : parsed;
}

}  // namespace feedwater::server
