// Pascal VOC: what is special about it. The conformance suite has the rest.
#include "absl/strings/str_cat.h"
#include "server/source/voc_annotation.h"
#include "tests/source/dataset_reader.h"

namespace feedwater::server {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Strings = std::vector<std::string>;

std::string Object(const std::string& name, const std::string& more = "") {
  return "<object><name>" + name + "</name>" + more +
         "<bndbox><xmin>3</xmin><ymin>2</ymin><xmax>5</xmax><ymax>4</ymax></bndbox></object>";
}
std::string Annotation(const std::string& objects) {
  return "<?xml version=\"1.0\"?>\n<annotation><size><width>20</width><height>10</height></size>" +
         objects + "</annotation>";
}

class VocTest : public ::testing::Test {
 protected:
  VocTest() : opener_(folder_.path()) {}

  absl::StatusOr<std::shared_ptr<const Dataset>> Open(const std::string& xml,
                                                      const std::string& more = "",
                                                      const std::string& names = "a\n") {
    folder_.Write("v/ImageSets/Main/train.txt", names);
    folder_.Write("v/Annotations/a.xml", xml);
    folder_.Write("v/JPEGImages/a.jpg", "picture");
    return opener_.Open("{format: voc, root: root, path: v" + more + "}");
  }
  std::shared_ptr<const Dataset> MustOpen(const std::string& xml, const std::string& more = "") {
    const auto dataset = Open(xml, more);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? *dataset : nullptr;
  }
  std::string ErrorOf(const std::string& xml, const std::string& more = "",
                      const std::string& names = "a\n") {
    const auto dataset = Open(xml, more, names);
    return dataset.ok() ? "no error" : dataset.status().ToString();
  }

  TempFolder folder_;
  Opener opener_;
};

TEST_F(VocTest, BoxesBeginAtZeroAndClassesAreVocs) {
  const auto dataset =
      MustOpen(Annotation(Object("dog", "<difficult>1</difficult>") + Object("cat")));
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(dataset->classes(), SizeIs(20));
  EXPECT_THAT(
      ReadFields(*dataset, 0),
      ElementsAre("picture", BytesOf<float>({2, 1, 5, 4, 2, 1, 5, 4}), BytesOf<int64_t>({11, 7}),
                  BytesOf<int64_t>({0}), BytesOf<int64_t>({1, 0})));
  EXPECT_EQ(dataset->fields()[3].name, "image_id");
}

TEST_F(VocTest, OtherClassesAreSortedOrGiven) {
  const std::string xml = Annotation(Object("robot") + Object("cat"));
  const auto found = MustOpen(xml);
  ASSERT_NE(found, nullptr);
  EXPECT_THAT(found->classes(), ElementsAre("cat", "robot"));
  const auto given = MustOpen(xml, ", classes: [robot, ship, cat]");
  ASSERT_NE(given, nullptr);
  EXPECT_THAT(given->classes(), ElementsAre("robot", "ship", "cat"));
  EXPECT_EQ(ReadFields(*given, 0)[2], BytesOf<int64_t>({0, 2}));
  EXPECT_THAT(ErrorOf(xml, ", classes: [robot, cat, robot]"), HasSubstr("names 'robot' twice"));
  EXPECT_THAT(ErrorOf(xml, ", classes: [cat]"),
              AllOf(HasSubstr("'robot'"), HasSubstr("a.xml"), HasSubstr("'classes'")));
}

TEST_F(VocTest, ListsAndAnnotationsMayBeginWithAByteOrderMark) {
  const auto dataset = Open("\xef\xbb\xbf" + Annotation(Object("dog")), "",
                            "\xef\xbb\xbf"
                            "a\r\n\r\n");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(ReadFields(**dataset, 0)[0], "picture");
}

TEST_F(VocTest, SizesMayBeFloatsAndDifficultUnspecified) {
  const auto dataset = MustOpen(
      "<annotation><size><width>20.0</width><height> 1e1 </height><depth/></size>" +
          Object("dog", "<difficult/>") + Object("cat", "<difficult>Unspecified</difficult>") +
          Object("cat", "<difficult>1.0</difficult>") + "</annotation>",
      ", fields: {data: data, width: width, height: height, difficult: difficult}");
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(ReadFields(*dataset, 0),
              ElementsAre("picture", BytesOf<int64_t>({20}), BytesOf<int64_t>({10}),
                          BytesOf<int64_t>({0, 0, 1})));
  const auto unsized = MustOpen("<annotation><size><width></width><height/></size>" +
                                Object("dog") + "</annotation>");
  ASSERT_NE(unsized, nullptr);
  EXPECT_THAT(unsized->notes(), HasSubstr("1 image without width and height"));
}

TEST_F(VocTest, WhatIsNoAnnotationIsRefusedWithFileAndLine) {
  const struct {
    std::string xml, words;
  } bad[] = {
      {"", "no XML"},
      {"plain", "no XML"},
      {"<other/>", "'other' in place of 'annotation'"},
      {"<annotation>", "no XML"},
      {"<annotation></annotation><annotation/>", "no XML"},
      {Annotation("<object/>"), "an object without a name"},
      {Annotation("<object><name>cat</name></object>"), "an object without a box"},
      {Annotation(Object("cat", "<bndbox><xmin>1</xmin></bndbox>")), "two values xmin"},
      {Annotation(Object("cat", "<difficult>x</difficult>")), "'x' as difficult"},
      {Annotation(Object("cat", "<bndbox><xmin>nan</xmin></bndbox>")), "'nan' as xmin"},
      {Annotation(Object("cat", "<bndbox><xmin>1e99</xmin></bndbox>")), "'1e99' as xmin"},
      {"<annotation><size><width>-1</width></size></annotation>", "'-1' as width"},
      {"<annotation><size><width>20.5</width></size></annotation>", "'20.5' as width"},
      {"<annotation><size><width>nan</width></size></annotation>", "'nan' as width"},
      {"<annotation><size><width>1e10</width></size></annotation>", "'1e10' as width"},
      {Annotation("<object><name>" + std::string(5000, 'x')), "more than 4096 bytes"},
      {Annotation("\n\n<a><b>\xff</b></a>"), "in line"},
  };
  for (const auto& [xml, words] : bad)
    EXPECT_THAT(ErrorOf(xml), AllOf(HasSubstr(words), HasSubstr("a.xml"))) << xml;
  std::string deep = "<annotation>";
  for (int i = 0; i < 40; ++i) deep += "<a>";
  EXPECT_THAT(ErrorOf(deep), HasSubstr("more than 32 levels"));
}

// Entities that grow, and those that are files.
TEST_F(VocTest, ADocumentTypeIsRefusedBeforeAnythingOfItIsUsed) {
  folder_.Write("secret", "secret");
  for (const char* type :
       {"<!DOCTYPE annotation [<!ENTITY a \"xxxxxxxxxx\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;\">]>",
        "<!DOCTYPE annotation [<!ENTITY a SYSTEM \"file:///etc/passwd\">]>",
        "<!DOCTYPE annotation SYSTEM \"http://127.0.0.1:1/x.dtd\">"}) {
    const std::string error =
        ErrorOf(std::string(type) + "<annotation><object><name>&a;</name></object></annotation>");
    EXPECT_THAT(error, HasSubstr("a document type, which is not read")) << type;
  }
  EXPECT_THAT(ErrorOf(Annotation("<object><name>&a;</name></object>")), HasSubstr("no XML"));
}

TEST_F(VocTest, NamesStayBelowThePath) {
  const std::string xml = Annotation("");
  EXPECT_THAT(ErrorOf(xml, "", "../a\n"), HasSubstr("train.txt"));
  EXPECT_THAT(ErrorOf(xml, "", "a b c\n"), AllOf(HasSubstr("line 1"), HasSubstr("'a b c'")));
  EXPECT_THAT(ErrorOf(xml, "", "a\n.hidden\n"), HasSubstr("line 2"));
  EXPECT_THAT(ErrorOf(xml, ", image_set: ../../x"), HasSubstr("ImageSets/Main"));
  EXPECT_THAT(ErrorOf(xml, ", image_set: none"), HasSubstr("NOT_FOUND"));
  EXPECT_THAT(ErrorOf(xml, "", "a\nb\n"), AllOf(HasSubstr("NOT_FOUND"), HasSubstr("b.xml")));
}

constexpr char kWithMasks[] =
    ", fields: {data: data, masks: masks, boxes: boxes, instance: instance}";

TEST_F(VocTest, MasksAreTheFilesOfObjectsAsTheyAre) {
  folder_.Write("v/SegmentationObject/a.png", "mask");
  const auto dataset = MustOpen(Annotation(Object("dog") + Object("cat")), kWithMasks);
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->fields()[1].spec.ToString(), "uint8[?] encoded");
  EXPECT_THAT(ReadFields(*dataset, 0),
              ElementsAre("picture", "mask", BytesOf<float>({2, 1, 5, 4, 2, 1, 5, 4}),
                          BytesOf<int64_t>({1, 2})));
  EXPECT_EQ(PlaceOf(*dataset, 0).path, "v/JPEGImages/a.jpg");
}

TEST_F(VocTest, NumbersInMasksCountTheBoxesThatAreLeftOutToo) {
  folder_.Write("v/SegmentationObject/a.png", "mask");
  const std::string beyond =
      "<object><name>cat</name><bndbox><xmin>30</xmin><ymin>2</ymin><xmax>35</xmax>"
      "<ymax>4</ymax></bndbox></object>";
  const std::string xml = Annotation(Object("dog") + beyond + Object("cat"));
  const auto dropped = MustOpen(xml, kWithMasks);
  ASSERT_NE(dropped, nullptr);
  EXPECT_EQ(ReadFields(*dropped, 0)[3], BytesOf<int64_t>({1, 3}));
  const auto kept = MustOpen(xml, absl::StrCat(", invalid_boxes: keep", kWithMasks));
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(ReadFields(*kept, 0)[3], BytesOf<int64_t>({1, 2, 3}));
}

TEST_F(VocTest, AnImageWithoutAMaskIsABadSampleWhereMasksAreAskedFor) {
  const std::string xml = Annotation(Object("dog"));
  const auto dataset = MustOpen(xml, kWithMasks);
  ASSERT_NE(dataset, nullptr);
  Record record;
  EXPECT_THAT(ParseBytes(*dataset, 0, {"picture", ""}, &record).ToString(),
              AllOf(HasSubstr("'masks'"), HasSubstr("v/SegmentationObject/a.png"),
                    HasSubstr("is not there")));
  EXPECT_THAT(dataset->notes(), HasSubstr("SegmentationObject/a.png"));
  const auto others = MustOpen(xml);
  ASSERT_NE(others, nullptr);
  EXPECT_EQ(others->notes(), "");
  EXPECT_EQ(ReadFields(*others, 0)[0], "picture");
}

TEST_F(VocTest, ListsOfOtherFoldersAreNamedWithThem) {
  folder_.Write("v/ImageSets/Segmentation/few.txt", "a\na\n");
  const std::string xml = Annotation(Object("dog"));
  const auto dataset = MustOpen(xml, ", image_set: Segmentation/few");
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->size(), 2);
  for (const char* other :
       {"Segmentation/../Main/train", "/few", "Segmentation/", "./train", "a/b/c"})
    EXPECT_THAT(ErrorOf(xml, absl::StrCat(", image_set: ", other)), HasSubstr("FOLDER/NAME"))
        << other;
}

TEST_F(VocTest, AnotherAnnotationIsAnotherDataset) {
  const auto first = MustOpen(Annotation(Object("cat")));
  ASSERT_NE(first, nullptr);
  const auto second = MustOpen(Annotation(Object("dog")));
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first->digest(), second->digest());
  EXPECT_TRUE(absl::IsFailedPrecondition(first->LookAgain()));
}

TEST(VocAnnotation, EveryCutIsRefused) {
  const std::string xml = Annotation(Object("cat"));
  ASSERT_TRUE(ReadVocAnnotation(xml).ok()) << ReadVocAnnotation(xml).status();
  for (size_t size = 0; size < xml.size(); ++size)
    EXPECT_EQ(ReadVocAnnotation(xml.substr(0, size)).status().code(),
              absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(ReadVocAnnotation(std::string(kMaxVocBytes + 1, ' ')).ok());
}

}  // namespace
}  // namespace feedwater::server
