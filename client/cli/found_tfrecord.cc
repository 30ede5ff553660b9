#include "client/cli/found_tfrecord.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/format_maps.h"
#include "server/base/crc32c.h"

namespace feedwater::cli {
namespace {

using server::DatasetLocation;

constexpr size_t kMostNames = 100'000;
constexpr size_t kMostSets = 16, kMostFiles = 3;  // of each set that are looked into

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }

// Where the digits end that stand at `at`.
size_t SkipDigits(absl::string_view name, size_t at) {
  while (at < name.size() && IsDigit(name[at])) ++at;
  return at;
}

// What stands for a file and those that go with it: "train-*-of-00010" for "train-00003-of-00010",
// "train*.data" for "train.data" and "train-1.data", "*.data" for "a.data", "part-*" for "part-00".
std::string PatternOf(absl::string_view name) {
  for (size_t of = name.find("-of-"); of != absl::string_view::npos;
       of = name.find("-of-", of + 1)) {
    size_t number = of;
    while (number > 0 && IsDigit(name[number - 1])) --number;
    if (number < of && number > 0 && name[number - 1] == '-' && SkipDigits(name, of + 4) > of + 4) {
      return absl::StrCat(name.substr(0, number), "*", name.substr(of));
    }
  }
  const size_t dot = name.rfind('.');
  const absl::string_view stem = name.substr(0, dot);
  const absl::string_view end = dot == absl::string_view::npos ? "" : name.substr(dot);
  if (BeginsWithSplit(stem)) {
    const auto letters = std::find_if_not(stem.begin(), stem.end(), [](char c) {
      return absl::ascii_isalpha(static_cast<unsigned char>(c));
    });
    return absl::StrCat(stem.substr(0, static_cast<size_t>(letters - stem.begin())), "*", end);
  }
  if (!end.empty()) return absl::StrCat("*", end);
  size_t digits = stem.size();
  while (digits > 0 && IsDigit(stem[digits - 1])) --digits;
  return digits > 0 && digits < stem.size() ? absl::StrCat(stem.substr(0, digits), "*")
                                            : std::string(name);
}

bool IsTfrecordAt(const server::Root& root, const std::string& path) {
  constexpr size_t kLength = sizeof(uint64_t), kHead = kLength + sizeof(uint32_t);
  const auto info = root.Stat(path);
  if (!info.ok() || !S_ISREG(info->st_mode)) return false;
  const absl::StatusOr<std::string> head = server::ReadHead(root, path, kHead);
  if (!head.ok() || head->size() < kHead) return false;
  uint32_t crc;
  std::memcpy(&crc, head->data() + kLength, sizeof(crc));
  return server::MaskedCrc32c(absl::string_view(*head).substr(0, kLength)) == crc;
}

}  // namespace

bool IsTfrecord(const DatasetLocation& file) { return IsTfrecordAt(*file.root, file.path); }

std::vector<std::string> FindTfrecords(const DatasetLocation& folder) {
  const auto names = server::ListFolder(*folder.root, folder.path, /*builder=*/nullptr);
  if (!names.ok() || names->size() > kMostNames) return {};
  std::map<std::string, std::vector<std::string>> sets;
  for (const std::string& name : *names) {
    if (name[0] == '.' || name.find_first_of("*?[]{},") != std::string::npos) continue;
    const std::string pattern = PatternOf(name);
    if (sets.size() == kMostSets && sets.find(pattern) == sets.end()) continue;
    std::vector<std::string>& files = sets[pattern];
    if (files.size() < kMostFiles) files.push_back(name);
  }
  std::vector<std::string> found;
  for (const auto& [pattern, files] : sets) {
    const bool are_records = std::all_of(files.begin(), files.end(), [&](const auto& name) {
      return IsTfrecordAt(*folder.root, folder.Below(name));
    });
    if (are_records) found.push_back(pattern);
  }
  std::stable_partition(found.begin(), found.end(), [](const std::string& pattern) {
    return absl::StartsWithIgnoreCase(pattern, "train");
  });
  return found;
}

}  // namespace feedwater::cli
