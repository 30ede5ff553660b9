// Goal: files of Parquet and Arrow give the rows that pyarrow has written (columnar/make.py), each
// type as it is documented, and whatever a file holds harms nobody.
#include "server/source/columnar_program.h"
#include "server/source/columnar_rows.h"
#include "tests/source/column_testing.h"

namespace feedwater::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kInt64Min = std::numeric_limits<int64_t>::min();

std::string FileOf(const std::string& name) {
  std::ifstream file(FEEDWATER_SOURCE_DIR "/tests/source/columnar/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What no program is needed for.
class ColumnarTest : public ColumnTest {
 protected:
  ColumnarTest() {
    opener_.state_dir = state_.path();
    opener_.staging = StagingArea::Below(state_.path(), 64 << 20);
  }
  static std::string Yaml(const std::string& format, const std::string& fields = "") {
    return absl::StrCat("{format: ", format, ", root: root, path: d",
                        fields.empty() ? "" : absl::StrCat(", fields: ", fields), "}");
  }
  size_t StagedFiles() const {
    size_t files = 0;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(state_.path() + "/staged", error)) {
      // Hidden: what the staging area keeps for itself.
      files += entry.is_regular_file() && entry.path().filename().string()[0] != '.';
    }
    return files;
  }

  TempFolder state_;
};

// What is unpacked by feedwater-columnar.
class UnpackedTest : public ColumnarTest {
 protected:
  void SetUp() override {
    const auto program = ColumnarProgram::Find("parquet");
    if (!program.ok()) GTEST_SKIP() << program.status().message();
  }
};

class RowsOf : public UnpackedTest, public ::testing::WithParamInterface<const char*> {
 protected:
  std::string format() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Formats, RowsOf, ::testing::Values("parquet", "arrow"),
                         [](const auto& info) { return info.param; });

TEST_P(RowsOf, StructsAreDottedPathsAndListsAreRagged) {
  folder_.Write("d/a." + format(), FileOf("a." + format()));
  folder_.Write("d/b." + format(), FileOf("b." + format()));
  const auto dataset = opener_.MustOpen(Yaml(format()));
  ASSERT_EQ(dataset->size(), 5);
  EXPECT_EQ(Fields(*dataset),
            "image.bytes uint8[?] encoded, image.path uint8[?], label int64[], boxes float32[?]");
  EXPECT_EQ(dataset->shard_starts(), (std::vector<int64_t>{0, 3}));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(FieldOf(*dataset, i, "image.bytes"),
              absl::StrCat("flip ", i, std::string(static_cast<size_t>(3 * i), '.')));
    EXPECT_EQ(FieldOf(*dataset, i, "image.path"), absl::StrCat(i, ".jpg"));
    EXPECT_THAT(Numbers<int64_t>(*dataset, i, "label"), ElementsAre(i));
    EXPECT_EQ(Numbers<float>(*dataset, i, "boxes").size(), static_cast<size_t>(i % 3));
  }
  EXPECT_THAT(Numbers<float>(*dataset, 2, "boxes"), ElementsAre(2.0F, 2.5F));
}

TEST_P(RowsOf, FieldsChooseWhatIsUnpackedAndClassesAreOne) {
  folder_.Write("d/a." + format(), FileOf("a." + format()));
  const auto dataset = opener_.MustOpen(
      Yaml(format(), "{data: image.bytes, name: {from: image.path, classes: auto}}"));
  EXPECT_EQ(Fields(*dataset), "data uint8[?] encoded, name int64[]");
  EXPECT_THAT(dataset->classes(), ElementsAre("0.jpg", "1.jpg", "2.jpg"));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 1, "name"), ElementsAre(1));
  ExpectRefused(Yaml(format(), "{data: image.byte}"),
                {"no column 'image.byte'", "did you mean 'image.bytes'"});
}

TEST_P(RowsOf, EveryTypeIsReadAsItIsStored) {
  folder_.Write("d/t." + format(), FileOf("types." + format()));
  const auto dataset = opener_.MustOpen(Yaml(format(),
                                             "{bool: , uint8: , int8: , uint16: , int16: , uint32: "
                                             ", int32: , uint64: , int64: , half: , float: , "
                                             "double: , day: , time: , text: , large_text: , view: "
                                             ", blob: , fixed: , word: , list: , large_list: , "
                                             "pair: , pairs: }"));
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_EQ(Fields(*dataset),
            "bool bool[], uint8 int64[], int8 int64[], uint16 int64[], int16 int64[], uint32 "
            "int64[], int32 int64[], uint64 int64[], int64 int64[], half float16[], float "
            "float32[], double float64[], day int64[], time int64[], text uint8[?], large_text "
            "uint8[?], view uint8[?], blob uint8[?] encoded, fixed uint8[?] encoded, word "
            "uint8[?], list int64[?], large_list int64[?], pair float32[2], pairs int64[?,2]");
  const std::pair<const char*, int64_t> numbers[] = {
      {"uint8", 255},         {"int8", -128},
      {"uint16", 65535},      {"int16", -32768},
      {"uint32", 4294967295}, {"int32", -2147483648},
      {"uint64", INT64_MAX},  {"int64", kInt64Min},
      {"day", 20000},         {"time", 1700000000000000}};
  for (const auto& [name, number] : numbers)
    EXPECT_THAT(Numbers<int64_t>(*dataset, 0, name), ElementsAre(number)) << name;
  EXPECT_EQ(FieldOf(*dataset, 0, "bool"), "\1");
  EXPECT_EQ(FieldOf(*dataset, 0, "half"), std::string("\0\x38", 2));
  EXPECT_THAT(Numbers<float>(*dataset, 0, "float"), ElementsAre(0.5F));
  EXPECT_THAT(Numbers<double>(*dataset, 0, "double"), ElementsAre(0.1));
  EXPECT_EQ(FieldOf(*dataset, 0, "text"), "äöü");
  EXPECT_EQ(FieldOf(*dataset, 0, "large_text"), "long");
  EXPECT_EQ(FieldOf(*dataset, 0, "view"), "a text of more than twelve bytes");
  EXPECT_EQ(FieldOf(*dataset, 0, "blob"), std::string("\0\1\2", 3));
  EXPECT_EQ(FieldOf(*dataset, 0, "fixed"), "abcd");
  EXPECT_EQ(FieldOf(*dataset, 0, "word"), "yes");
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "list"), ElementsAre(1, 2, 3));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "large_list"), ElementsAre(7));
  EXPECT_THAT(Numbers<float>(*dataset, 0, "pair"), ElementsAre(1.5F, 2.5F));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "pairs"), ElementsAre(1, 2, 3, 4));
  // What int64 cannot hold, in the second row.
  EXPECT_THAT(FieldOf(*dataset, 1, "bool"), HasSubstr("'uint64' has a number that int64 cannot"));
}

TEST_P(RowsOf, ANullIsABadRecordAndNothingWhereItMayBe) {
  folder_.Write("d/t." + format(), FileOf("types." + format()));
  const auto strict = opener_.MustOpen(Yaml(format(), "{x: int32, y: deep.a.b}"));
  EXPECT_THAT(Numbers<int64_t>(*strict, 0, "y"), ElementsAre(5));
  EXPECT_THAT(FieldOf(*strict, 1, "x"), HasSubstr("column 'deep.a.b' is missing"));
  EXPECT_THAT(FieldOf(*strict, 2, "x"), HasSubstr("column 'int32' is missing"));
  const auto lax = opener_.MustOpen(
      Yaml(format(),
           "{x: {from: int32, optional: true}, t: {from: text, optional: true}, l: {from: list, "
           "optional: true}}"));
  EXPECT_THAT(Numbers<int64_t>(*lax, 2, "x"), ElementsAre(0));
  EXPECT_EQ(FieldOf(*lax, 2, "t"), "");
  EXPECT_EQ(FieldOf(*lax, 2, "l"), "");
  // A null among numbers is no number, whatever may be missing.
  const auto holes = opener_.MustOpen(Yaml(format(), "{h: {from: holes, optional: true}}"));
  EXPECT_THAT(FieldOf(*holes, 0, "h"), HasSubstr("column 'holes' has a null among its numbers"));
  EXPECT_THAT(Numbers<int64_t>(*holes, 1, "h"), ElementsAre(2));
}

TEST_F(UnpackedTest, AColumnThatIsNotReadIsNamedWithItsTypeAndTheCure) {
  folder_.Write("d/r.arrow", FileOf("refused.arrow"));
  const struct {
    const char *column, *what;
  } cases[] = {{"lists", "is a list of lists"},
               {"names", "is a list of values other than numbers"},
               {"money", "(decimal128(10, 2)) is decimal; cure: write it as float64"},
               {"map", "is a map"},
               {"nothing", "has no values at all"}};
  for (const auto& [column, what] : cases) {
    ExpectRefused(Yaml("arrow", absl::StrCat("{x: ", column, "}")),
                  {absl::StrCat("column '", column, "' of 'd/r.arrow'"), what, "'fields'"});
  }
  ExpectRefused(Yaml("arrow"), {"column 'lists'"});
  const auto dataset = opener_.MustOpen(Yaml("arrow", "{label: label}"));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 1, "label"), ElementsAre(2));
  EXPECT_THAT(dataset->notes(), HasSubstr("column 'money' (decimal128(10, 2)) is not read"));
}

TEST_F(UnpackedTest, ManyColumnsThatAreNotReadAreCounted) {
  folder_.Write("d/r.arrow", FileOf("many-refused.arrow"));
  const auto dataset = opener_.MustOpen(Yaml("arrow", "{label: label}"));
  EXPECT_THAT(dataset->notes(), HasSubstr("column '0"));
  EXPECT_THAT(dataset->notes(), HasSubstr("is not read, and 3 more columns are not read"));
  EXPECT_LT(dataset->notes().size(), 4000u);
}

TEST_F(UnpackedTest, FilesOfOtherColumnsAreRefusedWithBothNames) {
  folder_.Write("d/a.parquet", FileOf("a.parquet"));
  folder_.Write("d/b.parquet", FileOf("types.parquet"));
  ExpectRefused(Yaml("parquet"),
                {"'d/b.parquet'", "column 'bool'", "'image.bytes'", "'d/a.parquet'", "one schema"});
}

TEST_F(UnpackedTest, FilesWhoseTimesHaveOtherUnitsAreRefused) {
  folder_.Write("d/a.arrow", FileOf("time-seconds.arrow"));
  folder_.Write("d/b.arrow", FileOf("time-micros.arrow"));
  ExpectRefused(Yaml("arrow"),
                {"'d/b.arrow'", "'time' (timestamp[us])", "'time' (timestamp[s])", "one schema"});
  folder_.Write("d/a.arrow", FileOf("time-utc.arrow"));
  ExpectRefused(Yaml("arrow"), {"'time' (timestamp[us])", "'time' (timestamp[us, tz=UTC])"});
  folder_.Write("d/b.arrow", FileOf("time-berlin.arrow"));
  EXPECT_EQ(opener_.MustOpen(Yaml("arrow"))->size(), 2) << "moments in any zones are the same";
}

TEST_F(UnpackedTest, APageThatDoesNotFitItsChecksumIsRefused) {
  std::string bytes = FileOf("checksums.parquet");
  folder_.Write("d/x.parquet", bytes);
  EXPECT_EQ(opener_.MustOpen(Yaml("parquet"))->size(), 2);
  const size_t at = bytes.find("\x88\x77\x66\x55\x44\x33\x22\x11");
  ASSERT_NE(at, std::string::npos);
  bytes[at + 3] ^= 1;
  folder_.Write("d/x.parquet", bytes);
  ExpectRefused(Yaml("parquet"), {"'d/x.parquet'", "CRC checksum verification failed"});
}

TEST_F(UnpackedTest, AStreamWithoutItsEndIsRefused) {
  const std::string whole = FileOf("a.arrow");
  const std::string mark("\xff\xff\xff\xff\0\0\0\0", 8);
  ASSERT_EQ(whole.substr(whole.size() - mark.size()), mark);
  for (size_t length = 0; length < mark.size(); ++length) {
    folder_.Write("d/x.arrow", whole.substr(0, whole.size() - mark.size() + length));
    ExpectRefused(Yaml("arrow"), {"'d/x.arrow'", "cannot be read as Arrow"});
  }
  folder_.Write("d/x.arrow", whole.substr(0, whole.size() - mark.size()));
  ExpectRefused(Yaml("arrow"), {"no mark at its end", "cut off"});
  // The mark of Arrow before 0.15.
  folder_.Write("d/x.arrow", whole.substr(0, whole.size() - mark.size()) + std::string(4, '\0'));
  EXPECT_EQ(opener_.MustOpen(Yaml("arrow"))->size(), 3);
}

TEST_F(UnpackedTest, ASavedHuggingFaceDatasetIsTheFilesThatItNames) {
  folder_.Write("d/data-00001-of-00002.arrow", FileOf("b.arrow"));
  folder_.Write("d/data-00000-of-00002.arrow", FileOf("a.arrow"));
  folder_.Write("d/cache-0123456789abcdef.arrow", FileOf("a.arrow"));
  ExpectRefused(Yaml("arrow"), {"'cache-0123456789abcdef.arrow' beside the parts of 'data'"});
  folder_.Write("d/state.json",
                R"({"_data_files": [{"filename": "data-00000-of-00002.arrow"},
                    {"filename": "data-00001-of-00002.arrow"}], "_format_type": null})");
  const auto dataset = opener_.MustOpen(Yaml("arrow"));
  ASSERT_EQ(dataset->size(), 5);
  EXPECT_THAT(Numbers<int64_t>(*dataset, 4, "label"), ElementsAre(4));
  folder_.Write("d/state.json", R"({"_data_files": [{"filename": "../x.arrow"}]})");
  ExpectRefused(Yaml("arrow"), {"state.json", "'../x.arrow'"});
  folder_.Write("d/state.json", R"({"_data_files": [], "_indices_data_files": [{}]})");
  ExpectRefused(Yaml("arrow"), {"flatten_indices"});
}

// What its methods keep for themselves would be its rows, too.
TEST_F(UnpackedTest, ASavedDatasetWhoseStateCannotBeReadIsRefused) {
  folder_.Write("d/data.arrow", FileOf("b.arrow"));
  folder_.Write("d/cache-0123456789abcdef.arrow", FileOf("a.arrow"));
  for (const std::string& text :
       {std::string(R"({"_data_files": [{"filen)"), std::string(), std::string(20, '['),
        std::string(R"({"_data_files": []})"), std::string(R"({"_data_files": {}})"),
        std::string((16 << 20) + 1, ' ')}) {
    folder_.Write("d/state.json", text);
    ExpectRefused(Yaml("arrow"), {"'d/state.json'", "cannot be read", "save the dataset again"});
  }
  folder_.Write("d/state.json", R"({"of": "another program"})");
  EXPECT_EQ(opener_.MustOpen(Yaml("arrow"))->size(), 5);
}

TEST_F(UnpackedTest, SetsOfNumberedFilesAreReadWhole) {
  folder_.Write("d/train-00000-of-00002.parquet", FileOf("a.parquet"));
  EXPECT_EQ(opener_.Open(Yaml("parquet")).status().code(), absl::StatusCode::kNotFound);
  folder_.Write("d/train-00001-of-00002.parquet", FileOf("b.parquet"));
  EXPECT_EQ(opener_.MustOpen(Yaml("parquet"))->size(), 5);
  folder_.Write("d/test-00000-of-00001.parquet", FileOf("b.parquet"));
  ExpectRefused(Yaml("parquet"), {"several sets of files", "'files'"});
  EXPECT_EQ(opener_.MustOpen("{format: parquet, root: root, path: d, files: [test-*]}")->size(), 2);
}

// Goal: no bytes of a file end anything but its opening. Method: cut at many places, one byte
// flipped at many places. What opens all the same must be readable without harm.
TEST_P(RowsOf, ADamagedFileIsRefusedByItsNameOrRead) {
  for (const char* name : {"a", "types"}) {
    const std::string good = FileOf(absl::StrCat(name, ".", format()));
    std::vector<std::string> damaged;
    for (size_t length = 0; length < good.size(); length += 1 + good.size() / 25)
      damaged.push_back(good.substr(0, length));
    for (size_t at = 0; at < good.size(); at += 1 + good.size() / 60) {
      damaged.push_back(good);
      damaged.back()[at] = static_cast<char>(damaged.back()[at] ^ (at % 2 == 0 ? 0xff : 0x40));
    }
    for (const std::string& bytes : damaged) {
      folder_.Write("d/x." + format(), bytes);
      const auto dataset = opener_.Open(Yaml(format()));
      if (!dataset.ok()) {
        EXPECT_TRUE(absl::IsInvalidArgument(dataset.status()) ||
                    absl::IsResourceExhausted(dataset.status()))
            << dataset.status();
        EXPECT_THAT(
            std::string(dataset.status().message()),
            ::testing::AnyOf(HasSubstr("'d/x." + format() + "'"), HasSubstr("'d' of root")));
        EXPECT_THAT(std::string(dataset.status().message()), ::testing::Not(HasSubstr("SIGSYS")));
        continue;
      }
      Record scratch;
      for (int64_t i = 0; i < std::min<int64_t>((*dataset)->size(), 100); ++i)
        ReadFields(**dataset, i, &scratch);
    }
  }
}

TEST_P(RowsOf, AFileOfAnotherKindIsRefusedByItsName) {
  for (const std::string& bytes :
       {std::string(), std::string("PAR1"), std::string("PAR1PAR1PAR1"),
        std::string("ARROW1\0\0", 8), std::string(4096, '\0'),
        std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8), RandomBytes(5000, 3),
        FileOf(format() == "arrow" ? "a.parquet" : "a.arrow")}) {
    folder_.Write("d/x." + format(), bytes);
    ExpectRefused(Yaml(format()), {"'d/x." + format() + "'", "cannot be read as", "cure: "});
  }
  EXPECT_EQ(StagedFiles(), 0u);
}

TEST_P(RowsOf, WhatIsUnpackedIsUsedAgainUntilTheFileChanges) {
  folder_.Write("d/a." + format(), FileOf("a." + format()));
  opener_.MustOpen(Yaml(format()));
  opener_.rebuild = true;
  opener_.MustOpen(Yaml(format()));
  EXPECT_EQ(StagedFiles(), 1u);
  opener_.MustOpen(Yaml(format(), "{label: label}"));
  EXPECT_EQ(StagedFiles(), 2u) << "other columns are other rows";
  folder_.Write("d/a." + format(), FileOf("b." + format()));
  EXPECT_EQ(opener_.MustOpen(Yaml(format()))->size(), 2);
}

TEST_P(RowsOf, MemoryIsReservedAndAFullStageIsSaid) {
  folder_.Write("d/a." + format(), FileOf("a." + format()));
  opener_.budget = MemoryBudget::Create(32 << 20);
  ExpectRefused(Yaml(format()), {"indexes", "over the limit"},
                absl::StatusCode::kResourceExhausted);
  opener_.budget = nullptr;
  opener_.staging = StagingArea::Below(state_.path(), 64);
  ExpectRefused(Yaml(format()), {"stage.disk"}, absl::StatusCode::kResourceExhausted);
  opener_.staging = nullptr;
  ExpectRefused(Yaml(format()), {"holds columns, not records", "stage: {disk: SIZE}"},
                absl::StatusCode::kFailedPrecondition);
}

TEST_F(ColumnarTest, AMissingProgramIsSaidWithWhereToGetIt) {
  const auto program = ColumnarProgram::Find("parquet");
  if (program.ok()) GTEST_SKIP() << "feedwater-columnar is there";
  folder_.Write("d/a.parquet", FileOf("a.parquet"));
  ExpectRefused(Yaml("parquet"),
                {"format 'parquet'", "feedwater-columnar", "scripts/setup --parquet", "tfrecord"},
                absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace feedwater::server
