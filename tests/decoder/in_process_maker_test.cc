// Samples that are made on the calling thread.
#include "server/decoder/in_process_maker.h"

#include <gtest/gtest.h>

#include "server/base/clock.h"
#include "server/graph/op_schema.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using graph_testing::PipelineText;
using graph_testing::TestBatch;
using graph_testing::TestRecord;

constexpr int64_t kSlowMs = 200, kLimitMs = 300;

struct Params {};

// Takes its time, and gives the last byte of what it gets.
class Slow : public Op {
 public:
  explicit Slow(const Params&) {}
  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec>, const PlanEnvironment&) const override {
    return Specs{{DType::kUInt8, Layout::kPlain, {}}};
  }
  absl::Status Run(Sample& sample, Draws) const override {
    FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, sample.planned(0)));
    *output.data = *sample.inputs()[0].data;
    const int64_t start = ClockNs(CLOCK_THREAD_CPUTIME_ID);
    while (ClockNs(CLOCK_THREAD_CPUTIME_ID) - start < kSlowMs * 1'000'000)
      FW_RETURN_IF_ERROR(sample.clock().Check());
    return absl::OkStatus();
  }
};

OpSchema<Params> SlowOp(const char* name) {
  return OpSchema<Params>(name)
      .Summary("Takes its time.")
      .Input({.field = "label",
              .layouts = {Layout::kPlain},
              .dtypes = {DType::kInt64, DType::kUInt8},
              .doc = "A number."})
      .Output({.field = "", .layouts = {Layout::kPlain}, .dtypes = {}, .doc = "Its last byte."})
      .Cost("All of its time.")
      .Example(std::string("- ") + name + ": {in: label, out: slow}");
}

const OpRegistrar kSlow(SlowOp("slow").Create<Slow>());
const OpRegistrar kSlowDraw(SlowOp("slow_draw").Randomness(Randomness::kPerSample).Create<Slow>());

// What a cache keeps of a sample is made in time of its own, so that a sample that is good without
// a cache is good with one.
TEST(InProcessMaker, ASampleThatACacheKeepsHasTheTimeOfOneForItsPrefixAndForTheRest) {
  const auto spec =
      ParsePipeline(PipelineText("  - slow: {in: label, out: a}\n  - slow_draw: {in: a, out: b}\n",
                                 "[b]", absl::StrCat("limits: {max_sample_ms: ", kLimitMs, "}\n")),
                    "test.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  TestRecord record;
  record.AddLabel(7);
  const auto plan = Plan::Create(*spec, record.fields(), 10);
  ASSERT_TRUE(plan.ok()) << plan.status();
  InProcessMaker maker;
  maker.Use(plan->get(), nullptr);
  TestBatch batch(**plan, 1);
  SampleInput input;
  input.record = record.record();
  bool is_kept = false;
  const absl::Status made =
      maker.RunKeeping(input, 0, batch.memory, 1 << 20, [&](const Record&) { is_kept = true; });
  EXPECT_TRUE(made.ok()) << made;
  EXPECT_TRUE(is_kept);
  EXPECT_EQ(batch.Output(0, 0)[0], 7);
}

}  // namespace
}  // namespace feedwater::server
