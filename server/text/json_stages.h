// What stands under `normalizer`, `pre_tokenizer` and `post_processor` of a tokenizer.json.
// InvalidArgument names what is not read, and the cure; no key is passed over.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "server/text/normalizer.h"
#include "server/text/splitter.h"

namespace feedwater::server {

// The object's keys are of these. `where`: its place, such as "model".
absl::Status CheckJsonKeys(const nlohmann::json& object, const std::string& where,
                           std::initializer_list<const char*> known);
// A key's value; `otherwise` where it is not there or null.
absl::StatusOr<bool> JsonBool(const nlohmann::json& object, const std::string& where,
                              const char* key, bool otherwise);
absl::StatusOr<std::string> JsonText(const nlohmann::json& object, const std::string& where,
                                     const char* key, const std::string& otherwise);
// `type` of an object; "" of null.
absl::StatusOr<std::string> JsonType(const nlohmann::json& object, const std::string& where);

absl::StatusOr<std::vector<NormalizerStep>> ReadNormalizer(const nlohmann::json& node);

struct SplitterFound {
  std::vector<SplitStep> steps;
  bool is_byte_level = false;  // its last step turns words into bytes
};
absl::StatusOr<SplitterFound> ReadSplitter(const nlohmann::json& node);

struct SpecialTokens {
  std::vector<int64_t> before, after;
};
absl::StatusOr<SpecialTokens> ReadPostProcessor(const nlohmann::json& node);

}  // namespace feedwater::server
