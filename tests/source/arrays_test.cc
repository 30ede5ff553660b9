// Goal: npy, raw and tokens give the numbers that their files hold, straight from where they lie,
// and files that announce more than they have, or what cannot be read, are refused by name.
#include "tests/source/column_testing.h"
#include "tests/source/npy_text.h"
#include "tests/source/small_datasets.h"

namespace feedwater::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class NpyTest : public ColumnTest {
 protected:
  const std::string all_ = "{format: npy, root: root}";
};

TEST_F(NpyTest, TheFirstAxisAreTheRecords) {
  // As Python 2 wrote the numbers of a shape.
  folder_.Write("x.npy", NpyText("<f4", "(3L, 2L)", Bytes<float>({1, 2, 3, 4, 5, 6})));
  folder_.Write("y.npy", NpyText("<i4", "(3,)", Bytes<int32_t>({7, -8, 9})));
  folder_.Write("z.npy", NpyText("|u1", "(3, 4, 5, 3)", RandomBytes(180, 1)));
  const auto dataset = opener_.MustOpen(all_);
  EXPECT_EQ(Fields(*dataset), "x float32[2], y int64[], z uint8[4,5,3] HWC");
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_THAT(Numbers<float>(*dataset, 1, "x"), ElementsAre(3, 4));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 1, "y"), ElementsAre(-8));
  EXPECT_EQ(FieldOf(*dataset, 2, "z"), RandomBytes(180, 1).substr(120));
}

TEST_F(NpyTest, FieldsNameFilesAndOnlyThoseAreRead) {
  folder_.Write("deep/x.npy", NpyText("<f8", "(2,)", Bytes<double>({1.5, 2})));
  folder_.Write("other.npy", NpyText("<f8", "(9,)", Bytes<double>(std::vector<double>(9))));
  const auto dataset = opener_.MustOpen(
      "{format: npy, root: root, fields: {v: {from: deep/x.npy, dtype: float32}}}");
  ASSERT_EQ(dataset->size(), 2);
  EXPECT_EQ(dataset->objects(), 1);
  EXPECT_THAT(Numbers<float>(*dataset, 0, "v"), ElementsAre(1.5));
  ExpectRefused("{format: npy, root: root, fields: {v: ../x.npy}}", {"'..'"});
  ExpectRefused("{format: npy, root: root, fields: {v: no.npy}}", {"no.npy"},
                absl::StatusCode::kNotFound);
}

TEST_F(NpyTest, WhatCannotBeReadIsRefusedWithItsCure) {
  const std::string one = Bytes<double>({1});
  const struct {
    std::string file;
    const char* message;
  } cases[] = {
      {NpyText("|O", "(1,)", one), "pickles"},
      {NpyText("<f8", "(1, 1)", one, "True"), "Fortran order"},
      {NpyText(">f8", "(1,)", one), "big-endian"},
      {NpyText("<c16", "(1,)", one + one), "no counterpart"},
      {NpyText("<U4", "(1,)", one + one), "no counterpart"},
      {NpyText("<f8", "()", one), "no axis of records"},
      {NpyText("<f8", "(2,)", one), "more than the file has"},
      {NpyText("<f8", "(1,)", one) + NpyText("<f8", "(1,)", one), "several arrays in one file"},
      {NpyText("<f8", "(1152921504606846976, 0)", ""), "records without elements"},
      {NpyText("<f8", "(4611686018427387904, 4)", one), "more than the file has"},
      {NpyText("<f8", "(-1,)", one), "its shape is"},
      {NpyText("<f8", "(L,)", one), "its shape is"},
      {NpyText("<f8", "(1LL,)", one), "its shape is"},
      {NpyText("<f8", "x", one), "no shape"},
      {NpyText("<f8", "(1,)", one).substr(0, 40), "ends within its header"},
      {"hello, this is no array at all", "does not begin with"},
      {"", "does not begin with"},
  };
  for (const auto& c : cases) {
    folder_.Write("x.npy", c.file);
    ExpectRefused(all_, {"x.npy", c.message});
  }
  folder_.Write("x.npy", NpyText("<f8", "(1,)", one));
  folder_.Write("y.npy", NpyText("<f8", "(2,)", one + one));
  ExpectRefused(all_, {"has 2 records", "'x.npy' has 1", "'fields'"});
}

class RawTest : public ColumnTest {};

TEST_F(RawTest, FieldsAreRangesOfTheRecord) {
  folder_.Write("a.dat", "HEAD" + std::string("\1\x10\x20\x30\2\x40\x50\x60", 8));
  folder_.Write("b.dat", "HEAD" + std::string("\3\x70\x71\x72", 4));
  const auto dataset = opener_.MustOpen(
      "{format: raw, root: root, record_bytes: 4, header_bytes: 4, fields: {n: {dtype: uint8}, v: "
      "{offset: 1, dtype: uint8, shape: [3]}, w: {offset: 1, dtype: int16}}}");
  EXPECT_EQ(Fields(*dataset), "n uint8[], v uint8[3], w int16[]");
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_THAT(dataset->shard_starts(), ElementsAre(0, 2));
  EXPECT_EQ(FieldOf(*dataset, 1, "n"), "\2");
  EXPECT_EQ(FieldOf(*dataset, 2, "v"), "\x70\x71\x72");
  EXPECT_THAT(Numbers<int16_t>(*dataset, 0, "w"), ElementsAre(0x2010));
  const auto whole = opener_.MustOpen("{format: raw, root: root, path: a.dat, record_bytes: 3}");
  EXPECT_EQ(Fields(*whole), "data uint8[3]");
}

// A thousand million records are found as a few are: nothing is kept for each of them.
TEST_F(RawTest, AThousandMillionRawRecordsTakeAnIndexOfAFewBytes) {
  constexpr int64_t kMany = 1'000'000'000, kBytes = 16;
  folder_.Write("many/a.bin", "");
  folder_.Write("many/b.bin", "");
  for (const char* name : {"many/a.bin", "many/b.bin"}) {
    if (truncate((folder_ / name).c_str(), kMany / 2 * kBytes) != 0)
      GTEST_SKIP() << "this file system has no files of 8 GB with holes";
  }
  const int file = open((folder_ / "many/b.bin").c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(pwrite(file, "the last record!", kBytes, (kMany / 2 - 1) * kBytes), kBytes);
  close(file);
  const auto dataset = opener_.MustOpen("{format: raw, root: root, path: many, record_bytes: 16}");
  ASSERT_EQ(dataset->size(), kMany);
  EXPECT_LE(dataset->memory_bytes(), kMany / 10) << "0.1 byte a record";
  EXPECT_LE(dataset->memory_bytes(), 64 << 10);
  EXPECT_THAT(dataset->shard_starts(), ElementsAre(0, kMany / 2));
  EXPECT_THAT(ReadExtents(*dataset, kMany - 1), ElementsAre("the last record!"));
  EXPECT_THAT(ReadExtents(*dataset, kMany / 2), ElementsAre(std::string(kBytes, '\0')));
}

TEST_F(RawTest, FieldsAndFilesThatDoNotFitAreRefused) {
  folder_.Write("a.dat", "0123456789");
  const std::string start = "{format: raw, root: root, record_bytes: 5, fields: ";
  ExpectRefused("{format: raw, root: root}", {"'record_bytes'"});
  ExpectRefused("{format: raw, root: root, record_bytes: 3}", {"a.dat", "1 are left over"});
  ExpectRefused("{format: raw, root: root, record_bytes: 5, header_bytes: 11}", {"a.dat"});
  ExpectRefused(start + "{x: {offset: 3, dtype: int32}}}",
                {"test.yaml:1:", "field 'x'", "does not fit"});
  ExpectRefused(start + "{x: {offset: 9223372036854775807, dtype: int32}}}", {"does not fit"});
  ExpectRefused(start + "{x: {shape: [-1]}}}", {"field 'x'"});
  ExpectRefused(start + "{x: column}}", {"offsets, not names"});
  ExpectRefused(start + "{x: {offset: -1}}}", {"'offset'"});
}

class TokensTest : public ColumnTest {};

TEST_F(TokensTest, WindowsAndTheirTargets) {
  folder_.Write("a.bin", Bytes<uint16_t>({0, 1, 2, 3, 4, 5, 6, 7}));
  folder_.Write("b.bin", Bytes<uint16_t>({10, 11, 12, 13}));
  const auto plain = opener_.MustOpen("{format: tokens, root: root, length: 3}");
  ASSERT_EQ(plain->size(), 3);
  EXPECT_EQ(Fields(*plain), "tokens uint16[3]");
  EXPECT_THAT(Numbers<uint16_t>(*plain, 1, "tokens"), ElementsAre(3, 4, 5));
  EXPECT_THAT(Numbers<uint16_t>(*plain, 2, "tokens"), ElementsAre(10, 11, 12));
  EXPECT_THAT(plain->notes(), HasSubstr("3 tokens"));
  const auto shifted =
      opener_.MustOpen("{format: tokens, root: root, length: 3, stride: 2, targets: true}");
  ASSERT_EQ(shifted->size(), 4);  // 0, 2 and 4 of the first file, 0 of the second
  EXPECT_THAT(Numbers<uint16_t>(*shifted, 2, "tokens"), ElementsAre(4, 5, 6));
  EXPECT_THAT(Numbers<uint16_t>(*shifted, 2, "targets"), ElementsAre(5, 6, 7));
  EXPECT_THAT(Numbers<uint16_t>(*shifted, 3, "targets"), ElementsAre(11, 12, 13));
}

TEST_F(TokensTest, Of32BitsAreInt32AndNoMore) {
  folder_.Write("a.bin", Bytes<uint32_t>({1, 70000, 0x80000000u, 3}));
  const auto dataset = opener_.MustOpen("{format: tokens, root: root, length: 2, dtype: uint32}");
  EXPECT_THAT(Numbers<int32_t>(*dataset, 0, "tokens"), ElementsAre(1, 70000));
  EXPECT_THAT(FieldOf(*dataset, 1, "tokens"), HasSubstr("beyond int32"));
}

// As llm.c writes it: int32 magic, version and number of tokens, zeros up to 1,024 bytes.
std::string LlmcFile(int32_t magic, const std::string& tokens) {
  std::string head = Bytes<int32_t>({magic, 1, static_cast<int32_t>(tokens.size() / 2)});
  head.resize(1024, '\0');
  return head + tokens;
}

TEST_F(TokensTest, AHeaderIsPassedOver) {
  folder_.Write("a.bin", LlmcFile(20240520, Bytes<uint16_t>({1, 2, 3, 4, 5, 6, 7})));
  folder_.Write("b.bin", LlmcFile(20240520, Bytes<uint16_t>({11, 12, 13})));
  const auto dataset = opener_.MustOpen(
      "{format: tokens, root: root, length: 2, targets: true, header_bytes: 1024}");
  ASSERT_EQ(dataset->size(), 4);
  EXPECT_THAT(Numbers<uint16_t>(*dataset, 0, "tokens"), ElementsAre(1, 2));
  EXPECT_THAT(Numbers<uint16_t>(*dataset, 2, "tokens"), ElementsAre(5, 6));
  EXPECT_THAT(Numbers<uint16_t>(*dataset, 2, "targets"), ElementsAre(6, 7));
  EXPECT_THAT(Numbers<uint16_t>(*dataset, 3, "targets"), ElementsAre(12, 13));
  // Another header is another dataset.
  const auto odd = opener_.MustOpen(
      "{format: tokens, root: root, length: 2, targets: true, header_bytes: 1026}");
  EXPECT_THAT(Numbers<uint16_t>(*odd, 0, "tokens"), ElementsAre(2, 3));
  EXPECT_NE(odd->digest(), dataset->digest());
  ExpectRefused("{format: tokens, root: root, length: 2, header_bytes: 1025}",
                {"a.bin", "header of 1025", "'header_bytes'"});
  ExpectRefused("{format: tokens, root: root, length: 2, header_bytes: 5000}", {"1038 bytes"});
  ExpectRefused("{format: tokens, root: root, length: 2, header_bytes: -1}", {"'header_bytes'"});
}

TEST_F(TokensTest, AKnownHeaderIsNotReadAsTokens) {
  folder_.Write("a.bin", Bytes<uint16_t>({1, 2, 3}));
  folder_.Write("b.bin", LlmcFile(20240520, Bytes<uint16_t>({1, 2, 3})));
  ExpectRefused("{format: tokens, root: root, length: 2}", {"b.bin", "cure: 'header_bytes: 1024'"});
  folder_.Write("b.bin", LlmcFile(20240801, Bytes<uint32_t>({1, 2, 3})));
  ExpectRefused("{format: tokens, root: root, length: 2}",
                {"b.bin", "'header_bytes: 1024' and 'dtype: uint32'"});
  folder_.Write("b.bin", LlmcFile(20240802, Bytes<uint16_t>({1, 2, 3})));
  EXPECT_NE(opener_.MustOpen("{format: tokens, root: root, length: 2}"), nullptr);
}

TEST_F(TokensTest, FilesThatHoldNoWindowAreRefused) {
  folder_.Write("a.bin", "12345");
  ExpectRefused("{format: tokens, root: root, length: 1}", {"a.bin", "5 bytes", "uint16"});
  folder_.Write("a.bin", "1234");
  ExpectRefused("{format: tokens, root: root, length: 2, targets: true}",
                {"3 tokens of one window"});
  ExpectRefused("{format: tokens, root: root}", {"'length'"});
}

}  // namespace
}  // namespace feedwater::server
