// Goal: `fields:` means the same in every format with columns. Method: tar shards, whose columns
// are easily written, and fields that ask for everything that can be asked.
#include "server/source/columns.h"
#include "server/source/field_reader.h"
#include "server/source/field_requests.h"
#include "server/source/value_conversion.h"
#include "tests/source/column_testing.h"
#include "tests/source/npy_text.h"
#include "tests/source/tar_text.h"

namespace feedwater::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class FieldsTest : public ColumnTest {
 protected:
  FieldsTest() {
    const auto floats = [](std::vector<float> values) {
      return std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4);
    };
    folder_.Write(
        "shard.tar",
        TarMemberText("a.jpg", "JPEG") + TarMemberText("a.cls", "7\n") +
            TarMemberText("a.kind", "cat") + TarMemberText("a.box", floats({1, 2, 3, 4})) +
            TarMemberText("a.emb.npy", NpyText("<f4", "(2, 3)", floats({1, 2, 3, 4, 5, 6}))) +
            TarMemberText("a.path", "pictures/one.png") +  //
            TarMemberText("b.png", "PNG!!") + TarMemberText("b.cls", "3") +
            TarMemberText("b.kind", "ant") + TarMemberText("b.box", floats({})) +
            TarMemberText("b.emb.npy", NpyText("<f4", "(2, 3)", floats({6, 5, 4, 3, 2, 1}))) +
            TarMemberText("b.path", "./pictures//two.png") + TarMemberText("b.extra", "more") +
            TarEnd());
    folder_.Write("pictures/one.png", "first picture");
    folder_.Write("pictures/two.png", "second");
  }
  static std::string Yaml(const std::string& fields) {
    return absl::StrCat("{format: webdataset, root: root, fields: ", fields, "}");
  }
};

TEST_F(FieldsTest, AreColumnsUnderOtherNames) {
  const auto dataset =
      opener_.MustOpen(Yaml("{image: jpg;png, what: kind, label: {from: cls, dtype: int64}}"));
  EXPECT_EQ(Fields(*dataset), "image uint8[?] encoded, what uint8[?] encoded, label int64[]");
  EXPECT_EQ(FieldOf(*dataset, 0, "image"), "JPEG");
  EXPECT_EQ(FieldOf(*dataset, 1, "image"), "PNG!!");
  EXPECT_EQ(FieldOf(*dataset, 1, "what"), "ant");
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "label"), ElementsAre(7));
}

TEST_F(FieldsTest, BytesBecomeNumbersOfAShape) {
  const auto dataset = opener_.MustOpen(
      Yaml("{boxes: {from: box, dtype: float32, shape: [-1, 4]}, emb: {from: emb.npy, dtype: "
           "float32, shape: [2, 3]}}"));
  EXPECT_EQ(Fields(*dataset), "boxes float32[?,4], emb float32[2,3]");
  EXPECT_THAT(Numbers<float>(*dataset, 0, "boxes"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Numbers<float>(*dataset, 1, "boxes"), ElementsAre());
  EXPECT_THAT(Numbers<float>(*dataset, 1, "emb"), ElementsAre(6, 5, 4, 3, 2, 1));
}

TEST_F(FieldsTest, TextsBecomeClassesInSortedOrder) {
  const auto dataset = opener_.MustOpen(Yaml("{label: {from: kind, classes: auto}}"));
  EXPECT_THAT(dataset->classes(), ElementsAre("ant", "cat"));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "label"), ElementsAre(1));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 1, "label"), ElementsAre(0));
}

TEST_F(FieldsTest, AFileFieldIsTheBytesOfTheFileThatTheColumnNames) {
  const auto dataset =
      opener_.MustOpen(Yaml("{photo: {from: path, file: true}, label: {from: cls, dtype: int32}}"));
  EXPECT_EQ(Fields(*dataset), "photo uint8[?] encoded, label int32[]");
  EXPECT_EQ(FieldOf(*dataset, 0, "photo"), "first picture");
  EXPECT_EQ(FieldOf(*dataset, 1, "photo"), "second");
  EXPECT_THAT(Numbers<int32_t>(*dataset, 1, "label"), ElementsAre(3));
  EXPECT_EQ(dataset->objects(), 3);
}

TEST_F(FieldsTest, AFileThatIsMissingIsABadSampleAndOneOutsideIsRefused) {
  std::filesystem::remove(folder_ / "pictures/two.png");
  const auto dataset = opener_.MustOpen(Yaml("{photo: {from: path, file: true}}"));
  EXPECT_EQ(FieldOf(*dataset, 0, "photo"), "first picture");
  Record scratch;
  const absl::Status bad = ParseBytes(*dataset, 1, {ReadExtents(*dataset, 0)[0], ""}, &scratch);
  EXPECT_THAT(std::string(bad.message()), HasSubstr("field 'photo'"));
  EXPECT_THAT(dataset->notes(), HasSubstr("pictures/two.png"));
  for (const char* path : {"/etc/passwd", "../x", "pictures/../../x"}) {
    folder_.Write("shard.tar", TarMemberText("a.path", path));
    ExpectRefused(Yaml("{photo: {from: path, file: true}}"), {"record 0", "field 'photo'", path});
  }
}

TEST_F(FieldsTest, AFileThatIsMissingIsToldFromAnEmptyOneAlsoByASavedIndex) {
  folder_.Write("empty.png", "");
  std::filesystem::create_directories(folder_ / "folder.png");
  folder_.Write("shard.tar", TarMemberText("a.path", "empty.png") +
                                 TarMemberText("b.path", "pictures/gone.png") +
                                 TarMemberText("c.path", "folder.png") +
                                 TarMemberText("d.path", "pictures/one.png"));
  TempFolder state;
  opener_.state_dir = state.path();
  int builds = 0;
  for (const char* when : {"indexed", "from the saved index"}) {
    const auto dataset = opener_.MustOpen(Yaml("{photo: {from: path, file: true}}"));
    if (builds > 0) {
      EXPECT_EQ(opener_.builds, builds) << when;
    }
    builds = opener_.builds;
    const auto error = [&](int64_t record) {
      Record scratch;
      return std::string(
          ParseBytes(*dataset, record, {ReadExtents(*dataset, 3)[0], ""}, &scratch).message());
    };
    EXPECT_EQ(FieldOf(*dataset, 3, "photo"), "first picture") << when;
    EXPECT_EQ(FieldOf(*dataset, 0, "photo"),
              "error: field 'photo' needs the file 'empty.png' that column 'path' names, which is "
              "empty")
        << when;
    for (const int64_t record : {1, 2}) {
      std::vector<Extent> extents;
      dataset->Extents(record, &extents);
      EXPECT_EQ(extents[1].length, 0) << when;
    }
    EXPECT_THAT(error(1), HasSubstr("'pictures/gone.png' that column 'path' names, which is not"))
        << when;
    EXPECT_THAT(error(2), HasSubstr("'folder.png' that column 'path' names, which is not there"))
        << when;
  }
}

// Where it lies is told by that file; a record without one lies in the table.
TEST_F(FieldsTest, TheFirstFileThatAFieldIsNamesTheRecord) {
  folder_.Write("shard.tar", TarMemberText("a.path", "pictures/one.png") +
                                 TarMemberText("a.mask", "pictures/two.png") +
                                 TarMemberText("b.mask", "pictures/two.png") +
                                 TarMemberText("c.cls", "7"));
  const auto dataset =
      opener_.MustOpen(Yaml("{photo: {from: path, file: true, optional: true}, mask_data: {from: "
                            "mask, file: true, optional: true}}"));
  const RecordPlace both = PlaceOf(*dataset, 0);
  EXPECT_EQ(both.path, "pictures/one.png");
  EXPECT_EQ(both.offset, 0);
  std::vector<Extent> extents;
  dataset->Extents(0, &extents);
  ASSERT_EQ(extents.size(), 3u);
  EXPECT_EQ(both.bytes, extents[0].length + 13 + 6);
  EXPECT_EQ(PlaceOf(*dataset, 1).path, "pictures/two.png");
  EXPECT_EQ(PlaceOf(*dataset, 2).path, "shard.tar");
  EXPECT_GT(PlaceOf(*dataset, 2).offset, 0);
  const auto mix = opener_.MustOpen(
      "{mix: [{format: webdataset, root: root, fields: {label: {from: cls, dtype: int64, optional: "
      "true}, data: {from: path, file: true, optional: true}}}, {format: webdataset, root: root, "
      "fields: {label: {from: cls, dtype: int64, optional: true}, data: {from: mask, file: true, "
      "optional: true}}}]}");
  EXPECT_EQ(PlaceOf(*mix, 0).path, "root/pictures/one.png");
  EXPECT_EQ(PlaceOf(*mix, 4).path, "root/pictures/two.png");
  EXPECT_EQ(PlaceOf(*mix, 5).path, "root/shard.tar");
}

TEST_F(FieldsTest, EachKeyHasAnExampleThatCanBeRead) {
  for (const FieldKey& key : FieldKeys()) {
    EXPECT_THAT(key.example, HasSubstr(key.param.name + ": ")) << key.param.name;
    FieldRequests read;
    const absl::Status status =
        ParamType<FieldRequests>::Read(ParseNode("{" + key.example + "}"), &read);
    EXPECT_TRUE(status.ok()) << key.example << status;
    EXPECT_EQ(read.list.size(), 1u) << key.example;
  }
}

TEST_F(FieldsTest, AnOptionalColumnMayBeMissing) {
  const auto dataset =
      opener_.MustOpen(Yaml("{extra: {from: extra, optional: true}, n: {from: extra, dtype: "
                            "uint16, shape: [2], optional: true}}"));
  EXPECT_EQ(FieldOf(*dataset, 0, "extra"), "");
  EXPECT_THAT(Numbers<uint16_t>(*dataset, 0, "n"), ElementsAre(0, 0));
  EXPECT_EQ(FieldOf(*dataset, 1, "extra"), "more");
  const auto needed = opener_.MustOpen(Yaml("{extra: extra}"));
  EXPECT_EQ(FieldOf(*needed, 0, "extra"), "error: field 'extra' column 'extra' is missing");
}

TEST_F(FieldsTest, NamesOfClassesAreInTheBudgetWhileTheDatasetIsOpen) {
  static constexpr int kNames = 2000;
  std::string tar;
  for (int i = 0; i < kNames; ++i) {
    const std::string name = absl::StrCat(10000 + i, std::string(60, 'x'));
    absl::StrAppend(&tar, TarMemberText(absl::StrCat(i, ".a"), name));
  }
  folder_.Write("shard.tar", tar + TarEnd());
  opener_.budget = MemoryBudget::Create(int64_t{64} << 20);
  const auto planned = [this](const std::string& fields) {
    const auto dataset = opener_.MustOpen(Yaml(fields));
    EXPECT_EQ(dataset->size(), kNames);
    EXPECT_THAT(Numbers<int64_t>(*dataset, 1, "label"), ElementsAre(1));
    return opener_.budget->planned_bytes();
  };
  const int64_t one = planned("{label: {from: a, classes: auto}}");
  EXPECT_GT(one, kNames * (2 * 64 + 32));  // as texts in the index, and as the dataset's classes
  // Another field has its names in the index alone: a column, and where each ends.
  EXPECT_LT(planned("{label: {from: a, classes: auto}, b: {from: a, classes: auto}}") - one,
            kNames * (64 + 32));
  EXPECT_EQ(opener_.budget->planned_bytes(), 0);
}

TEST_F(FieldsTest, FilesThatRecordsMayLackAreInTheBudgetToo) {
  std::string tar = TarMemberText("0.path", "shard.tar");
  for (int i = 1; i < 2000; ++i) absl::StrAppend(&tar, TarMemberText(absl::StrCat(i, ".n"), "1"));
  folder_.Write("shard.tar", tar + TarEnd());
  std::string fields;
  for (int i = 0; i < 100; ++i) {
    absl::StrAppend(&fields, i == 0 ? "{" : ", ", "f", i,
                    ": {from: path, file: true, optional: true}");
  }
  opener_.budget = MemoryBudget::Create(int64_t{2} << 20);  // 16 bytes for each would be 3 MiB
  ExpectRefused(Yaml(fields + "}"), {"indexes"}, absl::StatusCode::kResourceExhausted);
}

TEST(ColumnValuesTest, ScratchIsNeverLargerThanARecordMayBe) {
  std::vector<std::byte> scratch;
  ColumnValues values(1, &scratch);
  EXPECT_NE(values.Make(0, {}, 8), nullptr);
  EXPECT_NE(values.Make(0, {}, ColumnValues::kMaxScratchBytes - 8), nullptr);
  EXPECT_EQ(values.Make(0, {}, 1), nullptr);
  EXPECT_LE(scratch.capacity(), ColumnValues::kMaxScratchBytes + kReadPadding);
  const std::byte* const before = scratch.data();
  scratch.resize(scratch.size() + kReadPadding);
  EXPECT_EQ(scratch.data(), before);
}

// Whatever a format says of a value, no more than its bytes is read.
TEST(ColumnValuesTest, AValueHasAsManyElementsAsBytes) {
  const std::vector<ColumnSpec> columns = {ColumnSpec::Number("x", DType::kInt32, {-1, -1}),
                                           ColumnSpec::Text("t")};
  std::vector<FieldRequest> requests(2);
  requests[0].name = requests[0].from = "x";
  requests[1].name = requests[1].from = "t";
  const auto reader = FieldReader::Create(requests, columns, "a dataset");
  ASSERT_TRUE(reader.ok()) << reader.status();
  const int32_t numbers[4] = {1, 2, 3, 4};
  const auto error = [&](size_t bytes, const Shape& shape, int64_t letters) {
    Record record;
    ColumnValues values(columns.size(), &record.scratch);
    values.Set(0, numbers, bytes, shape);
    values.Set(1, "text", 4, {letters});
    return reader->Read(values, {}, &record).ToString();
  };
  EXPECT_EQ(error(16, {2, 2}, 4), "OK");
  EXPECT_EQ(error(0, {1, 0}, 4), "OK");
  for (const Shape& shape : std::vector<Shape>{{2, 3}, {1, 2}, {-1, 2}, {INT64_MAX, INT64_MAX}})
    EXPECT_THAT(error(16, shape, 4), HasSubstr("field 'x' has 16 bytes, which are no int32["));
  EXPECT_THAT(error(16, {2, 2}, 5), HasSubstr("field 't' has 4 bytes, which are no uint8[5]"));
}

TEST_F(FieldsTest, TheClassesAreThoseOfTheLabel) {
  folder_.Write("shard.tar", TarMemberText("a.big", "pet\n") + TarMemberText("a.kind", "dog") +
                                 TarMemberText("b.big", "pet") + TarMemberText("b.kind", "cat\n") +
                                 TarMemberText("c.big", "wild"));
  const auto dataset = opener_.MustOpen(
      Yaml("{coarse: {from: big, classes: auto}, label: {from: \"kind;big\", classes: auto}}"));
  EXPECT_THAT(dataset->classes(), ElementsAre("cat", "dog", "wild"));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 1, "label"), ElementsAre(0));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "coarse"), ElementsAre(0));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 2, "coarse"), ElementsAre(1));
}

TEST_F(FieldsTest, AnArrayKeepsItsOwnAxes) {
  const auto turned = opener_.MustOpen(Yaml("{x: {from: emb.npy, dtype: float32, shape: [3, 2]}}"));
  EXPECT_EQ(FieldOf(*turned, 0, "x"), "error: field 'x' has the shape [2,3], not [3,2]");
  const auto flat = opener_.MustOpen(Yaml("{x: {from: emb.npy, dtype: float32, shape: [-1]}}"));
  EXPECT_THAT(FieldOf(*flat, 0, "x"), HasSubstr("has the shape [2,3], not [?]"));
}

TEST_F(FieldsTest, WhatCannotBeIsRefusedWithItsPlace) {
  const struct {
    const char *fields, *message;
  } cases[] = {
      {"{x: nothing}", "has no column 'nothing'"},
      {"{x: knd}", "did you mean 'kind'?"},
      {"{x: {from: kind, dtyp: int64}}", "has no parameter 'dtyp'"},
      {"{x: {from: kind, dtype: int65}}", "unknown dtype 'int65'"},
      {"{x: {from: kind, shape: [2]}}", "a 'shape' needs a 'dtype'"},
      {"{x: {from: cls, dtype: int64, shape: [2]}}", "one number alone"},
      {"{x: {from: box, dtype: float32, shape: [-2]}}", "'shape' takes lengths"},
      {"{x: {from: box, dtype: float64, shape: [1099511627776, 1099511627776]}}", "overflows"},
      {"{x: {from: path, file: true, dtype: uint8}}", "do not go with 'file'"},
      {"{x: {from: kind, classes: auto, dtype: int64}}", "do not go with 'classes'"},
      {"{x: {from: kind, classes: some}}", "'classes'"},
      {"{x: {from: kind, offset: 3}}", "'offset' is for the format raw"},
      {"{x: {from: kind, classes: auto, optional: true}}", "'optional' does not go with 'classes'"},
      {"[kind]", "must be a map"},
      {"kind", "must be a map"},
  };
  for (const auto& c : cases) {
    const absl::Status status = opener_.Open(Yaml(c.fields)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.fields << status;
    EXPECT_THAT(std::string(status.message()),
                ::testing::AllOf(HasSubstr(c.message), StartsWith("test.yaml:1:")))
        << c.fields;
  }
}

TEST_F(FieldsTest, ValuesThatDoNotFitAreBadSamples) {
  const struct {
    const char *field, *message;
  } cases[] = {
      {"{from: kind, dtype: int64}", "is no number: 'cat'"},
      {"{from: box, dtype: float32, shape: [3]}", "has 4 elements where [3] is announced"},
      {"{from: kind, dtype: int16}", "is no number"},
      {"{from: emb.npy, dtype: int32, shape: [2, 3]}", "is an array of float32, not of int32"},
  };
  for (const auto& c : cases) {
    const auto dataset = opener_.MustOpen(Yaml(absl::StrCat("{x: ", c.field, "}")));
    EXPECT_THAT(FieldOf(*dataset, 0, "x"),
                ::testing::AllOf(StartsWith("error: field 'x'"), HasSubstr(c.message)));
  }
  folder_.Write("shard.tar", TarMemberText("a.cls", "300") + TarMemberText("a.f", "1.5") +
                                 TarMemberText("a.big", "1e30"));
  for (const char* field :
       {"{from: cls, dtype: uint8}", "{from: f, dtype: int32}", "{from: big, dtype: int64}"}) {
    const auto dataset = opener_.MustOpen(Yaml(absl::StrCat("{x: ", field, "}")));
    EXPECT_THAT(FieldOf(*dataset, 0, "x"), HasSubstr("cannot hold")) << field;
  }
}

TEST(ValueConversionTest, TextBecomesTheIntegerThatItSpellsOrNone) {
  const auto parsed = [](const std::string& text, DType dtype) -> std::optional<int64_t> {
    int64_t number = 0;
    const absl::Status status = ParseNumber(text, reinterpret_cast<std::byte*>(&number), dtype);
    if (status.ok()) return number;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cannot hold")) << text;
    return std::nullopt;
  };
  const std::vector<std::pair<std::string, std::optional<int64_t>>> cases = {
      {"9223372036854775807", INT64_MAX},
      {"-9223372036854775808", INT64_MIN},
      {"9223372036854775807.00", INT64_MAX},
      {"-922337203685477580.8e1", INT64_MIN},
      {"9007199254740993.0", (int64_t{1} << 53) + 1},
      {" +1.5e3\n", 1500},
      {"00120e-1", 12},
      {"0.5e1", 5},
      {".5E+1", 5},
      {"5.", 5},
      {"-0.0", 0},
      {"0e999999999999", 0},
      {"0.000", 0},
      {"9223372036854775808", std::nullopt},
      {"-9223372036854775809", std::nullopt},
      {"9223372036854775807.5", std::nullopt},
      {"0.99999999999999999999", std::nullopt},
      {"1e-5", std::nullopt},
      {"1e19", std::nullopt},
      {"1e999", std::nullopt},
      {"1e99999999999999999999", std::nullopt},
      {"inf", std::nullopt},
      {"nan", std::nullopt},
  };
  for (const auto& [text, number] : cases) EXPECT_EQ(parsed(text, DType::kInt64), number) << text;
  EXPECT_EQ(parsed("2.55e2", DType::kUInt8), 255);
  EXPECT_EQ(parsed("2.56e2", DType::kUInt8), std::nullopt);
  EXPECT_EQ(parsed("1.0", DType::kBool), 1);
  EXPECT_EQ(parsed("2", DType::kBool), std::nullopt);
}

TEST(ValueConversionTest, NoFiniteNumberBecomesInfinite) {
  const auto parsed = [](const std::string& text, DType dtype) {
    double number = 0;
    return ParseNumber(text, reinterpret_cast<std::byte*>(&number), dtype).ToString();
  };
  for (const char* fits : {"3.4028235e38", "-3.4028235e38", "1e-60", "inf", "-Infinity", "nan"})
    EXPECT_EQ(parsed(fits, DType::kFloat32), "OK") << fits;
  EXPECT_THAT(parsed("1e39", DType::kFloat32), HasSubstr("float32 cannot hold"));
  EXPECT_THAT(parsed("-3.4028236e38", DType::kFloat32), HasSubstr("float32 cannot hold"));
  EXPECT_EQ(parsed("1e39", DType::kFloat64), "OK");
  EXPECT_THAT(parsed("1e999", DType::kFloat64), HasSubstr("has 1e999, which float64 cannot hold"));
  const double numbers[] = {1, 1e39};
  float to[2] = {};
  EXPECT_THAT(Convert(reinterpret_cast<const std::byte*>(numbers), DType::kFloat64,
                      reinterpret_cast<std::byte*>(to), DType::kFloat32, 2)
                  .ToString(),
              HasSubstr("has 1e+39, which float32 cannot hold"));
}

// --- which files

class FilesTest : public ColumnTest {
 protected:
  static std::string Yaml(const std::string& files) {
    return absl::StrCat("{format: webdataset, root: root, path: d, files: ", files, "}");
  }
  void Shard(const std::string& name) {
    folder_.Write("d/" + name, TarMemberText(name + "x.txt", name));
  }
  std::vector<std::string> Paths(const std::string& files) {
    std::vector<std::string> paths;
    const auto dataset = opener_.MustOpen(Yaml(files));
    for (uint32_t i = 0; dataset != nullptr && i < dataset->objects(); ++i)
      paths.push_back(dataset->ObjectPath(i));
    return paths;
  }
};

TEST_F(FilesTest, AreNamesGlobsAndRangesInOrder) {
  for (const char* name : {"t-8.tar", "t-9.tar", "t-10.tar", "p-08.tar", "p-09.tar", "p-10.tar",
                           "sub/s.tar", ".hidden.tar", "x.txt"})
    Shard(name);
  EXPECT_THAT(Paths("[]"), ElementsAre("d/p-08.tar", "d/p-09.tar", "d/p-10.tar", "d/t-10.tar",
                                       "d/t-8.tar", "d/t-9.tar"));
  EXPECT_THAT(Paths("['t-*.tar']"), ElementsAre("d/t-10.tar", "d/t-8.tar", "d/t-9.tar"));
  EXPECT_THAT(Paths("['t-{8..10}.tar']"), ElementsAre("d/t-8.tar", "d/t-9.tar", "d/t-10.tar"));
  EXPECT_THAT(Paths("['p-{08..10}.tar']"), ElementsAre("d/p-08.tar", "d/p-09.tar", "d/p-10.tar"));
  EXPECT_THAT(Paths("['{t-9,p-08}.tar', sub/s.tar]"),
              ElementsAre("d/t-9.tar", "d/p-08.tar", "d/sub/s.tar"));
  EXPECT_THAT(Paths("['s*/?.tar']"), ElementsAre("d/sub/s.tar"));
}

TEST_F(FilesTest, SeveralPatternsMayMeetWhatIsNoFolder) {
  Shard("s1/train-0.tar");
  Shard("s1/val-0.tar");
  folder_.Write("d/README.md", "no folder");
  std::filesystem::create_symlink("nothing", folder_ / "d/dangling");
  const auto both = ElementsAre("d/s1/train-0.tar", "d/s1/val-0.tar");
  EXPECT_THAT(Paths("['*/train-*.tar', '*/val-*.tar']"), both);
  EXPECT_THAT(Paths("['*/{train,val}-0.tar']"), both);
  // Both match a folder, too.
  Shard("a.tar");
  Shard("t1.tar");
  EXPECT_THAT(Paths("['[as]*', '?1*']"), ElementsAre("d/a.tar", "d/t1.tar"));
}

TEST_F(FilesTest, ThatAreNotThereOrNamedTwiceAreRefused) {
  Shard("a.tar");
  ExpectRefused(Yaml("['*.tgz']"), {"'*.tgz'"}, absl::StatusCode::kNotFound);
  ExpectRefused(Yaml("['a-{0..3}.tar']"), {"a-0.tar"}, absl::StatusCode::kNotFound);
  ExpectRefused(Yaml("['*.tar', a.tar]"), {"twice", "a.tar"});
  ExpectRefused(Yaml("['a-{3..0}.tar']"), {"ends before it begins"});
  ExpectRefused(Yaml("['a-{0..99999999}.tar']"), {"more than 1000000 names"});
  ExpectRefused(Yaml("['{0..9999}{0..9999}.tar']"), {"more than 1000000 names"});
  ExpectRefused(Yaml("['{a,b}.tar']"), {"b.tar"}, absl::StatusCode::kNotFound);
  ExpectRefused(Yaml("['{a,x*}.tar']"), {"'x*.tar'"}, absl::StatusCode::kNotFound);
  ExpectRefused(Yaml("['**/*.tar']"), {"'**' is not known"});
  // What a pipeline's text can ask for is bounded before it is made.
  ExpectRefused(Yaml("['{18446744073709551610..18446744073709551615}.tar']"),
                {"18446744073709551610.tar"}, absl::StatusCode::kNotFound);
  ExpectRefused(Yaml("['" + std::string(5000, 'a') + "{1..1000000}']"), {"longer than a path"});
  ExpectRefused(Yaml("['" + std::string(4000, 'a') + "{1..1000000}']"),
                {"more than 1000000 names"});
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "a/";
  ExpectRefused(Yaml("['" + deep + "b']"), {"longer than a path"});
  ExpectRefused(Yaml("['../a.tar']"), {"'files'", "'..'"});
  ExpectRefused("{format: webdataset, root: root, path: d/a.tar, files: [a.tar]}", {"is a file"});
}

TEST_F(FilesTest, AFileAndTheSameOneUnpackedAreNotBothRead) {
  Shard("a.tar");
  folder_.Write("d/a.tar.gz", "");
  opener_.staging = StagingArea::Below(folder_ / "state", 1 << 20);
  folder_.Write("d/a.tar.gz",
                std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0\0\0\0\0\0\0\0\0", 20));
  ExpectRefused(Yaml("[]"), {"a.tar.gz", "stands beside"});
}

// A folder behind a glob that is not there yet, and a file in one that is.
TEST_F(FilesTest, BehindAGlobThatComeLaterAreSeen) {
  opener_.state_dir = folder_ / "state";
  Shard("a/images/1.tar");
  std::filesystem::create_directories(folder_ / "d/b");
  const std::string yaml = Yaml("['*/images/*.tar']"), one = Yaml("['*/1.tar']");
  Shard("a/1.tar");
  EXPECT_EQ(opener_.MustOpen(yaml)->size(), 1);
  EXPECT_EQ(opener_.MustOpen(one)->size(), 1);
  Shard("b/images/2.tar");
  Shard("b/1.tar");
  EXPECT_EQ(opener_.MustOpen(yaml)->size(), 2);
  EXPECT_EQ(opener_.MustOpen(one)->size(), 2);
}

TEST_F(FilesTest, ThatComeLaterAreSeen) {
  opener_.state_dir = folder_ / "state";
  Shard("t-1.tar");
  EXPECT_EQ(opener_.MustOpen(Yaml("['t-*.tar']"))->size(), 1);
  Shard("t-2.tar");
  EXPECT_EQ(opener_.MustOpen(Yaml("['t-*.tar']"))->size(), 2);
}

}  // namespace
}  // namespace feedwater::server
