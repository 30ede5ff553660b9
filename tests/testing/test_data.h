// Where real photos and hostile files for tests lie: $FEEDWATER_TEST_DATA, by default
// ../shared/data beside the project. They are never part of the project; a test that needs them is
// skipped where they are absent.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace feedwater::testing {

inline std::filesystem::path TestDataRoot() {
  if (const char* folder = std::getenv("FEEDWATER_TEST_DATA"); folder != nullptr && *folder != '\0')
    return folder;
  return std::filesystem::path(FEEDWATER_SOURCE_DIR) / ".." / "shared" / "data";
}

}  // namespace feedwater::testing

// Sets the variable to a file or folder below the test data, or skips the running test.
#define FW_TEST_DATA_OR_SKIP(variable, name)                                             \
  const std::filesystem::path variable = feedwater::testing::TestDataRoot() / (name);    \
  if (!std::filesystem::exists(variable)) {                                              \
    GTEST_SKIP() << variable                                                             \
                 << " is not there; set FEEDWATER_TEST_DATA to the folder of test data"; \
  }
