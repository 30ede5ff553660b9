// Goal: what the tar writer makes is what the reader of any tar understands, byte for byte the same
// every time; padding lets records begin at 4 KiB where that is cheap and belongs to no record.
#include "server/source/tar_writer.h"

#include "server/source/npy_header.h"
#include "server/source/tar.h"
#include "tests/source/column_testing.h"

namespace feedwater::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Member(const std::string& name, const std::string& bytes) {
  std::string archive;
  AppendTarHeader(name, static_cast<int64_t>(bytes.size()), &archive);
  archive += bytes;
  FinishTarMember(&archive);
  return archive;
}

std::vector<TarMember> MembersOf(const std::string& archive) {
  TarReader reader(
      [&](int64_t offset, char* to, size_t bytes) {
        std::memcpy(to, archive.data() + offset, bytes);
        return absl::OkStatus();
      },
      static_cast<int64_t>(archive.size()));
  std::vector<TarMember> members;
  while (true) {
    auto member = reader.Next();
    EXPECT_TRUE(member.ok()) << member.status();
    if (!member.ok() || !*member) return members;
    members.push_back(**member);
  }
}

TEST(TarWriterTest, TheHeaderIsPosixFieldByField) {
  const std::string header = Member("00000007.jpg", "abc").substr(0, 512);
  std::string expected(512, '\0');
  const auto put = [&](size_t at, const std::string& text) {
    expected.replace(at, text.size(), text);
  };
  put(0, "00000007.jpg");
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, "00000000003");
  put(136, "00000000000");
  put(148, "        ");
  put(156, "0");
  put(257, std::string("ustar\0"
                       "00",
                       8));
  put(329, "0000000");
  put(337, "0000000");
  unsigned sum = 0;
  for (const char c : expected) sum += static_cast<unsigned char>(c);
  char text[8];
  std::snprintf(text, sizeof(text), "%06o", sum);
  put(148, std::string(text, 7) + " ");
  EXPECT_EQ(header, expected);
}

TEST(TarWriterTest, MembersComeBackWithTheirBytes) {
  const std::string longest(kMaxTarName, 'n');
  std::string archive;
  for (const size_t bytes : {0, 1, 511, 512, 513})
    archive += Member(longest, std::string(bytes, 'x'));
  AppendTarEnd(&archive);
  const std::vector<TarMember> members = MembersOf(archive);
  ASSERT_EQ(members.size(), 5u);
  for (const TarMember& member : members) {
    EXPECT_EQ(member.name, longest);
    EXPECT_EQ(member.begin % kTarBlock, 0);
  }
  EXPECT_EQ(members[4].bytes, 513);
  EXPECT_EQ(archive.size() % kTarBlock, 0u);
}

TEST(TarWriterTest, PaddingIsTakenWhereItCostsATwentiethAtMost) {
  EXPECT_EQ(TarPadding(0, 1), 0);
  EXPECT_EQ(TarPadding(8192, 1), 0);
  EXPECT_EQ(TarPadding(8192 + 3072, 20 * 1024), 1024);
  EXPECT_EQ(TarPadding(8192 + 3072, 20 * 1024 - 1), 0);
  // A header and its text do not fit into one block: the next boundary but one.
  EXPECT_EQ(TarPadding(8192 + 3584, 20 * 4608), 4608);
  EXPECT_EQ(TarPadding(8192 + 3584, 20 * 4608 - 1), 0);
}

TEST(TarWriterTest, PaddingIsNoMemberAndNoPartOfTheNextOne) {
  for (int64_t bytes = 2 * kTarBlock; bytes <= 2 * kTarAlignment; bytes += kTarBlock) {
    std::string archive = Member("1.txt", "one");
    AppendTarPadding(bytes, &archive);
    archive += Member("2.txt", "two");
    AppendTarEnd(&archive);
    const std::vector<TarMember> members = MembersOf(archive);
    ASSERT_EQ(members.size(), 2u) << bytes;
    EXPECT_EQ(members[1].name, "2.txt");
    EXPECT_EQ(members[1].begin, 1024 + bytes);
  }
}

class PaddedShardTest : public ColumnTest {};

TEST_F(PaddedShardTest, RecordsBeginAtFourKibibytes) {
  std::string archive;
  for (int i = 0; i < 5; ++i) {
    const std::string record =
        Member(absl::StrCat(i, ".jpg"), std::string(100'000 + 700 * i, 'x')) +
        Member(absl::StrCat(i, ".cls"), absl::StrCat(i));
    const int64_t padding =
        TarPadding(static_cast<int64_t>(archive.size()), static_cast<int64_t>(record.size()));
    if (padding > 0) AppendTarPadding(padding, &archive);
    archive += record;
  }
  AppendTarEnd(&archive);
  folder_.Write("a.tar", archive);
  const auto dataset = opener_.MustOpen("{format: webdataset, root: root}");
  ASSERT_EQ(dataset->size(), 5);
  EXPECT_EQ(dataset->notes(), "");
  for (int64_t i = 0; i < 5; ++i) {
    std::vector<Extent> extents;
    dataset->Extents(i, &extents);
    EXPECT_EQ(extents[0].offset % kTarAlignment, 0) << i;
    EXPECT_EQ(FieldOf(*dataset, i, "data").size(), 100'000u + 700 * i);
    EXPECT_THAT(Numbers<int64_t>(*dataset, i, "label"), ElementsAre(i));
  }
}

TEST(NpyWriterTest, HeadersComeBack) {
  const Shape shapes[] = {{}, {3}, {0}, {2, 5, 7}};
  for (const DType dtype :
       {DType::kUInt8, DType::kInt8, DType::kBool, DType::kInt16, DType::kUInt16, DType::kInt32,
        DType::kInt64, DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
    for (const Shape& shape : shapes) {
      const std::string head = WriteNpyHeader(dtype, shape);
      EXPECT_EQ(head.size() % 64, 0u);
      const auto header = ParseNpyHeader(head);
      ASSERT_TRUE(header.ok()) << header.status();
      EXPECT_EQ(header->dtype, dtype);
      EXPECT_EQ(header->shape, shape);
      EXPECT_EQ(header->bytes, head.size());
    }
  }
  EXPECT_THAT(WriteNpyHeader(DType::kFloat32, {3}),
              HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"));
  EXPECT_EQ(WriteNpyHeader(DType::kBFloat16, {3}), "");
}

}  // namespace
}  // namespace feedwater::server
