// A fuzzer as an ordinary test, without libFuzzer: runs the files that are named, or else the
// regressions, the seeds, a sample of the outside data, and for two seconds mutations of all of
// them. $FEEDWATER_TEST_SEED repeats a run; the input that was running when the process ended is in
// build/.../tests/NAME.last.
#include <chrono>
#include <random>

#include "spdlog/spdlog.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/start_inputs.h"
#include "tests/testing/test_seed.h"

namespace feedwater::fuzz {
namespace {

constexpr auto kMutating = std::chrono::seconds(2);

// A copy of exactly the input's size, so that sanitizers see what is read behind it; written to
// `last` first, so that it is there when it ends the process.
void Run(const std::string& input, const std::string& last) {
  std::ofstream(last, std::ios::binary | std::ios::trunc) << input;
  const std::vector<uint8_t> copy(input.begin(), input.end());
  Target().run(copy);
}

std::string Mutate(std::string text, const std::vector<std::string>& inputs, std::mt19937& random) {
  for (unsigned changes = 1 + random() % 4; changes > 0; --changes) {
    const size_t at = text.empty() ? 0 : random() % text.size();
    switch (random() % 6) {
      case 0:
        text.insert(at, 1, static_cast<char>(random()));
        break;
      case 1:
        text.resize(at);
        break;
      case 2:
        text.erase(at, 1 + random() % 8);
        break;
      case 3:
        text.insert(at, inputs[random() % inputs.size()].substr(0, 1 + random() % 64));
        break;
      default:
        if (!text.empty()) text[at] = static_cast<char>(text[at] ^ 1 << random() % 8);
    }
  }
  text.resize(std::min(text.size(), Target().max_bytes));
  return text;
}

int Main(int argc, char** argv) {
  spdlog::set_level(spdlog::level::off);
  const std::string name = std::filesystem::path(argv[0]).filename();
  const std::string last = std::string(argv[0]) + ".last";
  if (argc > 1) {
    for (int i = 1; i < argc; ++i) Run(ReadFile(argv[i]), last);
    return 0;
  }
  std::vector<std::string> inputs = Target().seeds();
  const size_t seeds = inputs.size();
  for (const std::string& input : OutsideInputs(/*step=*/20)) inputs.push_back(input);
  const auto regressions =
      FilesBelow(std::filesystem::path(FEEDWATER_SOURCE_DIR) / "tests/fuzz/regressions" /
                 name.substr(0, name.rfind("_replay")));
  for (const auto& path : regressions) inputs.push_back(ReadFile(path));
  Require(seeds > 0, "a fuzzer has seeds");
  Run("", last);
  for (const std::string& input : inputs) Run(input, last);

  const uint32_t seed = testing::TestSeed();
  std::printf("%zu seeds, %zu of outside data, %zu regressions, then FEEDWATER_TEST_SEED=%u\n",
              seeds, inputs.size() - seeds - regressions.size(), regressions.size(), seed);
  std::fflush(stdout);
  std::mt19937 random(seed);
  const auto end = std::chrono::steady_clock::now() + kMutating;
  size_t runs = 0;
  for (; std::chrono::steady_clock::now() < end; ++runs)
    Run(Mutate(inputs[random() % inputs.size()], inputs, random), last);
  std::printf("%zu mutations\n", runs);
  std::filesystem::remove(last);
  return 0;
}

}  // namespace
}  // namespace feedwater::fuzz

int main(int argc, char** argv) { return feedwater::fuzz::Main(argc, argv); }
