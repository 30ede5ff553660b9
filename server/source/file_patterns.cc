#include "server/source/file_patterns.h"

#include <fnmatch.h>
#include <linux/limits.h>

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/source/unpacking.h"

namespace feedwater::server {
namespace {

constexpr size_t kMaxFiles = 1'000'000;
constexpr size_t kMaxParts = 100;           // folders one below the other
constexpr size_t kMaxNameBytes = 64 << 20;  // of all names that a pattern stands for
constexpr int64_t kBytesOfAName = 64;       // beside the name itself

bool IsGlob(absl::string_view name) { return name.find_first_of("*?[") != absl::string_view::npos; }

absl::Status TooLong(absl::string_view name) {
  return absl::InvalidArgumentError(
      absl::StrCat("'files': '", Printable(name), "' is longer than a path can be"));
}

absl::Status TooMany(absl::string_view pattern) {
  return absl::InvalidArgumentError(absl::StrCat("'files': '", Printable(pattern),
                                                 "' stands for more than ", kMaxFiles, " names"));
}

// What one pair of braces stands for; empty when it is neither a range nor a list.
absl::StatusOr<std::vector<std::string>> Alternatives(absl::string_view inside,
                                                      absl::string_view pattern) {
  std::vector<std::string> words;
  const std::vector<absl::string_view> ends = absl::StrSplit(inside, "..");
  uint64_t first = 0, last = 0;
  if (ends.size() == 2 && absl::SimpleAtoi(ends[0], &first) && absl::SimpleAtoi(ends[1], &last)) {
    if (last < first || last - first >= kMaxFiles) {
      if (last >= first) return TooMany(pattern);
      return absl::InvalidArgumentError(
          absl::StrCat("'files': the range in '", Printable(pattern), "' ends before it begins"));
    }
    const bool padded = ends[0].size() > 1 && ends[0][0] == '0';
    for (uint64_t i = 0; i <= last - first; ++i) {
      words.push_back(padded ? absl::StrFormat("%0*d", static_cast<int>(ends[0].size()), first + i)
                             : absl::StrCat(first + i));
    }
    return words;
  }
  if (!absl::StrContains(inside, ',')) return words;
  for (absl::string_view word : absl::StrSplit(inside, ',')) words.emplace_back(word);
  return words;
}

// Paths that patterns have looked for names in, and whether each is a folder.
using LookedAt = absl::flat_hash_map<std::string, bool>;

// Adds the paths below `folder` (below the root) that match the rest of a pattern. `by_glob`: they
// need not all be there.
absl::Status Match(const DatasetLocation& location, std::string folder,
                   absl::Span<const absl::string_view> rest, bool by_glob, IndexBuilder* builder,
                   LookedAt* looked_at, std::vector<std::string>* found) {
  while (!rest.empty() && !IsGlob(rest[0])) {
    folder = DatasetLocation::JoinPath(folder, rest[0]);
    rest.remove_prefix(1);
  }
  if (rest.empty()) {
    if (by_glob) {
      const absl::StatusOr<struct stat> info = location.root->Stat(folder);
      if (absl::IsNotFound(info.status())) {
        builder->stamps.push_back(Stamp{folder});  // shows when it comes
        return absl::OkStatus();
      }
      if (!info.ok()) return info.status();
    }
    FW_RETURN_IF_ERROR(builder->Take(kBytesOfAName + static_cast<int64_t>(folder.size())));
    found->push_back(std::move(folder));
    return found->size() > kMaxFiles ? TooMany("*") : absl::OkStatus();
  }
  const std::string part(rest[0]);
  const auto [looked, is_new] = looked_at->try_emplace(folder, false);
  if (is_new) {
    const absl::StatusOr<struct stat> info = builder->DependOn(*location.root, folder);
    if (absl::IsNotFound(info.status()) && folder != location.path) return absl::OkStatus();
    if (!info.ok()) return info.status();
    looked->second = S_ISDIR(info->st_mode);
  }
  if (!looked->second) return absl::OkStatus();
  FW_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ListFolder(*location.root, folder, builder));
  for (const std::string& name : names) {
    if (fnmatch(part.c_str(), name.c_str(), FNM_PERIOD | FNM_NOESCAPE) != 0) continue;
    FW_RETURN_IF_ERROR(Match(location, DatasetLocation::JoinPath(folder, name), rest.subspan(1),
                             /*by_glob=*/true, builder, looked_at, found));
    FW_RETURN_IF_ERROR(builder->Progress(static_cast<int64_t>(found->size()), 0));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> MatchPattern(const DatasetLocation& location,
                                                      const std::string& pattern,
                                                      IndexBuilder* builder, LookedAt* looked_at) {
  std::vector<std::string> all;
  FW_ASSIGN_OR_RETURN(const std::vector<std::string> names, ExpandBraces(pattern));
  for (const std::string& name : names) {
    const std::vector<absl::string_view> parts = absl::StrSplit(name, '/', absl::SkipEmpty());
    if (parts.size() > kMaxParts) return TooLong(name);
    if (std::find(parts.begin(), parts.end(), "**") != parts.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'files': '", Printable(pattern), "': '**' is not known; name each level: */*.tar"));
    }
    std::vector<std::string> found;
    FW_RETURN_IF_ERROR(
        Match(location, location.path, parts, /*by_glob=*/false, builder, looked_at, &found));
    // Of several names each has to be there, or a share would be left out unseen.
    if (found.empty()) {
      return absl::NotFoundError(absl::StrCat("'files': no file of ", location.Describe(),
                                              " matches '", Printable(name), "'"));
    }
    std::sort(found.begin(), found.end());
    all.insert(all.end(), found.begin(), found.end());
    if (all.size() > kMaxFiles) return TooMany(pattern);
  }
  return all;
}

// Adds a file, unless it is a folder that a glob happened to match.
absl::Status AddFile(const DatasetLocation& location, std::string path, bool by_glob,
                     IndexBuilder* builder, std::vector<FoundFile>* files) {
  FW_ASSIGN_OR_RETURN(const struct stat info, builder->DependOn(*location.root, path));
  if (!S_ISREG(info.st_mode)) {
    builder->stamps.pop_back();
    if (by_glob) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(location.root->Describe(path), " is no regular file"));
  }
  FW_RETURN_IF_ERROR(builder->Take(static_cast<int64_t>(2 * (sizeof(Stamp) + path.size()))));
  FoundFile file;
  file.bytes = static_cast<int64_t>(info.st_size);
  if (std::string unpacked; IsPackedName(path, &unpacked)) {
    FW_ASSIGN_OR_RETURN(StagedFolder::File staged, builder->Unpack(*location.root, path));
    file = file.Unpacked(std::move(staged), *builder->staged());
  }
  file.path = std::move(path);
  files->push_back(std::move(file));
  return builder->Progress(0, 0);
}

// A file and the same one unpacked would give every record twice.
absl::Status RefuseTwins(const DatasetLocation& location, const std::vector<FoundFile>& files) {
  absl::flat_hash_set<absl::string_view> paths;
  for (const FoundFile& file : files) paths.insert(file.path);
  for (const FoundFile& file : files) {
    std::string unpacked;
    if (!IsPackedName(file.path, &unpacked) || !paths.contains(unpacked)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(location.root->Describe(file.path), " stands beside ", Printable(unpacked),
                     ", which it unpacks to; cure: name one of them with 'files'"));
  }
  return absl::OkStatus();
}

// "train.tfrecord-00003-of-00010" is part 3 of 10 of "train.tfrecord", and so is
// "train-00003-of-00010.parquet" of "train" where `suffixes` has its end.
struct PartName {
  absl::string_view set;  // the whole name, where it is no part
  uint64_t number = 0, count = 0;
};
PartName ParsePartName(absl::string_view name, absl::Span<const absl::string_view> suffixes = {}) {
  for (const absl::string_view suffix : suffixes) {
    if (absl::ConsumeSuffix(&name, suffix)) break;
  }
  const auto is_number = [](absl::string_view text, uint64_t* number) {
    return std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
           absl::SimpleAtoi(text, number);
  };
  PartName part;
  const size_t of = name.rfind("-of-");
  const size_t dash = of == absl::string_view::npos || of == 0 ? of : name.rfind('-', of - 1);
  if (dash != absl::string_view::npos &&
      is_number(name.substr(dash + 1, of - dash - 1), &part.number) &&
      is_number(name.substr(of + 4), &part.count)) {
    part.set = name.substr(0, dash);
    return part;
  }
  return {name};
}

bool HasSuffix(absl::string_view name, absl::Span<const absl::string_view> suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(),
                     [&](absl::string_view suffix) { return absl::EndsWith(name, suffix); });
}
std::string SuffixText(absl::Span<const absl::string_view> suffixes) {
  return absl::StrCat("*", absl::StrJoin(suffixes, " or *"));
}

}  // namespace

FoundFile FoundFile::Unpacked(StagedFolder::File file, const StagedFolder& folder) const {
  FoundFile unpacked = *this;
  unpacked.bytes = file.bytes;
  unpacked.staged = folder.root();
  unpacked.staged_name = std::move(file.name);
  return unpacked;
}

absl::StatusOr<std::vector<std::string>> ExpandBraces(absl::string_view pattern) {
  if (pattern.size() > PATH_MAX) return TooLong(pattern);
  std::vector<std::string> names = {""};
  absl::string_view rest = pattern;
  while (!rest.empty()) {
    const size_t open = rest.find('{');
    const size_t close = open == absl::string_view::npos ? open : rest.find('}', open);
    std::vector<std::string> words;
    absl::string_view before = rest;
    if (close == absl::string_view::npos) {
      rest = "";
    } else {
      before = rest.substr(0, open);
      FW_ASSIGN_OR_RETURN(words, Alternatives(rest.substr(open + 1, close - open - 1), pattern));
      if (words.empty()) {  // braces that are part of the name
        words.emplace_back(rest.substr(open, close - open + 1));
      }
      rest = rest.substr(close + 1);
    }
    if (words.empty()) words.emplace_back();
    size_t most = 0;
    for (const std::string& word : words) most = std::max(most, word.size());
    if (names.size() > kMaxFiles / words.size() ||
        names.size() * words.size() > kMaxNameBytes / (names[0].size() + before.size() + most + 1))
      return TooMany(pattern);
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& word : words) {
        longer.push_back(absl::StrCat(name, before, word));
        if (longer.back().size() > PATH_MAX) return TooLong(longer.back());
      }
    }
    names = std::move(longer);
  }
  return names;
}

absl::StatusOr<std::vector<FoundFile>> FindFiles(const DatasetLocation& location,
                                                 const std::vector<std::string>& patterns,
                                                 absl::Span<const absl::string_view> suffixes,
                                                 IndexBuilder* builder) {
  const NameRule fits = [&](const std::string& name, const std::vector<std::string>&) {
    return HasSuffix(name, suffixes);
  };
  return FindFiles(location, patterns, fits, SuffixText(suffixes), builder);
}

absl::StatusOr<std::vector<FoundFile>> FindParts(const DatasetLocation& location,
                                                 const std::vector<std::string>& patterns,
                                                 absl::Span<const absl::string_view> suffixes,
                                                 IndexBuilder* builder,
                                                 bool numbers_before_suffix) {
  const NameRule fits = [&](const std::string& name, const std::vector<std::string>&) {
    return HasSuffix(numbers_before_suffix ? name : ParsePartName(name).set, suffixes);
  };
  const absl::Span<const absl::string_view> ends =
      numbers_before_suffix ? suffixes : absl::Span<const absl::string_view>();
  FW_ASSIGN_OR_RETURN(std::vector<FoundFile> files,
                      FindFiles(location, patterns, fits, SuffixText(suffixes), builder));
  if (!patterns.empty() || files[0].path == location.path) return files;
  const auto name_of = [](const FoundFile& file) {
    std::string name = file.path.substr(file.path.rfind('/') + 1);
    IsPackedName(file.path.substr(file.path.rfind('/') + 1), &name);
    return name;
  };
  std::string set;
  uint64_t count = 0;
  std::string other;  // a file that is no part
  absl::flat_hash_set<uint64_t> numbers;
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(
        location.Describe(), " holds ", why,
        "; cure: name those that are to be read with 'files', as [\"", Printable(set), "-*\"]"));
  };
  for (const FoundFile& file : files) {
    const std::string name = name_of(file);
    const PartName part = ParsePartName(name, ends);
    if (part.count == 0) {
      other = name;
      continue;
    }
    if (numbers.empty()) {
      set = std::string(part.set);
      count = part.count;
    } else if (part.set != set || part.count != count) {
      return refuse(absl::StrCat("several sets of files, such as '", Printable(set), "-*-of-",
                                 count, "' and '", Printable(part.set), "-*-of-", part.count, "'"));
    }
    if (part.number >= part.count) {
      return refuse(absl::StrCat("'", Printable(name), "', whose number is none of ", part.count));
    }
    if (!numbers.insert(part.number).second) {
      return refuse(absl::StrCat("part ", part.number, " of '", Printable(set), "' twice, as '",
                                 Printable(name), "' and under another name"));
    }
  }
  if (count > 0 && !other.empty()) {
    return refuse(absl::StrCat("'", Printable(other), "' beside the parts of '", Printable(set),
                               "', which may be the same records or others"));
  }
  for (uint64_t number = 0; number < count; ++number) {
    if (numbers.contains(number)) continue;
    return absl::NotFoundError(absl::StrCat(
        location.Describe(), " lacks part ", number, " of ", count, " of '", Printable(set),
        "-*'; cure: copy it, or name the files that are to be read with 'files'"));
  }
  return files;
}

absl::StatusOr<std::vector<FoundFile>> FindFiles(const DatasetLocation& location,
                                                 const std::vector<std::string>& patterns,
                                                 const NameRule& fits, absl::string_view what,
                                                 IndexBuilder* builder) {
  std::vector<FoundFile> files;
  FW_ASSIGN_OR_RETURN(const struct stat info, location.root->Stat(location.path));
  if (!S_ISDIR(info.st_mode)) {
    if (!patterns.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(location.Describe(), " is a file, and 'files' are below a folder"));
    }
    FW_RETURN_IF_ERROR(AddFile(location, location.path, /*by_glob=*/false, builder, &files));
    return files;
  }
  if (patterns.empty()) {
    FW_RETURN_IF_ERROR(builder->DependOn(*location.root, location.path).status());
    FW_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                        ListFolder(*location.root, location.path, builder));
    for (const std::string& name : names) {
      std::string unpacked = name;
      IsPackedName(name, &unpacked);
      if (name[0] == '.' || !fits(unpacked, names)) continue;
      FW_RETURN_IF_ERROR(
          AddFile(location, location.Below(name), /*by_glob=*/true, builder, &files));
    }
    FW_RETURN_IF_ERROR(RefuseTwins(location, files));
    if (files.empty()) {
      return absl::NotFoundError(absl::StrCat(location.Describe(), " holds no file ", what,
                                              "; cure: name them with 'files'"));
    }
    return files;
  }
  LookedAt looked_at;
  absl::flat_hash_set<std::string> seen;
  for (const std::string& pattern : patterns) {
    FW_ASSIGN_OR_RETURN(std::vector<std::string> paths,
                        MatchPattern(location, pattern, builder, &looked_at));
    for (std::string& path : paths) {
      const size_t before = files.size();
      FW_RETURN_IF_ERROR(AddFile(location, std::move(path), IsGlob(pattern), builder, &files));
      if (files.size() > before && !seen.insert(files.back().path).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("'files' names ", location.root->Describe(files.back().path),
                         " twice, the second time by '", Printable(pattern), "'"));
      }
    }
  }
  FW_RETURN_IF_ERROR(RefuseTwins(location, files));
  if (files.empty())
    return absl::NotFoundError(absl::StrCat("'files' of ", location.Describe(), " are folders"));
  return files;
}

std::string NameInDataset(const DatasetLocation& location, const std::string& path) {
  if (path == location.path) return path.substr(path.rfind('/') + 1);
  if (location.path.empty()) return path;
  return path.substr(location.path.size() + 1);
}

}  // namespace feedwater::server
