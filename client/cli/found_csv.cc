#include "client/cli/found_csv.h"

#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "server/source/csv_row.h"

namespace feedwater::cli {
namespace {

using server::CsvRow;
using server::DatasetLocation;

constexpr size_t kMostFiles = 8;            // that are looked into
constexpr size_t kLookedBytes = 256 << 10;  // of each

// Whether a line alone is no row by the rules of quoting: a value that begins with a quote goes on
// in the next line, or behind its closing quote.
bool HasStrayQuotes(const DatasetLocation& data, const std::string& path) {
  const auto head = server::ReadHead(*data.root, path, kLookedBytes);
  if (!head.ok()) return false;
  absl::string_view text = *head;
  CsvRow row('\t', /*has_quoting=*/true);
  for (size_t end = text.find('\n'); end != absl::string_view::npos; end = text.find('\n')) {
    const absl::string_view line = text.substr(0, end + 1);
    text.remove_prefix(end + 1);
    // The line alone: as a whole file it is bad where a quote is open at its end.
    if (absl::StrContains(line, '"') &&
        row.Parse(line, /*is_whole_file=*/true) == CsvRow::Outcome::kBad)
      return true;
  }
  return head->size() < kLookedBytes && absl::StrContains(text, '"') &&
         row.Parse(text, /*is_whole_file=*/true) == CsvRow::Outcome::kBad;
}

bool IsPlainTsv(absl::string_view name) { return absl::EndsWith(name, ".tsv"); }
bool IsTsv(absl::string_view name) {
  return IsPlainTsv(name) || absl::EndsWith(name, ".tsv.gz") || absl::EndsWith(name, ".tsv.zst");
}

}  // namespace

std::vector<std::string> FindCsvParams(const DatasetLocation& data) {
  const std::string tabs = ", delimiter: \"\\t\"", plain = tabs + ", quotes: false";
  const auto info = data.root->Stat(data.path);
  std::vector<std::string> files;
  if (info.ok() && S_ISDIR(info->st_mode)) {
    const auto names = server::ListFolder(*data.root, data.path, /*builder=*/nullptr);
    for (size_t i = 0; names.ok() && i < names->size(); ++i) {
      if (IsTsv((*names)[i]) && files.size() < kMostFiles) files.push_back(data.Below((*names)[i]));
    }
  } else if (IsTsv(data.path)) {
    files.push_back(data.path);
  }
  if (files.empty()) return {""};
  const bool has_stray_quotes = std::any_of(
      files.begin(), files.end(),
      [&](const std::string& path) { return IsPlainTsv(path) && HasStrayQuotes(data, path); });
  const bool is_file = info.ok() && !S_ISDIR(info->st_mode);
  std::vector<std::string> params = has_stray_quotes ? std::vector<std::string>{plain, tabs}
                                                     : std::vector<std::string>{tabs, plain};
  // A folder's .csv files are read with commas, and its .tsv files are then passed over.
  params.insert(is_file ? params.end() : params.begin(), "");
  return params;
}

}  // namespace feedwater::cli
