#include "client/cli/format_maps.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/found_coco.h"
#include "client/cli/found_csv.h"
#include "client/cli/found_tfrecord.h"
#include "server/base/registry.h"
#include "server/base/yaml_word.h"

namespace feedwater::cli {
namespace {

// In the order in which they are taken.
constexpr absl::string_view kSplits[] = {"train", "training", "val",     "valid", "validation",
                                         "dev",   "test",     "testing", "eval"};

// "a/b", "c" of "a/b/c".
std::pair<std::string, std::string> SplitPath(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {"", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

bool IsFile(const server::DatasetLocation& data) {
  const auto info = data.root->Stat(data.path);
  return info.ok() && S_ISREG(info->st_mode);
}

bool IsFolder(const server::DatasetLocation& data, const std::string& name) {
  const auto info = data.root->Stat(data.Below(name));
  return info.ok() && S_ISDIR(info->st_mode);
}

}  // namespace

absl::StatusOr<server::DatasetLocation> DataPlace::Location() const {
  FW_ASSIGN_OR_RETURN(std::shared_ptr<const server::Root> folder, roots->FindNow(root));
  return server::DatasetLocation{std::move(folder), path};
}

DataPlace DataPlace::Below(const std::string& name) const {
  DataPlace below = *this;
  below.path = server::DatasetLocation::JoinPath(path, name);
  return below;
}

std::vector<FormatMap> MapsOf(const std::string& format, const DataPlace& place,
                              std::vector<Refusal>* refusals) {
  const auto text = server::YamlWord;
  const auto map = [&](absl::string_view path, absl::string_view more, bool is_split = false) {
    return FormatMap{
        absl::StrCat("{format: ", format, ", root: ", text(place.root),
                     path.empty() ? "" : absl::StrCat(", path: ", text(path)), more, "}"),
        is_split};
  };
  const absl::StatusOr<server::DatasetLocation> data = place.Location();
  if (!data.ok()) return {};
  std::vector<FormatMap> maps;
  if (format == "coco") {
    std::vector<std::string> why;
    for (const CocoFiles& files : FindCoco(*data, &why))
      maps.push_back(map(files.images, absl::StrCat(", annotations: ", text(files.annotations))));
    for (const std::string& reason : why)
      refusals->push_back({"coco", absl::InvalidArgumentError(reason)});
    return maps;
  }
  if (format == "mnist") {
    // Of a pair either file says which one it is.
    const auto [folder, name] = SplitPath(place.path);
    const bool is_test = absl::StartsWith(name, "t10k-");
    if (IsFile(*data) && (is_test || absl::StartsWith(name, "train-")))
      return {map(folder, is_test ? ", split: test" : "")};
    return {map(place.path, "", true), map(place.path, ", split: test", true)};
  }
  const auto& params = server::Registry<server::FormatEntry>::Get().Find(format)->params;
  if (std::any_of(params.begin(), params.end(), [](const auto& param) { return param.required; }))
    return {};  // nothing in the data says it
  if (format == "csv") {
    for (const std::string& more : FindCsvParams(*data)) maps.push_back(map(place.path, more));
    return maps;
  }
  maps.push_back(map(place.path, ""));
  if (format == "tfrecord") {
    for (const std::string& files : FindTfrecords(*data))
      maps.push_back(map(place.path, absl::StrCat(", files: [", text(files), "]"), true));
  }
  return maps;
}

bool BeginsWithSplit(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  return std::any_of(std::begin(kSplits), std::end(kSplits), [&](absl::string_view split) {
    return absl::StartsWith(lower, split) &&
           (lower.size() == split.size() ||
            !absl::ascii_isalpha(static_cast<unsigned char>(lower[split.size()])));
  });
}

std::vector<std::string> SplitFolders(const DataPlace& place) {
  const absl::StatusOr<server::DatasetLocation> data = place.Location();
  if (!data.ok()) return {};
  std::vector<std::string> splits;
  for (const absl::string_view split : kSplits) {
    std::string capital(split);
    capital[0] = absl::ascii_toupper(static_cast<unsigned char>(capital[0]));
    for (const std::string& name : {std::string(split), capital}) {
      if (IsFolder(*data, name)) splits.push_back(name);
    }
  }
  if (splits.size() != 1) return splits;
  // One alone may be a class among others.
  const auto names = server::ListFolder(*data->root, data->path, /*builder=*/nullptr);
  if (!names.ok()) return {};
  for (const std::string& name : *names) {
    if (name != splits[0] && name[0] != '.' && IsFolder(*data, name)) return {};
  }
  return splits;
}

}  // namespace feedwater::cli
