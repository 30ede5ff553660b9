// A tokenizer.json of Hugging Face, made into a tokenizer.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/text/tokenizer.h"

namespace feedwater::server {

absl::StatusOr<std::unique_ptr<const Tokenizer>> MakeTokenizerOfJson(absl::string_view text);

}  // namespace feedwater::server
