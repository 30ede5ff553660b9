#include "client/cli/unread_data.h"

#include <sys/stat.h>

#include <algorithm>
#include <deque>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/cli/found_tfrecord.h"
#include "client/cli/interrupt.h"
#include "server/base/escape.h"
#include "server/source/class_scan.h"

namespace feedwater::cli {
namespace {

constexpr int kMostDepth = 8, kMostFolders = 200, kMostNames = 5000;  // that are looked at
constexpr size_t kMostTold = 5;
constexpr absl::string_view kImages = "images";

// torchvision's downloads of CIFAR, as if a format read them.
struct PickledCifar {
  absl::string_view name;                   // among formats
  absl::string_view archive, folder, file;  // the download, what it unpacks to, a file of its own
  absl::string_view binary, binary_folder;
};
constexpr PickledCifar kPickled[] = {
    {"CIFAR-10 as pickles", "cifar-10-python.tar.gz", "cifar-10-batches-py", "batches.meta",
     "cifar-10-binary.tar.gz", "cifar-10-batches-bin"},
    {"CIFAR-100 as pickles", "cifar-100-python.tar.gz", "cifar-100-python", "file.txt~",
     "cifar-100-binary.tar.gz", "cifar-100-binary"}};

absl::string_view LastName(absl::string_view path) {
  return path.substr(path.rfind('/') == absl::string_view::npos ? 0 : path.rfind('/') + 1);
}

struct UsualSuffix {
  absl::string_view suffix;
  std::vector<std::string> formats;
};
const std::vector<UsualSuffix>& UsualSuffixes() {
  static const auto* suffixes = new std::vector<UsualSuffix>{{".tar", {"webdataset"}},
                                                             {".tgz", {"webdataset"}},
                                                             {".tfrecord", {"tfrecord"}},
                                                             {".tfrecords", {"tfrecord"}},
                                                             {".record", {"tfrecord"}},
                                                             {".array_record", {"array_record"}},
                                                             {".mindrecord", {"mindrecord"}},
                                                             {".parquet", {"parquet"}},
                                                             {".parq", {"parquet"}},
                                                             {".pq", {"parquet"}},
                                                             {".arrow", {"arrow"}},
                                                             {".arrows", {"arrow"}},
                                                             {".ipc", {"arrow"}},
                                                             {".feather", {"arrow"}},
                                                             {".csv", {"csv"}},
                                                             {".tsv", {"csv"}},
                                                             {".jsonl", {"jsonl"}},
                                                             {".ndjson", {"jsonl"}},
                                                             {".json", {"coco", "jsonl"}},
                                                             {".mdb", {"lmdb"}},
                                                             {".lmdb", {"lmdb"}},
                                                             {".mds", {"mds"}},
                                                             {".npy", {"npy"}},
                                                             {".npz", {"npy"}},
                                                             {"-ubyte", {"mnist"}},
                                                             {".bin", {"cifar10", "cifar100"}}};
  return *suffixes;
}

// Without what says that it is compressed as a whole, and without numbers of shards:
// "a.tfrecord-00000-of-00010", "a.mindrecord3".
absl::string_view WithoutPacking(absl::string_view name) {
  for (const absl::string_view packed : {".gz", ".zst"}) {
    if (absl::EndsWith(name, packed)) name.remove_suffix(packed.size());
  }
  const size_t dot = name.rfind('.');
  if (dot == absl::string_view::npos) return name;
  const size_t number = name.find_first_of("-0123456789", dot);
  const bool is_numbered =
      number != absl::string_view::npos && number > dot + 1 &&
      name.substr(number).find_first_not_of("-0123456789of") == absl::string_view::npos;
  return is_numbered ? name.substr(0, number) : name;
}

bool IsImage(absl::string_view name) {
  return absl::c_any_of(server::kImageExtensions, [&](const char* extension) {
    return absl::EndsWithIgnoreCase(name, extension);
  });
}

struct FolderBelow {
  std::string path;  // below the data
  std::vector<std::string> formats;
};

// What a file in a folder of unknown data says; of more general names nothing.
std::vector<std::string> ToldBy(const std::string& name) {
  for (const PickledCifar& cifar : kPickled) {
    if (name == cifar.archive || name == cifar.file) return {std::string(cifar.name)};
  }
  if (IsImage(name)) return {std::string(kImages)};
  if (absl::EndsWithIgnoreCase(name, ".json")) return {};
  if (absl::EndsWithIgnoreCase(name, ".bin"))
    return absl::StartsWith(name, "data_batch") ? std::vector<std::string>{"cifar10"}
                                                : std::vector<std::string>();
  return UsualFormats(name);
}

// The folders, the data's own among them, with what they seem to hold. The nearest first.
std::vector<FolderBelow> LookBelow(const server::DatasetLocation& data) {
  std::vector<FolderBelow> found;
  std::deque<std::pair<std::string, int>> waiting = {{"", 0}};
  int folders = 0, names_left = kMostNames;
  while (!waiting.empty() && folders++ < kMostFolders && !Interrupted()) {
    const auto [path, depth] = waiting.front();
    waiting.pop_front();
    const auto names = server::ListFolder(*data.root, data.Below(path), /*builder=*/nullptr);
    if (!names.ok()) continue;
    FolderBelow folder{path, {}};
    for (const PickledCifar& cifar : kPickled) {
      const std::string whole = absl::StrCat(data.root->path(), "/", data.Below(path));
      if (LastName(absl::StripSuffix(whole, "/")) == cifar.folder)
        folder.formats.emplace_back(cifar.name);
    }
    for (const std::string& name : *names) {
      if (name[0] == '.' || names_left-- <= 0) continue;
      const std::string below = server::DatasetLocation::JoinPath(path, name);
      const auto info = data.root->Stat(data.Below(below));
      if (!info.ok()) continue;
      if (S_ISDIR(info->st_mode) && depth < kMostDepth) waiting.emplace_back(below, depth + 1);
      if (!S_ISREG(info->st_mode)) continue;
      for (const std::string& format : ToldBy(name)) {
        if (!absl::c_linear_search(folder.formats, format)) folder.formats.push_back(format);
      }
    }
    if (folder.formats.empty() && !FindTfrecords({data.root, data.Below(path)}).empty())
      folder.formats.push_back("tfrecord");
    if (!folder.formats.empty()) found.push_back(std::move(folder));
  }
  return found;
}

bool Holds(const FolderBelow& folder, absl::string_view format) {
  return absl::c_linear_search(folder.formats, format);
}

// "; below it: 'a' (tfrecord), 'b' (csv)". Empty where nothing but images and pickles is there.
std::string BelowText(const std::vector<FolderBelow>& folders) {
  std::vector<std::string> told;
  for (const FolderBelow& folder : folders) {
    std::vector<std::string> formats = folder.formats;
    for (const PickledCifar& cifar : kPickled) std::erase(formats, cifar.name);
    if (formats.size() > 1) std::erase(formats, kImages);  // that belong to the others' files
    if (folder.path.empty() || formats.empty() || formats[0] == kImages) continue;
    told.push_back(absl::StrCat("'", server::Printable(folder.path), "' (",
                                absl::StrJoin(formats, ", "), ")"));
  }
  if (told.empty()) return "";
  const size_t more = told.size() - std::min(told.size(), kMostTold);
  told.resize(told.size() - more);
  return absl::StrCat("; below it: ", absl::StrJoin(told, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "",
                      "; cure: name one of these folders");
}

std::string PicklesText(const std::string& name, const PickledCifar& cifar) {
  return absl::StrCat("\n  '", server::Printable(name), "' holds ", cifar.name,
                      " of Python, which no format reads; cure: unpack the binary version (",
                      cifar.binary, ") and point `path` at its folder ", cifar.binary_folder);
}

// What was unpacked is told rather than its archive, which is nearer.
std::string PicklesText(const std::string& name, const std::vector<FolderBelow>& folders) {
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) {
    for (const PickledCifar& cifar : kPickled) {
      if (Holds(*folder, cifar.name))
        return PicklesText(folder->path.empty() ? name : folder->path, cifar);
    }
  }
  return "";
}

// The same of a file.
std::string PicklesText(const std::string& path) {
  const absl::string_view file = LastName(path);
  const absl::string_view folder = LastName(
      absl::string_view(path).substr(0, path.size() - std::min(path.size(), file.size() + 1)));
  for (const PickledCifar& cifar : kPickled) {
    const bool is_unpacked =
        folder == cifar.folder && (file == cifar.file || file.find('.') == absl::string_view::npos);
    if (file == cifar.archive || is_unpacked) return PicklesText(path, cifar);
  }
  return "";
}

bool ReadsFoldersOfImages(const std::string& format) {
  return format == "image_folder" || format == kImages;
}

constexpr absl::string_view kNeedParameters =
    "\nFormats that need parameters: raw (record_bytes), tokens (length); `feedwater describe "
    "format` lists all";

}  // namespace

std::vector<std::string> UsualFormats(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  const absl::string_view unpacked = WithoutPacking(lower);
  for (const UsualSuffix& usual : UsualSuffixes()) {
    if (absl::EndsWith(unpacked, usual.suffix)) return usual.formats;
  }
  return {};
}

bool IsPickledCifar(const server::DatasetLocation& file) {
  const auto info = file.root->Stat(file.path);
  return info.ok() && S_ISREG(info->st_mode) &&
         !PicklesText(server::DatasetLocation::JoinPath(file.root->path(), file.path)).empty();
}

bool HoldsPickledCifar(const server::DatasetLocation& folder) {
  const auto names = server::ListFolder(*folder.root, folder.path, /*builder=*/nullptr);
  return names.ok() && absl::c_any_of(*names, [](const std::string& name) {
           return absl::c_any_of(kPickled,
                                 [&](const PickledCifar& cifar) { return name == cifar.archive; });
         });
}

std::string WhyUnread(const std::string& name, const DataPlace& place,
                      const std::vector<Refusal>& refusals) {
  const absl::StatusOr<server::DatasetLocation> data = place.Location();
  const bool is_folder = [&] {
    if (!data.ok()) return false;
    const auto info = data->root->Stat(data->path);
    return info.ok() && S_ISDIR(info->st_mode);
  }();
  const std::vector<FolderBelow> folders =
      is_folder ? LookBelow(*data) : std::vector<FolderBelow>();
  const std::string below = BelowText(folders);
  const std::string pickles =
      is_folder   ? PicklesText(name, folders)
      : data.ok() ? PicklesText(server::DatasetLocation::JoinPath(data->root->path(), data->path))
                  : "";
  const bool has_images =
      absl::c_any_of(folders, [](const FolderBelow& folder) { return Holds(folder, kImages); });
  const std::vector<std::string> usual = UsualFormats(LastName(name));
  // Where a single format was tried, the bytes say that they are its own.
  const bool is_known = absl::c_all_of(
      refusals, [&](const Refusal& refusal) { return refusal.format == refusals.front().format; });
  std::vector<std::string> reasons;
  for (const Refusal& refusal : refusals) {
    const bool is_of_all = absl::IsPermissionDenied(refusal.why);  // whoever looks at it
    if (!is_of_all) {
      const bool is_meant = is_folder ? !ReadsFoldersOfImages(refusal.format) || has_images ||
                                            (below.empty() && pickles.empty())
                                      : is_known || absl::c_linear_search(usual, refusal.format);
      if (!is_meant) continue;
    }
    const std::string reason = absl::StrCat(
        "  ", is_of_all ? "" : absl::StrCat(refusal.format, ": "), refusal.why.message());
    if (!absl::c_linear_search(reasons, reason)) reasons.push_back(reason);
  }
  std::string text =
      absl::StrCat("no format reads '", server::Printable(name), "' as it is", below);
  if (!reasons.empty()) absl::StrAppend(&text, ":\n", absl::StrJoin(reasons, "\n"));
  if (!is_folder && reasons.empty() && pickles.empty()) {
    absl::StrAppend(&text,
                    ": no format's files are usually called so, and none knows its first bytes");
  }
  return absl::StrCat(text, pickles, kNeedParameters);
}

}  // namespace feedwater::cli
