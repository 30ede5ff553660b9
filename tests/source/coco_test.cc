// COCO's instances: what is special about them. The conformance suite has the rest.
#include "server/source/coco_annotations.h"
#include "tests/source/dataset_reader.h"

namespace feedwater::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

constexpr char kImages[] = R"("images": [{"id": 1, "file_name": "a.jpg", "width": 20, "height": 10},
  {"id": 2, "file_name": "b.jpg", "width": 20, "height": 10}])";
constexpr char kCategories[] =
    R"("categories": [{"id": 5, "name": "cat"}, {"id": 2, "name": "dog"}])";

std::string File(const std::string& annotations, const std::string& images = kImages,
                 const std::string& categories = kCategories) {
  return "{" + annotations + ", " + images + ", " + categories + "}";
}
// One annotation with these keys beside its ids.
std::string One(const std::string& keys) {
  return File(R"("annotations": [{"id": 8, "image_id": 1, "category_id": 5, )" + keys + "}]");
}

class CocoTest : public ::testing::Test {
 protected:
  CocoTest() : opener_(folder_.path()) {
    folder_.Write("p/a.jpg", "first");
    folder_.Write("p/b.jpg", "second");
  }

  absl::StatusOr<std::shared_ptr<const Dataset>> Open(const std::string& text,
                                                      const std::string& more = "") {
    folder_.Write("boxes.json", text);
    return opener_.Open("{format: coco, root: root, path: p, annotations: boxes.json" + more + "}");
  }
  std::shared_ptr<const Dataset> MustOpen(const std::string& text, const std::string& more = "") {
    const auto dataset = Open(text, more);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? *dataset : nullptr;
  }
  std::string ErrorOf(const std::string& text, const std::string& more = "") {
    const auto dataset = Open(text, more);
    if (dataset.ok()) return "no error";
    EXPECT_EQ(dataset.status().code(), absl::StatusCode::kInvalidArgument) << dataset.status();
    return std::string(dataset.status().message());
  }

  TempFolder folder_;
  Opener opener_;
};

TEST_F(CocoTest, RecordsAreImagesById) {
  const auto dataset = MustOpen(File(
      R"("annotations": [
        {"image_id": 2, "category_id": 5, "bbox": [1, 2, 3, 4.5], "area": 7.25, "iscrowd": 1},
        {"image_id": 2, "category_id": 2, "bbox": [0, 0, 1, 1]}])",
      R"("images": [{"id": 2, "file_name": "b.jpg"}, {"file_name": "a.jpg", "id": 1}])"));
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(dataset->classes(), ElementsAre("dog", "cat"));
  Strings types;
  for (const FieldSpec& field : dataset->fields())
    types.push_back(field.name + ": " + field.spec.ToString());
  EXPECT_THAT(types,
              ElementsAre("data: uint8[?] encoded", "boxes: float32[?,4]", "labels: int64[?]",
                          "image_id: int64[]", "area: float32[?]", "iscrowd: int64[?]"));
  EXPECT_THAT(ReadFields(*dataset, 0), ElementsAre("first", "", "", BytesOf<int64_t>({1}), "", ""));
  EXPECT_THAT(
      ReadFields(*dataset, 1),
      ElementsAre("second", BytesOf<float>({1, 2, 4, 6.5, 0, 0, 1, 1}), BytesOf<int64_t>({1, 0}),
                  BytesOf<int64_t>({2}), BytesOf<float>({7.25, 1}), BytesOf<int64_t>({1, 0})));
  Record record;
  ASSERT_TRUE(ParseBytes(*dataset, 0, ReadExtents(*dataset, 0), &record).ok());
  EXPECT_EQ(record.fields[1].spec.shape, (Shape{0, 4}));
}

TEST_F(CocoTest, FieldsMayNameWhatElseIsThere) {
  const auto dataset =
      MustOpen(One(R"("bbox": [1, 2, 3, 4])"),
               ", fields: {picture: data, ids: category_id, w: width, name: file_name, "
               "boxes: {from: boxes, dtype: float64}}");
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(ReadFields(*dataset, 0),
              ElementsAre("first", BytesOf<int64_t>({5}), BytesOf<int64_t>({20}), "a.jpg",
                          BytesOf<double>({1, 2, 4, 6})));
  EXPECT_THAT(ErrorOf(One(R"("bbox": [1, 2, 3, 4])"), ", fields: {labels: labels}"),
              HasSubstr("no image: add one such as 'data: data'"));
}

TEST_F(CocoTest, BoxesBeyondTheImageAreCutAndThoseWithoutAreaLeftOut) {
  const std::string text = File(R"("annotations": [
      {"image_id": 1, "category_id": 5, "bbox": [-2, 8, 5, 5]},
      {"image_id": 1, "category_id": 2, "bbox": [3, 3, 0, 5]},
      {"image_id": 1, "category_id": 2, "bbox": [25, 3, 5, 5]},
      {"image_id": 1, "category_id": 2, "bbox": [1, 1, -5, 5]},
      {"image_id": 1, "category_id": 2, "bbox": [1, 1, 2, 2]}])");
  const auto dropped = MustOpen(text);
  ASSERT_NE(dropped, nullptr);
  EXPECT_EQ(ReadFields(*dropped, 0)[1], BytesOf<float>({0, 8, 3, 10, 1, 1, 3, 3}));
  EXPECT_EQ(ReadFields(*dropped, 0)[2], BytesOf<int64_t>({1, 0}));
  EXPECT_THAT(dropped->notes(),
              AllOf(HasSubstr("1 box cut off"), HasSubstr("3 boxes without area left out")));
  const auto kept = MustOpen(text, ", invalid_boxes: keep");
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(ReadFields(*kept, 0)[1].size(), 5u * 16);
  EXPECT_EQ(ReadFields(*kept, 0)[1].substr(0, 32), BytesOf<float>({-2, 8, 3, 13, 3, 3, 3, 8}));
  EXPECT_NE(kept->digest(), dropped->digest());
  EXPECT_THAT(ErrorOf(text, ", invalid_boxes: fail"),
              AllOf(HasSubstr("annotations[0] of the image 1"), HasSubstr("[-2, 8, 3, 13]"),
                    HasSubstr("'invalid_boxes: drop'")));
}

TEST_F(CocoTest, BoxesOfImagesWithoutASizeAreHeldAgainstTheEdgesThatAreKnown) {
  const std::string text = File(R"("annotations": [
      {"image_id": 1, "category_id": 5, "bbox": [-2, 8, 500, 5]},
      {"image_id": 2, "category_id": 5, "bbox": [1, 1, 2, 2]}])",
                                R"("images": [{"id": 1, "file_name": "a.jpg"},
      {"id": 2, "file_name": "b.jpg", "width": 20, "height": 10}])");
  const auto dropped = MustOpen(text);
  ASSERT_NE(dropped, nullptr);
  EXPECT_EQ(ReadFields(*dropped, 0)[1], BytesOf<float>({0, 8, 498, 13}));
  EXPECT_THAT(dropped->notes(), HasSubstr("1 image without width and height"));
  EXPECT_THAT(MustOpen(text, ", invalid_boxes: keep")->notes(), "");
  EXPECT_THAT(ErrorOf(text, ", invalid_boxes: fail"),
              HasSubstr("[-2, 8, 498, 13], which reaches beyond its image; "));
}

TEST_F(CocoTest, WholeNumbersMayBeWrittenAsFloats) {
  const auto dataset = MustOpen(
      File(R"("annotations": [{"id": 8.0, "image_id": 1.0, "category_id": 5e0,
        "bbox": [1, 2, 30, 4], "area": 7, "iscrowd": 1.0}])",
           R"("images": [{"id": 1.0, "file_name": "a.jpg", "width": 20.0, "height": 1.0e1}])",
           R"("categories": [{"id": 5.0, "name": "cat"}])"),
      ", fields: {data: data, w: width, h: height, boxes: boxes, crowd: iscrowd, id: category_id}");
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(
      ReadFields(*dataset, 0),
      ElementsAre("first", BytesOf<int64_t>({20}), BytesOf<int64_t>({10}),
                  BytesOf<float>({1, 2, 20, 6}), BytesOf<int64_t>({1}), BytesOf<int64_t>({5})));
}

TEST_F(CocoTest, AnnotationsOfImagesThatAreNotListedAreLeftOutAndCounted) {
  const auto dataset = MustOpen(File(R"("annotations": [
      {"id": 7, "image_id": 77, "category_id": 99, "bbox": [1, 1, 2, 2]},
      {"id": 8, "image_id": 2, "category_id": 5, "bbox": [1, 2, 3, 4]},
      {"image_id": 0, "category_id": 5, "bbox": [1, 1, 2, 2]},
      {"id": 9, "image_id": 1, "category_id": 2, "bbox": [0, 0, 1, 1]}])"));
  ASSERT_NE(dataset, nullptr);
  ASSERT_EQ(dataset->size(), 2);
  EXPECT_EQ(ReadFields(*dataset, 0)[1], BytesOf<float>({0, 0, 1, 1}));
  EXPECT_EQ(ReadFields(*dataset, 1)[1], BytesOf<float>({1, 2, 4, 6}));
  EXPECT_THAT(dataset->notes(), HasSubstr("2 annotations of images that are not among the file's "
                                          "left out, such as the annotation 7 of the image 77"));
}

TEST_F(CocoTest, IdsOfAnnotationsMayBeAnything) {
  for (const char* id : {"-5", "1.5", "1e300", "100000000000000000000", "\"abc\"", "null"}) {
    const auto dataset =
        MustOpen(File(R"("annotations": [{"id": )" + std::string(id) +
                      R"(, "image_id": 1, "category_id": 5, "bbox": [1, 2, 3, 4]}])"));
    ASSERT_NE(dataset, nullptr) << id;
    EXPECT_EQ(ReadFields(*dataset, 0)[1], BytesOf<float>({1, 2, 4, 6})) << id;
  }
}

TEST_F(CocoTest, ImagesOfLvisAreNamedByTheEndOfTheirUrl) {
  folder_.Write("p/train2017/000000155379.jpg", "of LVIS");
  const auto dataset = MustOpen(File(R"("annotations": [])",
                                     R"("images": [{"id": 155379, "width": 20, "height": 10,
        "coco_url": "http://images.cocodataset.org/train2017/000000155379.jpg"},
        {"coco_url": "http://x/no/b.jpg", "id": 155380, "file_name": "b.jpg"}])"));
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(ReadFields(*dataset, 0)[0], "of LVIS");
  EXPECT_EQ(ReadFields(*dataset, 1)[0], "second");
  EXPECT_THAT(ErrorOf(File(R"("annotations": [])",
                           R"("images": [{"id": 1, "coco_url": "http://x/../outside.jpg"}])")),
              AllOf(HasSubstr("../outside.jpg"), HasSubstr("record 0")));
}

TEST_F(CocoTest, WhatIsNoFileOfInstancesIsRefusedWithItsPlace) {
  const std::string good = R"("bbox": [1, 2, 3, 4])";
  EXPECT_EQ(ErrorOf(One(good)), "no error");
  const struct {
    std::string text, words;
  } bad[] = {
      {"", "is no JSON"},
      {"[1]", "is a list"},
      {"7", "is a value"},
      {"{", "is no JSON at byte"},
      {One(good) + "}", "is no JSON at byte"},
      {"{" + std::string(kImages) + "}", "has no list 'annotations'"},
      {R"({"images": {}})", "'images', not a list"},
      {R"({"images": 3})", "'images', not a list"},
      {R"({"images": [], "images": []})", "two lists 'images'"},
      {R"({"images": [3]})", "images[0], which is a value"},
      {R"({"images": [[3]]})", "images[0], which is a list"},
      {R"({"images": [{"id": 1, "file_name": "a"}, {"id": 2}]})", "images[1], which has no 'file_"},
      {R"({"images": [{"file_name": "a"}]})", "has no 'id'"},
      {R"({"images": [{"id": "1", "file_name": "a"}]})", "has no 'id'"},
      {R"({"images": [{"id": 1.5, "file_name": "a"}]})", "1.5 as 'id'"},
      {R"({"images": [{"id": 1e20, "file_name": "a"}]})", "1e+20 as 'id'"},
      {R"({"images": [{"id": 100000000000000000000, "file_name": "a"}]})", "1e+20 as 'id'"},
      {R"({"images": [{"id": 1, "file_name": "a", "width": 1.5}]})", "1.5 as 'width'"},
      {R"({"images": [{"id": 1, "coco_url": "a.jpg"}]})", "nor a 'coco_url'"},
      {R"({"images": [{"id": 1, "coco_url": "http://a.jpg"}]})", "nor a 'coco_url'"},
      {R"({"images": [{"id": 1, "coco_url": "/a.jpg"}]})", "nor a 'coco_url'"},
      {R"({"images": [{"id": 1, "coco_url": "http://x/a/"}]})", "nor a 'coco_url'"},
      {R"({"images": [{"id": 1, "coco_url": 7}]})", "nor a 'coco_url'"},
      {R"({"images": [{"id": 1, "file_name": "a", "coco_url": "http://x/b/c"}, {"id": 2}]})",
       "images[1], which has no 'file_name'"},
      {R"({"images": [{"id": -1, "file_name": "a"}]})", "-1 as 'id'"},
      {R"({"images": [{"id": 1, "id": 1, "file_name": "a"}]})", "two values 'id'"},
      {R"({"categories": [{"id": 1}]})", "categories[0], which has no 'name'"},
      {One(R"("caption": "a cat")"), "'bbox' of four numbers: is this a file of instances?"},
      {One(R"("bbox": [1, 2, 3])"), "'bbox' of four numbers"},
      {One(R"("bbox": [1, 2, 3, 4, 5])"), "more than four numbers"},
      {One(R"("bbox": [1, 2, 3, "4"])"), "no list of four numbers"},
      {One(R"("bbox": [1, 2, 3, [4]])"), "no list of four numbers"},
      {One(R"("bbox": [1, 2, 3, 1e999])"), "is no JSON at byte"},
      {One(R"("bbox": [1, 2, 1e300, 3])"), "finite"},
      {One(R"("bbox": [1, 2, 3, 4], "bbox": [1, 2, 3, 4])"), "two boxes"},
      {File(R"("annotations": [{"id": 4, "image_id": 3, "category_id": 5, "bbox": [1, 2, 3, 4]}])"),
       "no annotation of an image that is among its images, but the annotation 4 of the image 3"},
      {File(R"("annotations": [{"image_id": 1, "category_id": 9, "bbox": [1, 2, 3, 4]}])"),
       "annotations[0] of the category 9, which is not among"},
      {File(R"("annotations": [])",
            R"("images": [{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "b"}])"),
       "two images with the id 1"},
      {One(R"("bbox": [1, 2, 3, 4], "area": 1e39)"), "with the area 1e+39, which float32 cannot"},
      {File(R"("annotations": [])", kImages,
            R"("categories": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}])"),
       "two categories with the id 1"},
      {"{\"a\": " + std::string(100, '[') + std::string(100, ']') + "}", "more than 64 levels"},
      {"\x1f\x8b" + std::string(50, 'x'), "gzip"},
  };
  for (const auto& [text, words] : bad) EXPECT_THAT(ErrorOf(text), HasSubstr(words)) << text;
  EXPECT_THAT(ErrorOf("{\"a\": 1}"), HasSubstr("boxes.json"));
}

TEST_F(CocoTest, ATextWithoutEndTakesNoMemory) {
  EXPECT_THAT(ErrorOf("{\"a\": \"" + std::string(kMaxCocoText + 10, 'x') + "\"}"),
              HasSubstr("a text of more than 16 MiB"));
}

TEST_F(CocoTest, EveryCutOfAFileIsRefused) {
  const std::string text = One(R"("bbox": [1, 2, 3, 4], "segmentation": {"counts": [3]})");
  for (size_t size = 0; size < text.size(); ++size)
    EXPECT_NE(ErrorOf(text.substr(0, size)), "no error") << size;
}

TEST_F(CocoTest, NamesOfImagesStayBelowThePath) {
  folder_.Write("outside.jpg", "secret");
  for (const char* name : {"../outside.jpg", "/etc/passwd", "a/../../outside.jpg"}) {
    EXPECT_THAT(ErrorOf(File(R"("annotations": [])", R"("images": [{"id": 1, "file_name": ")" +
                                                         std::string(name) + "\"}]")),
                AllOf(HasSubstr(name), HasSubstr("record 0")));
  }
  const auto missing = MustOpen(
      File(R"("annotations": [])",
           R"("images": [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "none.jpg"}])"));
  ASSERT_NE(missing, nullptr);
  EXPECT_THAT(missing->notes(), HasSubstr("none.jpg"));
  EXPECT_FALSE(
      opener_.Open("{format: coco, root: root, path: p, annotations: ../../etc/passwd}").ok());
}

TEST_F(CocoTest, AnotherFileOfAnnotationsIsAnotherDataset) {
  const auto first = MustOpen(One(R"("bbox": [1, 2, 3, 4])"));
  ASSERT_NE(first, nullptr);
  const auto second = MustOpen(One(R"("bbox": [1, 2, 3, 5])"));
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first->digest(), second->digest());
  EXPECT_TRUE(absl::IsFailedPrecondition(first->LookAgain()));
}

TEST_F(CocoTest, WhatIsFoundIsCountedBeforeItIsKept) {
  std::string annotations = R"("annotations": [)";
  for (int i = 0; i < 60'000; ++i)
    annotations += R"({"image_id":1,"category_id":5,"bbox":[1,2,3,4]},)";
  annotations.back() = ']';
  opener_.budget = MemoryBudget::Create(4 << 20, "memory");
  const auto dataset = Open(File(annotations));
  EXPECT_EQ(dataset.status().code(), absl::StatusCode::kResourceExhausted) << dataset.status();
  opener_.budget = MemoryBudget::Create(64 << 20, "memory");
  EXPECT_TRUE(Open(File(annotations)).ok());
}

}  // namespace
}  // namespace feedwater::server
