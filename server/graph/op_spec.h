// One entry of `graph:` or `batch: graph:` as the pipeline file has it, read and checked against
// the op's schema.
#pragma once

#include <vector>

#include "server/graph/op_schema.h"
#include "server/graph/pipeline_spec.h"

namespace feedwater::server {

// Who reads the files that ops name, and the root of those that name none; null: nobody does.
struct OpFileSource {
  OpFileReader* reader = nullptr;
  std::string root;
};

// The ops of `graph:`, of `batch: graph:`, or of `key`. At most kMaxOps.
absl::StatusOr<std::vector<OpSpec>> ReadOps(const YamlNode& list, bool is_batch,
                                            const OpFileSource& source = {},
                                            absl::string_view key = "");

// Whether an op of `graph:` says itself that it works on whole batches.
bool RunsOnBatches(const OpSpec& op);

// How many ops there are, those of combinators counted.
int64_t CountOps(const std::vector<OpSpec>& ops);

// A field name: letters, digits, '_', not starting with a digit, at most 64 bytes.
absl::Status CheckFieldName(const YamlNode& node);
// The names of a list, each of which stands there once. `key`: what the list is called in messages.
absl::Status ReadFieldNames(const YamlNode& list, absl::string_view key,
                            std::vector<std::string>* names);
// With what may stand in a file: a range.
inline constexpr char kFieldNameJson[] =
    R"({"type":"string","pattern":"^[A-Za-z_][A-Za-z0-9_]{0,63}(\\{[0-9]{1,4}\\.\\.[0-9]{1,4}\\}[A-Za-z0-9_]{0,63})?$"})";
bool IsOwnField(absl::string_view name);  // sample_id, position, is_real

// The place of the name that stands i-th in the entry's `key` ("in" or "out"), or of the entry
// where it gives none.
const YamlNode& PlaceOf(const OpSpec& spec, absl::string_view key, size_t i);

inline constexpr size_t kMaxOps = 256;

// Of an entry whose op draws: by which number its draws are keyed.
inline constexpr char kDrawsAs[] = "draws_as";
inline constexpr char kDrawsAsDoc[] =
    "The number that the op's draws are keyed by; default: its place in `graph`, from 0. Ops that "
    "come or go before it then change nothing of what it draws.";

}  // namespace feedwater::server
