// Masks of COCO's instances, as a dataset has them: which number is whose, when they are made, and
// what is a bad sample. coco_segmentation_test.cc has which pixels a segmentation covers.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/source/dataset_reader.h"
#include "tests/source/label_png.h"

namespace feedwater::server {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

// Of 4x2 pixels each, but for the third one.
constexpr char kImages[] = R"("images": [
    {"id": 1, "file_name": "a.jpg", "width": 4, "height": 2},
    {"id": 2, "file_name": "b.jpg", "width": 4, "height": 2},
    {"id": 3, "file_name": "c.jpg"}])";
constexpr char kLeft[] = "[[0, 0, 2, 0, 2, 2, 0, 2]]";
constexpr char kRight[] = "[[2, 0, 4, 0, 4, 2, 2, 2]]";

std::string Instance(int image, const std::string& segmentation, const std::string& box = "0,0,4,2",
                     const std::string& more = "") {
  return absl::StrCat(R"({"image_id": )", image, R"(, "category_id": 5, "bbox": [)", box, "]",
                      segmentation.empty() ? "" : R"(, "segmentation": )", segmentation, more, "}");
}
std::string File(const Strings& instances, const std::string& images = kImages) {
  std::string all;
  for (const std::string& one : instances) absl::StrAppend(&all, all.empty() ? "" : ", ", one);
  return absl::StrCat(R"({"annotations": [)", all, "], ", images,
                      R"(, "categories": [{"id": 5, "name": "cat"}]})");
}

class CocoMasksTest : public ::testing::Test {
 protected:
  CocoMasksTest() : opener_(folder_.path()) {
    for (const char* name : {"a", "b", "c"}) folder_.Write(absl::StrCat("p/", name, ".jpg"), name);
    opener_.state_dir = state_.path() + "/state";
    opener_.staging = StagingArea::Below(state_.path(), 64 << 20);
  }

  absl::StatusOr<std::shared_ptr<const Dataset>> Open(
      const std::string& text, const std::string& more = "",
      const std::string& fields = "{data: data, masks: masks, instance: instance}") {
    folder_.Write("boxes.json", text);
    return opener_.Open(absl::StrCat("{format: coco, root: root, path: p, annotations: boxes.json",
                                     more, ", fields: ", fields, "}"));
  }
  std::shared_ptr<const Dataset> MustOpen(const std::string& text, const std::string& more = "") {
    const auto dataset = Open(text, more);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? *dataset : nullptr;
  }
  static std::vector<int> Labels(const Dataset& dataset, int64_t record) {
    const Strings fields = ReadFields(dataset, record);
    return fields.size() == 3 ? ReadLabelPng(fields[1]).labels : std::vector<int>();
  }
  static std::string WhyBad(const Dataset& dataset, int64_t record) {
    const Strings fields = ReadFields(dataset, record);
    return fields.size() == 1 ? fields[0] : "no error";
  }
  int64_t StagedFiles() const {
    int64_t files = 0;
    if (!std::filesystem::exists(state_.path() + "/staged")) return 0;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(state_.path() + "/staged"))
      files += absl::StrContains(entry.path().string(), "boxes.json") &&
               !absl::EndsWith(entry.path().string(), ".seal");
    return files;
  }

  TempFolder folder_, state_;
  Opener opener_;
};

TEST_F(CocoMasksTest, APixelHoldsThePlaceOfItsBox) {
  const auto dataset = MustOpen(File({Instance(2, kLeft), Instance(1, kRight), Instance(2, ""),
                                      Instance(2, kRight), Instance(2, "null")},
                                     R"("images": [
      {"id": 1, "file_name": "a.jpg", "width": 4, "height": 2},
      {"id": 2, "file_name": "b.jpg", "width": 4, "height": 2}])"));
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->fields()[1].spec.ToString(), "uint8[?] encoded");
  EXPECT_THAT(Labels(*dataset, 0), ElementsAre(0, 0, 1, 1, 0, 0, 1, 1));
  EXPECT_THAT(Labels(*dataset, 1), ElementsAre(1, 1, 3, 3, 1, 1, 3, 3));
  EXPECT_EQ(ReadFields(*dataset, 1)[2], BytesOf<int64_t>({1, 2, 3, 4}));
  EXPECT_EQ(PlaceOf(*dataset, 1).path, "p/b.jpg");
}

TEST_F(CocoMasksTest, BoxesThatAreLeftOutHaveNoNumber) {
  const std::string text = File({Instance(1, kLeft, "9,9,1,1"), Instance(1, kLeft),
                                 Instance(1, kRight, "1,1,0,0"), Instance(1, kRight)});
  const auto dropped = MustOpen(text);
  ASSERT_NE(dropped, nullptr);
  EXPECT_THAT(Labels(*dropped, 0), ElementsAre(1, 1, 2, 2, 1, 1, 2, 2));
  EXPECT_EQ(ReadFields(*dropped, 0)[2], BytesOf<int64_t>({1, 2}));
  const auto kept = MustOpen(text, ", invalid_boxes: keep");
  ASSERT_NE(kept, nullptr);
  EXPECT_THAT(Labels(*kept, 0), ElementsAre(2, 2, 4, 4, 2, 2, 4, 4));
  EXPECT_NE(kept->digest(), dropped->digest());
}

TEST_F(CocoMasksTest, CrowdsOfBothKindsAreRead) {
  const auto dataset = MustOpen(
      File({Instance(1, R"({"counts": [2, 4, 2], "size": [2, 4]})", "0,0,4,2", R"(, "iscrowd": 1)"),
            Instance(2, R"({"size": [2, 4], "counts": "242"})")}));
  ASSERT_NE(dataset, nullptr);
  for (const int64_t record : {0, 1})
    EXPECT_THAT(Labels(*dataset, record), ElementsAre(0, 1, 1, 0, 0, 1, 1, 0)) << record;
}

TEST_F(CocoMasksTest, WhatHasNoMaskIsABadSampleOfItsOwn) {
  Strings instances = {Instance(1, kLeft), Instance(2, "[[1, 2, 3]]", "0,0,4,2", R"(, "id": 77)")};
  const auto dataset = MustOpen(File(instances));
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(Labels(*dataset, 0), ElementsAre(1, 1, 0, 0, 1, 1, 0, 0));
  EXPECT_THAT(WhyBad(*dataset, 1), AllOf(HasSubstr("the annotation 77"), HasSubstr("boxes.json"),
                                         HasSubstr("a polygon of 3 numbers")));
  EXPECT_THAT(WhyBad(*dataset, 2), AllOf(HasSubstr("no 'width' and 'height'"), HasSubstr("cure:")));
}

TEST_F(CocoMasksTest, WhereNoImageHasASizeMasksAreRefusedWithTheirCure) {
  const std::string text =
      File({Instance(1, kLeft)},
           R"("images": [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}])");
  const auto refused = Open(text);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr("'boxes.json'"), HasSubstr("no image 'width' and 'height'"),
                    HasSubstr("cure: "), HasSubstr("leave `masks` out of `fields`")));
}

TEST_F(CocoMasksTest, ASegmentationThatIsNoneIsNotABoxAlone) {
  for (const char* odd : {R"("[[0, 0, 2, 0, 2, 2, 0, 2]]")", R"("242")", "5", "2.5", "true"}) {
    const auto dataset = MustOpen(File({Instance(1, odd), Instance(2, "null")}));
    ASSERT_NE(dataset, nullptr);
    EXPECT_THAT(WhyBad(*dataset, 0), HasSubstr("neither a list of polygons")) << odd;
    EXPECT_THAT(Labels(*dataset, 1), Each(0));
  }
}

// Also with images that have no mask, of which the reason is staged.
TEST_F(CocoMasksTest, TheSameFilesElsewhereAreTheSameDataset) {
  const std::string text = File({Instance(1, kLeft), Instance(2, "[[1, 2, 3]]")});
  const auto here = MustOpen(text);
  ASSERT_NE(here, nullptr);
  TempFolder elsewhere;
  for (const char* name : {"a", "b", "c"}) elsewhere.Write(absl::StrCat("p/", name, ".jpg"), name);
  elsewhere.Write("boxes.json", text);
  Opener other(elsewhere.path());
  other.staging = opener_.staging;
  const auto there = other.Open(
      "{format: coco, root: root, path: p, annotations: boxes.json, fields: {data: data, masks: "
      "masks, instance: instance}}");
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_EQ((*there)->digest(), here->digest());
}

TEST_F(CocoMasksTest, AMaskNumbers255BoxesAndNoMore) {
  Strings instances(255, Instance(1, kLeft));
  instances.insert(instances.end(), 256, Instance(2, kLeft));
  const auto dataset = MustOpen(File(instances));
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(Labels(*dataset, 0), ElementsAre(255, 255, 0, 0, 255, 255, 0, 0));
  EXPECT_THAT(WhyBad(*dataset, 1), AllOf(HasSubstr("256 boxes"), HasSubstr("cure: leave `masks`")));
}

TEST_F(CocoMasksTest, SizesThatLieTakeNoMemory) {
  opener_.budget = MemoryBudget::Create(128 << 20, "memory");
  for (const auto& [width, height] :
       std::vector<std::pair<std::string, std::string>>{{"100000", "100000"},
                                                        {"9223372036854775807", "2"},
                                                        {"2", "1048577"},
                                                        {"4294967296", "4294967296"}}) {
    const auto dataset =
        MustOpen(File({Instance(1, kLeft)},
                      absl::StrCat(R"("images": [{"id": 1, "file_name": "a.jpg", )", R"("width": )",
                                   width, R"(, "height": )", height, "}]")));
    ASSERT_NE(dataset, nullptr);
    EXPECT_THAT(WhyBad(*dataset, 0),
                AllOf(HasSubstr("has no mask"), HasSubstr(width), HasSubstr(height)));
  }
  // One that may be is counted before it is made.
  opener_.budget = MemoryBudget::Create(64 << 20, "memory");
  const auto large = Open(File({Instance(1, kLeft)}, R"("images": [{"id": 1, "file_name": "a.jpg",
      "width": 8000, "height": 8000}])"));
  EXPECT_EQ(large.status().code(), absl::StatusCode::kResourceExhausted) << large.status();
}

TEST_F(CocoMasksTest, AreMadeOnceAndOnlyWhereTheyAreAskedFor) {
  const std::string text = File({Instance(1, kLeft)});
  ASSERT_TRUE(Open(text, "", "{data: data, instance: instance}").ok());
  EXPECT_EQ(StagedFiles(), 0);
  const auto first = MustOpen(text);
  EXPECT_EQ(StagedFiles(), 1);
  const auto again = opener_.Open(
      "{format: coco, root: root, path: p, annotations: boxes.json, fields: {masks: masks, x: "
      "data}}");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(opener_.builds, 3);
  MustOpen(text);  // written anew, so another file
  EXPECT_EQ(opener_.builds, 4);
  const auto staging = std::exchange(opener_.staging, nullptr);
  opener_.rebuild = true;
  EXPECT_THAT(std::string(Open(text).status().message()),
              AllOf(HasSubstr("boxes.json"), HasSubstr("leave `masks` out of `fields`"),
                    HasSubstr("stage: {disk: SIZE}")));
  EXPECT_TRUE(Open(text, "", "{data: data}").ok());
}

TEST_F(CocoMasksTest, ASavedIndexGivesTheSameMasks) {
  const auto built = MustOpen(File({Instance(1, kLeft), Instance(2, kRight)}));
  ASSERT_NE(built, nullptr);
  const auto reused = opener_.Open(
      "{format: coco, root: root, path: p, annotations: boxes.json, fields: {data: data, masks: "
      "masks, instance: instance}}");
  ASSERT_TRUE(reused.ok()) << reused.status();
  EXPECT_EQ(opener_.builds, 1);
  for (const int64_t record : {0, 1})
    EXPECT_EQ(ReadFields(**reused, record), ReadFields(*built, record));
  EXPECT_EQ((*reused)->digest(), built->digest());
}

TEST_F(CocoMasksTest, OtherSegmentationsAreAnotherDataset) {
  const auto first = MustOpen(File({Instance(1, kLeft)}));
  ASSERT_NE(first, nullptr);
  const std::string left = ReadFields(*first, 0)[1];
  std::string other = kLeft;
  other[2] = '1';  // [[1, 0, ...
  const auto second = MustOpen(File({Instance(1, other)}));
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first->digest(), second->digest());
  EXPECT_TRUE(absl::IsFailedPrecondition(first->LookAgain()));
  EXPECT_EQ(ReadFields(*first, 0)[1], left) << "what was opened stays what it was";
  EXPECT_NE(ReadFields(*second, 0)[1], left);
}

TEST_F(CocoMasksTest, AnyBytesOfAStagedMaskAreSafe) {
  const auto dataset = MustOpen(File({Instance(1, kLeft)}));
  ASSERT_NE(dataset, nullptr);
  const Strings whole = ReadExtents(*dataset, 0);
  ASSERT_EQ(whole.size(), 2u);
  Record record;
  for (const std::string& other : Strings{"", "x", "!", "!" + std::string(10'000, '\xff')}) {
    const absl::Status parsed = ParseBytes(*dataset, 0, {other, whole[1]}, &record);
    EXPECT_FALSE(parsed.ok()) << other;
    EXPECT_LT(parsed.message().size(), 4'000u);
  }
}

}  // namespace
}  // namespace feedwater::server
