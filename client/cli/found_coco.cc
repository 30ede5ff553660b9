#include "client/cli/found_coco.h"

#include <sys/stat.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/source/coco_annotations.h"
#include "server/source/file_stream.h"

namespace feedwater::cli {
namespace {

using server::DatasetLocation;

constexpr size_t kMostFiles = 16, kMostFolders = 64;
constexpr size_t kMostNames = 1000;               // of a folder
constexpr int64_t kMostBytes = int64_t{1} << 30;  // of a file; COCO's own largest have 470 MB
constexpr int kMostDepth = 2;                     // of a folder of images

// The first names of a folder; none where it cannot be listed.
std::vector<std::string> NamesIn(const server::Root& root, const std::string& folder) {
  std::vector<std::string> names =
      server::ListFolder(root, folder, /*builder=*/nullptr).value_or(std::vector<std::string>());
  if (names.size() > kMostNames) names.resize(kMostNames);
  return names;
}

// A JSON file of a size that is looked into.
std::optional<server::FoundFile> JsonFile(const server::Root& root, const std::string& path) {
  if (!absl::EndsWithIgnoreCase(path, ".json")) return std::nullopt;
  const auto info = root.Stat(path);
  if (!info.ok() || !S_ISREG(info->st_mode) || info->st_size > kMostBytes) return std::nullopt;
  server::FoundFile file;
  file.path = path;
  file.bytes = info->st_size;
  return file;
}

std::vector<server::FoundFile> JsonFiles(const DatasetLocation& folder) {
  std::vector<server::FoundFile> files;
  for (const std::string& in : {folder.path, folder.Below("annotations")}) {
    for (const std::string& name : NamesIn(*folder.root, in)) {
      if (auto file = JsonFile(*folder.root, DatasetLocation::JoinPath(in, name)))
        files.push_back(*std::move(file));
    }
  }
  std::stable_partition(files.begin(), files.end(), [](const server::FoundFile& file) {
    return absl::StrContains(file.path, "instances");
  });
  if (files.size() > kMostFiles) files.resize(kMostFiles);
  return files;
}

DatasetLocation Above(const DatasetLocation& below) {
  const size_t slash = below.path.rfind('/');
  return {below.root, slash == std::string::npos ? "" : below.path.substr(0, slash)};
}

// The name of the first image. InvalidArgument where the file is none of instances.
absl::StatusOr<std::string> FirstImage(const DatasetLocation& folder,
                                       const server::FoundFile& file) {
  server::IndexBuilder builder({}, "");
  std::vector<char> buffer;
  FW_ASSIGN_OR_RETURN(server::FileStream stream,
                      server::FileStream::Open(folder, file, &buffer, &builder));
  FW_ASSIGN_OR_RETURN(const server::CocoAnnotations found,
                      server::ReadCocoAnnotations(&stream, &builder));
  if (found.images.empty())
    return absl::InvalidArgumentError(absl::StrCat(stream.what(), " has no images"));
  return found.images[0].file_name;
}

// The folder itself, or one below it, that holds the image.
std::optional<std::string> FolderOf(const DatasetLocation& folder, const std::string& image) {
  std::deque<std::pair<std::string, int>> folders = {{folder.path, 0}};
  for (size_t looks = 0; looks < kMostFolders && !folders.empty(); ++looks) {
    const auto [in, depth] = std::move(folders.front());
    folders.pop_front();
    const auto found = folder.root->Stat(DatasetLocation::JoinPath(in, image));
    if (found.ok() && S_ISREG(found->st_mode)) return in;
    if (depth == kMostDepth) continue;
    for (const std::string& name : NamesIn(*folder.root, in)) {
      std::string below = DatasetLocation::JoinPath(in, name);
      const auto info = folder.root->Stat(below);
      if (info.ok() && S_ISDIR(info->st_mode)) folders.emplace_back(std::move(below), depth + 1);
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<CocoFiles> FindCoco(const DatasetLocation& data, std::vector<std::string>* reasons) {
  std::vector<CocoFiles> all;
  std::vector<DatasetLocation> within = {data};
  std::vector<server::FoundFile> files;
  if (std::optional<server::FoundFile> file = JsonFile(*data.root, data.path)) {
    files.push_back(*std::move(file));
    within = {Above(data)};
    if (!within[0].path.empty()) within.push_back(Above(within[0]));
  } else {
    files = JsonFiles(data);
  }
  for (const server::FoundFile& file : files) {
    const absl::StatusOr<std::string> image = FirstImage(data, file);
    if (!image.ok()) {
      reasons->emplace_back(image.status().message());
      continue;
    }
    std::optional<std::string> images;
    for (const DatasetLocation& folder : within) {
      if (!images.has_value()) images = FolderOf(folder, *image);
    }
    if (images.has_value()) {
      all.push_back({file.path, *std::move(images)});
    } else {
      reasons->push_back(absl::StrCat(data.root->Describe(file.path), " names the image '",
                                      server::Printable(*image), "', which lies in no folder of ",
                                      within.back().Describe()));
    }
  }
  return all;
}

}  // namespace feedwater::cli
