// What is special to TFRecord files: what their features become, whatever their encoding, and how
// damaged ones are refused.
#include "absl/strings/str_cat.h"
#include "tests/source/column_testing.h"
#include "tests/source/tf_text.h"

namespace feedwater::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;
using Floats = std::vector<float>;

class TfrecordTest : public ColumnTest {
 protected:
  void Write(const std::vector<std::string>& examples, const std::string& name = "a.tfrecord") {
    std::string text;
    for (const std::string& example : examples) text += TfRecordText(example);
    folder_.Write("d/" + name, text);
  }
  std::string Yaml(const std::string& more = "") {
    return "{format: tfrecord, root: root, path: d" + more + "}";
  }
  std::string OpenError(const std::string& more = "") {
    const auto dataset = opener_.Open(Yaml(more));
    EXPECT_FALSE(dataset.ok());
    return std::string(dataset.status().message());
  }
};

TEST_F(TfrecordTest, TheFirstRecordsSayWhatTheFeaturesAre) {
  const auto example = [](const Ints& many, const std::string& text) {
    return TfExample(TfEntry("one", TfPacked(Ints{-5})) + TfEntry("pair", TfPacked(Floats{1, 2})) +
                     TfEntry("many", TfPacked(many)) + TfEntry("text", TfBytes({text})));
  };
  Write({example({1}, "abc"), example({}, ""), example({1, 2, INT64_MIN}, "z")});
  const auto dataset = opener_.MustOpen(Yaml());
  EXPECT_EQ(TypeOf(*dataset, "one"), "int64[]");
  EXPECT_EQ(TypeOf(*dataset, "pair"), "float32[2]");
  EXPECT_EQ(TypeOf(*dataset, "many"), "int64[?]");
  EXPECT_THAT(TypeOf(*dataset, "text"), HasSubstr("uint8[?]"));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "one"), ElementsAre(-5));
  EXPECT_THAT(Numbers<float>(*dataset, 0, "pair"), ElementsAre(1, 2));
  EXPECT_THAT(Numbers<char>(*dataset, 0, "text"), ElementsAre('a', 'b', 'c'));
  EXPECT_EQ(FieldOf(*dataset, 1, "many"), "");
  EXPECT_EQ(FieldOf(*dataset, 1, "text"), "");
  EXPECT_THAT(Numbers<int64_t>(*dataset, 2, "many"), ElementsAre(1, 2, INT64_MIN));
}

TEST_F(TfrecordTest, NumbersMayBePackedOrNotOrBoth) {
  const std::string one_by_one = WireBytes(3, "\x08" + Varint(300) + "\x08" + Varint(1));
  const std::string mixed =
      WireBytes(3, WireBytes(1, Varint(300)) + "\x08" + Varint(1) + WireBytes(1, ""));
  const std::string floats = WireBytes(2, std::string("\x0d\0\0\x80\x3f\x0d\0\0\0\x40", 10));
  for (const std::string& numbers : {one_by_one, mixed, TfPacked(Ints{300, 1})}) {
    Write({TfExample(TfEntry("n", numbers) + TfEntry("f", floats))});
    const auto dataset = opener_.MustOpen(Yaml());
    EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "n"), ElementsAre(300, 1));
    EXPECT_THAT(Numbers<float>(*dataset, 0, "f"), ElementsAre(1, 2));
  }
}

TEST_F(TfrecordTest, ASequenceHasItsContextAndItsLists) {
  const auto steps = [](int count) {
    return TfFeatureList(
        std::vector<std::string>(static_cast<size_t>(count), TfPacked(Ints{7, 8, 9})));
  };
  const auto record = [&](int count) {
    return TfSequence(
        TfEntry("id", TfPacked(Ints{count})),
        TfEntry("rows", steps(count)) +
            TfEntry("times", TfFeatureList({TfPacked(Floats{0.5}), TfPacked(Floats{1.5})})));
  };
  Write({record(2), record(0), record(3)});
  const auto dataset = opener_.MustOpen(Yaml());
  EXPECT_EQ(TypeOf(*dataset, "rows"), "int64[?,3]");
  EXPECT_EQ(TypeOf(*dataset, "times"), "float32[?]");
  for (const int64_t i : {0, 1, 2}) {
    const int64_t count = Numbers<int64_t>(*dataset, i, "id").at(0);
    EXPECT_THAT(ShapeOf(*dataset, i, "rows"), ElementsAre(count, 3));
    EXPECT_THAT(Numbers<float>(*dataset, i, "times"), ElementsAre(0.5, 1.5));
  }
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "rows"), ElementsAre(7, 8, 9, 7, 8, 9));
}

TEST_F(TfrecordTest, AnotherTypeOrNoneIsABadSampleThatNamesTheFeature) {
  std::vector<std::string> examples(
      101, TfExample(TfEntry("x", TfPacked(Ints{1})) + TfEntry("b", TfBytes({"q"}))));
  examples.push_back(TfExample(TfEntry("x", TfPacked(Floats{1})) + TfEntry("b", TfBytes({"q"}))));
  examples.push_back(TfExample(TfEntry("b", TfBytes({"q"}))));
  examples.push_back(TfExample(TfEntry("x", TfPacked(Ints{1, 2})) + TfEntry("b", TfBytes({"q"}))));
  examples.push_back(TfExample(TfEntry("x", TfPacked(Ints{1})) + TfEntry("b", TfBytes({"q", ""}))));
  examples.push_back(
      TfSequence(TfEntry("b", TfBytes({"q"})), TfEntry("x", TfFeatureList({TfPacked(Ints{1})}))));
  Write(examples);
  const auto dataset = opener_.MustOpen(Yaml());
  ASSERT_EQ(dataset->size(), 106);
  const std::vector<std::pair<int64_t, std::string>> expected = {
      {101, "feature 'x' is float_list here and int64_list in the first records"},
      {102, "column 'x' is missing"},
      {103, "field 'x' has 2 elements"},
      {104, "feature 'b' has 2 values"},
      {105, "feature 'x' is a list of int64_list here"}};
  for (const auto& [record, message] : expected) {
    const absl::Status status = StatusOf(*dataset, record);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
  const auto lenient = opener_.MustOpen(Yaml(", fields: {x: {optional: true, shape: [-1]}, b: b}"));
  EXPECT_EQ(FieldOf(*lenient, 102, "x"), "");
  EXPECT_THAT(Numbers<int64_t>(*lenient, 103, "x"), ElementsAre(1, 2));
}

TEST_F(TfrecordTest, WhatCannotBeAFieldIsRefusedByNameUnlessNobodyWantsIt) {
  Write({TfExample(TfEntry("words", TfBytes({"a", "b"})) + TfEntry("x", TfPacked(Ints{1})))});
  EXPECT_THAT(OpenError(),
              AllOf(HasSubstr("feature 'words'"), HasSubstr("2 values"), HasSubstr("cure: ")));
  EXPECT_THAT(OpenError(", fields: {w: words}"), HasSubstr("feature 'words'"));
  const auto dataset = opener_.MustOpen(Yaml(", fields: {x: x}"));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "x"), ElementsAre(1));
  EXPECT_THAT(dataset->notes(), HasSubstr("'words'"));

  Write({TfSequence("", TfEntry("ragged", TfFeatureList({TfPacked(Ints{1}), TfPacked(Ints{})})))});
  EXPECT_THAT(OpenError(), AllOf(HasSubstr("'ragged'"), HasSubstr("differ in length")));
}

TEST_F(TfrecordTest, NamesOfFeaturesAreBoundedAndCounted) {
  const std::string x = TfEntry("x", TfPacked(Ints{1}));
  Write({TfExample(x + TfEntry(std::string(4096, 'n'), TfPacked(Ints{1})))});
  EXPECT_EQ(TypeOf(*opener_.MustOpen(Yaml()), std::string(4096, 'n')), "int64[]");
  Write({TfExample(x + TfEntry(std::string(4097, 'n'), TfPacked(Ints{1})))});
  EXPECT_THAT(OpenError(), AllOf(HasSubstr("'nnn"), HasSubstr("4097 bytes, more than 4096"),
                                 HasSubstr("cure: ")));
  std::string many;
  for (int i = 1000; i < 1100; ++i)
    many += TfEntry(absl::StrCat(std::string(4000, 'n'), i), TfBytes({"a", "b"}));
  Write({TfExample(x + many)});
  const auto dataset = opener_.MustOpen(Yaml(", fields: {x: x}"));
  EXPECT_LT(dataset->notes().size(), 20'000u);
  EXPECT_THAT(dataset->notes(), HasSubstr("and 97 more features that are no columns"));
  opener_.budget = MemoryBudget::Create(2 << 20);
  const absl::Status status = opener_.Open(Yaml(", fields: {x: x}")).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

// The record that is looked at is counted before it is read.
TEST_F(TfrecordTest, ALargeFirstRecordIsInTheBudget) {
  Write({TfExample(TfEntry("b", TfBytes({std::string(4 << 20, 'b')})))});
  opener_.budget = MemoryBudget::Create(2 << 20);
  const absl::Status status = opener_.Open(Yaml()).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

// As TFDS and others name them: "train.tfrecord-00000-of-00002".
TEST_F(TfrecordTest, AFolderIsOneSetOfPartsAndAllOfThem) {
  const std::string example = TfExample(TfEntry("x", TfPacked(Ints{1})));
  Write({example}, "d-train.tfrecord-00001-of-00002");
  EXPECT_THAT(OpenError(), AllOf(HasSubstr("lacks part 0 of 2"), HasSubstr("cure: ")));
  Write({example, example}, "d-train.tfrecord-00000-of-00002");
  folder_.Write("d/features.json", "{}");
  EXPECT_EQ(opener_.MustOpen(Yaml())->size(), 3);
  Write({example}, "d-test.tfrecord-00000-of-00001");
  EXPECT_THAT(OpenError(), AllOf(HasSubstr("several sets"), HasSubstr("d-test.tfrecord-*-of-1"),
                                 HasSubstr("d-train.tfrecord-*-of-2"), HasSubstr("cure: ")));
  EXPECT_EQ(opener_.MustOpen(Yaml(", files: [\"d-test.tfrecord-*\"]"))->size(), 1);
  // Names that only look like it.
  for (const char* name : {"e/a-of-b.tfrecord", "e/a-1-of-x.tfrecord", "e/-of-2.tfrecord"})
    folder_.Write(name, TfRecordText(example));
  EXPECT_EQ(opener_.MustOpen("{format: tfrecord, root: root, path: e}")->size(), 3);
}

TEST_F(TfrecordTest, EveryRecordHasItsExactExtentAndItsCrc) {
  const std::string example = TfExample(TfEntry("x", TfPacked(Ints{1})));
  Write({example, example});
  Write({example}, "b.tfrecords");
  Write({}, "c.record");
  Write({example}, "others.data");
  const auto dataset = opener_.MustOpen(Yaml());
  EXPECT_EQ(dataset->size(), 3);
  EXPECT_THAT(dataset->shard_starts(), ElementsAre(0, 2));
  std::vector<Extent> extents;
  dataset->Extents(1, &extents);
  ASSERT_EQ(extents.size(), 1u);
  EXPECT_EQ(extents[0].offset, static_cast<int64_t>(example.size() + 16));
  EXPECT_EQ(extents[0].length, static_cast<int64_t>(example.size() + 16));

  std::vector<std::string> bytes = ReadExtents(*dataset, 1);
  const std::string good = bytes[0];
  Record scratch;
  for (size_t i = 12; i < good.size(); ++i) {
    bytes[0] = good;
    bytes[0][i] = static_cast<char>(bytes[0][i] ^ 1);
    const absl::Status status = ParseBytes(*dataset, 1, bytes, &scratch);
    EXPECT_TRUE(absl::IsDataLoss(status)) << i;
    EXPECT_THAT(std::string(status.message()), HasSubstr("CRC"));
  }
}

TEST_F(TfrecordTest, DamagedFilesAreRefusedWithTheByteAndACure) {
  const std::string record = TfRecordText(TfExample(TfEntry("x", TfPacked(Ints{1}))));
  const std::string at = absl::StrCat("byte ", record.size());
  std::string wrong_length = record;
  wrong_length[0] = static_cast<char>(wrong_length[0] ^ 1);
  std::string huge(8, '\xff');
  huge[7] = '\x7f';
  const uint32_t crc = MaskedCrc32c(huge);
  huge.append(reinterpret_cast<const char*>(&crc), 4);
  const std::vector<std::pair<std::string, std::string>> files = {
      {record + record.substr(0, 5), "within the head of the record at " + at},
      {record + record.substr(0, record.size() - 1), "bytes at " + at},
      {record + wrong_length, "damaged at " + at},
      {record + huge + record, "bytes at " + at},
      {"this is just a text file, not a valid tfrecord file.", "no TFRecord file"},
      {"short", "no TFRecord file"},
      {std::string("\x1f\x8b\x08\0\0\0\0\0\0\0\0\0\0\0\0\0", 16), "name it .gz"},
      {TfRecordText("\xff no message"), "tf.train.Example"},
  };
  for (const auto& [text, message] : files) {
    folder_.Write("d/a.tfrecord", text);
    EXPECT_THAT(OpenError(),
                AllOf(HasSubstr(message), HasSubstr("a.tfrecord"), HasSubstr("cure: ")));
  }
}

// A record that is damaged is a bad sample, wherever it stands; its neighbours tell the types.
TEST_F(TfrecordTest, DamageInTheFirstRecordIsNoDamageToTheRest) {
  const std::string record = TfRecordText(TfExample(TfEntry("x", TfPacked(Ints{1}))));
  std::string damaged = record;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  folder_.Write("d/a.tfrecord", damaged + record);
  const auto dataset = opener_.MustOpen(Yaml());
  EXPECT_EQ(dataset->size(), 2);
  const absl::Status status = StatusOf(*dataset, 0);
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 1, "x"), ElementsAre(1));
}

// Messages whose lengths, types and numbers lie, each with a right CRC: bad samples.
TEST_F(TfrecordTest, DamagedMessagesAreBadSamples) {
  const std::string good = TfExample(TfEntry("x", TfPacked(Ints{1})));
  const std::string endless(11, '\xff');
  const std::vector<std::string> bad = {
      WireBytes(1, WireBytes(1, WireBytes(1, "x") + "\x12\x7f")),             // a length too long
      TfExample(TfEntry("x", WireBytes(3, WireBytes(1, endless)))),           // no varint
      TfExample(TfEntry("x", WireBytes(3, WireBytes(1, "\x80")))),            // an open varint
      TfExample(TfEntry("x", WireBytes(3, WireBytes(1, "\1") + "\x0b"))),     // a group
      TfExample(TfEntry("x", WireBytes(3, std::string("\x0d\0\0\0\0", 5)))),  // a float
      TfExample(TfEntry("x", TfPacked(Ints{1}) + TfPacked(Ints{2}))),         // two lists
      endless,
  };
  std::vector<std::string> all = {good};
  all.insert(all.end(), bad.begin(), bad.end());
  Write(all);
  const auto dataset = opener_.MustOpen(Yaml());
  ASSERT_EQ(dataset->size(), static_cast<int64_t>(all.size()));
  for (size_t i = 1; i < all.size(); ++i) {
    const absl::Status status = StatusOf(*dataset, static_cast<int64_t>(i));
    EXPECT_THAT(std::string(status.message()), HasSubstr("damaged")) << i;
  }
}

TEST_F(TfrecordTest, ReadsRealFiles) {
  if (OutsideData().empty()) GTEST_SKIP() << "no outside data";
  Opener real(OutsideData());
  const auto all = real.MustOpen(
      "{format: tfrecord, root: root, path: tfrecord/testTFTestAllTypes, files: [\"*.data\"]}");
  EXPECT_EQ(all->size(), 24);
  EXPECT_EQ(TypeOf(*all, "col_3d"), "int64[8]");
  EXPECT_THAT(Numbers<int64_t>(*all, 13, "col_2d"), ElementsAre(4, 5, 6, 7));
  EXPECT_FLOAT_EQ(Numbers<float>(*all, 1, "col_float").at(0), 1.33f);
  const auto images = real.MustOpen(
      "{format: tfrecord, root: root, path: tfrecord/test_tf_file_3_images, files: [\"*.data\"]}");
  EXPECT_EQ(images->size(), 3);
  EXPECT_EQ(LabelOf(*images, 1), 2);
  const auto sequence = real.MustOpen(
      "{format: tfrecord, root: root, path: tfrecord/torchdata/sequence_example.tfrecord, fields: "
      "{x_int_seq: x_int_seq, x_byte: x_byte}}");
  EXPECT_EQ(sequence->size(), 4);
  EXPECT_THAT(ShapeOf(*sequence, 0, "x_int_seq"), ElementsAre(3, 10));
  const auto text = real.Open(
      "{format: tfrecord, root: root, path: tfrecord/testTFTestAllTypes, "
      "files: [invalidFile.txt]}");
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("no TFRecord file"));
}

}  // namespace
}  // namespace feedwater::server
