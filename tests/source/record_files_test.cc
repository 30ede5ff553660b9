// Goal: cifar10 and mnist deliver what their files say, and files that are not what they should be
// are refused by name.
#include "absl/strings/str_cat.h"
#include "tests/source/dataset_reader.h"
#include "tests/source/small_datasets.h"

namespace feedwater::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RecordFilesTest : public ::testing::Test {
 protected:
  RecordFilesTest() : opener_(folder_.path()) {}
  void ExpectRefused(const std::string& yaml, absl::StatusCode code,
                     const std::vector<std::string>& words) {
    absl::Status status = opener_.Open(yaml).status();
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& word : words)
      EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }

  TempFolder folder_;
  Opener opener_;
};

// --- cifar10

TEST_F(RecordFilesTest, CifarPlanesBecomePixels) {
  std::string record(3073, '\0');
  record[0] = 7;
  for (int c = 0; c < 3; ++c) {
    for (int i = 0; i < 1024; ++i)
      record[1 + c * 1024 + i] = static_cast<char>((i * 3 + c * 85) & 0xff);
  }
  folder_.Write("data_batch_1.bin", CifarRecord(1, 1) + record);
  auto dataset = opener_.MustOpen("{format: cifar10, root: root}");
  ASSERT_EQ(dataset->size(), 2);
  Record scratch;
  const std::vector<std::string> fields = ReadFields(*dataset, 1, &scratch);
  ASSERT_EQ(fields[0].size(), 3072u);
  for (int i = 0; i < 1024; ++i) {
    for (int c = 0; c < 3; ++c)
      ASSERT_EQ(fields[0][i * 3 + c], static_cast<char>((i * 3 + c * 85) & 0xff));
  }
  EXPECT_EQ(LabelOf(*dataset, 1), 7);
  EXPECT_EQ(dataset->classes()[7], "horse");
}

TEST_F(RecordFilesTest, CifarFilesStandInOrderAndGiveTheShards) {
  folder_.Write("b/data_batch_2.bin", CifarRecord(2, 1));
  folder_.Write("b/data_batch_1.bin", CifarRecord(0, 2) + CifarRecord(1, 3));
  folder_.Write("b/test_batch.bin", CifarRecord(5, 4));
  folder_.Write("b/readme.html", "no");
  auto train = opener_.MustOpen("{format: cifar10, root: root, path: b}");
  EXPECT_THAT(train->shard_starts(), ElementsAre(0, 2));
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(LabelOf(*train, i), i);
  auto test = opener_.MustOpen("{format: cifar10, root: root, path: b, split: test}");
  EXPECT_EQ(test->size(), 1);
  EXPECT_EQ(LabelOf(*test, 0), 5);
  auto file = opener_.MustOpen("{format: cifar10, root: root, path: b/data_batch_2.bin}");
  EXPECT_EQ(LabelOf(*file, 0), 2);
  auto named = opener_.MustOpen(
      "{format: cifar10, root: root, path: b, files: [test_batch.bin, data_batch_2.bin]}");
  EXPECT_EQ(LabelOf(*named, 0), 5);
  EXPECT_EQ(LabelOf(*named, 1), 2);
  EXPECT_NE(named->digest(), train->digest());
}

TEST_F(RecordFilesTest, CifarClassNamesComeFromTheFolderWhereItHasThem) {
  folder_.Write("data_batch_1.bin", CifarRecord(1, 1));
  TempFolder state;
  opener_.state_dir = state.path();
  EXPECT_EQ(opener_.MustOpen("{format: cifar10, root: root}")->classes()[0], "airplane");
  folder_.Write("batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
  EXPECT_EQ(opener_.MustOpen("{format: cifar10, root: root}")->classes()[9], "j");
  folder_.Write("batches.meta.txt",
                "\xef\xbb\xbf"
                "a\r\nb\r\nc\nd\ne\nf\ng\nh\ni\nj\r\n");
  EXPECT_EQ(opener_.MustOpen("{format: cifar10, root: root}")->classes()[0], "a");
  folder_.Write("batches.meta.txt", "a\nb\n");
  ExpectRefused("{format: cifar10, root: root}", absl::StatusCode::kInvalidArgument,
                {"batches.meta.txt", "2 class names"});
}

TEST_F(RecordFilesTest, ACifarFileOfAnOddSizeIsRefusedWithTheRemainder) {
  folder_.Write("data_batch_1.bin", CifarRecord(1, 1) + "12345");
  ExpectRefused("{format: cifar10, root: root}", absl::StatusCode::kInvalidArgument,
                {"'data_batch_1.bin' of root 'root'", "3078 bytes", "5 bytes are left over"});
  folder_.Write("data_batch_1.bin", "");
  ExpectRefused("{format: cifar10, root: root}", absl::StatusCode::kInvalidArgument, {"is empty"});
  folder_.Write("b/data_batch_1", "a pickle");
  ExpectRefused("{format: cifar10, root: root, path: b}", absl::StatusCode::kNotFound,
                {"data_batch_*.bin", "binary version"});
}

TEST_F(RecordFilesTest, ACifarLabelAboveNineIsABadSample) {
  folder_.Write("data_batch_1.bin", CifarRecord(10, 1) + CifarRecord(-1, 2) + CifarRecord(9, 2));
  auto dataset = opener_.MustOpen("{format: cifar10, root: root}");
  Record scratch;
  EXPECT_THAT(ReadFields(*dataset, 0, &scratch)[0], HasSubstr("record 0 has label 10"));
  EXPECT_THAT(ReadFields(*dataset, 1, &scratch)[0], HasSubstr("record 1 has label 255"));
  EXPECT_EQ(ReadFields(*dataset, 2, &scratch).size(), 2u);
}

TEST_F(RecordFilesTest, TheNamesOfAFolderAreCountedWhileTheyAreFound) {
  for (int i = 0; i < 5000; ++i)
    folder_.Write(absl::StrCat("names/", std::string(100, 'x'), i), "");
  const char* const yaml = "{format: cifar10, root: root, path: names}";
  EXPECT_TRUE(absl::IsNotFound(opener_.Open(yaml).status()));
  opener_.budget = MemoryBudget::Create(600'000);  // 5,000 names take 800,000 bytes
  EXPECT_TRUE(absl::IsResourceExhausted(opener_.Open(yaml).status()));
  opener_.budget = nullptr;
  opener_.given_up = [] { return true; };
  EXPECT_TRUE(absl::IsCancelled(opener_.Open(yaml).status()));
}

TEST_F(RecordFilesTest, RealCifarIsRead) {
  const std::string data = OutsideData();
  if (data.empty()) GTEST_SKIP() << "FEEDWATER_TEST_DATA is not there";
  Opener opener(data);
  auto dataset = opener.MustOpen("{format: cifar10, root: root, path: cifar10}");
  ASSERT_EQ(dataset->size(), 1000);
  std::ifstream file(data + "/cifar10/data_batch_1.bin", std::ios::binary);
  Record scratch;
  for (int64_t i = 0; i < 1000; ++i) {
    std::string raw(3073, '\0');
    file.read(raw.data(), 3073);
    const std::vector<std::string> fields = ReadFields(*dataset, i, &scratch);
    ASSERT_EQ(fields[0][2], raw[1 + 2048]);         // blue of the first pixel
    ASSERT_EQ(fields[0][3071 - 2], raw[1 + 1023]);  // red of the last
    ASSERT_EQ(LabelOf(*dataset, i), raw[0]);
  }
}

// --- mnist

std::string Images(uint32_t count, uint32_t height, uint32_t width, size_t bytes,
                   uint32_t magic = 0x803) {
  return BigEndian(magic) + BigEndian(count) + BigEndian(height) + BigEndian(width) +
         RandomBytes(bytes, 5);
}
std::string Labels(const std::string& labels) {
  return BigEndian(0x801) + BigEndian(static_cast<uint32_t>(labels.size())) + labels;
}
constexpr char kMnist[] = "{format: mnist, root: root, height: 2, width: 2}";

TEST_F(RecordFilesTest, MnistGivesImagesAndLabels) {
  folder_.Write("train-images-idx3-ubyte", Images(2, 2, 2, 0) + "abcdefgh");
  folder_.Write("train-labels-idx1-ubyte", Labels("\3\11"));
  auto dataset = opener_.MustOpen(kMnist);
  Record scratch;
  EXPECT_EQ(ReadFields(*dataset, 1, &scratch)[0], "efgh");
  EXPECT_EQ(LabelOf(*dataset, 0), 3);
  EXPECT_EQ(LabelOf(*dataset, 1), 9);
  EXPECT_THAT(dataset->shard_starts(), ElementsAre(0));
}

TEST_F(RecordFilesTest, MnistFindsItsFilesUnderTheirUsualNamesOrTheOnesGiven) {
  folder_.Write("t10k-images.idx3-ubyte", Images(1, 2, 2, 4));
  folder_.Write("t10k-labels.idx1-ubyte", Labels("\1"));
  EXPECT_EQ(
      opener_.MustOpen("{format: mnist, root: root, height: 2, width: 2, split: test}")->size(), 1);
  folder_.Write("x/my.images", Images(1, 2, 2, 4));
  folder_.Write("x/my.labels", Labels("\1"));
  EXPECT_EQ(opener_
                .MustOpen("{format: mnist, root: root, path: x, height: 2, width: 2, images: "
                          "my.images, labels: my.labels}")
                ->size(),
            1);
  ExpectRefused(kMnist, absl::StatusCode::kNotFound,
                {"train-images-idx3-ubyte", "t10k-images.idx3-ubyte", "root 'root'"});
}

TEST_F(RecordFilesTest, OfTheOtherSplitsMnistFilesTheCureNamesTheSplit) {
  folder_.Write("t10k-images-idx3-ubyte.gz", "packed");
  ExpectRefused(kMnist, absl::StatusCode::kNotFound,
                {"no train-images-idx3-ubyte, but t10k-images-idx3-ubyte.gz", "`split: test`"});
  folder_.Write("x/train-images.idx3-ubyte", Images(1, 2, 2, 4));
  folder_.Write("x/t10k-images.idx3-ubyte", Images(1, 2, 2, 4));
  folder_.Write("x/train-labels.idx1-ubyte", Labels("\1"));
  ExpectRefused("{format: mnist, root: root, path: x, height: 2, width: 2, split: test}",
                absl::StatusCode::kNotFound,
                {"no t10k-labels-idx1-ubyte, but train-labels.idx1-ubyte", "`split: train`"});
}

TEST_F(RecordFilesTest, DamagedIdxFilesAreRefusedByName) {
  folder_.Write("train-labels-idx1-ubyte", Labels("\1\2"));
  const std::string good = Images(2, 2, 2, 8);
  for (size_t length = 0; length < good.size(); ++length) {
    folder_.Write("train-images-idx3-ubyte", good.substr(0, length));
    ExpectRefused(kMnist, absl::StatusCode::kInvalidArgument, {"train-images-idx3-ubyte"});
  }
  for (const std::string& bad :
       {good + "x", Images(2, 2, 2, 8, 0x801), Images(2, 2, 2, 8, 0xD03), Images(3, 2, 2, 8),
        Images(UINT32_MAX, UINT32_MAX, UINT32_MAX, 8), Images(0x80000000u, 0x80000000u, 4, 8),
        Images(2, UINT32_MAX, 2, 8), Images(0, 2, 2, 0)}) {
    folder_.Write("train-images-idx3-ubyte", bad);
    ExpectRefused(kMnist, absl::StatusCode::kInvalidArgument, {"train-images-idx3-ubyte"});
  }
  folder_.Write("train-images-idx3-ubyte", Images(1, 2, 2, 4));
  ExpectRefused(kMnist, absl::StatusCode::kInvalidArgument, {"1 images", "2 labels"});
  folder_.Write("train-images-idx3-ubyte", good);
  EXPECT_TRUE(opener_.Open(kMnist).ok());
}

TEST_F(RecordFilesTest, ImagesOfAnotherSizeNameTheCure) {
  folder_.Write("train-images-idx3-ubyte", Images(1, 3, 2, 6));
  folder_.Write("train-labels-idx1-ubyte", Labels("\1"));
  ExpectRefused(kMnist, absl::StatusCode::kInvalidArgument, {"3x2", "cure: height: 3, width: 2"});
}

TEST_F(RecordFilesTest, CompressedIdxFilesNameTheCure) {
  folder_.Write("train-images-idx3-ubyte.gz", "\x1f\x8b");
  ExpectRefused(kMnist, absl::StatusCode::kFailedPrecondition,
                {"train-images-idx3-ubyte.gz", "unpack it"});
  folder_.Write("train-images-idx3-ubyte", "\x1f\x8bpacked under the plain name");
  folder_.Write("train-labels-idx1-ubyte", Labels("\1"));
  ExpectRefused(kMnist, absl::StatusCode::kInvalidArgument, {"gzip", "name it .gz"});
}

TEST_F(RecordFilesTest, AnMnistLabelWithoutAClassIsABadSample) {
  folder_.Write("train-images-idx3-ubyte", Images(2, 2, 2, 8));
  folder_.Write("train-labels-idx1-ubyte", Labels("\12\1"));
  Record scratch;
  EXPECT_THAT(ReadFields(*opener_.MustOpen(kMnist), 0, &scratch)[0], HasSubstr("label 10"));
  auto wide = opener_.MustOpen(
      "{format: mnist, root: root, height: 2, width: 2, classes: [a, b, c, d, e, f, g, h, i, j, "
      "k]}");
  EXPECT_EQ(LabelOf(*wide, 0), 10);
}

TEST_F(RecordFilesTest, RealMnistIsRead) {
  const std::string data = OutsideData();
  if (data.empty()) GTEST_SKIP() << "FEEDWATER_TEST_DATA is not there";
  Opener opener(data);
  auto dataset = opener.MustOpen("{format: mnist, root: root, path: mnist, split: test}");
  ASSERT_EQ(dataset->size(), 10'000);
  EXPECT_EQ(LabelOf(*dataset, 0), 7);  // the well-known first digits of the test set
  EXPECT_EQ(LabelOf(*dataset, 1), 2);
  EXPECT_EQ(LabelOf(*dataset, 2), 1);
  Record scratch;
  const std::string image = ReadFields(*dataset, 0, &scratch)[0];
  ASSERT_EQ(image.size(), 784u);
  std::ifstream file(data + "/mnist/t10k-images-idx3-ubyte", std::ios::binary);
  std::string raw(784, '\0');
  file.seekg(16);
  file.read(raw.data(), 784);
  EXPECT_EQ(image, raw);
}

}  // namespace
}  // namespace feedwater::server
