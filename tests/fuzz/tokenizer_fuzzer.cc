// Any bytes as the file of a vocabulary, of each kind, and any text that is encoded with it: ids
// are of the vocabulary, the scratch that was promised is enough or the text is refused, and
// truncation gives the first or the last of the same ids.
// LIBS: feedwater_text
#include <algorithm>
#include <cstddef>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "server/text/tokenizer.h"
#include "server/text/unicode.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/start_inputs.h"

namespace feedwater::fuzz {
namespace {

using namespace server;  // NOLINT: the text floor

constexpr char kBorder[] = "\n--text--\n";
constexpr int64_t kRoom = 64;

struct Ids {
  absl::Status status;
  std::vector<int32_t> ids;
  bool is_over = false;
};

Ids Encode(const Tokenizer& tokenizer, absl::string_view text, int64_t room, Truncation truncation,
           int32_t unknown) {
  const auto bytes = static_cast<size_t>(tokenizer.ScratchBytes(static_cast<int64_t>(text.size())));
  // No byte more than promised: what lies behind is found by the sanitizers.
  std::vector<std::byte> memory(bytes);
  TextScratch scratch(memory.data(), bytes);
  std::vector<int32_t> ids(static_cast<size_t>(room));
  IdSink sink(ids.data(), room, truncation);
  WorkClock clock;
  clock.Begin(/*limit_ms=*/10'000, nullptr);
  Encoding encoding{scratch, clock, sink, unknown};
  tokenizer.Encode(text, &encoding);
  Ids result{encoding.status, {}, sink.is_over()};
  for (int64_t i = 0; i < sink.count(); ++i) {
    result.ids.push_back(sink.at(i));
    Require(sink.at(i) >= 0 && sink.at(i) <= tokenizer.max_id(), "ids are of the vocabulary");
  }
  return result;
}

void Check(const Tokenizer& tokenizer, absl::string_view text, int32_t unknown) {
  // A normalizer may write strings for each character, as far as there is scratch for them.
  const auto room = static_cast<int64_t>(64 * text.size()) + (64 << 10);
  const Ids all = Encode(tokenizer, text, room, Truncation::kNone, unknown);
  if (!all.status.ok()) {
    Require(!all.status.message().empty(), "an error has words");
    return;
  }
  Require(!all.is_over, "a text has no more ids than its bytes become");
  const auto count = std::min<int64_t>(kRoom, static_cast<int64_t>(all.ids.size()));
  const Ids right = Encode(tokenizer, text, kRoom, Truncation::kRight, unknown);
  const Ids left = Encode(tokenizer, text, kRoom, Truncation::kLeft, unknown);
  Require(right.ids == std::vector<int32_t>(all.ids.begin(), all.ids.begin() + count),
          "the first ids");
  Require(left.ids == std::vector<int32_t>(all.ids.end() - count, all.ids.end()), "the last ids");
}

void Run(Input input) {
  const std::string whole = AsText(input);
  const size_t border = whole.find(kBorder);
  const absl::string_view file = absl::string_view(whole).substr(0, border);
  absl::string_view text = "the Größe 水 \u0301 12 <s>\n";
  if (border != std::string::npos)
    text = absl::string_view(whole).substr(border + sizeof(kBorder) - 1);
  text = text.substr(0, FirstBadUtf8(text));
  const bool odd = SeedOf(input) % 2 != 0;
  for (const VocabularyKind kind :
       {KindOfVocabulary(file).value_or(VocabularyKind::kWords), VocabularyKind::kWordPiece,
        VocabularyKind::kWords, VocabularyKind::kSentencePiece}) {
    const auto tokenizer = MakeTokenizer(file, kind, {odd});
    if (tokenizer.ok()) {
      Check(**tokenizer, text, odd ? (*tokenizer)->Find("<unk>") : -1);
    } else {
      Require(!tokenizer.status().message().empty(), "an error has words");
    }
  }
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds = {
      "<unk>\na\nb\n\n--text--\na b c",
      absl::StrCat("[UNK]\n[CLS]\n[SEP]\na\n##b\n", kBorder, "ab abb"),
  };
  const std::filesystem::path folder =
      std::filesystem::path(FEEDWATER_SOURCE_DIR) / "tests/text/tokenizers";
  for (const auto& path : FilesBelow(folder)) {
    const std::string file = ReadFile(path);
    if (file.size() < (20 << 10)) seeds.push_back(file + kBorder + "the straße 42 水!");
  }
  return seeds;
}

std::vector<std::string> Words() {
  return {"\"vocab\":",
          "\"merges\":",
          "\"model\":",
          "\"type\":",
          "BPE",
          "WordPiece",
          "WordLevel",
          "ByteLevel",
          "Sequence",
          "Split",
          "\"Regex\":",
          "\\\\p{L}",
          "BertNormalizer",
          "NFKC",
          "##",
          "\"added_tokens\":",
          "TemplateProcessing",
          "\xe2\x96\x81",
          "[UNK]",
          kBorder,
          "Unigram",
          "\"unk_id\":",
          "\"byte_fallback\": true",
          "<0xE2>",
          "Metaspace",
          "\"prepend_scheme\": \"first\"",
          "Precompiled",
          "Prepend",
          "Replace",
          "Strip",
          "\"normalized\": true",
          " {2,}",
          "MergedWithPrevious"};
}

}  // namespace

const FuzzTarget& Target() {
  static const FuzzTarget target{Run, Seeds, {}, Words, 64 << 10};
  return target;
}

}  // namespace feedwater::fuzz
