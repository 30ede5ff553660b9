// Reading pipeline files: what is right comes out as written, with defaults, and an administrator's
// caps bound it. pipeline_mistakes_test.cc has the files that are wrong.
#include "server/graph/pipeline_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kDataset = "version: 1\ndataset: {format: image_folder, root: r}\n";

std::vector<std::string> NamesOf(const PipelineSpec& spec) {
  std::vector<std::string> names;
  for (const OutputSpec& output : spec.outputs) names.push_back(output.name);
  return names;
}

TEST(PipelineSpec, TheDesignsExampleComesOutAsWritten) {
  const auto spec = ParsePipeline(R"(version: 1
dataset: {format: image_folder, root: imagenet, path: train}     # a comment
sampler: {shuffle: full, seed: 42, last: drop}
graph:
  - decode:                 {in: data, out: image}
  - random_resized_crop:    {in: image, size: [224, 224], scale: [0.08, 1.0]}
  - random_horizontal_flip: {in: image, p: 0.5}
  - normalize:              {in: image, mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375], dtype: float32, layout: CHW}
batch: {size: 256, graph: [{mixup: {in: [image, label], alpha: 0.2}}]}
outputs: [image, label]
)",
                                  "/etc/pipelines/imagenet-train.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->name, "imagenet-train");
  EXPECT_EQ(spec->sampler.shuffle, "full");
  EXPECT_EQ(spec->sampler.seed, 42u);
  ASSERT_EQ(spec->graph.size(), 4u);
  EXPECT_EQ(spec->graph[0].name, "decode");
  EXPECT_THAT(spec->graph[0].in, ElementsAre("data"));
  EXPECT_THAT(spec->graph[0].out, ElementsAre("image"));
  EXPECT_THAT(spec->graph[1].out, ElementsAre("image"));
  EXPECT_EQ(spec->graph[1].params.Find("in"), nullptr);
  EXPECT_NE(spec->graph[1].params.Find("size"), nullptr);
  EXPECT_EQ(spec->batch_size, 256);
  ASSERT_EQ(spec->batch_graph.size(), 1u);
  EXPECT_THAT(spec->batch_graph[0].out, ElementsAre("image", "label"));
  EXPECT_THAT(NamesOf(*spec), ElementsAre("image", "label"));
  EXPECT_EQ(spec->on_bad_sample, BadSamplePolicy::kFail);
  EXPECT_EQ(spec->digest.size(), 32u);
}

TEST(PipelineSpec, DefaultsStandWhereTheFileIsSilent) {
  const auto spec = ParsePipeline(
      absl::StrCat(kDataset, "graph:\n  - decode\n  - random_horizontal_flip:\n  - one_hot: {}\n"),
      "p.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->batch_size, 0);
  EXPECT_EQ(spec->limits.max_pixels, ImageLimits{}.max_pixels);
  EXPECT_THAT(NamesOf(*spec), ElementsAre("image", "label"));
  EXPECT_EQ(spec->outputs_node.kind, YamlNode::Kind::kNull);
  EXPECT_THAT(spec->graph[0].in, ElementsAre("data"));
  EXPECT_THAT(spec->graph[0].out, ElementsAre("image"));
  EXPECT_THAT(spec->graph[1].in, ElementsAre("image"));
  EXPECT_THAT(spec->graph[2].in, ElementsAre("label"));
  EXPECT_THAT(spec->graph[2].out, ElementsAre("label"));
}

TEST(PipelineSpec, WhatIsLeftOfAnEpochIsLeftOutOnlyWhereItIsShuffledOrWanted) {
  const auto last = [](const std::string& more) {
    const auto spec =
        ParsePipeline("version: 1\ndataset: {format: mnist, root: r}\n" + more, "p.yaml");
    return spec.ok() ? spec->sampler.last : spec.status().ToString();
  };
  EXPECT_EQ(last(""), "partial");
  EXPECT_EQ(last("sampler: {shuffle: none}\n"), "partial");
  EXPECT_EQ(last("outputs: [image, is_real]\n"), "pad");
  EXPECT_EQ(last("sampler: {last: auto}\noutputs: [image, is_real]\n"), "pad");
  EXPECT_EQ(last("batch: {graph: [{pack: {length: 8, samples: 2}}]}\n"), "pad");
  EXPECT_EQ(last("sampler: {shuffle: full}\n"), "drop");
  EXPECT_EQ(last("sampler: {shuffle: block}\noutputs: [image, is_real]\n"), "drop");
  EXPECT_EQ(last("sampler: {shuffle: none, last: drop}\n"), "drop");
  EXPECT_EQ(last("sampler: {shuffle: full, last: partial}\n"), "partial");
}

TEST(PipelineSpec, PolicyAndLimitsAreRead) {
  const auto spec = ParsePipeline(absl::StrCat(kDataset,
                                               "on_bad_sample: substitute\nlimits: {max_pixels: "
                                               "1000, max_scans: 5, max_decode_ms: 200}\n"),
                                  "p.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->on_bad_sample, BadSamplePolicy::kSubstitute);
  EXPECT_EQ(spec->limits.max_pixels, 1000);
  EXPECT_EQ(spec->limits.max_scans, 5);
  EXPECT_EQ(spec->limits.max_decode_ms, 200);
}

TEST(PipelineSpec, AnAdministratorsCapsBoundWhatAFileMayAskFor) {
  PipelineCaps caps;
  caps.images = {.max_pixels = 1000, .max_scans = 5, .max_decode_ms = 200, .max_sample_ms = 300};
  caps.max_ops = 2;
  caps.max_outputs = 1;
  const auto parse = [&](absl::string_view limits, absl::string_view more = "outputs: [label]\n") {
    return ParsePipeline(
        absl::StrCat("version: 1\n", "dataset: {format: image_folder, root: r, path: p}\n", more,
                     limits),
        "p.yaml", caps);
  };
  const auto silent = parse("");
  ASSERT_TRUE(silent.ok()) << silent.status();
  EXPECT_EQ(silent->limits.max_pixels, 1000) << "its default would be more";
  EXPECT_EQ(silent->limits.max_sample_ms, 300);
  const auto below = parse("limits: {max_pixels: 999, max_scans: 5}\n");
  ASSERT_TRUE(below.ok()) << below.status();
  EXPECT_EQ(below->limits.max_pixels, 999);
  for (const auto& [key, value, cap] :
       {std::tuple{"max_pixels", 1001, 1000}, std::tuple{"max_scans", 6, 5},
        std::tuple{"max_decode_ms", 201, 200}, std::tuple{"max_sample_ms", 301, 300}}) {
    const absl::Status refused = parse(absl::StrCat("limits: {", key, ": ", value, "}\n")).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << key;
    EXPECT_THAT(std::string(refused.message()),
                StartsWith(absl::StrCat("p.yaml:4:", 12 + std::string(key).size())));
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(absl::StrCat("limits.", key, " = ", cap)));
  }
  const absl::Status ops =
      parse("", "graph:\n  - decode\n  - center_crop: {size: 8}\n  - cast\noutputs: [image]\n")
          .status();
  EXPECT_THAT(std::string(ops.message()), StartsWith("p.yaml:6:"));
  EXPECT_THAT(std::string(ops.message()),
              HasSubstr("a graph of 3 ops, more than the administrator allows"));
  const absl::Status outputs = parse("", "outputs: [label, sample_id]\n").status();
  EXPECT_THAT(std::string(outputs.message()), HasSubstr("limits.max_outputs = 1"));
}

TEST(PipelineSpec, CpuTimeMayNotDecideWhichOrdinaryImageIsReplaced) {
  const auto parse = [](absl::string_view policy, int ms) {
    return ParsePipeline(
        absl::StrCat(kDataset, "on_bad_sample: ", policy, "\nlimits: {max_decode_ms: ", ms, "}\n"),
        "p.yaml");
  };
  EXPECT_TRUE(parse("fail", 1).ok());
  for (const char* policy : {"substitute", "skip_with_count"}) {
    EXPECT_TRUE(parse(policy, 100).ok());
    const absl::Status refused = parse(policy, 99).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()),
                testing::AllOf(testing::HasSubstr("p.yaml:"), testing::HasSubstr("max_decode_ms"),
                               testing::HasSubstr(policy), testing::HasSubstr("at least 100")));
  }
}

TEST(PipelineSpec, EveryPolicyIsReadByItsNameAndTheFractionBesideIt) {
  for (const auto policy :
       {BadSamplePolicy::kFail, BadSamplePolicy::kSubstitute, BadSamplePolicy::kSkipWithCount}) {
    const auto spec = ParsePipeline(
        absl::StrCat(kDataset, "on_bad_sample: ", BadSamplePolicyName(policy), "\n"), "p.yaml");
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->on_bad_sample, policy);
    EXPECT_EQ(spec->max_bad_fraction, 0.001);
  }
  const auto spec = ParsePipeline(absl::StrCat(kDataset, "max_bad_fraction: 0.25\n"), "p.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->max_bad_fraction, 0.25);
}

TEST(PipelineSpec, SeveralFieldsMayMoveTogether) {
  const auto spec = ParsePipeline(
      absl::StrCat(
          kDataset,
          "graph:\n  - resize: {in: [image, mask], size: 5, interpolation: [bilinear, nearest]}\n"),
      "p.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->graph[0].out, ElementsAre("image", "mask"));
}

TEST(PipelineSpec, AnOutputMaySayHowManyRowsASampleHas) {
  const auto spec = ParsePipeline(
      absl::StrCat(kDataset,
                   "outputs:\n  - label\n  - boxes: {max_rows: 128}\n  - tokens: {pad_to: 512, "
                   "pad_value: -100}\n  - plain:\n"),
      "p.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(NamesOf(*spec), ElementsAre("label", "boxes", "tokens", "plain"));
  EXPECT_EQ(spec->outputs[1].max_rows, 128);
  EXPECT_FALSE(spec->outputs[1].pad_to.has_value());
  EXPECT_EQ(spec->outputs[2].pad_to, 512);
  EXPECT_EQ(spec->outputs[2].pad_value, -100);
  EXPECT_TRUE(spec->outputs[3].is_plain());
}

TEST(PipelineSpec, AMissingFileIsNamed) {
  const auto spec = ReadPipelineFile("/nonexistent/p.yaml");
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(spec.status().message()), HasSubstr("/nonexistent/p.yaml"));
}

TEST(PipelineSpec, AnOpsDrawsMayBeKeyedByAnotherNumberThanItsPlace) {
  const auto parse = [](const std::string& graph) {
    return ParsePipeline(absl::StrCat(kDataset, "graph:\n", graph, "outputs: [image]\n"), "p.yaml");
  };
  const auto plain = parse("- decode\n- random_crop: {size: 8}\n- random_horizontal_flip\n");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->graph[1].draws_as, 1u);
  const auto given =
      parse("- decode\n- random_crop: {size: 8, draws_as: 4}\n- random_horizontal_flip\n");
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->graph[1].draws_as, 4u);
  EXPECT_EQ(given->graph[1].params.Find("draws_as"), nullptr);
  EXPECT_NE(given->digest, plain->digest);
  const auto spelled_out =
      parse("- decode\n- random_crop: {size: 8, draws_as: 1}\n- random_horizontal_flip\n");
  EXPECT_EQ(spelled_out->digest, plain->digest);
  // An op on batches draws by its place among those.
  const auto behind = parse(
      "- decode\n- random_crop: {size: 8, draws_as: 2}\n- python: {name: own, batch: true}\n");
  EXPECT_TRUE(behind.ok()) << behind.status();

  for (const auto& [graph, message] : std::vector<std::pair<const char*, const char*>>{
           {"- decode: {draws_as: 3}\n",
            "p.yaml:4:22: op 'decode' has 'draws_as', and draws nothing"},
           {"- decode\n- random_crop: {size: 8, draws_as: 256}\n", "between 0 and 255, not 256"},
           {"- decode\n- random_crop: {size: 8, draws_as: x}\n", "draws_as"},
           {"- decode\n- random_crop: {size: 8, draws_as: 2}\n- random_horizontal_flip\n",
            "op 'random_horizontal_flip' draws as number 2, as op 'random_crop' does"}}) {
    EXPECT_THAT(std::string(parse(graph).status().message()), HasSubstr(message));
  }
}

}  // namespace
}  // namespace feedwater::server
