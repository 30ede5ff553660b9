#include "server/base/escape.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace feedwater::server {
namespace {

TEST(Escaped, KeepsWhatPeopleRead) {
  for (const std::string text :
       {"", "dog/0123.jpg", "a b\\n'\"", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x90\x95", "\xc2\xa0",
        "\xe2\x80\xa7", "\xe2\x81\xaa"}) {
    EXPECT_EQ(Escaped(text), text);
  }
}

TEST(Escaped, WritesOutWhatATerminalWouldObey) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\x1b[31m", "\\x1b[31m"},
      {"a\nb\tc\r", "a\\x0ab\\x09c\\x0d"},
      {std::string("\0", 1), "\\x00"},
      {"\x7f", "\\u007f"},
      {"\xc2\x80\xc2\x9b\xc2\x9f", "\\u0080\\u009b\\u009f"},
      {"\xd8\x9c\xe2\x80\x8e\xe2\x80\x8f", "\\u061c\\u200e\\u200f"},
      {"\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa\xe2\x80\xae", "\\u2028\\u2029\\u202a\\u202e"},
      {"\xe2\x81\xa6\xe2\x81\xa9", "\\u2066\\u2069"},
      {"\x9b\xff", "\\x9b\\xff"},           // C1 of one byte, as some terminals take it
      {"\xc0\x9b", "\\xc0\\x9b"},           // not the shortest form
      {"\xe2\x80", "\\xe2\\x80"},           // cut off
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},  // a surrogate
  };
  for (const auto& [text, escaped] : cases) {
    EXPECT_EQ(Escaped(text), escaped);
    EXPECT_EQ(Escaped(escaped), escaped);
  }
}

TEST(Escaped, LeavesJsonOfOneLineTheSameJson) {
  const nlohmann::json document = {{"path", "\x1b\x7f\xc2\x9b\xe2\x80\xae\n.jpg"}};
  const std::string escaped = Escaped(document.dump());
  EXPECT_EQ(escaped, "{\"path\":\"\\u001b\\u007f\\u009b\\u202e\\n.jpg\"}");
  EXPECT_EQ(nlohmann::json::parse(escaped, nullptr, /*allow_exceptions=*/false), document);
}

TEST(EscapedLines, IndentsEveryFurtherLine) {
  EXPECT_EQ(EscapedLines("a\n\xc2\x9b\n"), "a\n    \\u009b\n    ");
  EXPECT_EQ(EscapedLines(""), "");
}

TEST(ToUtf8, KeepsWhatIsValidAndReplacesTheRest) {
  EXPECT_EQ(ToUtf8("plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"),
            "plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(ToUtf8("\xff"), "\xef\xbf\xbd");
  EXPECT_EQ(ToUtf8("\xc0\xaf"), "\xef\xbf\xbd\xef\xbf\xbd");                  // overlong
  EXPECT_EQ(ToUtf8("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // surrogate
  EXPECT_EQ(ToUtf8("a\xe2\x82"), "a\xef\xbf\xbd\xef\xbf\xbd");                // cut off
  EXPECT_EQ(ToUtf8(absl::string_view("\0", 1)), std::string(1, '\0'));
}

}  // namespace
}  // namespace feedwater::server
