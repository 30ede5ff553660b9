// The images that ops of the base FilterOp take. What each does to them: ops/NAME_test.cc.
#include "server/graph/filter_op.h"

#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kBlurs[] = {"- gaussian_blur: {kernel_size: 3}", "- motion_blur: {p: 1}",
                                  "- median_blur: {kernel_size: 3, p: 1}", "- clahe: {p: 1}"};
constexpr char kJpeg[] = "- jpeg: {quality: 50}";

absl::Status Planned(const std::string& graph, int64_t height, int64_t width, int64_t channels) {
  TestRecord record;
  record.AddPixels(height, width, channels, {});
  return MakePlan(PipelineText(graph, "[image]"), record.fields()).status();
}

TEST(FilterOp, AKnownSizeOverTheLimitIsRefusedWhenThePipelineIsPlanned) {
  for (const char* graph : kBlurs) {
    EXPECT_THAT(std::string(Planned(graph, 1, 65536, 1).message()),
                AllOf(HasSubstr("test.yaml:4:"), HasSubstr("65536 pixels wide"),
                      HasSubstr("more than 65535; resize it first")))
        << graph;
  }
  EXPECT_THAT(std::string(Planned(kJpeg, 1, 65501, 3).message()),
              HasSubstr("65501 pixels wide, more than 65500; resize it first"));
  EXPECT_THAT(std::string(Planned(kJpeg, 65501, 1, 3).message()),
              HasSubstr("65501 pixels high, more than 65500; resize it first"));
}

TEST(FilterOp, TheLimitOfAJpegIsJpegsAlone) {
  for (const char* graph : kBlurs) {
    EXPECT_EQ(RunOnPixels(graph, 1, 65535, 1, Bytes(65535, 0)).size(), 65535u) << graph;
    EXPECT_EQ(RunOnPixels(graph, 70000, 1, 1, Bytes(70000, 0)).size(), 70000u) << graph;
  }
  EXPECT_EQ(RunOnPixels(kJpeg, 1, 65500, 1, Bytes(65500, 0)).size(), 65500u);
}

TEST(FilterOp, AnImageOfOpenSizeOverTheLimitIsABadSample) {
  TestRecord record;
  record.Add("image", PixelSpec(-1, -1, 1), PixelSpec(65501, 1, 1), Bytes(65501));
  const auto refused = RunGraph(absl::StrCat(kJpeg, "\n- center_crop: {size: 1}"), record);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("resize it first"));
}

}  // namespace
}  // namespace feedwater::server
