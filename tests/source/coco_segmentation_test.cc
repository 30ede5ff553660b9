// Which pixels a segmentation covers. Method: what pycocotools 2.0.11 makes of the same polygons,
// worked out by `mask.merge(mask.frPyObjects(polygons, 23, 31))['counts']`; masks by hand; and
// everything that a file may lie about.
#include "server/source/coco_segmentation.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tests/source/label_png.h"

namespace feedwater::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LabelPng MapOf(const std::vector<std::string>& segmentations, int64_t width, int64_t height) {
  InstanceMap map;
  map.Begin(width, height);
  uint8_t label = 0;
  for (const std::string& json : segmentations) {
    const absl::Status covered = CoverSegmentation(json, ++label, &map);
    EXPECT_TRUE(covered.ok()) << covered << "\n" << json;
  }
  const auto png = map.Png();
  EXPECT_TRUE(png.ok()) << png.status();
  return png.ok() ? ReadLabelPng(*png) : LabelPng();
}

std::string ErrorOf(const std::string& json, int64_t width = 4, int64_t height = 3) {
  InstanceMap map;
  map.Begin(width, height);
  const absl::Status covered = CoverSegmentation(json, 1, &map);
  if (covered.ok()) return "no error";
  EXPECT_TRUE(absl::IsInvalidArgument(covered)) << covered;
  return std::string(covered.message());
}

std::string Runs(const std::string& counts, const std::string& size = "[3, 4]") {
  return absl::StrCat(R"({"size": )", size, R"(, "counts": )", counts, "}");
}

TEST(CocoSegmentation, PolygonsCoverWhatPycocotoolsCovers) {
  const struct {
    std::string polygons, counts;
  } cases[] = {
      {"[[18.69, 16.32, 23.86, 20.73, 22.2, 20.29]]", "Ua01S5"},
      {"[[0.87, 10.24, 28.3, 14.28, 27.03, 2.49, 14.07, 5.42]]",
       "^22e00O10000O10001N10000O1000001N1000000O10001O0O15Kn1"},
      {"[[16.31, 12.63, 0.39, 4.77, 8.38, 20.16, 22.97, 3.51, 23.91, 3.05, 18.52, 2.79, 0.05, "
       "19.17]]",
       "l02;OO2NN34JM74FL;5DK=3EL;3FN:1F18NH2\?OKNG191EN<332N2ON10001N2O1O1Of5"},
      {"[[2.05, 0.19, 39.16, 25.15, 5.89, 28.54, 17.88, 17.76, 1.83, 27.76, 25.15, 28.73, 34.9, "
       "3.35, 9.34, -1.69, -1.01, -5.52, 6.47, 14.92, -7.84, 17.76, 8.22, 3.78]]",
       ";57L25NNN320J16OLN51NM22:N22N001N2O0OIC7;JE7:HG88HI9:1O00100O001O1O010O1O001JC0=OD281H"},
      {"[[31.29, 10.27, 7.16, 10.29, 25.82, -5.83, 38.8, -7.13, 27.99, 24.11], [0.54, 17.33, "
       "10.99, 12.73, 0.27, 1.03, 5.43, 21.01, 5.9, 16.63, 27.89, 20.72]]",
       "11g03DMM6OJ38HI98FG;7GJ85GJ<4EL;4EL:1D03071GN2162NM23NM14OL050KO61JN781KHK85HJ96GJ96GJ9:"
       "0000000MGH9;000O1LGK80J3"},
      {"[[2, 2, 9, 2, 9, 8, 2, 8]]", "`16a000000000000h\?"},
      {"[[2.5, 2.5, 9.5, 2.5, 9.5, 8.5, 2.5, 8.5]]", "X26a000000000000P\?"},
      {"[[0, 0, 31, 0, 31, 23, 0, 23]]", "0Yf0"},
      {"[[3, 3, 3, 3, 12, 3, 12, 10, 3, 10]]", "X27`0000000000000000b="},
      {"[[5, 5, 5.2, 5, 5.1, 5.3]]", "Yf0"},
      {"[[1, 1, 20, 1, 10.5, 1]]", "Yf0"},
      {"[[-50, -50, 80, -50, 80, 80, -50, 80]]", "0Yf0"},
  };
  for (const auto& [polygons, counts] : cases) {
    const LabelPng drawn = MapOf({polygons}, 31, 23);
    EXPECT_EQ(drawn.labels,
              MapOf({Runs(absl::StrCat("\"", counts, "\""), "[23, 31]")}, 31, 23).labels)
        << polygons;
  }
}

TEST(CocoSegmentation, RunsGoDownTheColumns) {
  // 4 wide, 3 high: two pixels, then three covered ones, then the rest.
  const std::vector<int> expected = {0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0};
  EXPECT_EQ(MapOf({Runs("[2, 3, 7]")}, 4, 3).labels, expected);
  EXPECT_EQ(MapOf({Runs("\"237\"")}, 4, 3).labels, expected);
  EXPECT_EQ(MapOf({R"({"counts": [2, 3, 7], "more": "x", "size": [3, 4]})"}, 4, 3).labels,
            expected);
  EXPECT_THAT(MapOf({Runs("[0, 12]")}, 4, 3).labels, ::testing::Each(1));
  EXPECT_THAT(MapOf({Runs("[12]")}, 4, 3).labels, ::testing::Each(0));
}

TEST(CocoSegmentation, TextsOfRunsAreDifferences) {
  std::vector<int64_t> runs;
  ASSERT_TRUE(ReadRuns("^22e00O10", &runs).ok());
  EXPECT_THAT(runs, ElementsAre(78, 2, 21, 2, 20, 3, 20));
  ASSERT_TRUE(ReadRuns("", &runs).ok());
  EXPECT_THAT(runs, ElementsAre());
  for (const char* bad :
       {"a", " 1", "1 ", "\x7f", "oooooooooooooooo", "ooooooooo0", "X", "O", "2\xff"})
    EXPECT_TRUE(absl::IsInvalidArgument(ReadRuns(bad, &runs))) << bad;
}

TEST(CocoSegmentation, TheLaterInstanceCovers) {
  EXPECT_THAT(MapOf({"[[0,0,3,0,3,2,0,2]]", "[[1,0,4,0,4,2,1,2]]"}, 4, 2).labels,
              ElementsAre(1, 2, 2, 2, 1, 2, 2, 2));
  EXPECT_THAT(MapOf({"[[0,0,1,0,1,2,0,2], [3,0,4,0,4,2,3,2]]", "[]"}, 4, 2).labels,
              ElementsAre(1, 0, 0, 1, 1, 0, 0, 1));
}

TEST(CocoSegmentation, WhatMakesNoSenseIsRefused) {
  const struct {
    std::string json, words;
  } bad[] = {
      {"[[1, 2, 3, 4, 5]]", "a polygon of 5 numbers"},
      {"[1, 2, 3, 4, 5, 6]", "neither a list of polygons"},
      {"[[[1, 2], [3, 4], [5, 6]]]", "neither a list of polygons"},
      {"[[1, 2, \"3\", 4, 5, 6]]", "neither a list of polygons"},
      {"[[1, 2, null, 4, 5, 6]]", "neither a list of polygons"},
      {"[{\"counts\": [12]}]", "neither a list of polygons"},
      {"[\"x\"]", "neither a list of polygons"},
      {"[[1, 2, 3, 4, 5, 1e300]]", "the coordinate 1e+300"},
      {"[[1, 2, 3, 4, 5, -3000000]]", "far off any image"},
      {"[[1, 2, NaN, 4, 5, 6]]", "is no JSON"},
      {"[[1, 2, 1e999, 4, 5, 6]]", "is no JSON"},
      {"[[1, 2, 3, 4, 5, 6]", "is no JSON"},
      {Runs("[2, 3]"), "runs of fewer than the 12 pixels of its image of 4x3"},
      {Runs("[2, 3, 8]"), "runs of more than the 12 pixels"},
      {Runs("[9223372036854775807, 9223372036854775807]"), "runs of more than"},
      {Runs("[18446744073709551615]"), "a run of 1.84467e+19 pixels"},
      {Runs("[2, -3, 13]"), "a run of -3 pixels"},
      {Runs("[2, 3.5, 6.5]"), "a run of 3.5 pixels"},
      {Runs("[[12]]"), "neither a list of polygons"},
      {Runs("\"23\""), "runs of fewer"},
      {Runs("\"oooooooooooooo\""), "no text of pycocotools"},
      {Runs("\"2\\u0000\""), "no text of pycocotools"},
      {Runs("[12]", "[4, 3]"), "another size than its image's 4x3"},
      {Runs("[12]", "[3]"), "another size"},
      {Runs("[12]", "12"), "another size"},
      {R"({"counts": [12]})", "another size"},
      {R"({"size": [3, 4]})", "runs of fewer"},
      {"{}", "another size"},
      {"3", "neither a list of polygons"},
      {std::string(100'000, '['), "neither a list of polygons"},
      {"[[" + std::string(2 << 20, ' ') + "]]", "more than the 1 MiB"},
  };
  for (const auto& [json, words] : bad)
    EXPECT_THAT(ErrorOf(json), HasSubstr(words)) << json.substr(0, 100);
}

// A short text cannot ask for more drawing than there are bounds.
TEST(CocoSegmentation, OutlinesThatAreTooLongAreRefused) {
  std::vector<std::string> zigzag;
  for (int i = 0; i < 20'000; ++i) zigzag.push_back(i % 2 == 0 ? "-2000000,1" : "2000000,2");
  EXPECT_THAT(ErrorOf(absl::StrCat("[[", absl::StrJoin(zigzag, ","), "]]")),
              HasSubstr("outlines are too long"));
  // One that is within them, as often as an image may have it, and once more.
  const std::string polygon = "[0,0,400000,1,0,2]";
  const int fit = static_cast<int>(InstanceMap::kMaxOutlines / (5 * 2 * 400'000));
  EXPECT_EQ(ErrorOf(absl::StrCat(
                "[", absl::StrJoin(std::vector<std::string>(fit - 1, polygon), ","), "]")),
            "no error");
  EXPECT_THAT(ErrorOf(absl::StrCat(
                  "[", absl::StrJoin(std::vector<std::string>(fit + 1, polygon), ","), "]")),
              HasSubstr("outlines are too long"));
}

TEST(InstanceMap, AnImageIsNotCoveredForEver) {
  InstanceMap map;
  map.Begin(8000, 8000);
  const std::vector<double> all = {0, 0, 8000, 0, 8000, 8000, 0, 8000};
  absl::Status status;
  int times = 0;
  for (; status.ok() && times < 100; ++times) status = map.CoverPolygon(all, 1);
  EXPECT_THAT(std::string(status.message()), HasSubstr("again and again"));
  EXPECT_EQ(times, InstanceMap::kMaxCovered / 64'000'000 + 1);
  map.Begin(8000, 8000);
  EXPECT_TRUE(map.CoverPolygon(all, 1).ok());
}

TEST(InstanceMap, SizesAreCheckedBeforeAnythingIsAllocated) {
  EXPECT_TRUE(InstanceMap::CheckSize(1, 1).ok());
  EXPECT_TRUE(InstanceMap::CheckSize(8000, 8000).ok());
  for (const auto& [width, height] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 1},
                                                {1, 0},
                                                {-5, 5},
                                                {8000, 8001},
                                                {(1 << 20) + 1, 1},
                                                {INT64_MAX, INT64_MAX},
                                                {int64_t{1} << 32, int64_t{1} << 32}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(InstanceMap::CheckSize(width, height)))
        << width << "x" << height;
  }
}

TEST(InstanceMap, OneMapAfterTheOtherGivesTheBytesOfAFreshOne) {
  InstanceMap used;
  const auto draw = [](InstanceMap* map, int64_t width, int64_t height) {
    map->Begin(width, height);
    EXPECT_TRUE(CoverSegmentation("[[1,1,60,3,40,70]]", 7, map).ok());
    return *map->Png();
  };
  for (const auto& [width, height] : std::vector<std::pair<int64_t, int64_t>>{
           {100, 80}, {1, 1}, {130, 200}, {65, 64}, {64, 129}, {300, 2}}) {
    InstanceMap fresh;
    EXPECT_EQ(draw(&used, width, height), draw(&fresh, width, height)) << width << "x" << height;
  }
}

}  // namespace
}  // namespace feedwater::server
