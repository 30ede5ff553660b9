// What opening a dataset takes, and what its full shuffle does: time, memory, index, order.
// usage: open_bench FOLDER DATASET    (DATASET: as in a pipeline, with root: data)
// Prints a JSON document: seconds of building the index and of opening the saved one, bytes of the
// index and of the process, and CPU nanoseconds to find a position's record and its extents.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "server/base/clock.h"
#include "server/base/yaml.h"
#include "server/sampler/order.h"
#include "server/source/dataset.h"
#include "spdlog/spdlog.h"

using namespace feedwater::server;

namespace {

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

double SecondsSince(int64_t since_ns) {
  return static_cast<double>(MonotonicNs() - since_ns) * 1e-9;
}

// For positions that are spread over the epoch, as those of a long training are.
double OrderNs(const Dataset& dataset) {
  OrderConfig config;
  config.records = dataset.size();
  config.batch_size = 1;
  config.shuffle = Shuffle::kFull;
  config.seed = 42;
  const EpochOrder order(std::make_shared<const OrderConfig>(config), 0, 0);
  constexpr int64_t kPositions = 1'000'000;
  std::vector<Extent> extents;
  int64_t sum = 0;
  const int64_t start = ThreadCpuNs();
  for (int64_t i = 0; i < kPositions; ++i) {
    extents.clear();
    dataset.Extents(order.RecordAt((i * 7919) % config.records), &extents);
    sum += extents[0].offset;
  }
  const double ns = static_cast<double>(ThreadCpuNs() - start) / kPositions;
  return sum >= 0 ? ns : 0;  // so that the loop stays
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: open_bench FOLDER DATASET\n");
    return 2;
  }
  spdlog::set_level(spdlog::level::warn);
  std::string state = (std::filesystem::temp_directory_path() / "open-bench-XXXXXX").string();
  const auto roots = Roots::Create({{"data", argv[1]}});
  const auto node = ParseYaml(argv[2], "open_bench");
  if (!roots.ok() || !node.ok() || mkdtemp(state.data()) == nullptr) {
    std::fprintf(stderr, "cannot open %s\n", argv[1]);
    return 1;
  }
  DatasetOptions options;
  options.roots = *roots;
  options.state_dir = state;
  const auto open = [&](double* seconds) {
    const int64_t start = MonotonicNs();
    auto dataset = OpenDataset(*node, options);
    *seconds = SecondsSince(start);
    if (!dataset.ok()) std::fprintf(stderr, "%s\n", dataset.status().ToString().c_str());
    return dataset.ok() ? *dataset : nullptr;
  };
  double built_s = 0, opened_s = 0;
  const int64_t before = ResidentBytes();
  auto dataset = open(&built_s);
  const int64_t resident = ResidentBytes() - before;
  if (dataset != nullptr) {
    dataset = nullptr;
    dataset = open(&opened_s);
  }
  std::filesystem::remove_all(state);
  if (dataset == nullptr) return 1;
  std::printf(
      "{\"records\": %lld, \"built_s\": %.6f, \"opened_s\": %.6f, \"index_bytes\": %lld, "
      "\"resident_bytes\": %lld, \"order_ns\": %.1f}\n",
      static_cast<long long>(dataset->size()), built_s, opened_s,
      static_cast<long long>(dataset->memory_bytes()), static_cast<long long>(resident),
      OrderNs(*dataset));
  return 0;
}
