// CPU time of one op on photos in memory, on one pinned thread.
//
//   op_times FOLDER [--cpu N] [--target NAME]
//   op_times --list
//
// The first photos of FOLDER become images of 224x224 RGB bytes. Each line on standard input,
// "REPEATS GRAPH", where GRAPH is a list of ops in one line of YAML, is answered by the CPU seconds
// that a plan of it takes for one image, or by what is wrong with it; so another process can take
// turns with this one (suite/ops.py does). `--target AVX2` holds Highway to AVX2 and less. `--list`
// names the ops that take such an image alone, each with its example.
#include <sched.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/codec/image.h"
#include "server/graph/op_schema.h"
#include "server/graph/plan.h"
#include "server/storage/engine.h"
#include "tests/bench/simd_target.h"

namespace {

using namespace feedwater::server;  // NOLINT: a program of one file

constexpr int kSide = 224;
constexpr size_t kImages = 40;

// A photo's whole, resized.
std::vector<uint8_t> ImageOf(const std::filesystem::path& path, ImageWorkspace& workspace) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t size = bytes.size();
  bytes.resize(size + kReadPadding);
  const absl::Span<const std::byte> encoded(reinterpret_cast<const std::byte*>(bytes.data()), size);
  const ImageLimits limits;
  const auto info = ReadImageInfo(encoded, false, limits, workspace);
  if (!info.ok()) return {};
  Geometry geometry;
  geometry.crop = {0, 0, info->size.width, info->size.height};
  geometry.scaled = {kSide, kSide};
  geometry.window = {0, 0, kSide, kSide};
  std::vector<uint8_t> pixels(3 * kSide * kSide);
  const absl::Status decoded = DecodeInto(encoded, false, limits, geometry, PixelFormat(),
                                          reinterpret_cast<std::byte*>(pixels.data()), workspace);
  return decoded.ok() ? pixels : std::vector<uint8_t>();
}

std::vector<std::vector<uint8_t>> Images(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  ImageWorkspace workspace;
  std::vector<std::vector<uint8_t>> images;
  for (const auto& path : paths) {
    std::vector<uint8_t> pixels = ImageOf(path, workspace);
    if (!pixels.empty()) images.push_back(std::move(pixels));
    if (images.size() == kImages) break;
  }
  return images;
}

absl::StatusOr<std::shared_ptr<const Plan>> PlanOf(const std::string& graph) {
  FW_ASSIGN_OR_RETURN(
      const PipelineSpec spec,
      ParsePipeline(absl::StrCat("version: 1\ndataset: {format: image_folder, root: r, path: p}\n",
                                 "graph: ", graph, "\noutputs: [image]\n"),
                    "graph"));
  return Plan::Create(spec, {{"image", {DType::kUInt8, Layout::kHWC, {kSide, kSide, 3}}, ""}},
                      /*classes=*/10, PlanOptions{});
}

absl::StatusOr<double> SecondsOfOne(const Plan& plan, std::vector<std::vector<uint8_t>>& images,
                                    int repeats) {
  SampleWorkspace workspace;
  std::vector<std::byte> out(static_cast<size_t>(*plan.outputs()[0].SampleBytes()) + 64);
  BatchMemory memory;
  memory.batch_size = 1;
  memory.outputs = {out.data()};
  memory.offsets = {nullptr};
  Record record;
  SampleInput input;
  input.record = &record;
  const auto round = [&]() -> absl::Status {
    for (std::vector<uint8_t>& pixels : images) {
      record.fields = {{{DType::kUInt8, Layout::kHWC, {kSide, kSide, 3}},
                        reinterpret_cast<std::byte*>(pixels.data())}};
      ++input.sample_id;
      FW_RETURN_IF_ERROR(plan.Run(input, 0, memory, workspace));
    }
    return absl::OkStatus();
  };
  FW_RETURN_IF_ERROR(round());
  const int64_t start = ThreadCpuNs();
  for (int i = 0; i < repeats; ++i) FW_RETURN_IF_ERROR(round());
  return 1e-9 * static_cast<double>(ThreadCpuNs() - start) / repeats /
         static_cast<double>(images.size());
}

void Serve(std::vector<std::vector<uint8_t>> images) {
  int repeats = 0;
  for (std::string graph; std::cin >> repeats && std::getline(std::cin, graph);) {
    if (repeats < 1) std::exit(2);
    const auto plan = PlanOf(graph);
    const auto seconds =
        plan.ok() ? SecondsOfOne(**plan, images, repeats) : absl::StatusOr<double>(plan.status());
    if (seconds.ok()) {
      std::cout << *seconds << std::endl;
    } else {
      std::cout << seconds.status().message() << std::endl;
    }
  }
}

void List() {
  for (const std::string& name : Registry<OpEntry>::Get().Names()) {
    const OpEntry& op = *Registry<OpEntry>::Get().Find(name);
    if (op.is_batch_op || op.is_free || op.inputs.size() != 1 || op.outputs.size() != 1) continue;
    const std::string graph = absl::StrCat("[", op.example.substr(2), "]");
    if (PlanOf(graph).ok()) std::printf("%s\t%s\n", name.c_str(), graph.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  int cpu = 0;
  bool list = false;
  std::string target, folder;
  CLI::App app("CPU time of single ops");
  app.add_option("folder", folder);
  app.add_option("--cpu", cpu);
  app.add_option("--target", target);
  app.add_flag("--list", list);
  CLI11_PARSE(app, argc, argv);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(cpu, &cpus);
  sched_setaffinity(0, sizeof(cpus), &cpus);
  if (!target.empty()) feedwater::testing::HoldToTarget(target.c_str());
  if (list) {
    List();
    return 0;
  }
  std::vector<std::vector<uint8_t>> images = Images(folder);
  if (images.empty()) {
    std::fprintf(stderr, "op_times: no photo below '%s'\n", folder.c_str());
    return 1;
  }
  Serve(std::move(images));
  return 0;
}
