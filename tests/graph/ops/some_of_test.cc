// some_of: some of several ops, in their order or in that of the choice.
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

// Three ops that do not commute, on a pixel of 40: the result tells which were done, and how.
const std::string kOps =  // NOLINT(runtime/string): a test's text
    "ops: [random_invert: {p: 1}, adjust_brightness: {brightness_factor: 0.5}, "
    "random_posterize: {bits: 2, p: 1}]";

std::map<uint8_t, int> Results(const std::string& params) {
  std::map<uint8_t, int> seen;
  for (int64_t id = 0; id < 2000; ++id) {
    const std::string graph = "- some_of: {" + kOps + ", " + params + "}";
    ++seen[RunOnPixels(graph, 1, 1, 1, {40}, id)[0]];
  }
  return seen;
}

std::set<int> Values(const std::map<uint8_t, int>& seen) {
  std::set<int> values;
  for (const auto& [value, count] : seen) values.insert(value);
  return values;
}

TEST(SomeOf, DoesAsManyAsItSaysInTheirOrder) {
  // invert 215, brightness 20, posterize 0.
  EXPECT_EQ(Values(Results("n: 1")), (std::set<int>{215, 20, 0}));
  // invert then brightness 107, invert then posterize 192, brightness then posterize 0.
  EXPECT_EQ(Values(Results("n: 2")), (std::set<int>{107, 192, 0}));
  EXPECT_EQ(Values(Results("n: 3")), (std::set<int>{64}));
}

TEST(SomeOf, InRandomOrderEveryOrderComes) {
  // ibp 64, ipb 96, bip 192, bpi 255, pib 127, pbi 255.
  const auto seen = Results("n: 3, order: random");
  EXPECT_EQ(Values(seen), (std::set<int>{64, 96, 192, 255, 127}));
  EXPECT_NEAR(seen.at(64), 2000 / 6, 85);
  EXPECT_NEAR(seen.at(255), 2000 / 3, 110);
}

TEST(SomeOf, DrawsHowMany) {
  const auto seen = Results("n: [0, 1]");
  EXPECT_EQ(Values(seen), (std::set<int>{40, 215, 20, 0}));
  EXPECT_NEAR(seen.at(40), 1000, 115);
}

TEST(SomeOf, RefusesNumbersThatDoNotFit) {
  TestRecord record;
  record.AddPixels(1, 1, 1, Bytes(1)).AddLabel(1);
  const auto message = [&](const std::string& n) {
    const std::string graph = "- some_of: {" + kOps + ", n: " + n + "}";
    return std::string(
        MakePlan(PipelineText(graph, "[image]"), record.fields()).status().message());
  };
  for (const char* n : {"4", "0", "[2, 1]", "1.5", "[0, 0]", "-1", ".inf", ".nan", "[1, 2, 3]"})
    EXPECT_THAT(message(n), HasSubstr("'n'")) << n;
  EXPECT_EQ(message("[0, 3]"), "");
}

}  // namespace
}  // namespace feedwater::server
