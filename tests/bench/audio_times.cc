// CPU time of a graph on one audio file in memory, on one pinned thread.
//
//   audio_times FILE [--cpu N] [--target NAME]
//
// Each line on standard input, "REPEATS GRAPH", where GRAPH is a list of ops in one line of YAML
// that makes `mel` of `data`, is answered by the CPU seconds of one sample, or by what is wrong
// (suite/audio.py takes turns with peers/torchaudio_ops.py). `--target AVX2` holds Highway to it.
#include <sched.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/graph/plan.h"
#include "server/storage/engine.h"
#include "tests/bench/simd_target.h"

namespace {

using namespace feedwater::server;  // NOLINT: a program of one file

absl::StatusOr<double> SecondsOfOne(const std::string& graph, std::vector<char>& file,
                                    int64_t bytes, int repeats) {
  FW_ASSIGN_OR_RETURN(const PipelineSpec spec,
                      ParsePipeline(absl::StrCat("version: 1\ndataset: {format: csv, root: r}\n",
                                                 "graph: ", graph, "\noutputs: [mel]\n"),
                                    "graph"));
  FW_ASSIGN_OR_RETURN(
      const auto plan,
      Plan::Create(spec, {{"data", {DType::kUInt8, Layout::kEncoded, {-1}}, ""}}, 0, {}));
  SampleWorkspace workspace;
  std::vector<std::byte> out(static_cast<size_t>(*plan->outputs()[0].SampleBytes()) + 64);
  BatchMemory memory;
  memory.batch_size = 1;
  memory.outputs = {out.data()};
  memory.offsets = {nullptr};
  Record record;
  record.fields = {
      {{DType::kUInt8, Layout::kEncoded, {bytes}}, reinterpret_cast<std::byte*>(file.data())}};
  SampleInput input;
  input.record = &record;
  FW_RETURN_IF_ERROR(plan->Run(input, 0, memory, workspace));
  const int64_t start = ThreadCpuNs();
  for (int i = 0; i < repeats; ++i) {
    ++input.sample_id;
    FW_RETURN_IF_ERROR(plan->Run(input, 0, memory, workspace));
  }
  return 1e-9 * static_cast<double>(ThreadCpuNs() - start) / repeats;
}

}  // namespace

int main(int argc, char** argv) {
  int cpu = 0;
  std::string target, name;
  CLI::App app("CPU time of a graph on an audio file");
  app.add_option("file", name)->required();
  app.add_option("--cpu", cpu);
  app.add_option("--target", target);
  CLI11_PARSE(app, argc, argv);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(cpu, &cpus);
  sched_setaffinity(0, sizeof(cpus), &cpus);
  if (!target.empty()) feedwater::testing::HoldToTarget(target.c_str());
  std::ifstream stream(name, std::ios::binary);
  std::vector<char> file((std::istreambuf_iterator<char>(stream)),
                         std::istreambuf_iterator<char>());
  const auto bytes = static_cast<int64_t>(file.size());
  file.resize(file.size() + kReadPadding);
  int repeats = 0;
  for (std::string graph; std::cin >> repeats && std::getline(std::cin, graph);) {
    const auto seconds = SecondsOfOne(graph, file, bytes, std::max(1, repeats));
    if (seconds.ok()) {
      std::cout << *seconds << std::endl;
    } else {
      std::cout << seconds.status().message() << std::endl;
    }
  }
  return 0;
}
