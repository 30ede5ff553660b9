// CSV: what is special about it. The conformance suite has the rest.
#include "server/source/csv_row.h"
#include "tests/source/column_testing.h"

namespace feedwater::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Strings = std::vector<std::string>;

class CsvTest : public ColumnTest {
 protected:
  std::shared_ptr<const Dataset> Open(const std::string& text, const std::string& more = "") {
    folder_.Write("t/a.csv", text);
    return opener_.MustOpen("{format: csv, root: root, path: t" + more + "}");
  }
  std::string ErrorOf(const std::string& text, const std::string& more = "") {
    folder_.Write("t/a.csv", text);
    const auto dataset = opener_.Open("{format: csv, root: root, path: t" + more + "}");
    return dataset.ok() ? "no error" : dataset.status().ToString();
  }
  static Strings Row(const Dataset& dataset, int64_t record) {
    Record scratch;
    return ReadFields(dataset, record, &scratch);
  }
};

std::string Int(int64_t value) { return {reinterpret_cast<const char*>(&value), sizeof(value)}; }
std::string Real(double value) { return {reinterpret_cast<const char*>(&value), sizeof(value)}; }

TEST_F(CsvTest, ValuesAreThoseOfRfc4180) {
  const auto dataset = Open(
      "\xef\xbb\xbf"
      "a,b,c\r\n"
      "x,\"y, with a delimiter\",z\r\n"
      "\r\n"
      "\"two\r\nlines\",\"say \"\"hi\"\"\",\"\"\n"
      "\n"
      "a\"b,,last");
  ASSERT_NE(dataset, nullptr);
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_THAT(Row(*dataset, 0), ElementsAre("x", "y, with a delimiter", "z"));
  EXPECT_THAT(Row(*dataset, 1), ElementsAre("two\r\nlines", "say \"hi\"", ""));
  EXPECT_THAT(Row(*dataset, 2), ElementsAre("a\"b", "", "last"));
  EXPECT_EQ(dataset->notes(), "2 empty lines");
}

TEST_F(CsvTest, TypesComeFromAllRows) {
  const auto dataset = Open(
      "int,real,text,large,gap\n"
      "1,2,3,4,5\n"
      "-2,2.5,x,99999999999999999999,\n");
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(Fields(*dataset),
            "int int64[], real float64[], text uint8[?], large uint8[?], gap uint8[?]");
  EXPECT_THAT(Row(*dataset, 0), ElementsAre(Int(1), Real(2), "3", "4", "5"));
  EXPECT_THAT(Row(*dataset, 1), ElementsAre(Int(-2), Real(2.5), "x", "99999999999999999999", ""));
}

TEST_F(CsvTest, AnEmptyValueIsAMissingNumberWhereAFieldSaysDtype) {
  const std::string text = "n\n1\n\"\"\n3\n";
  auto dataset = Open(text, ", fields: {n: {dtype: float32, optional: true}}");
  ASSERT_NE(dataset, nullptr);
  const float one = 1, none = 0;
  EXPECT_THAT(Row(*dataset, 0), ElementsAre(std::string(reinterpret_cast<const char*>(&one), 4)));
  EXPECT_THAT(Row(*dataset, 1), ElementsAre(std::string(reinterpret_cast<const char*>(&none), 4)));
  dataset = Open(text, ", fields: {n: {dtype: float32}}");
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(Row(*dataset, 1)[0], HasSubstr("column 'n' is missing"));
}

TEST_F(CsvTest, ANumberBeyondFloat64IsText) {
  const auto dataset = Open("x,y\n1e999,inf\n2.5,-1\n");
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(Fields(*dataset), "x uint8[?], y float64[]");
  EXPECT_EQ(Row(*dataset, 0)[0], "1e999");
}

TEST_F(CsvTest, DelimiterHeaderAndNamelessColumns) {
  auto dataset = Open("1;x\n2;y\n", ", header: false, delimiter: \";\"");
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(Fields(*dataset), "c0 int64[], c1 uint8[?]");
  EXPECT_EQ(dataset->size(), 2);
  folder_.Write("t/b.tsv", ",\"na\tme\"\n0\tx\n");
  EXPECT_THAT(ErrorOf("a\tb\n", ", delimiter: \"\\t\""),
              AllOf(HasSubstr("b.tsv' of"), HasSubstr("has another header")));
  dataset = Open(",name\n0,x\n");  // as pandas writes its index
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(Fields(*dataset), "c0 int64[], name uint8[?]");
  for (const char* bad : {"\"\\\"\"", "\"\"", "ab", "\"\\n\"", "\xc3\xa9", "[1]"}) {
    const auto fields = DescribeDataset(
        ParseNode("{format: csv, root: root, delimiter: " + std::string(bad) + "}"));
    EXPECT_THAT(std::string(fields.status().message()),
                AllOf(HasSubstr("test.yaml:1:"), HasSubstr("'delimiter'")))
        << bad;
  }
}

TEST_F(CsvTest, AFieldThatTakesFilesOrClassesMakesTexts) {
  folder_.Write("t/10", "ten");
  folder_.Write("t/7", "seven");
  const auto dataset = Open("name,kind,part\n10,2,a/b\n7,10,a\n",
                            ", fields: {data: {from: name, file: true}, "
                            "label: {from: kind, classes: auto}}");
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(dataset->classes(), ElementsAre("10", "2"));
  EXPECT_THAT(Row(*dataset, 0), ElementsAre("ten", Int(1)));
  EXPECT_THAT(Row(*dataset, 1), ElementsAre("seven", Int(0)));
}

TEST_F(CsvTest, WithoutQuotingAQuoteIsACharacterAndARowIsALine) {
  const std::string kTab = ", delimiter: \"\\t\", quotes: false";
  auto dataset =
      Open("label\t\"text\"\r\n1\tgood\n0\t\"a mess\n\n1\tfine\r\n0\tawful\"\n1\t\"\"\n0\t\"a\" b",
           kTab);
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(Fields(*dataset), "label int64[], \"text\" uint8[?]");
  ASSERT_EQ(dataset->size(), 6);
  EXPECT_THAT(Row(*dataset, 1), ElementsAre(Int(0), "\"a mess"));
  EXPECT_THAT(Row(*dataset, 3), ElementsAre(Int(0), "awful\""));
  EXPECT_THAT(Row(*dataset, 4), ElementsAre(Int(1), "\"\""));
  EXPECT_THAT(Row(*dataset, 5), ElementsAre(Int(0), "\"a\" b"));
  EXPECT_EQ(dataset->notes(), "1 empty line");
  dataset = Open("a|\"Printing, in\nb|in being\" modern.\n",
                 ", delimiter: \"|\", quotes: false, header: false");
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(Row(*dataset, 0), ElementsAre("a", "\"Printing, in"));
  EXPECT_THAT(Row(*dataset, 1), ElementsAre("b", "in being\" modern."));
  EXPECT_THAT(ErrorOf("a\tb\n\"1\t2\t3\"\n", kTab),
              AllOf(HasSubstr("line 2 has 3 values"), HasSubstr("leave 'quotes' out")));
  EXPECT_THAT(ErrorOf("a\tb\n1\r\t2\n", kTab),
              AllOf(HasSubstr("carriage return"), Not(HasSubstr("quote"))));
}

TEST_F(CsvTest, IndexesWithAndWithoutQuotingAreNotTakenForEachOther) {
  const std::string text = "a;b\n1;\"x\n2;y\"\n";
  const auto merged = Open(text, ", delimiter: \";\"");
  const auto lines = Open(text, ", delimiter: \";\", quotes: false");
  const auto again = Open(text, ", delimiter: \";\"");
  ASSERT_NE(merged, nullptr);
  ASSERT_NE(lines, nullptr);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(merged->size(), 1);
  EXPECT_EQ(lines->size(), 2);
  EXPECT_EQ(again->size(), 1);
  EXPECT_EQ(merged->digest(), again->digest());
  EXPECT_NE(merged->digest(), lines->digest());
}

TEST_F(CsvTest, RowsThatQuotesMayHaveMergedAreToldWithTheCure) {
  const std::string text = "a;b\n1;\"x\n2;y\"\n\n3;z\n";
  const auto dataset = Open(text, ", delimiter: \";\"");
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->notes(),
            "1 empty line, 1 row with line ends in quotes ('quotes: false' where a quote is a "
            "character like any other)");
  const auto commas = Open("a,b\n1,\"x\n2,y\"\n");
  ASSERT_NE(commas, nullptr);
  EXPECT_EQ(commas->notes(), "");
  const auto cure = HasSubstr("'quotes: false'");
  EXPECT_THAT(ErrorOf("a,b\n1,\"2\"x\n"), cure);
  EXPECT_THAT(ErrorOf("a,b\n1,\"2\n3,4\n"), cure);
  EXPECT_THAT(ErrorOf("a,b\n1,\"2\n3,\"4\"\n5,\",6\n"), cure);
  EXPECT_THAT(ErrorOf("a,b\n1,\"x\ny\",2\n"), AllOf(HasSubstr("has 3 values"), cure));
  EXPECT_THAT(ErrorOf("a,b\n1\n"), Not(cure));
}

TEST_F(CsvTest, BadFilesAreRefusedWithFileLineAndCure) {
  EXPECT_THAT(ErrorOf("a,b\n1,2\n\n\"x\ny\",2,3\n"),
              AllOf(HasSubstr("t/a.csv"), HasSubstr("line 4 has 3 values"),
                    HasSubstr("the header has 2"), HasSubstr("cure:")));
  EXPECT_THAT(ErrorOf("a,b\n1\n"), HasSubstr("line 2 has 1 value, but the header has 2"));
  EXPECT_THAT(ErrorOf("1,2\n1\n", ", header: false"), HasSubstr("the first row has 2"));
  EXPECT_THAT(ErrorOf("a,b\n1,\"2\n3,4\n"),
              AllOf(HasSubstr("line 2"), HasSubstr("opened and never closed")));
  EXPECT_THAT(ErrorOf("a,b\n1,\"2\"x\n"), HasSubstr("text behind a closing quote"));
  EXPECT_THAT(ErrorOf("a,b\r1,2\r"), HasSubstr("carriage return without a line feed"));
  EXPECT_THAT(ErrorOf("a,a\n1,2\n"), HasSubstr("two columns 'a'"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("has no header"));
  EXPECT_THAT(ErrorOf("\n\n"), HasSubstr("has no header"));
  EXPECT_THAT(ErrorOf("a,b\n"), HasSubstr("no records"));
  EXPECT_THAT(ErrorOf("\x1f\x8b\x08"), AllOf(HasSubstr("gzip"), HasSubstr("cure: gunzip")));
  EXPECT_THAT(ErrorOf("\xff\xfe"
                      "a"),
              HasSubstr("UTF-16"));
  EXPECT_THAT(ErrorOf(std::string(10'001, ',') + "\n"), HasSubstr("more than 10,000 values"));
  EXPECT_THAT(ErrorOf("a\nx\n", ", fields: {y: b}"), HasSubstr("no column 'b'"));
  folder_.Write("t/b.csv", "a,c\n1,2\n");
  EXPECT_THAT(ErrorOf("a,b\n1,2\n"),
              AllOf(HasSubstr("t/b.csv' of"), HasSubstr("another header than 't/a.csv'"),
                    HasSubstr("column 2 is 'c', there "
                              "'b'")));
}

TEST_F(CsvTest, ARowThatChangedIsABadRecord) {
  const auto dataset = Open("a,b\n1,x\n");
  ASSERT_NE(dataset, nullptr);
  Record record;
  const auto error = [&](const std::string& bytes) {
    return ParseBytes(*dataset, 0, {bytes}, &record).ToString();
  };
  EXPECT_THAT(error("x,1\n"), HasSubstr("column 'a' is no int64: 'x'"));
  EXPECT_THAT(error("1\n"), HasSubstr("the row has 1 value, not 2"));
  EXPECT_THAT(error("\"1\n"), HasSubstr("never closed"));
  EXPECT_THAT(error("\n"), HasSubstr("no row"));
  EXPECT_THAT(error(""), HasSubstr("no row"));
  EXPECT_THAT(error(",x"), HasSubstr("column 'a' is missing"));
}

// Rows that lie across the ends of what is read at once, at every place of a row.
TEST_F(CsvTest, RowsLongerThanTheBufferAndAcrossItsEndsAreRead) {
  const std::string row = "\"a\"\"b\r\nc\",d\r\n";
  for (size_t shift = 0; shift <= row.size(); ++shift) {
    const std::string filler((1 << 20) - 5 - shift, 'f');
    const auto dataset = Open("x,y\r\n" + filler + ",e\r\n" + row + row);
    ASSERT_NE(dataset, nullptr);
    ASSERT_EQ(dataset->size(), 3);
    EXPECT_THAT(Row(*dataset, 0), ElementsAre(filler, "e"));
    EXPECT_THAT(Row(*dataset, 1), ElementsAre("a\"b\r\nc", "d"));
    EXPECT_THAT(Row(*dataset, 2), ElementsAre("a\"b\r\nc", "d"));
  }
  const std::string large(5 << 20, 'l');
  const auto dataset = Open("x,y\n1," + large + "\n2,s\n");
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(Row(*dataset, 0), ElementsAre(Int(1), large));
  EXPECT_THAT(Row(*dataset, 1), ElementsAre(Int(2), "s"));
}

TEST_F(CsvTest, AQuoteThatIsNeverClosedStopsAtTheLargestRow) {
  EXPECT_THAT(ErrorOf("a\n\"" + std::string((64 << 20) + 10, 'x') + "\n"),
              AllOf(HasSubstr("line 2"), HasSubstr("longer than 64.0 MiB"), HasSubstr("cure:")));
}

TEST_F(CsvTest, TheIndexKeepsFourBytesARecord) {
  std::string text = "a\n";
  for (int i = 0; i < 100'000; ++i) text += "12345\n";
  const auto dataset = Open(text);
  ASSERT_NE(dataset, nullptr);
  EXPECT_LT(dataset->memory_bytes(), 100'000 * 4 + 4096);
}

TEST_F(CsvTest, PhotosOfATableAreThoseOfTheirFolders) {
  const std::string data = OutsideData();
  if (data.empty()) GTEST_SKIP() << "FEEDWATER_TEST_DATA is not there";
  std::filesystem::copy(data + "/photos", folder_ / "photos",
                        std::filesystem::copy_options::recursive);
  const auto folders = opener_.MustOpen("{format: image_folder, root: root, path: photos}");
  ASSERT_NE(folders, nullptr);
  std::string text = "file,kind\n";
  for (int64_t i = 0; i < folders->size(); ++i) {
    const std::string path = folders->ObjectPath(static_cast<uint32_t>(i)).substr(7);
    text += path + "," + path.substr(0, path.find('/')) + "\n";
  }
  folder_.Write("photos/list.csv", text);
  const auto listed = opener_.MustOpen(
      "{format: csv, root: root, path: photos, fields: {data: {from: file, file: true}, label: "
      "{from: kind, classes: auto}}}");
  ASSERT_NE(listed, nullptr);
  ASSERT_EQ(listed->size(), folders->size());
  EXPECT_EQ(listed->classes(), folders->classes());
  for (int64_t i = 0; i < folders->size(); i += 7) {
    EXPECT_EQ(Row(*listed, i)[0], Row(*folders, i)[0]);
    EXPECT_EQ(LabelOf(*listed, i), folders->LabelOf(i));
  }
}

}  // namespace
}  // namespace feedwater::server
