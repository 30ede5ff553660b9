// The `dataset:` maps by which data of which nothing else is known might be read: those of one
// format, and where the data lies a folder further down.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/source/format.h"

namespace feedwater::cli {

// Where the data lies: below a declared root, or in a root that its own path names.
struct DataPlace {
  std::shared_ptr<const server::Roots> roots;
  std::string root, path;
  std::string hint;  // where other daemons need more than the map says

  // Of its root and path, as a format gets them. An error where the root cannot be opened.
  absl::StatusOr<server::DatasetLocation> Location() const;
  DataPlace Below(const std::string& name) const;
};

// Why one format does not read the data.
struct Refusal {
  std::string format;
  absl::Status why;
};

struct FormatMap {
  std::string text;       // "{format: csv, root: data}"
  bool is_split = false;  // one of several that hold different records
};
// The maps of a format, of which the first that can be opened is to be taken: none where the data
// says too little. `refusals` receives why data that seemed to be the format's is not.
std::vector<FormatMap> MapsOf(const std::string& format, const DataPlace& place,
                              std::vector<Refusal>* refusals);

// The folders of a dataset's parts, such as `train` and `val`, where a folder holds these and no
// records of its own, as it seems: the one to train with first.
std::vector<std::string> SplitFolders(const DataPlace& place);

// Whether a name is that of a part, such as "train", "train-3.bin" or "Val".
bool BeginsWithSplit(absl::string_view name);

}  // namespace feedwater::cli
