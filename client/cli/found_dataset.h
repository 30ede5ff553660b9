// The dataset that a command was asked about: a pipeline's, or data of which nothing else is known
// and whose format is found out.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/command.h"
#include "client/cli/local_pipeline.h"
#include "server/source/dataset.h"
#include "server/source/staging.h"

namespace feedwater::cli {

struct DatasetQuestion {
  std::string name;    // a pipeline's name or .yaml file; a folder or file of data
  std::string config;  // the daemon's configuration; may be empty
  bool guess = false;  // `name` is data, and its format is to be found out
};

// What formats unpack of data that is only looked at, removed with the last look; after Ctrl-C,
// too, which ends the look at hand.
class UnpackedForALook {
 public:
  UnpackedForALook();
  ~UnpackedForALook();
  UnpackedForALook(const UnpackedForALook&) = delete;
  const std::shared_ptr<server::StagingArea>& staging() const { return staging_; }

 private:
  std::string folder_;
  std::shared_ptr<server::StagingArea> staging_;
};

struct FoundDataset {
  std::shared_ptr<const UnpackedForALook> unpacked;  // outlives the dataset; may be null
  std::string section;                               // `dataset:` to be copied, with a line's end
  std::string root_hint;                             // where the root still has to be declared
  std::shared_ptr<const server::Dataset> dataset;
  std::vector<std::string> others;  // formats that read it, too
  // Sections of other records that lie with it: of its folder `val`, of MNIST's test files.
  std::vector<std::string> other_parts;
  std::optional<LocalPipeline> pipeline;  // nothing where data was named
};
// Folders, and files that are no .yaml, are data. InvalidArgument where no format reads them, with
// what the nearest ones say.
absl::StatusOr<FoundDataset> FindDataset(const Context& context, const DatasetQuestion& question);

// A record as it is read without an engine. The views of `record` are into `parts`.
struct StoredRecord {
  std::vector<std::string> parts;  // bytes of its extents
  server::Record record;
  absl::Status parsed;
};
// An error of storage, or Cancelled after Ctrl-C; what the bytes are good for is in `parsed`.
absl::Status ReadStored(const server::Dataset& dataset, int64_t record, StoredRecord* stored);

}  // namespace feedwater::cli
