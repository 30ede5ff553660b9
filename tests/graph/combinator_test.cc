// What combinators share: their ops' fields and draws, fusion, memory, and what cannot stand in
// them. That each does the right ones is tested beside it, in ops/.
#include "server/graph/combinator.h"

#include <gmock/gmock.h>

#include "absl/strings/match.h"
#include "server/graph/workspace.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

std::string MessageOf(const std::string& graph, const std::string& outputs = "[image]") {
  TestRecord record;
  record.AddPixels(2, 2, 3, Bytes(12)).AddLabel(1);
  const auto plan = MakePlan(PipelineText(graph, outputs), record.fields());
  return std::string(plan.status().message());
}

// Fused and unfused, ops draw the same.
TEST(Combinator, OfPointOpsFusesAndChangesNoByte) {
  const std::string graph =
      "- decode\n- random_resized_crop: {size: 16}\n"
      "- apply: {p: 0.7, ops: [color_jitter: {brightness: 0.4, contrast: 0.4, hue: 0.1},\n"
      "                        one_of: {ops: [random_solarize: {threshold: 128, p: 0.5},\n"
      "                                       random_equalize: {p: 1}]}]}\n"
      "- normalize: {mean: [120, 120, 120], std: [60, 60, 60]}";
  for (int64_t id = 0; id < 40; ++id) {
    TestRecord record;
    record.AddEncoded(EncodedImage(40, 50, ".png")).AddLabel(1);
    const auto fused = RunGraph(graph, record, "[image]", id, true);
    const auto unfused = RunGraph(graph, record, "[image]", id, false);
    ASSERT_TRUE(fused.ok()) << fused.status();
    ASSERT_TRUE(unfused.ok()) << unfused.status();
    ASSERT_EQ(*fused, *unfused) << id;
  }
  EXPECT_NE(Registry<OpEntry>::Get()
                .Find("apply")
                ->create(*ParseYaml("{p: 1, ops: [random_invert]}", "file"), {})
                .value()
                ->AsPoint(),
            nullptr);
}

// An image, its mask and its boxes by one draw, with a colour op between that is the image's alone.
TEST(Combinator, MovesFieldsTogether) {
  constexpr int64_t kSide = 32;
  const std::string graph =
      "- apply:\n    in: [image, mask, boxes, labels]\n    p: 0.8\n    ops:\n"
      "      - random_horizontal_flip: {p: 0.5}\n"
      "      - random_invert: {p: 1}\n"
      "      - random_crop: {size: 24}\n"
      "      - random_vertical_flip: {p: 0.5, in: [image, mask, boxes, labels]}\n"
      "- center_crop: {in: [image, mask, boxes, labels], size: 20}";
  int moved = 0;
  for (int64_t id = 0; id < 60; ++id) {
    Bytes pixels(kSide * kSide, 0);
    for (int64_t y = 8; y < 20; ++y) {
      for (int64_t x = 10; x < 22; ++x) pixels[static_cast<size_t>(y * kSide + x)] = 255;
    }
    const float box[4] = {10, 8, 22, 20};
    Bytes corners(sizeof(box));
    std::memcpy(corners.data(), box, sizeof(box));
    TestRecord record;
    record.AddPixels(kSide, kSide, 1, pixels);
    record.Add("mask", PixelSpec(kSide, kSide, 1), PixelSpec(kSide, kSide, 1), pixels);
    const TensorSpec boxes{DType::kFloat32, Layout::kPlain, {-1, 4}},
        labels{DType::kInt64, Layout::kPlain, {-1}};
    record.Add("boxes", boxes, boxes.WithRows(1), corners);
    record.Add("labels", labels, labels.WithRows(1), Bytes(sizeof(int64_t)));
    const auto made = RunGraph(graph, record, "[image, mask, boxes: {pad_to: 1}]", id);
    ASSERT_TRUE(made.ok()) << made.status();
    const Bytes &image = made->at(0), &mask = made->at(1);
    const bool is_inverted = image != mask;
    moved += is_inverted ? 1 : 0;
    float at[4];
    std::memcpy(at, made->at(2).data(), sizeof(at));
    for (int64_t y = 0; y < 20; ++y) {
      for (int64_t x = 0; x < 20; ++x) {
        const bool is_inside = static_cast<float>(x) >= at[0] && static_cast<float>(x) < at[2] &&
                               static_cast<float>(y) >= at[1] && static_cast<float>(y) < at[3];
        const auto k = static_cast<size_t>(y * 20 + x);
        ASSERT_EQ(mask[k], is_inside ? 255 : 0) << id << ": " << x << ", " << y;
        ASSERT_EQ(image[k], is_inverted ? 255 - mask[k] : mask[k]);
      }
    }
  }
  EXPECT_GT(moved, 30);
  EXPECT_LT(moved, 60);
}

TEST(Combinator, DrawsOfItsOpsAreTheirOwn) {
  // The same op twice: independent draws, so four outcomes.
  const std::string graph =
      "- apply: {p: 1, ops: [random_horizontal_flip: {p: 0.5}, random_vertical_flip: {p: 0.5}]}";
  int seen[4] = {};
  for (int64_t id = 0; id < 400; ++id) {
    const Bytes made = RunOnPixels(graph, 2, 2, 1, {0, 1, 2, 3}, id);
    ++seen[made[0]];
  }
  for (int count : seen) EXPECT_NEAR(count, 100, 45);
}

TEST(Combinator, WhatMayBeOneOrTheOtherHasAnOpenSize) {
  EXPECT_EQ(MessageOf("- apply: {p: 0.5, ops: [center_crop: {size: 1}]}\n- center_crop: {size: 1}"),
            "");
  EXPECT_THAT(MessageOf("- apply: {p: 0.5, ops: [center_crop: {size: 1}]}"),
              HasSubstr("no fixed size"));
  EXPECT_THAT(MessageOf("- apply: {p: 0.5, ops: [normalize: {mean: [0, 0, 0], std: [1, 1, 1]}]}"),
              HasSubstr("only heights, widths and numbers of rows may differ"));
  EXPECT_THAT(MessageOf("- apply: {p: 0.5, ops: [grayscale: {num_output_channels: 1}]}"),
              HasSubstr("of one field, by chance"));
}

TEST(Combinator, RefusesWhatCannotStandInIt) {
  EXPECT_THAT(MessageOf("- apply: {p: 1, ops: []}"), HasSubstr("a list of 1 to 32 ops"));
  EXPECT_THAT(MessageOf("- apply: {p: 1, ops: decode}"), HasSubstr("test.yaml:4:"));
  EXPECT_THAT(MessageOf("- apply: {p: 1}"), HasSubstr("needs 'ops'"));
  EXPECT_THAT(MessageOf("- apply: {p: 1.5, ops: [random_invert]}"), HasSubstr("'p' must be"));
  EXPECT_THAT(MessageOf("- apply: {p: 1, ops: [decode]}"), HasSubstr("decodes"));
  for (const char* inner : {"decode_audio: {sample_rate: 8000}",
                            "one_of: {ops: [decode_audio: {sample_rate: 8000}]}"}) {
    EXPECT_THAT(MessageOf(absl::StrCat("- apply: {in: data, p: 1, ops: [", inner, "]}")),
                HasSubstr("op 'decode_audio' in 'ops' decodes: put it into 'graph' before this"));
  }
  EXPECT_THAT(MessageOf("- apply: {p: 1, ops: [mixup]}"), HasSubstr("whole batches"));
  EXPECT_THAT(MessageOf("- apply: {p: 1, ops: [python: {name: a, batch: true}]}"),
              HasSubstr("batch: true"));
  EXPECT_THAT(MessageOf("- apply: {p: 1, ops: [random_invrt]}"), HasSubstr("random_invert"));
  EXPECT_THAT(MessageOf("- apply: {p: 1, ops: [random_invert: {out: x}]}"), HasSubstr("'out'"));
  EXPECT_THAT(MessageOf("- apply: {p: 1, ops: [random_invert: {draws_as: 3}]}"),
              HasSubstr("'draws_as'"));
  EXPECT_THAT(MessageOf("- apply: {p: 1, ops: [random_invert: {in: mask}]}"),
              HasSubstr("none of the fields of the op around it: [image]"));
  EXPECT_THAT(MessageOf("- apply: {p: 1, ops: [random_invert: {in: \"image_{0..1}\"}]}"),
              HasSubstr("several write 'image'"));
  EXPECT_THAT(MessageOf("- apply: {in: label, p: 1, ops: [random_invert]}", "[label]"),
              HasSubstr("cannot do 'random_invert' (test.yaml:4:"));
  const std::string deep =
      "- apply: {p: 1, ops: [apply: {p: 1, ops: [apply: {p: 1, ops: [apply: {p: 1, ops: "
      "[random_invert]}]}]}]}";
  EXPECT_THAT(MessageOf(deep), HasSubstr("more than 3 deep"));
}

// Whatever stands in whatever, an error has one place, that of what is wrong.
TEST(Combinator, AMistakeInItIsToldAsOneInTheGraph) {
  const auto in = [](const std::string& op) {
    return MessageOf(
        absl::StrCat("- apply:\n    p: 1\n    ops:\n    - one_of:\n        ops:\n        - ", op));
  };
  EXPECT_EQ(in("random_invert: {p: 2}"), "test.yaml:9:30: 'p' must be between 0 and 1, not 2");
  EXPECT_EQ(in("random_invert: {q: 2}"),
            "test.yaml:9:27: op 'random_invert' has no parameter 'q'. Known: p");
  EXPECT_EQ(in("mixup"),
            "test.yaml:9:11: op 'mixup' works on whole batches and belongs in 'batch: {graph: "
            "[...]}'");
  EXPECT_THAT(in("random_invrt"), ::testing::Not(HasSubstr("parameter")));
  EXPECT_THAT(MessageOf("- apply: {p: 1, ops: [one_of: {ops: []}]}"),
              HasSubstr(": 'ops' must be a list of 1 to 32 ops"));
  EXPECT_THAT(
      MessageOf("- apply: {in: label, p: 1, ops: [one_of: {ops: [random_invert]}]}", "[label]"),
      HasSubstr("op 'apply' cannot do 'random_invert' (test.yaml:4:"));
}

// Sixteen in sixteen in ...: refused by the text alone, and at once.
TEST(Combinator, DeepListsAreRefusedBeforeTheyAreRead) {
  std::string text = "random_invert";
  for (int depth = 0; depth < 10; ++depth)
    text = "apply: {p: 1, ops: [" + text + ", " + text + "]}";
  EXPECT_THAT(MessageOf("- " + text), HasSubstr("more than 3 deep"));
}

TEST(Combinator, ItsOpsCountAsOps) {
  std::string ops;
  for (int i = 0; i < 32; ++i) ops += i == 0 ? "random_invert" : ", random_invert";
  std::string graph;
  for (int i = 0; i < 8; ++i) graph += "- apply: {p: 1, ops: [" + ops + "]}\n";
  EXPECT_THAT(MessageOf(graph), HasSubstr("'graph' has more than 256 ops from here on"));
}

TEST(Combinator, TakesTheMemoryThatItSays) {
  TestRecord record;
  record.AddPixels(40, 50, 3, Bytes(40 * 50 * 3)).AddLabel(1);
  const auto plan =
      MakePlan(PipelineText("- some_of:\n    n: 2\n    ops: [gaussian_noise: {sigma: 0.1}, "
                            "random_rotation: {degrees: 9}, gaussian_blur: {kernel_size: 5}]",
                            "[image]"),
               record.fields());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT((*plan)->memory(SampleWay::kWhole).Sum(), HasSubstr("between the ops of some_of#1"));
}

// Another op in the list, or another place of it, is another pipeline.
TEST(Combinator, TheDigestKnowsItsOps) {
  const auto digest = [](const std::string& graph) {
    const auto spec = ParsePipeline(PipelineText(graph, "[image]"), "test.yaml");
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec.ok() ? spec->digest : "";
  };
  const std::string one =
      digest("- apply: {p: 1, ops: [random_invert: {p: 0.5}, random_equalize]}");
  EXPECT_EQ(one,
            digest("- apply: {p: 1, ops: [random_invert: {in: image, p: 0.5}, random_equalize]}"));
  EXPECT_EQ(one, digest("- apply:\n    ops:\n      - random_invert\n      - random_equalize: {p: "
                        "0.5}\n    p: 1.0"));
  for (const char* other :
       {"- apply: {p: 1, ops: [random_equalize, random_invert]}",
        "- apply: {p: 1, ops: [random_invert: {p: 0.6}, random_equalize]}",
        "- apply: {p: 1, ops: [random_invert]}\n- random_equalize",
        "- apply: {p: 1, in: [image, label], ops: [random_invert, random_equalize]}"}) {
    EXPECT_NE(one, digest(other)) << other;
  }
}

// An op that a sample is too small for takes nothing from a sample that does not draw it.
TEST(Combinator, WhatIsNotChosenDecidesNothing) {
  for (const std::string graph :
       {"- one_of: {ops: [random_crop: {size: 16}, resize: {size: [16, 16]}]}",
        "- apply: {p: 1, ops: [one_of: {ops: [random_crop: {size: 16}, resize: {size: [16, "
        "16]}]}]}",
        "- one_of: {ops: [five_crop: {size: 16}, "
        "apply: {p: 1, ops: [resize: {size: [16, 16]}, five_crop: {size: 16}]}]}"}) {
    int good = 0;
    for (int64_t id = 0; id < 100; ++id) {
      TestRecord record;
      record.AddEncoded(EncodedImage(9, 9, ".png")).AddLabel(1);
      const auto made = RunGraph(absl::StrCat("- decode\n", graph), record, "[image]", id);
      good += made.ok() ? 1 : 0;
      if (!made.ok()) {
        EXPECT_THAT(made.status().message(),
                    HasSubstr(absl::StrContains(graph, "five") ? "five_crop" : "random_crop"));
      }
    }
    EXPECT_NEAR(good, 50, 25) << graph;
  }
}

TEST(Combinator, AMaskOfEitherSizeIsNoListOfRows) {
  TestRecord record;
  const TensorSpec mask{DType::kUInt8, Layout::kPlain, {32, 32}};
  record.AddPixels(32, 32, 1, Bytes(32 * 32)).Add("mask", mask, mask, Bytes(32 * 32));
  const std::string graph =
      "- one_of: {in: [image, mask], ops: [resize: {size: [64, 32]}, resize: {size: [48, 32]}]}";
  EXPECT_THAT(
      std::string(MakePlan(PipelineText(graph, "[mask]"), record.fields()).status().message()),
      HasSubstr("no fixed shape"));
}

TEST(Combinator, OneOfSomeMayChangeTheTypeAsAllDo) {
  EXPECT_EQ(MessageOf("- some_of: {n: 1, ops: [cast: {dtype: float32}, "
                      "normalize: {mean: [0, 0, 0], std: [1, 1, 1], layout: HWC}]}"),
            "");
}

// Sixteen times sixteen ops are as many as a graph has.
TEST(Combinator, RepetitionsCount) {
  EXPECT_THAT(MessageOf("- repeat: {times: 16, ops: [repeat: {times: 16, ops: [random_invert]}]}"),
              HasSubstr("more than 256 ops"));
  EXPECT_EQ(MessageOf("- repeat: {times: 15, ops: [repeat: {times: 15, ops: [random_invert]}]}"),
            "");
}

// What is declared holds what samples take, in ops that pad, cast or choose between sizes.
TEST(Combinator, SamplesStayWithinTheMemoryThatIsDeclared) {
  const std::string crop = "\n- center_crop: {size: 64}";
  const std::string graphs[] = {
      "- apply: {p: 1, ops: [gaussian_noise: {sigma: 0.1}, pad: {padding: 40}]}" + crop,
      "- one_of: {ops: [random_crop: {size: 300}, resize: {size: [200, 200]}]}\n"
      "- random_rotation: {degrees: 5}" +
          crop,
      "- apply: {p: 1, ops: [repeat: {times: 3, ops: [pad: {padding: 30}, gaussian_noise]}]}" +
          crop,
      "- some_of: {n: [0, 2], order: random, ops: [resize: {size: [150, 150]}, center_crop: {size: "
      "90}, gaussian_blur: {kernel_size: 3}]}" +
          crop,
      // What stands behind a choice of which the sample is too small for the first, or for the
      // inside of one; and a choice that is too small for it behind one that is not.
      "- resize: {in: image, out: big, size: [400, 400]}\n"
      "- one_of: {ops: [five_crop: {size: 170}, apply: {p: 1, ops: [resize: {size: [170, 170]}, "
      "five_crop: {size: 170}]}]}\n"
      "- gaussian_noise: {in: big, out: \"n_{0..1}\"}\n"
      "- center_crop: {in: \"n_{0..1}\", out: \"c_{0..1}\", size: 64}",
      "- resize: {in: image, out: big, size: [400, 400]}\n"
      "- some_of: {n: 1, ops: [apply: {p: 0.5, ops: [gaussian_noise, random_crop: {size: 170}]}, "
      "gaussian_blur: {kernel_size: 3}]}\n"
      "- center_crop: {size: 64}\n"
      "- gaussian_noise: {in: big, out: \"n_{0..1}\"}\n"
      "- center_crop: {in: \"n_{0..1}\", out: \"c_{0..1}\", size: 64}",
      "- apply: {p: 1, ops: [apply: {p: 1, ops: [resize: {size: 400}, gaussian_noise, "
      "random_crop: {size: 500}]}]}" +
          crop,
  };
  for (const std::string& graph : graphs) {
    TestRecord record;
    record.AddEncoded(EncodedImage(120, 160, ".png")).AddLabel(1);
    const auto plan = MakePlan(
        PipelineText("- decode\n" + graph,
                     absl::StrContains(graph, "c_{0..1}") ? "[image, c_0, c_1]" : "[image]"),
        record.fields());
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (int64_t id = 0; id < 30; ++id) {
      SampleWorkspace workspace;
      TestBatch batch(**plan, 1);
      SampleInput input;
      input.record = record.record();
      input.sample_id = id;
      input.key = EpochKey(1, 0);
      (*plan)->NeedOf(input, SampleWay::kWhole, workspace);
      // It may be too small for the crop that is drawn.
      (*plan)->Run(input, 0, batch.memory, workspace).IgnoreError();
      const auto& impl = *workspace.impl();
      int64_t taken = impl.scratch.capacity();
      for (const auto* buffers : {&impl.buffers, &impl.spares}) {
        for (const GrowingBuffer& buffer : *buffers) taken += buffer.capacity();
      }
      ASSERT_LE(taken, impl.needs.Total() - impl.needs.codec()) << graph << ", sample " << id;
    }
  }
}

}  // namespace
}  // namespace feedwater::server
