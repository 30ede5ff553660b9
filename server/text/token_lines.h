// A list with a token a line, whose ids are the lines counted from 0: BERT's vocab.txt, or words.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/text/tokenizer.h"

namespace feedwater::server {

absl::StatusOr<std::unique_ptr<const Tokenizer>> MakeTokenizerOfLines(absl::string_view text,
                                                                      VocabularyKind kind,
                                                                      const LineRules& rules);

}  // namespace feedwater::server
