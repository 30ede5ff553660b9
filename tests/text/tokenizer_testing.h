// What tests of tokenizers share: one made of a file's bytes, the ids that it gives, and the parts
// of a SentencePiece model.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/text/tokenizer.h"

namespace feedwater::server::text_testing {

inline std::string ReadFile(const std::string& name) {
  std::ifstream file(absl::StrCat(FEEDWATER_SOURCE_DIR, "/tests/text/", name), std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Encoded {
  absl::Status status;
  std::vector<int32_t> ids;
};

inline Encoded Encode(const Tokenizer& tokenizer, absl::string_view text, int64_t room = 1 << 22,
                      Truncation truncation = Truncation::kNone, int64_t limit_ms = 60'000,
                      int32_t unknown = -1) {
  const auto bytes = static_cast<size_t>(tokenizer.ScratchBytes(static_cast<int64_t>(text.size())));
  std::vector<std::max_align_t> memory(bytes / sizeof(std::max_align_t) + 1);
  TextScratch scratch(reinterpret_cast<std::byte*>(memory.data()), bytes);
  std::vector<int32_t> ids(static_cast<size_t>(room));
  IdSink sink(ids.data(), room, truncation);
  WorkClock clock;
  clock.Begin(limit_ms, nullptr);
  Encoding encoding{scratch, clock, sink, unknown};
  tokenizer.Encode(text, &encoding);
  Encoded result{encoding.status, {}};
  for (int64_t i = 0; i < sink.count(); ++i) result.ids.push_back(sink.at(i));
  if (sink.is_over()) result.status = absl::OutOfRangeError("more ids than there is room for");
  return result;
}

inline absl::StatusOr<std::unique_ptr<const Tokenizer>> Make(
    const std::string& bytes, const LineRules& rules = {},
    VocabularyKind of_lines = VocabularyKind::kWordPiece) {
  return MakeTokenizer(bytes, KindOfVocabulary(bytes).value_or(of_lines), rules);
}

inline std::string Refused(const std::string& bytes, const LineRules& rules = {},
                           VocabularyKind of_lines = VocabularyKind::kWordPiece) {
  const auto made = Make(bytes, rules, of_lines);
  EXPECT_TRUE(absl::IsInvalidArgument(made.status())) << made.status();
  return std::string(made.status().message());
}

// The fields of a SentencePiece model, each a text with its length.
inline std::string Field(int number, const std::string& bytes) {
  std::string field(1, static_cast<char>(number << 3 | 2));
  size_t length = bytes.size();
  for (; length >= 0x80; length >>= 7) field.push_back(static_cast<char>(length | 0x80));
  field.push_back(static_cast<char>(length));
  return field + bytes;
}

inline std::string Piece(const std::string& text, char type) {
  return Field(1, Field(1, text) + '\x18' + type);
}

inline constexpr char kNormalPiece = 1, kUnknownPiece = 2, kControlPiece = 3, kUserDefinedPiece = 4;

}  // namespace feedwater::server::text_testing
