// A JSON text that describes a dataset is bounded before it is parsed.
#include "server/source/json_document.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

TEST(JsonDocument, IsBoundedBeforeItIsParsed) {
  std::string objects = "[";
  for (int i = 0; i < 500'000; ++i) absl::StrAppend(&objects, i == 0 ? "{}" : ",{}");
  objects += "]";  // a parser that looks through the list at each of them takes minutes
  EXPECT_EQ(ParseJsonDocument(objects).size(), 500'000u);
  EXPECT_GE(ShapeOfJson(objects).memory_bytes(objects), 500'000 * 112);
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_TRUE(ParseJsonDocument(nested(16)).is_array());
  EXPECT_TRUE(ParseJsonDocument(nested(17)).is_discarded());
  EXPECT_EQ(ParseJsonDocument(R"({"[[[[\"[[[[[[[[[[[[[[[[[[": "]{{{"})").size(), 1u);
  for (const char* bad : {"", "[", "]]]]", "\"", "\"\\", "{\"a\":"})
    EXPECT_TRUE(ParseJsonDocument(bad).is_discarded()) << bad;
}

}  // namespace
}  // namespace feedwater::server
