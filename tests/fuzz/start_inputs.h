// The inputs that a fuzzer starts from: its own seeds and the files of the test data.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/fuzz/fuzzer.h"

namespace feedwater::fuzz {

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// All regular files below a folder in order of name; empty where there is no such folder.
inline std::vector<std::filesystem::path> FilesBelow(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->is_regular_file()) files.push_back(it->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Every `step`-th file of the target's folders of outside data that is not too large.
inline std::vector<std::string> OutsideInputs(size_t step = 1) {
  const char* root = std::getenv("FEEDWATER_TEST_DATA");
  const std::filesystem::path data =
      root != nullptr && *root != '\0'
          ? std::filesystem::path(root)
          : std::filesystem::path(FEEDWATER_SOURCE_DIR "/../shared/data");
  std::vector<std::string> inputs;
  size_t number = 0;
  for (const std::string& folder : Target().outside) {
    for (const auto& path : FilesBelow(data / folder)) {
      if (std::filesystem::file_size(path) <= Target().max_bytes && number++ % step == 0)
        inputs.push_back(ReadFile(path));
    }
  }
  return inputs;
}

}  // namespace feedwater::fuzz
