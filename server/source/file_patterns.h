// `files:` of a dataset: names, globs (*.tar) and brace ranges (train-{000000..000146}.tar) below
// its path.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/base/status.h"
#include "server/source/format.h"
#include "server/source/staging.h"

namespace feedwater::server {

struct FoundFile {
  std::string path;  // below the root
  int64_t bytes = 0;
  // Where it lies unpacked, and has `bytes`: below this root, by this name. Null: it lies below the
  // dataset's own root.
  std::shared_ptr<const Root> staged;
  std::string staged_name;

  // The same file, unpacked into `folder`.
  FoundFile Unpacked(StagedFolder::File file, const StagedFolder& folder) const;
  const Root& RootIn(const DatasetLocation& location) const {
    return staged != nullptr ? *staged : *location.root;
  }
  const std::string& path_to_read() const { return staged != nullptr ? staged_name : path; }
};

// The names that a pattern's braces stand for: {a,b} and {000..146}, which keeps its zeros.
absl::StatusOr<std::vector<std::string>> ExpandBraces(absl::string_view pattern);

// The files in order: the patterns' in theirs, each pattern's matches sorted by bytes. Without
// patterns: the dataset's path where that is a file, else all files of its folder that end with one
// of `suffixes` and are not hidden. Those that are compressed as a whole (.gz, .zst, .tgz) are
// found by what they unpack to, and are unpacked. The index depends on the folders that were listed
// and on every file. NotFound that names the pattern without a match; InvalidArgument for a file
// that is named twice.
absl::StatusOr<std::vector<FoundFile>> FindFiles(const DatasetLocation& location,
                                                 const std::vector<std::string>& patterns,
                                                 absl::Span<const absl::string_view> suffixes,
                                                 IndexBuilder* builder);

// The same for files whose names share no suffix: `fits` says of a name, unpacked, whether it is
// one of the dataset's files, and gets all names of the folder, sorted. `what` names them in
// messages.
using NameRule =
    std::function<bool(const std::string& name, const std::vector<std::string>& names)>;
absl::StatusOr<std::vector<FoundFile>> FindFiles(const DatasetLocation& location,
                                                 const std::vector<std::string>& patterns,
                                                 const NameRule& fits, absl::string_view what,
                                                 IndexBuilder* builder);

// The same for files that writers number: "train.tfrecord-00003-of-00010" ends with ".tfrecord" and
// is a part of a set. Without patterns the folder may hold one such set, as "train" and "test" in
// one order are nobody's wish, and all of it: InvalidArgument and NotFound otherwise.
// `numbers_before_suffix`: they are named "train-00003-of-00010.parquet".
absl::StatusOr<std::vector<FoundFile>> FindParts(const DatasetLocation& location,
                                                 const std::vector<std::string>& patterns,
                                                 absl::Span<const absl::string_view> suffixes,
                                                 IndexBuilder* builder,
                                                 bool numbers_before_suffix = false);

// "train-0.tar" of "data/train-0.tar": a file's name as digests know it, below the dataset's path.
std::string NameInDataset(const DatasetLocation& location, const std::string& path);

}  // namespace feedwater::server
