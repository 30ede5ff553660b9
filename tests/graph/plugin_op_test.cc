// Ops of plug-ins: what they declare, plan, write and draw; and that a mistaken one costs its
// sample, with a reason, and nothing else. The plug-ins here are of this program;
// plugin_file_test.cc has files.
#include "server/graph/plugin_op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "absl/strings/str_cat.h"
#include "server/base/philox.h"
#include "tests/graph/graph_testing.h"
#include "tests/graph/plugin_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;   // NOLINT: the tests' own words
using namespace plugin_testing;  // NOLINT: the same
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Puts the op into the registry, under a name of its own.
std::string Register(feedwater_op op) {
  static int number = 0;
  const std::string name = absl::StrCat("test_", number++);
  op.name = name.c_str();
  const feedwater_plugin_info info = InfoOf(&op, 1);
  auto entries = Read(info);
  EXPECT_TRUE(entries.ok()) << entries.status();
  if (entries.ok()) Registry<OpEntry>::Get().Add(name, entries->at(0));
  return name;
}

// The first output of an entry of the graph on an image of 2 x 2 grey pixels.
absl::StatusOr<Bytes> RunOn(const std::string& entry, int64_t sample_id = 7) {
  TestRecord record;
  record.AddPixels(2, 2, 1, {1, 2, 3, 4});
  FW_ASSIGN_OR_RETURN(std::vector<Bytes> outputs, RunGraph(entry, record, "[image]", sample_id));
  return outputs[0];
}
absl::StatusOr<Bytes> RunOn(const feedwater_op& op, int64_t sample_id = 7) {
  return RunOn(absl::StrCat("- ", Register(op)), sample_id);
}

// --- what works ---

TEST(PluginOp, WritesWhatItPlansOfItsParameters) {
  static const char* const kWords[] = {"plus", "times"};
  static const feedwater_param kParams[] = {
      {"way", "How.", FEEDWATER_TEXT, 2, kWords, "plus", 0, 0},
      {"by", "By what.", FEEDWATER_NUMBER, 0, nullptr, "1", 0, 10},
      {"also", "More.", FEEDWATER_LIST, 0, nullptr, "[]", -5, 5},
      {"rows", "Of them.", FEEDWATER_INTEGER, 0, nullptr, nullptr, 1, HUGE_VAL},
      {"twice", "Whether.", FEEDWATER_TRUTH, 0, nullptr, "false", 0, 0},
  };
  feedwater_op op = OpOf(
      "",
      [](const feedwater_value* params, feedwater_sample* sample) -> const char* {
        feedwater_spec spec = sample->inputs[0].spec;
        spec.shape[0] = params[3].integer;
        auto* out = static_cast<uint8_t*>(sample->output(sample, 0, &spec));
        if (out == nullptr) return nullptr;
        const auto* in = static_cast<const uint8_t*>(sample->inputs[0].data);
        double by = params[1].number * (params[4].integer != 0 ? 2 : 1);
        for (uint64_t i = 0; i < params[2].length; ++i) by += params[2].list[i];
        for (int64_t i = 0; i < params[3].integer * 2; ++i) {
          const bool adds = std::string(params[0].text) == "plus";
          out[i] = static_cast<uint8_t>(adds ? in[i] + by : in[i] * by);
        }
        return nullptr;
      },
      [](const feedwater_value* params, feedwater_plan* plan) -> const char* {
        if (params[3].integer > 2) {
          snprintf(plan->message, plan->message_bytes, "has no %d rows",
                   static_cast<int>(params[3].integer));
          return plan->message;
        }
        plan->outputs[0].spec.shape[0] = params[3].integer;
        return nullptr;
      });
  op.params = kParams;
  op.param_count = 5;
  const std::string name = Register(op);
  EXPECT_THAT(*RunOn(absl::StrCat("- ", name, ": {rows: 2}")), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(*RunOn(absl::StrCat("- ", name, ": {rows: 1, also: [2, -1.0], twice: true}")),
              ElementsAre(4, 5));
  EXPECT_THAT(*RunOn(absl::StrCat("- ", name, ": {rows: 2, way: times, by: 3}")),
              ElementsAre(3, 6, 9, 12));

  const std::pair<std::string, std::string> mistakes[] = {
      {"{rows: 3}", absl::StrCat("op '", name, "' has no 3 rows")},
      {"{}", "needs 'rows' (integer): Of them."},
      {"{rows: 0}", "'rows' must be at least 1, not 0"},
      {"{rows: one}", "'rows' must be an integer"},
      {"{rows: 1, by: 11}", "'by' must be between 0 and 10, not 11"},
      {"{rows: 1, also: [1, 6]}", "'also' item 2 must be between -5 and 5"},
      {"{rows: 1, way: less}", "'way' must be plus or times, not 'less'"},
      {"{rows: 1, twice: maybe}", "'twice' must be true or false"},
      {"{rows: 1, row: 1}", absl::StrCat("op '", name, "' has no parameter 'row'")},
      {"3", absl::StrCat("op '", name, "' takes a map such as {rows: 3}, not '3'")},
  };
  for (const auto& [params, message] : mistakes) {
    const absl::Status status = RunOn(absl::StrCat("- ", name, ": ", params)).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << params << ": " << status;
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith("test.yaml:4:")) << params;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
}

TEST(PluginOp, OneThatTakesChannelsAwayCanBeRepeatedOnImagesOfAnySize) {
  const std::string name =
      Register(OpOf("", Copy, [](const feedwater_value*, feedwater_plan* plan) {
        plan->outputs[0].spec.shape[2] = 1;
        return static_cast<const char*>(nullptr);
      }));
  TestRecord record;
  record.AddPixels(8, 8, 3, Bytes(8 * 8 * 3));
  const std::string repeat = absl::StrCat("repeat: {times: 2, ops: [", name, "]}");
  for (const std::string& entry :
       {repeat, absl::StrCat("repeat: {times: 2, ops: [", repeat, "]}")}) {
    const auto plan = MakePlan(PipelineText(absl::StrCat("- scale_jitter: {target_size: 64}\n- ",
                                                         entry, "\n- resize: {size: [8, 8]}"),
                                            "[image]"),
                               record.fields());
    EXPECT_TRUE(plan.ok()) << plan.status();
  }
}

TEST(PluginOp, VersionAndParametersAreItsIdentity) {
  static const feedwater_param kParams[] = {
      {"by", "By what.", FEEDWATER_NUMBER, 0, nullptr, "1", 0, 0}};
  feedwater_op op = OpOf("", Copy);
  op.params = kParams;
  op.param_count = 1;
  const auto canonical = [&](const std::string& params) {
    return Registry<OpEntry>::Get()
        .Find(Register(op))
        ->canonical(*ParseYaml(params, "x"), {})
        .value();
  };
  EXPECT_EQ(canonical("{}"), "by=1.0;@version=\"1\";");
  EXPECT_EQ(canonical("{by: 1}"), canonical("{}"));
  EXPECT_NE(canonical("{by: 2}"), canonical("{}"));
  const std::string before = canonical("{}");
  op.version = "2";
  EXPECT_NE(canonical("{}"), before);
}

TEST(PluginOp, DrawsAreThoseOfSeedEpochRecordAndPlace) {
  const feedwater_op op = OpOf(
      "",
      [](const feedwater_value*, feedwater_sample* sample) -> const char* {
        auto* out = static_cast<uint8_t*>(sample->output(sample, 0, &sample->inputs[0].spec));
        if (out == nullptr) return nullptr;
        out[0] = static_cast<uint8_t>(sample->next(sample));
        out[1] = static_cast<uint8_t>(sample->uniform(sample, 10, 250));
        out[2] = static_cast<uint8_t>(sample->below(sample, 200));
        out[3] = static_cast<uint8_t>(128 + 20 * sample->normal(sample));
        return nullptr;
      },
      nullptr, FEEDWATER_RANDOM);
  const std::string name = Register(op);
  for (int64_t record : {0, 7, 1000}) {
    Draws draws(EpochKey(1, 0), static_cast<uint64_t>(record), 0);
    Bytes expected;
    expected.push_back(static_cast<uint8_t>(draws.Next()));
    expected.push_back(static_cast<uint8_t>(draws.Uniform(10, 250)));
    expected.push_back(static_cast<uint8_t>(draws.Below(200)));
    expected.push_back(static_cast<uint8_t>(128 + 20 * draws.Normal()));
    EXPECT_EQ(*RunOn("- " + name, record), expected);
  }
}

TEST(PluginOp, SeveralFieldsMoveTogether) {
  const std::string name = Register(OpOf(
      "",
      [](const feedwater_value*, feedwater_sample* sample) -> const char* {
        const auto draw = static_cast<uint8_t>(sample->below(sample, 100));
        for (uint32_t i = 0; i < sample->input_count; ++i) {
          auto* out = static_cast<uint8_t*>(sample->output(sample, i, &sample->inputs[i].spec));
          if (out == nullptr) return nullptr;
          for (uint64_t k = 0; k < sample->inputs[i].bytes; ++k) out[k] = draw;
        }
        return nullptr;
      },
      nullptr, FEEDWATER_RANDOM | FEEDWATER_REPEATED));
  TestRecord record;
  record.AddPixels(1, 2, 1, {1, 2});
  record.Add("mask", PixelSpec(1, 1, 3), PixelSpec(1, 1, 3), {9, 9, 9});
  const auto outputs =
      RunGraph(absl::StrCat("- ", name, ": {in: [image, mask]}"), record, "[image, mask]");
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  const uint8_t draw = (*outputs)[0][0];
  EXPECT_THAT((*outputs)[0], ElementsAre(draw, draw));
  EXPECT_THAT((*outputs)[1], ElementsAre(draw, draw, draw));
}

TEST(PluginOp, ManyThreadsGetTheSameBytes) {
  static const feedwater_op kOp = OpOf(
      "",
      [](const feedwater_value*, feedwater_sample* sample) -> const char* {
        void* scratch = sample->scratch(sample, 4);
        void* out = sample->output(sample, 0, &sample->inputs[0].spec);
        if (scratch == nullptr || out == nullptr) return nullptr;
        std::memcpy(scratch, sample->inputs[0].data, 4);
        std::memcpy(out, scratch, 4);
        return nullptr;
      },
      [](const feedwater_value*, feedwater_plan* plan) -> const char* {
        return plan->scratch_bytes = 4, nullptr;
      });
  const std::string entry = "- " + Register(kOp);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) EXPECT_THAT(*RunOn(entry), ElementsAre(1, 2, 3, 4));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(PluginOp, WhatItTakesIsInTheSumOfMemory) {
  const std::string name =
      Register(OpOf("", Copy, [](const feedwater_value*, feedwater_plan* plan) {
        plan->scratch_bytes = static_cast<uint64_t>(plan->inputs[0].shape[0]) << 20;
        return static_cast<const char*>(nullptr);
      }));
  TestRecord record;
  record.AddPixels(8, 2, 1, Bytes(16));
  const auto known = MakePlan(PipelineText("- " + name, "[image]"), record.fields());
  ASSERT_TRUE(known.ok()) << known.status();
  EXPECT_THAT((*known)->memory(SampleWay::kWhole).Sum(),
              HasSubstr(absl::StrCat("scratch of ", name, "#1 8.1 MiB")));
  // An image of unknown size is taken for a square of max_pixels: 8,000 rows of 64,000,000.
  TestRecord encoded;
  encoded.AddEncoded({});
  const auto open = MakePlan(PipelineText(absl::StrCat("- decode: {}\n- layout: {layout: HWC}\n- ",
                                                       name, "\n- center_crop: {size: 2}"),
                                          "[image]"),
                             encoded.fields());
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_THAT((*open)->memory(SampleWay::kWhole).Sum(),
              HasSubstr(absl::StrCat("scratch of ", name, "#3 at most 7.8 GiB")));
}

// --- what a mistaken `run` comes to ---

template <int64_t kBytes>
const char* AsksForScratch(const feedwater_value*, feedwater_sample* sample) {
  if (sample->scratch(sample, static_cast<uint64_t>(kBytes)) != nullptr) return "was given it";
  return nullptr;
}

feedwater_spec Like(const feedwater_sample* sample, void (*change)(feedwater_spec*)) {
  feedwater_spec spec = sample->inputs[0].spec;
  change(&spec);
  return spec;
}
#define FW_WRITES(change)                                                        \
  [](const feedwater_value*, feedwater_sample* sample) -> const char* {          \
    const feedwater_spec spec = Like(sample, [](feedwater_spec* s) { change; }); \
    return sample->output(sample, 0, &spec) == nullptr ? nullptr : "was given";  \
  }

TEST(PluginOp, AMistakenRunCostsItsSampleAndSaysWhy) {
  struct Mistake {
    RunFunction run;
    std::string message;
  };
  const Mistake mistakes[] = {
      {FW_WRITES(s->shape[0] = 3), "writes uint8[3,2,1] HWC, but had planned uint8[2,2,1] HWC"},
      {FW_WRITES(s->dtype = FEEDWATER_INT8), "writes int8[2,2,1] HWC, but had planned uint8"},
      {FW_WRITES(s->dtype = 99), "writes output 1 as dtype 99, which there is not"},
      {FW_WRITES(s->dtype = -1), "writes output 1 as dtype -1, which there is not"},
      {FW_WRITES(s->layout = 4), "writes output 1 as layout 4, which there is not"},
      {FW_WRITES(s->axes = 1u << 31), "writes output 1 as 2147483648 axes"},
      {FW_WRITES(s->shape[1] = -1), "writes output 1 as uint8[2,?,1] HWC"},
      {FW_WRITES(s->shape[1] = INT64_MIN), "with a negative size"},
      {FW_WRITES(s->shape[0] = s->shape[1] = INT64_MAX), "overflows 64 bits"},
      {FW_WRITES(s->shape[0] = int64_t{1} << 42), "more than a sample can hold"},
      {FW_WRITES(s->shape[1] = 0), "an image without a pixel"},
      {[](const feedwater_value*, feedwater_sample* sample) -> const char* {
         return sample->output(sample, 1, &sample->inputs[0].spec) == nullptr ? nullptr : "given";
       },
       "asks for output 2 of 1"},
      {[](const feedwater_value*, feedwater_sample* sample) -> const char* {
         return sample->output(sample, UINT32_MAX, nullptr) == nullptr ? nullptr : "given";
       },
       "asks for output 4294967296 of 1"},
      {[](const feedwater_value*, feedwater_sample* sample) -> const char* {
         return sample->output(sample, 0, nullptr) == nullptr ? nullptr : "given";
       },
       "asks for output 1 without a spec"},
      {[](const feedwater_value*, feedwater_sample* sample) -> const char* {
         for (int i = 0; i < 2; ++i) sample->output(sample, 0, &sample->inputs[0].spec);
         return nullptr;
       },
       "asks for output 1 twice"},
      {[](const feedwater_value*, feedwater_sample*) -> const char* { return nullptr; },
       "wrote no output 1"},
      {AsksForScratch<INT64_MIN>, "asks for 9223372036854775808 bytes of scratch"},
      {AsksForScratch<-1>, "asks for 18446744073709551615 bytes of scratch"},
      {AsksForScratch<1>, "asks for 1 bytes of scratch, but had planned 0 for this sample"},
      {[](const feedwater_value*, feedwater_sample* sample) -> const char* {
         return sample->next(sample) == 0 ? nullptr : "drew";
       },
       "draws, and is not declared as FEEDWATER_RANDOM"},
      {[](const feedwater_value*, feedwater_sample* sample) -> const char* {
         return sample->below(sample, 0) == 0 ? nullptr : "drew";
       },
       "asks for a draw below 0"},
      // The first reason counts, and nothing is given after it.
      {[](const feedwater_value*, feedwater_sample* sample) -> const char* {
         sample->below(sample, -5);
         const bool is_given = sample->output(sample, 0, &sample->inputs[0].spec) != nullptr ||
                               sample->go_on(sample) != 0;
         return is_given ? "was given" : "another reason";
       },
       "asks for a draw below -5"},
      {[](const feedwater_value*, feedwater_sample*) -> const char* {
         throw std::runtime_error("of its own");
       },
       "threw an exception: of its own"},
      {[](const feedwater_value*, feedwater_sample*) -> const char* { throw 3; },
       "threw an exception: unknown exception"},
      {[](const feedwater_value*, feedwater_sample*) -> const char* { throw std::bad_alloc(); },
       "threw an exception: out of memory"},
      {[](const feedwater_value*, feedwater_sample*) -> const char* { return ""; },
       "failed, and gave no reason"},
      {[](const feedwater_value*, feedwater_sample*) -> const char* {
         return "line\nand \x1b[2Jscreen";
       },
       "line\\x0aand \\x1b[2Jscreen"},
      {[](const feedwater_value*, feedwater_sample* sample) -> const char* {
         snprintf(sample->message, sample->message_bytes, "has %d of them", 3);
         return sample->message;
       },
       "has 3 of them"},
  };
  for (const Mistake& mistake : mistakes) {
    const std::string name = Register(OpOf("", mistake.run));
    const absl::Status status = RunOn("- " + name).status();
    EXPECT_FALSE(status.ok()) << mistake.message;
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith(name + ": "));
    EXPECT_THAT(std::string(status.message()), HasSubstr(mistake.message));
  }
}

TEST(PluginOp, AReasonOfAMegabyteIsCut) {
  static const std::string kText(1 << 20, 'x');
  const absl::Status status = RunOn(OpOf("", [](const feedwater_value*, feedwater_sample*) {
                                return kText.c_str();
                              })).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("xxx..."));
  EXPECT_LT(status.message().size(), 1200u);
}

// --- sizes that only the sample knows ---

// Rows of varying number: of [?] what is over 2, from a dataset's field.
const feedwater_port kRowsPort = {"rows", "Rows.", kUInt8, FEEDWATER_BIT(FEEDWATER_PLAIN)};

absl::StatusOr<Bytes> RunOnRows(RunFunction run, PlanFunction plan, Bytes rows) {
  feedwater_op op = OpOf("", run, plan);
  op.inputs = &kRowsPort;
  const std::string name = Register(op);
  TestRecord record;
  const auto size = static_cast<int64_t>(rows.size());
  record.Add("rows", {DType::kUInt8, Layout::kPlain, {-1}}, {DType::kUInt8, Layout::kPlain, {size}},
             std::move(rows));
  // Read again by an op, so that it lies in a buffer of the plan first.
  FW_ASSIGN_OR_RETURN(std::vector<Bytes> outputs,
                      RunGraph(absl::StrCat("- ", name,
                                            ": {out: kept}\n- cast: {in: kept, out: "
                                            "cast, dtype: int8}"),
                               record, "[{cast: {pad_to: 4, pad_value: 0}}]"));
  return outputs[0];
}

const char* KeepLarge(const feedwater_value*, feedwater_sample* sample) {
  const auto* in = static_cast<const uint8_t*>(sample->inputs[0].data);
  feedwater_spec spec = sample->inputs[0].spec;
  spec.shape[0] = 0;
  for (uint64_t i = 0; i < sample->inputs[0].bytes; ++i) spec.shape[0] += in[i] > 2;
  auto* out = static_cast<uint8_t*>(sample->output(sample, 0, &spec));
  if (out == nullptr) return nullptr;
  for (uint64_t i = 0; i < sample->inputs[0].bytes; ++i) {
    if (in[i] > 2) *out++ = in[i];
  }
  return nullptr;
}

const char* PlanFewRows(const feedwater_value*, feedwater_plan* plan) {
  plan->outputs[0].spec.shape[0] = -1;
  plan->outputs[0].most_bytes = 3;
  return nullptr;
}

TEST(PluginOp, RowsThatOnlyTheSampleKnowsAreBounded) {
  const auto rows = RunOnRows(KeepLarge, PlanFewRows, {1, 5, 2, 7});
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(*rows, ElementsAre(5, 7, 0, 0));
  const absl::Status status = RunOnRows(KeepLarge, PlanFewRows, {5, 6, 7, 8}).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("writes uint8[4], 4 B, but had planned 3 B at most (most_bytes)"));
  // 1 MiB, where nothing is said.
  const PlanFunction plan = [](const feedwater_value*, feedwater_plan* open) -> const char* {
    return open->outputs[0].spec.shape[0] = -1, nullptr;
  };
  const absl::Status large = RunOnRows(KeepLarge, plan, Bytes((1 << 20) + 1, 9)).status();
  EXPECT_THAT(std::string(large.message()), HasSubstr("had planned 1.0 MiB at most"));
}

TEST(PluginOp, APlanForTheSamplesSizesBindsItsRun) {
  // With its rows known, it plans one less than it writes.
  const PlanFunction plan = [](const feedwater_value*, feedwater_plan* plan) -> const char* {
    if (plan->inputs[0].shape[0] >= 0) --plan->outputs[0].spec.shape[0];
    return nullptr;
  };
  const absl::Status status = RunOnRows(Copy, plan, {1, 2, 3}).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("writes uint8[3], but had planned uint8[2] for this sample"));
}

TEST(PluginOp, AMistakenPlanIsRefusedBeforeTheFirstSample) {
  struct Mistake {
    PlanFunction plan;
    std::string message;
  };
#define FW_PLANS(change)                                                          \
  [](const feedwater_value*, [[maybe_unused]] feedwater_plan* p) -> const char* { \
    change;                                                                       \
    return nullptr;                                                               \
  }
  const Mistake mistakes[] = {
      {FW_PLANS(p->outputs[0].spec.dtype = 0), "dtype 0, which there is not"},
      {FW_PLANS(p->outputs[0].spec.layout = -3), "layout -3, which there is not"},
      {FW_PLANS(p->outputs[0].spec.axes = 9), "9 axes, and there are 8 at most"},
      {FW_PLANS(p->outputs[0].spec.axes = 2), "images have three axes and 1 or 3 channels"},
      {FW_PLANS(p->outputs[0].spec.shape[2] = 2), "images have three axes and 1 or 3 channels"},
      {FW_PLANS(p->outputs[0].spec.shape[0] = -2), "with a negative size"},
      {FW_PLANS(p->outputs[0].spec.shape[0] = INT64_MAX), "overflows 64 bits"},
      {FW_PLANS(p->outputs[0].spec.shape[0] = int64_t{1} << 41), "more than a sample can hold"},
      {FW_PLANS(p->outputs[0].spec.layout = FEEDWATER_ENCODED), "uint8 with one axis"},
      {FW_PLANS(p->scratch_bytes = uint64_t{1} << 63), "9223372036854775808 bytes of scratch"},
      {FW_PLANS(p->outputs[0].spec.layout = FEEDWATER_PLAIN; p->outputs[0].spec.shape[0] = -1;
                p->outputs[0].most_bytes = UINT64_MAX),
       "plans up to 18446744073709551615 bytes for output 1"},
      {FW_PLANS(throw std::runtime_error("of its own")),
       "threw an exception in its plan: of its own"},
      {FW_PLANS(return "takes squares alone"), "takes squares alone"},
      {FW_PLANS(p->outputs = nullptr; p->inputs = nullptr; p->output_count = 1000;
                return "all the same"),
       "all the same"},
  };
  for (const Mistake& mistake : mistakes) {
    const std::string name = Register(OpOf("", Copy, mistake.plan));
    const absl::Status status = RunOn("- " + name).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << mistake.message << ": " << status;
    EXPECT_THAT(std::string(status.message()),
                ::testing::StartsWith(absl::StrCat("test.yaml:4:3: op '", name, "' ")));
    EXPECT_THAT(std::string(status.message()), HasSubstr(mistake.message));
  }
  // What it has declared of its output holds, too.
  static const feedwater_port kFloatPort = {nullptr, "It.", FEEDWATER_BIT(FEEDWATER_FLOAT32), 0};
  feedwater_op op = OpOf("", Copy);
  op.outputs = &kFloatPort;
  EXPECT_THAT(std::string(RunOn(op).status().message()),
              HasSubstr("plans uint8[2,2,1] HWC for output 1, which it has declared otherwise"));
}

}  // namespace
}  // namespace feedwater::server
