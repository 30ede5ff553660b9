// What is special to MDS shards: what each encoding becomes, and that nothing which index.json or a
// shard says is believed.
#include <zstd.h>

#include "absl/strings/str_cat.h"
#include "tests/source/column_testing.h"
#include "tests/source/mds_text.h"

namespace feedwater::server {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MdsTest : public ColumnTest {
 protected:
  void WriteColumns(const std::vector<MdsColumnText>& columns,
                    const std::vector<std::vector<std::string>>& samples) {
    std::vector<std::string> texts;
    for (const auto& values : samples) texts.push_back(MdsSampleText(columns, values));
    WriteShard(columns, MdsShardText(columns, texts), samples.size());
  }
  void WriteShard(const std::vector<MdsColumnText>& columns, const std::string& shard,
                  size_t samples) {
    folder_.Write("d/a.mds", shard);
    folder_.Write("d/index.json",
                  MdsIndexText({MdsShardJson(columns, "a.mds", shard.size(), samples)}));
  }
  // index.json with one thing changed.
  void ChangeIndex(const std::function<void(json&)>& change) {
    json index = json::parse(std::ifstream(folder_ / "d/index.json"));
    change(index);
    folder_.Write("d/index.json", index.dump());
  }
  std::string Yaml(const std::string& more = "") {
    return "{format: mds, root: root, path: d" + more + "}";
  }
  std::string OpenError(const std::string& more = "") {
    const auto dataset = opener_.Open(Yaml(more));
    EXPECT_FALSE(dataset.ok());
    return std::string(dataset.status().message());
  }
};

TEST_F(MdsTest, CompressedShardsAreUnpackedOnce) {
  TempFolder state;
  WriteColumns({{"s", "str"}}, {{"one"}, {"two"}});
  std::ifstream file(folder_ / "d/a.mds", std::ios::binary);
  const std::string raw((std::istreambuf_iterator<char>(file)), {});
  std::string packed(ZSTD_compressBound(raw.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), raw.data(), raw.size(), 3));
  folder_.Write("d/a.mds.zstd", packed);
  std::filesystem::remove(folder_ / "d/a.mds");
  ChangeIndex([&](json& index) {
    index["shards"][0]["zip_data"] = {{"basename", "a.mds.zstd"}, {"bytes", packed.size()}};
    index["shards"][0]["compression"] = "zstd:3";
  });
  EXPECT_THAT(OpenError(), AllOf(HasSubstr("a.mds.zstd"), HasSubstr("stage: {disk: SIZE}")));
  opener_.staging = StagingArea::Below(state.path(), 1 << 20);
  const auto dataset = opener_.MustOpen(Yaml());
  EXPECT_EQ(FieldOf(*dataset, 1, "s"), "two");
  EXPECT_NE(&dataset->RootOf(0), &dataset->root());
}

// As streaming.base.util.merge_index writes it: both names have the folder.
TEST_F(MdsTest, CompressedShardsOfAMergedIndexAreThoseOfTheirFolders) {
  TempFolder state;
  std::vector<json> shards;
  for (const std::string part : {"0", "0/1"}) {
    const std::vector<MdsColumnText> columns = {{"s", "str"}};
    const std::string raw = MdsShardText(columns, {MdsSampleText(columns, {"of " + part})});
    std::string packed(ZSTD_compressBound(raw.size()), '\0');
    packed.resize(ZSTD_compress(packed.data(), packed.size(), raw.data(), raw.size(), 3));
    folder_.Write("d/" + part + "/a.mds.zstd", packed);
    shards.push_back(MdsShardJson(columns, part + "/a.mds", raw.size(), 1));
    shards.back()["zip_data"] = {{"basename", part + "/a.mds.zstd"}, {"bytes", packed.size()}};
    shards.back()["compression"] = "zstd";
  }
  folder_.Write("d/index.json", MdsIndexText(shards));
  opener_.staging = StagingArea::Below(state.path(), 1 << 20);
  const auto dataset = opener_.MustOpen(Yaml());
  ASSERT_EQ(dataset->size(), 2);
  EXPECT_EQ(FieldOf(*dataset, 0, "s"), "of 0");
  EXPECT_EQ(FieldOf(*dataset, 1, "s"), "of 0/1");
}

TEST_F(MdsTest, NumbersAreNumbersAndTextsAreTexts) {
  WriteColumns(
      {{"b", "bytes"},
       {"f16", "float16", 2},
       {"f64", "float64", 8},
       {"i", "int", 8},
       {"i8", "int8", 1},
       {"j", "json"},
       {"n", "str_int"},
       {"s", "str"},
       {"u16", "uint16", 2},
       {"u32", "uint32", 4},
       {"u64", "uint64", 8}},
      {{"raw", MdsNumberText(uint16_t{0x3c00}), MdsNumberText(-2.5), MdsNumberText(int64_t{-7}),
        "\xff", "{\"a\": 1}", "-12", "h\xc3\xa9", MdsNumberText(uint16_t{65535}),
        MdsNumberText(UINT32_MAX), MdsNumberText(uint64_t{1} << 62)},
       {"", MdsNumberText(uint16_t{0}), MdsNumberText(0.0), MdsNumberText(int64_t{0}),
        std::string(1, '\0'), "", "x", "", MdsNumberText(uint16_t{0}), MdsNumberText(uint32_t{0}),
        MdsNumberText(UINT64_MAX)}});
  const std::string rest = "f16: f16, f64: f64, i: i, i8: i8, j: j, s: s, u16: u16, u32: u32";
  const auto dataset =
      opener_.MustOpen(Yaml(", fields: {b: b, n: {dtype: int64}, u64: u64, " + rest + "}"));
  ASSERT_EQ(dataset->size(), 2);
  ASSERT_EQ(StatusOf(*dataset, 0), absl::OkStatus());
  EXPECT_EQ(FieldOf(*dataset, 0, "b"), "raw");
  EXPECT_EQ(TypeOf(*dataset, "f16"), "float16[]");
  EXPECT_THAT(Numbers<double>(*dataset, 0, "f64"), ElementsAre(-2.5));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "i"), ElementsAre(-7));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "i8"), ElementsAre(-1));
  EXPECT_EQ(FieldOf(*dataset, 0, "j"), "{\"a\": 1}");
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "n"), ElementsAre(-12));
  EXPECT_EQ(FieldOf(*dataset, 0, "s"), "h\xc3\xa9");
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "u16"), ElementsAre(65535));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "u32"), ElementsAre(UINT32_MAX));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "u64"), ElementsAre(int64_t{1} << 62));
  const absl::Status status = StatusOf(*dataset, 1);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("column 'u64'"), HasSubstr("18446744073709551615")));
}

TEST_F(MdsTest, PicturesInTheirFilesFormatsAreBytes) {
  WriteColumns({{"j", "jpeg"}, {"a", "jpegarray"}, {"p", "png"}},
               {{"\xff\xd8j", "\xff\xd8", "\x89P"}});
  const auto dataset = opener_.MustOpen(Yaml());
  EXPECT_EQ(FieldOf(*dataset, 0, "j"), "\xff\xd8j");
  EXPECT_EQ(FieldOf(*dataset, 0, "a"), "\xff\xd8");
  EXPECT_EQ(FieldOf(*dataset, 0, "p"), "\x89P");
}

TEST_F(MdsTest, ArraysCarryTheirTypeOrNotAndTheirShapeOrNot) {
  const std::string ones = MdsNumberText(1.0f) + MdsNumberText(2.0f);
  const std::string wide = MdsNumberText(uint32_t{5}) + MdsNumberText(UINT32_MAX);
  const auto sample = [&](int rows) {
    std::string open = "\x22" + std::string("\x08", 1) + static_cast<char>(rows) + "\2";
    for (int i = 0; i < rows; ++i) open += ones;
    return std::vector<std::string>{open, ones, "\4\2" + ones, wide};
  };
  WriteColumns({{"open", "ndarray"},
                {"fixed", "ndarray:float32:2", 8},
                {"typed", "ndarray:float32"},
                {"wide", "ndarray:uint32:1,2", 8}},
               {sample(2), sample(0), sample(3)});
  const auto dataset = opener_.MustOpen(Yaml());
  EXPECT_EQ(TypeOf(*dataset, "open"), "float32[?,2]");
  EXPECT_EQ(TypeOf(*dataset, "fixed"), "float32[2]");
  EXPECT_EQ(TypeOf(*dataset, "typed"), "float32[2]");
  EXPECT_EQ(TypeOf(*dataset, "wide"), "int64[1,2]");
  ASSERT_EQ(StatusOf(*dataset, 2), absl::OkStatus());
  EXPECT_THAT(ShapeOf(*dataset, 2, "open"), ElementsAre(3, 2));
  EXPECT_THAT(Numbers<float>(*dataset, 2, "open"), ElementsAre(1, 2, 1, 2, 1, 2));
  EXPECT_THAT(Numbers<float>(*dataset, 2, "typed"), ElementsAre(1, 2));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 2, "wide"), ElementsAre(5, UINT32_MAX));
}

TEST_F(MdsTest, ArraysThatLieAreBadSamples) {
  const std::string good = std::string("\x08\4\2", 3) + "ab";
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", "cut off"},
      {"\x08", "cut off"},
      {"\x08\4", "cut off"},
      {"\x63\4\2ab", "unknown type 99"},
      {"\x08\4\3ab", "has 2 bytes for uint8[3]"},
      {"\x08\x13" + std::string(32, '\x7f'), "bytes for uint8["},  // overflows
      {"\x08\x07" + std::string(8, '\xff'), "cut off"},
      {"\x08\xfc" + std::string(63, '\1'), "63 axes"},
      {"\x09\4\2ab", "array of int8 here"},
      {"\x08\x08\1\2ab", "2 axes here"},
  };
  // Of 300 samples every third one tells the type.
  std::vector<std::vector<std::string>> samples(300, {good});
  for (size_t i = 0; i < bad.size(); ++i) samples[3 * i + 1] = {bad[i].first};
  WriteColumns({{"a", "ndarray"}}, samples);
  const auto dataset = opener_.MustOpen(Yaml());
  EXPECT_EQ(TypeOf(*dataset, "a"), "uint8[2]");
  for (size_t i = 0; i < bad.size(); ++i) {
    const absl::Status status = StatusOf(*dataset, static_cast<int64_t>(3 * i + 1));
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("column 'a'"), HasSubstr(bad[i].second)))
        << i;
  }
  // Where they disagree among those, there is no type.
  samples[3] = {"\x09\4\2ab"};
  WriteColumns({{"a", "ndarray"}}, samples);
  EXPECT_THAT(OpenError(),
              AllOf(HasSubstr("column 'a'"), HasSubstr("uint8 and of int8"), HasSubstr("cure: ")));
}

TEST_F(MdsTest, PicturesOfPilArePixels) {
  const auto picture = [](uint32_t width, uint32_t height, const std::string& mode) {
    const size_t channels = mode.size();
    return MdsNumberText(width) + MdsNumberText(height) +
           MdsNumberText(static_cast<uint32_t>(mode.size())) + mode +
           std::string(width * height * channels, 'p');
  };
  WriteColumns({{"p", "pil"}}, {{picture(2, 3, "RGB")}, {picture(4, 1, "RGB")}});
  const auto dataset = opener_.MustOpen(Yaml());
  EXPECT_EQ(TypeOf(*dataset, "p"), "uint8[?,?,3] HWC");
  EXPECT_THAT(ShapeOf(*dataset, 0, "p"), ElementsAre(3, 2, 3));
  WriteColumns({{"p", "pil"}}, {{picture(2, 2, "L")}});
  EXPECT_EQ(TypeOf(*opener_.MustOpen(Yaml()), "p"), "uint8[2,2,1] HWC");
  WriteColumns({{"p", "pil"}}, {{picture(2, 2, "CMYK")}});
  EXPECT_THAT(OpenError(), AllOf(HasSubstr("'CMYK'"), HasSubstr("convert('RGB')")));
}

TEST_F(MdsTest, PicklesAndUnknownEncodingsAreRefusedUnlessNobodyWantsThem) {
  WriteColumns({{"p", "pkl"}, {"q", "list[jpeg]"}, {"x", "int", 8}},
               {{"\x80\4.", "..", MdsNumberText(int64_t{4})}});
  EXPECT_THAT(OpenError(),
              AllOf(HasSubstr("column 'p'"), HasSubstr("pickle"), HasSubstr("cure: ")));
  EXPECT_THAT(OpenError(", fields: {q: q}"), AllOf(HasSubstr("list[jpeg]"), HasSubstr("cure: ")));
  EXPECT_THAT(Numbers<int64_t>(*opener_.MustOpen(Yaml(", fields: {x: x}")), 0, "x"),
              ElementsAre(4));
}

TEST_F(MdsTest, AnUnknownEncodingOfFixedSizeIsPassedOver) {
  WriteColumns({{"future", "complex64", 8}, {"x", "int", 8}, {"s", "str"}},
               {{"8 bytes.", MdsNumberText(int64_t{4}), "four"}});
  const auto dataset = opener_.MustOpen(Yaml(", fields: {x: x, s: s}"));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "x"), ElementsAre(4));
  EXPECT_EQ(FieldOf(*dataset, 0, "s"), "four");
}

TEST_F(MdsTest, ASampleWhoseSizesLieIsBad) {
  const std::vector<MdsColumnText> columns = {{"a", "bytes"}, {"b", "bytes"}};
  const auto sample = [](uint32_t a, uint32_t b, const std::string& data) {
    return MdsNumberText(a) + MdsNumberText(b) + data;
  };
  WriteShard(columns,
             MdsShardText(columns, {sample(1, 2, "xyz"), sample(1, 2, "xy"), sample(1, 2, "wxyz"),
                                    sample(UINT32_MAX, 2, "xyz"), "", "abcdefg"}),
             6);
  const auto dataset = opener_.MustOpen(Yaml());
  EXPECT_EQ(FieldOf(*dataset, 0, "b"), "yz");
  for (int64_t i = 1; i < 6; ++i) {
    const absl::Status status = StatusOf(*dataset, i);
    EXPECT_TRUE(absl::IsDataLoss(status)) << i;
    EXPECT_THAT(std::string(status.message()), HasSubstr("do not add up"));
  }
}

TEST_F(MdsTest, NothingThatIndexJsonSaysIsBelieved) {
  const std::vector<MdsColumnText> columns = {{"x", "int", 8}};
  const auto reset = [&] { WriteColumns(columns, {{MdsNumberText(int64_t{1})}}); };
  const std::vector<std::pair<std::string, std::function<void(json&)>>> lies = {
      {"no list 'shards'", [](json& index) { index.erase("shards"); }},
      {"no object", [](json& index) { index["shards"][0] = 7; }},
      {"format 'csv'", [](json& index) { index["shards"][0]["format"] = "csv"; }},
      {"version 2", [](json& index) { index["shards"][0]["version"] = 3; }},
      {"number of samples", [](json& index) { index["shards"][0]["samples"] = -1; }},
      {"too few for the offsets", [](json& index) { index["shards"][0]["samples"] = 4000000000u; }},
      {"says that it has 1 samples", [](json& index) { index["shards"][0]["samples"] = 2; }},
      {"lists of one length", [](json& index) { index["shards"][0].erase("column_names"); }},
      {"lists of one length",
       [](json& index) {
         index["shards"][0]["column_sizes"] = {8, 8};
       }},
      {"lists of one length", [](json& index) { index["shards"][0]["column_names"] = {3}; }},
      {"has the size 7", [](json& index) { index["shards"][0]["column_sizes"] = {7}; }},
      {"has other columns", [](json& index) { index["shards"][0]["column_names"] = {"y"}; }},
      {"where index.json says 5", [](json& index) { index["shards"][0]["raw_data"]["bytes"] = 5; }},
      {"names no file", [](json& index) { index["shards"][0]["raw_data"] = nullptr; }},
      {"'../a.mds'", [](json& index) { index["shards"][0]["raw_data"]["basename"] = "../a.mds"; }},
      {"'/etc/passwd'",
       [](json& index) { index["shards"][0]["raw_data"]["basename"] = "/etc/passwd"; }},
      {"'0/../../a.mds.zstd'",
       [](json& index) {
         json& shard = index["shards"][0];
         shard["raw_data"]["basename"] = "0/b.mds";
         shard["zip_data"] = {{"basename", "0/../../a.mds.zstd"}, {"bytes", 9}};
       }},
      {"'/a.mds.gz'",
       [](json& index) {
         json& shard = index["shards"][0];
         shard["raw_data"]["basename"] = "b.mds";
         shard["zip_data"] = {{"basename", "/a.mds.gz"}, {"bytes", 9}};
       }},
      {"is not there", [](json& index) { index["shards"][0]["raw_data"]["basename"] = "b"; }},
      {"twice", [](json& index) { index["shards"].push_back(index["shards"][0]); }},
      {"br:3",
       [](json& index) {
         json& shard = index["shards"][0];
         shard["raw_data"]["basename"] = "b.mds";
         shard["zip_data"] = {{"basename", "b.mds.br"}, {"bytes", 9}};
         shard["compression"] = "br:3";
       }},
  };
  for (const auto& [message, lie] : lies) {
    reset();
    ChangeIndex(lie);
    EXPECT_THAT(OpenError(), AllOf(HasSubstr(message), HasSubstr("cure: "))) << message;
  }
  for (const std::string& text : {std::string("{"), std::string(100'000, '['), std::string()}) {
    folder_.Write("d/index.json", text);
    EXPECT_THAT(OpenError(), HasSubstr("is no JSON"));
  }
  std::filesystem::remove(folder_ / "d/index.json");
  EXPECT_THAT(OpenError(), AllOf(HasSubstr("index.json"), HasSubstr("cure: ")));
}

// A compressed shard whose raw file is there too is read from that.
TEST_F(MdsTest, ARawFileBesideTheCompressedOneIsEnough) {
  WriteColumns({{"x", "int", 8}}, {{MdsNumberText(int64_t{6})}});
  ChangeIndex([](json& index) {
    index["shards"][0]["zip_data"] = {{"basename", "a.mds.zstd"}, {"bytes", 9}};
    index["shards"][0]["compression"] = "zstd";
  });
  EXPECT_THAT(Numbers<int64_t>(*opener_.MustOpen(Yaml()), 0, "x"), ElementsAre(6));
}

TEST_F(MdsTest, OffsetsThatLieAreRefusedWithTheSample) {
  const std::vector<MdsColumnText> columns = {{"x", "int", 8}};
  const std::string sample = MdsNumberText(int64_t{1});
  const std::string good = MdsShardText(columns, {sample, sample});
  for (size_t at = 0; at < 4; ++at) {
    for (const uint32_t lie : {0u, 3u, UINT32_MAX, static_cast<uint32_t>(good.size() + 1)}) {
      std::string shard = good;
      std::memcpy(&shard[4 * at], &lie, sizeof(lie));
      WriteShard(columns, shard, 2);
      EXPECT_THAT(OpenError(), AllOf(HasSubstr("a.mds"), HasSubstr("cure: "))) << at << " " << lie;
    }
  }
  for (size_t keep = 0; keep < good.size(); ++keep) {
    WriteShard(columns, good.substr(0, keep), 2);
    EXPECT_FALSE(opener_.Open(Yaml()).ok()) << keep;
  }
  WriteShard(columns, good + "x", 2);
  EXPECT_THAT(OpenError(), HasSubstr("its last sample"));
}

}  // namespace
}  // namespace feedwater::server
