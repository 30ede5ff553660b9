// The parameter `ops` of a combinator: a list of ops as a pipeline file has them. Each writes the
// fields that it reads, and reads some of the combinator's: those that its `in` names, or all of
// them where it moves fields together, or the first one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "server/graph/op_schema.h"
#include "server/graph/pipeline_spec.h"

namespace feedwater::server {

struct InnerOps {
  std::vector<OpSpec> specs;
};
FW_DECLARE_PARAM_TYPE(InnerOps);

inline constexpr size_t kMaxInnerOps = 32;  // of one combinator
inline constexpr char kRounds[] = "times";  // of repeat: how often its ops are done
inline constexpr int kMaxNesting = 3;       // of combinators, one in another
inline constexpr char kInnerOps[] = "ops";  // the parameter's name

// InvalidArgument where combinators stand in one another more than kMaxNesting deep. Looks at
// nothing but the text, before any of the ops are read.
absl::Status CheckNesting(const YamlNode& entry);

absl::StatusOr<std::vector<OpSpec>> ReadInnerOps(const YamlNode& list);

// How often a combinator of these parameters, which have been read, does its ops.
int64_t RoundsOf(const YamlNode& params);

// The combinator's fields that one of its ops reads. `fields`: the combinator's.
std::vector<std::string> InnerFields(const OpSpec& inner, absl::Span<const std::string> fields);

// For the digest: the fields of all ops in a combinator that reads `fields`.
std::string InnerFieldsText(const OpSpec& combinator, absl::Span<const std::string> fields);

// One of them, made for a combinator's fields.
struct InnerOp {
  const OpEntry* entry = nullptr;
  std::unique_ptr<Op> op;
  absl::InlinedVector<size_t, 4> fields;  // of the combinator's
  std::vector<std::string> names;         // of these fields
  std::string where;                      // file:line:column
};

// InvalidArgument with place for an op that cannot stand there. `fields`: names of the
// combinator's.
absl::StatusOr<std::vector<InnerOp>> MakeInnerOps(const InnerOps& ops,
                                                  absl::Span<const std::string> fields);

// `ops` with other names for fields: names[i].first becomes names[i].second.
using FieldNames = absl::Span<const std::pair<std::string, std::string>>;
void RenameInnerFields(FieldNames names, YamlNode* params);

}  // namespace feedwater::server
