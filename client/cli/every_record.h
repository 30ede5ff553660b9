// Reads all records of a dataset, in several threads, for commands that look at each of them.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/local_pipeline.h"

namespace feedwater::cli {

struct EveryRecord {
  // Looks at one record; an error ends everything.
  using Look = std::function<absl::Status(const server::RecordBytes& bytes)>;

  std::string what;                                 // the progress bar's name
  size_t jobs = 0;                                  // threads; 0: the configuration's CPUs
  std::function<absl::StatusOr<Look>()> make_look;  // called by each thread for itself
  std::function<std::string()> note;                // beside the progress bar; may be null

  // Returns the first error.
  absl::Status Run(const LocalPipeline& local) const;
};

}  // namespace feedwater::cli
