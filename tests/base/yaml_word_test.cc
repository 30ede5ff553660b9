// Words that are written into YAML files.
#include "server/base/yaml_word.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/base/yaml.h"

namespace feedwater::server {
namespace {

// YAML knows other escapes than C: PyYAML refuses \' and takes U+2028 for a line's end.
TEST(YamlWord, IsWrittenAsEveryReaderOfYamlReadsIt) {
  const std::vector<std::pair<std::string, std::string>> written = {
      {"train", "train"},
      {"val-2/a.b_c", "val-2/a.b_c"},
      {"", R"("")"},
      {"12", R"("12")"},
      {"yes", R"("yes")"},
      {"No", R"("No")"},
      {"TRUE", R"("TRUE")"},
      {"null", R"("null")"},
      {"norway", "norway"},
      {"y", "y"},
      {"king's", R"("king's")"},
      {"a \"b\" \\ c", R"("a \"b\" \\ c")"},
      {"a: [b], {c} #d ?", R"("a: [b], {c} #d ?")"},
      {"line\nnext\r\tend", R"("line\nnext\r\tend")"},
      {std::string("\0\a\x1b\x7f", 4) + "1", R"("\x00\x07\x1b\x7f1")"},
      {"Größe 日本 🙂", R"("Größe 日本 🙂")"},
      {"\xc2\x85\xc2\x9f\xc2\xa0", "\"\\x85\\x9f\xc2\xa0\""},
      {"\u2028\u2029\ufeff\uffff", R"("\u2028\u2029\ufeff\uffff")"},
  };
  for (const auto& [word, text] : written) {
    EXPECT_EQ(YamlWord(word), text);
    const auto read = ParseYaml(text, "a.yaml");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->scalar, word) << text;
  }
}

}  // namespace
}  // namespace feedwater::server
