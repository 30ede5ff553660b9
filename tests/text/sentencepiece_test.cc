// SentencePiece models: the pieces that the library would find, and models that are wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "tests/text/tokenizer_testing.h"

namespace feedwater::server {
namespace {

using namespace text_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

std::string CharacterMapOf(const std::vector<uint32_t>& units) {
  const auto bytes = static_cast<uint32_t>(units.size() * sizeof(uint32_t));
  std::string map(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  map.append(reinterpret_cast<const char*>(units.data()), bytes);
  return map + std::string(1, '\0');
}

TEST(SentencePiece, ACharacterMapWhoseKeysDoNotEndIsRefused) {
  const std::string pieces = Piece("<unk>", kUnknownPiece) + Piece("a", kNormalPiece);
  std::vector<uint32_t> units(512, 0);
  units[0] = 256 << 10;
  units[353] = 0x61 << 10 | 0x61;  // and 256 leads to itself by a zero
  EXPECT_THAT(Refused(pieces + Field(3, Field(2, CharacterMapOf(units)))),
              HasSubstr("character map is damaged, or maps texts of more than 256 bytes"));
  // Without circles: state i * 256 leads on to the next one by 'a', and the last one nowhere.
  for (const size_t length : {256, 257}) {
    std::vector<uint32_t> chain((length + 2) * 256, 0x80000000);
    chain[0] = 256 << 10;
    for (size_t i = 1; i <= length; ++i) {
      const size_t unit = i * 256 + 'a';
      chain[unit] = static_cast<uint32_t>(unit ^ (i + 1) * 256) << 10 | 'a';
    }
    EXPECT_EQ(Make(pieces + Field(3, Field(2, CharacterMapOf(chain)))).ok(), length == 256);
  }
}

TEST(SentencePiece, ACharacterMapWithLongValuesIsRefused) {
  const std::string pieces = Piece("<unk>", kUnknownPiece) + Piece("a", kNormalPiece);
  for (const size_t bytes : {4096, 4097}) {
    std::string map = CharacterMapOf(std::vector<uint32_t>(256, 0x80000000));
    map += std::string(bytes, 'v') + std::string(1, '\0');
    const std::string file = pieces + Field(3, Field(2, map));
    if (bytes == 4096) {
      EXPECT_TRUE(Make(file).ok());
    } else {
      EXPECT_THAT(Refused(file), HasSubstr("maps to a text of 4097 bytes; at most 4096 are read"));
    }
  }
}

// As sentencepiece 0.2.3 gives them.
TEST(SentencePiece, UserDefinedAndControlPiecesAreFoundAsTheLibraryFindsThem) {
  const std::string pieces = Piece("<unk>", kUnknownPiece) + Piece("c", kControlPiece) +
                             Piece("a", kNormalPiece) + Piece("b", kNormalPiece) +
                             Piece("ab", kUserDefinedPiece) + Piece("abab", kUserDefinedPiece) +
                             Piece("bb", kNormalPiece);
  const std::string as_written = Field(3, std::string("\x18\x00\x20\x00", 4));
  const std::string bpe = Field(2, std::string("\x18\x02", 2));
  using Ids = std::vector<int32_t>;
  const std::tuple<const char*, Ids, Ids> cases[] = {{"acb", {2, 0, 3}, {2, 0, 3}},
                                                     {"ababab", {4, 5}, {5, 4}},
                                                     {"bbb", {3, 6}, {6, 3}},
                                                     {"cc", {0}, {0}},
                                                     {"abbb", {4, 6}, {4, 6}}};
  for (const bool is_bpe : {false, true}) {
    const auto tokenizer = Make(pieces + (is_bpe ? bpe : "") + as_written);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const auto& [text, unigram_ids, bpe_ids] : cases)
      EXPECT_EQ(Encode(**tokenizer, text).ids, is_bpe ? bpe_ids : unigram_ids) << text;
  }
}

// A character map is taken only if no text can lead a look-up out of it.
TEST(SentencePiece, NoByteOfAModelLeadsOutsideOfIt) {
  std::string model = ReadFile("tokenizers/unigram.model");
  const std::string text = "Ｈello ﬁ ① the water…";
  uint32_t state = 17;
  for (int round = 0; round < 200; ++round) {
    std::string damaged = model;
    for (int change = 0; change < 8; ++change) {
      state = state * 1664525 + 1013904223;
      damaged[6000 + (state >> 8) % (damaged.size() - 6000)] = static_cast<char>(state >> 24);
    }
    const auto tokenizer = Make(damaged);
    if (tokenizer.ok()) Encode(**tokenizer, text);  // under ASan it would be seen
  }
}

}  // namespace
}  // namespace feedwater::server
