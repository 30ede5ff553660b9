// Joins a fuzzer to libFuzzer. `--write-seeds DIR` as the only arguments writes what to start from
// (and the dictionary, DIR.dict) instead of fuzzing.
#include <cstring>

#include "spdlog/spdlog.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/start_inputs.h"

namespace feedwater::fuzz {
namespace {

void WriteSeeds(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  size_t number = 0;
  const auto write = [&](const char* kind, const std::string& bytes) {
    std::ofstream(folder / (kind + std::to_string(number++)), std::ios::binary) << bytes;
  };
  for (const std::string& seed : Target().seeds()) write("seed-", seed);
  for (const std::string& input : OutsideInputs()) write("outside-", input);
  std::ofstream words(folder.string() + ".dict");
  if (Target().words == nullptr) return;
  for (const std::string& word : Target().words()) {
    words << '"';
    for (const char c : word) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\x%02x", static_cast<unsigned char>(c));
      words << escaped;
    }
    words << "\"\n";
  }
}

}  // namespace
}  // namespace feedwater::fuzz

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  spdlog::set_level(spdlog::level::off);
  if (*argc == 3 && std::strcmp((*argv)[1], "--write-seeds") == 0) {
    feedwater::fuzz::WriteSeeds((*argv)[2]);
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > feedwater::fuzz::Target().max_bytes) return -1;
  feedwater::fuzz::Target().run({data, size});
  return 0;
}
