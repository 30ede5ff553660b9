// How long opening an image folder takes: building its index, then from the saved one, and the
// index's bytes a record. usage: index_bench [RECORDS] [CLASSES] [FOLDER]     (default 1281167
// 1000; files are empty and removed afterwards)
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "server/base/clock.h"
#include "server/base/yaml.h"
#include "server/source/dataset.h"
#include "spdlog/spdlog.h"

using namespace feedwater::server;

int main(int argc, char** argv) {
  const int64_t records = argc > 1 ? std::atoll(argv[1]) : 1'281'167;
  const int64_t classes = argc > 2 ? std::atoll(argv[2]) : 1000;
  std::string folder =
      (argc > 3 ? std::string(argv[3]) : std::filesystem::temp_directory_path().string()) +
      "/index-bench-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr || classes < 1 || records < classes) {
    std::fprintf(stderr, "usage: index_bench [RECORDS] [CLASSES] [FOLDER]\n");
    return 2;
  }
  spdlog::set_level(spdlog::level::warn);
  const std::string data = folder + "/data", state = folder + "/state";
  std::filesystem::create_directory(data);
  for (int64_t c = 0; c < classes; ++c) {
    char name[64];
    std::snprintf(name, sizeof(name), "/n%08lld", static_cast<long long>(c));
    std::filesystem::create_directory(data + name);
    const int directory = open((data + name).c_str(), O_RDONLY | O_DIRECTORY);
    for (int64_t i = records * c / classes; i < records * (c + 1) / classes; ++i) {
      std::snprintf(name, sizeof(name), "n%08lld_%lld.JPEG", static_cast<long long>(c),
                    static_cast<long long>(i % 30000));
      close(openat(directory, name, O_CREAT | O_WRONLY, 0600));
    }
    close(directory);
  }
  DatasetOptions options;
  options.state_dir = state;
  options.roots = *Roots::Create({{"data", data}});
  const YamlNode node = *ParseYaml("{format: image_folder, root: data}", "bench");
  int result = 0;
  for (const char* step : {"built", "opened from the saved index", "opened from the saved index"}) {
    const int64_t start = MonotonicNs(), cpu = ProcessCpuNs();
    auto dataset = OpenDataset(node, options);
    if (!dataset.ok()) {
      std::fprintf(stderr, "%s\n", dataset.status().ToString().c_str());
      result = 1;
      break;
    }
    std::printf(
        "%lld records %s in %.3f s (%.3f s of CPU), %.1f bytes a record\n",
        static_cast<long long>((*dataset)->size()), step,
        static_cast<double>(MonotonicNs() - start) * 1e-9,
        static_cast<double>(ProcessCpuNs() - cpu) * 1e-9,
        static_cast<double>((*dataset)->memory_bytes()) / static_cast<double>((*dataset)->size()));
  }
  std::filesystem::remove_all(folder);
  return result;
}
