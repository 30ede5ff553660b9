// A JSON text from outside as a document, for files that describe a dataset. Rows of data are read
// by json_line.h, which makes no document.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace feedwater::server {

// What can be said of a text before it is parsed. Any text is safe.
struct JsonShape {
  int64_t values = 0;  // not more than so many, keys included
  int depth = 0;
  // Of the document, at the most: of a list a value takes 16 bytes, twice that while it grows; of
  // an object a node of 80 and what the heap adds; a container or a long text has memory of its
  // own.
  int64_t memory_bytes(absl::string_view text) const {
    return static_cast<int64_t>(text.size()) + 112 * values;
  }
};

inline JsonShape ShapeOfJson(absl::string_view text) {
  JsonShape shape;
  shape.values = 1;
  int depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_text = false;
      }
    } else if (c == '"') {
      in_text = true;
    } else if (c == '[' || c == '{') {
      ++shape.values;
      shape.depth = std::max(shape.depth, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' || c == ':') {
      ++shape.values;
    }
  }
  return shape;
}

// A discarded value where the text is no JSON, or nested deeper than `max_depth`.
inline nlohmann::json ParseJsonDocument(absl::string_view text, int max_depth = 16) {
  if (ShapeOfJson(text).depth > max_depth)
    return nlohmann::json(nlohmann::json::value_t::discarded);
  // Without a callback: with one, the parser looks through a whole list for each object in it.
  return nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

}  // namespace feedwater::server
