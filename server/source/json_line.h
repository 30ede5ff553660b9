// The values of one line of JSON, by dotted path: {"a": {"b": 1}, "c": [1, 2]} has "a.b" and "c".
// A list of numbers, or of lists of numbers of one length, is one value.
//
// nlohmann-json's SAX reader does the parsing: it keeps nothing, does not recurse, takes as much
// memory as the longest string, and refuses what is not UTF-8: 110 to 160 MB/s. simdjson is ten and
// more times as fast, but wants padded copies and memory for ten times the longest line in every
// thread, and Debian has it as a shared library only.
//
// Python's json.dumps writes two things that JSON does not have, and both are read as Python reads
// them: NaN, Infinity and -Infinity are real numbers, and half of a surrogate pair ("\ud83d"),
// which no UTF-8 can hold, becomes U+FFFD.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/base/status.h"
#include "server/base/tensor.h"

namespace feedwater::server {

enum class JsonKind : uint8_t { kNull, kText, kBool, kInteger, kReal, kOther };

struct JsonValue {
  JsonKind kind = JsonKind::kNull;  // of a list: of its numbers; kNull: it has none
  bool is_list = false;
  Shape shape;            // of a list
  absl::string_view why;  // kOther: what it holds that cannot be a column
  // The elements, or the one number or text. Reals stand in `reals`, all others in `integers`.
  absl::string_view text;
  const std::vector<int64_t>* integers = nullptr;
  const std::vector<double>* reals = nullptr;  // all elements, where kind is kReal
};

class JsonSink {
 public:
  virtual ~JsonSink() = default;
  // The views live until the call ends. An error ends the line.
  virtual absl::Status Value(absl::string_view path, const JsonValue& value) = 0;
};

inline constexpr size_t kMaxJsonDepth = 64, kMaxJsonPath = 1024, kMaxJsonListAxes = 4;

// DataLoss when the line is no JSON object, with the byte; what the sink says.
absl::Status ReadJsonLine(absl::string_view line, JsonSink* sink);

}  // namespace feedwater::server
