// Any text as feedwater.yaml, and its first line as a --set: settings that the daemon can start
// with, or an error that names its place.
// LIBS: ENGINES feedwater_service GTest::gtest
#include <filesystem>

#include "server/service/config.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/start_inputs.h"
#include "tests/storage/temp_folder.h"

namespace feedwater::fuzz {
namespace {

using namespace server;  // NOLINT: the configuration

void Check(const absl::StatusOr<Settings>& settings) {
  if (!settings.ok()) {
    Require(!settings.status().message().empty(), "an error has words");
    return;
  }
  Require(!settings->cpus.empty(), "there are CPUs to run on");
  Require(settings->memory_limit_bytes > 0 && settings->cache_memory_bytes >= 0 &&
              settings->cache_memory_bytes <= settings->memory_limit_bytes,
          "the cache is part of the memory");
  Require(settings->roots != nullptr, "there are roots");
  for (const std::string& path : {settings->config.runtime_dir, settings->config.state_dir})
    Require(!path.empty() && path[0] == '/', "paths are absolute");
  for (const std::string& path : settings->config.pipelines)
    Require(!path.empty() && path[0] == '/', "paths are absolute");
  Require(settings->config.limits.max_slot.bytes >= 4096, "limits are in their range");
}

void Run(Input input) {
  static auto* folder = new std::unique_ptr<TempFolder>([] {
    auto made = std::make_unique<TempFolder>();
    std::filesystem::create_directories(made->path() + "/pipelines");
    std::filesystem::create_directories(made->path() + "/photos");
    return made;
  }());
  static const bool registered = std::atexit([] { folder->reset(); }) == 0;
  (void)registered;
  const std::string file = **folder / "feedwater.yaml";
  const std::string text = AsText(input);
  Check(ParseSettings(text, file, {}));
  const size_t line = std::min(text.find('\n'), text.size());
  Check(ParseSettings("version: 1\n", file, {text.substr(0, line)}));
}

std::vector<std::string> Seeds() {
  return {
      "version: 1\nruntime_dir: run\nstate_dir: state\npipelines: [pipelines]\n"
      "roots: {photos: photos}\ncpus: 1\npin_cpus: false\nmemory: 512MiB\n",
      "storage.engine=pread\nversion: 1\n",
      "cache.ram=1GiB",
      "limits={sessions_per_uid: 3}",
      "cpus=\"0-1,0\"",
      "version: 1\naccess: {users: [root, \"0\"], groups: [root]}\n"
      "limits: {sessions_per_uid: 1, handshake_timeout: 100ms, max_slot: 1GiB}\n"
      "cache: {ram: 64MiB, disk: 1TiB}\nstorage: {engine: pread, direct_io: true}\n"
      "numa_node: none\n",
      SampleConfig()};
}

void AddNames(const std::vector<ParamInfo>& params, std::vector<std::string>* words) {
  for (const ParamInfo& param : params) {
    words->push_back(param.name + ": ");
    words->push_back(param.name + ".");
    for (const std::string& choice : param.choices) words->push_back(choice);
    AddNames(param.nested, words);
  }
}

std::vector<std::string> Words() {
  std::vector<std::string> words = {"\n  ", "{",    "}",   "[",   "]",     "=",
                                    "auto", "none", "GiB", "ms",  "1e309", "18446744073709551615",
                                    "0-1",  "/",    "..",  "&a ", "*a"};
  AddNames(ConfigSchema().params(), &words);
  return words;
}

}  // namespace

const FuzzTarget& Target() {
  static const FuzzTarget target = {Run, Seeds, {"hostile/yaml"}, Words, 8192};
  return target;
}

}  // namespace feedwater::fuzz
