// Any text as a pipeline file: parsed, checked and planned. Where it can run on the small record
// here, it does, fused, unfused and cut where a cache may keep something, and all must give the
// same bytes (but unfused where decode's fast_scale asks for what only the fused ops give).
// LIBS: OPS feedwater_graph GTest::gtest
#include <filesystem>

#include "absl/strings/match.h"
#include "server/graph/op_schema.h"
#include "server/graph/pipeline_spec.h"
#include "server/source/dataset.h"
#include "server/source/format.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/start_inputs.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::fuzz {
namespace {

using namespace server;                 // NOLINT: the graph floor
using namespace server::graph_testing;  // NOLINT: the tests' own words

constexpr double kMaxNumber = 512;  // of a parameter, to be run here
constexpr int64_t kMaxSampleBytes = 1 << 20;

// Whether the memory and time that it asks for are a test's.
bool IsSmall(const YamlNode& node) {
  double number = 0;
  if (node.is_scalar() && absl::SimpleAtod(node.scalar, &number) && !(number <= kMaxNumber))
    return false;
  for (const YamlNode& item : node.items) {
    if (!IsSmall(item)) return false;
  }
  for (const auto& [key, value] : node.entries) {
    if (!IsSmall(value)) return false;
  }
  return true;
}

bool IsSmall(const PipelineSpec& spec, const Plan& plan) {
  for (const OpSpec& op : spec.graph) {
    if (!IsSmall(op.node)) return false;
  }
  int64_t bytes = plan.staging_bytes_per_sample();
  for (const FieldSpec& field : plan.outputs()) bytes += field.SampleBytes().value_or(1 << 30);
  return spec.graph.size() <= 16 && bytes <= kMaxSampleBytes;
}

bool ScalesInDecoding(const PipelineSpec& spec) {
  for (const OpSpec& op : spec.graph) {
    const auto params = Registry<OpEntry>::Get().Find(op.name)->canonical(op.params, op.files);
    if (params.ok() && absl::StrContains(*params, "fast_scale=")) return true;
  }
  return false;
}

TestRecord& Photo() {
  static auto* record = [] {
    auto* made = new TestRecord;
    made->AddEncoded(EncodedImage(30, 40, ".jpg")).AddLabel(3);
    return made;
  }();
  return *record;
}

void Run(Input input) {
  TestFiles files;
  const auto spec = ParsePipeline(AsText(input), "fuzz.yaml", {}, &files);
  if (!spec.ok()) {
    Require(!spec.status().message().empty(), "an error has words");
    return;
  }
  Require(spec->digest.size() == 32, "a pipeline has a digest");
  (void)DescribeDataset(spec->dataset);
  const bool valid = Plan::Validate(*spec).ok();
  const auto fused = Plan::Create(*spec, Photo().fields(), 10);
  const auto unfused = Plan::Create(*spec, Photo().fields(), 10, PlanOptions{false});
  Require(fused.ok() == unfused.ok(), "fusing decides nothing");
  if (!fused.ok()) return;
  (void)valid;
  (void)(*fused)->Describe();
  if (!IsSmall(*spec, **fused)) return;
  for (const int64_t sample : {7, 8}) {
    const auto a = RunPlan(**fused, Photo(), sample);
    const auto b = RunPlan(**unfused, Photo(), sample);
    Require(a.ok() == b.ok(),
            absl::StrCat("fused: ", a.status().ToString(), ", unfused: ", b.status().ToString()));
    Require(!a.ok() || *a == *b || ScalesInDecoding(*spec),
            "fused and unfused give the same bytes");
    const auto halves = RunPlanInHalves(**fused, Photo(), sample);
    Require(!halves.ok() || (a.ok() && *a == *halves), "what a cache keeps changes no byte");
  }
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const auto& path :
       FilesBelow(std::filesystem::path(FEEDWATER_SOURCE_DIR) / "config/pipelines")) {
    if (path.extension() == ".yaml") seeds.push_back(ReadFile(path));
  }
  for (const std::string& name : Registry<OpEntry>::Get().Names()) {
    const OpEntry& op = *Registry<OpEntry>::Get().Find(name);
    const std::string graph = "- decode: {fast_scale: true}\n- center_crop: {size: 20}\n";
    seeds.push_back(op.is_batch_op
                        ? PipelineText(graph, "[image, label]",
                                       "batch:\n  size: 4\n  graph:\n  " + op.example + "\n")
                        : PipelineText(graph + op.example, "[image, label]"));
    seeds.push_back(PipelineText(op.example + "\n- center_crop: {size: 20}", "[image]"));
  }
  seeds.push_back(
      "version: 1\ndataset:\n  mix:\n    - {format: image_folder, root: r, path: a, weight: 0.25}\n"
      "    - {format: image_folder, root: s, weight: 3}\n  stop: first\noutputs: [dataset_id]\n");
  for (const std::string& name : Registry<FormatEntry>::Get().Names()) {
    seeds.push_back("version: 1\n" + Registry<FormatEntry>::Get().Find(name)->example +
                    "\noutputs: [image, label]\n");
  }
  return seeds;
}

void AddNames(const std::vector<ParamInfo>& params, std::vector<std::string>* words) {
  for (const ParamInfo& param : params) {
    words->push_back(param.name + ": ");
    for (const std::string& choice : param.choices) words->push_back(choice);
    AddNames(param.nested, words);
  }
}

std::vector<std::string> Words() {
  std::vector<std::string> words = {
      "\n- ", "\n  ", "{",      "}",    "[",     "]",    "in: ", "out: ",
      "&a ",  "*a",   "!!str ", "<<: ", "1e309", "-0.0", ".nan", "9223372036854775808"};
  AddNames(PipelineParams(), &words);
  for (const std::string& name : Registry<OpEntry>::Get().Names()) {
    words.push_back(name + ": ");
    AddNames(Registry<OpEntry>::Get().Find(name)->params, &words);
  }
  for (const std::string& name : Registry<FormatEntry>::Get().Names()) {
    words.push_back(name);
    AddNames(Registry<FormatEntry>::Get().Find(name)->params, &words);
  }
  return words;
}

}  // namespace

const FuzzTarget& Target() {
  static const FuzzTarget target = {Run, Seeds, {"hostile/yaml"}, Words, 4096};
  return target;
}

}  // namespace feedwater::fuzz
