// OUT/dataset.yaml: the `dataset:` section that reads the shards of a folder, and the class names
// beside it. Belongs to one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/local_pipeline.h"
#include "client/cli/record_members.h"
#include "client/cli/shard_journal.h"

namespace feedwater::cli {

// What lies beside the shards.
inline constexpr const char* kSectionFile = "dataset.yaml";
inline constexpr const char* kClassFile = "classes.txt";

// For the names of files and roots: what neither a shell nor `files:` takes for a pattern.
std::string SafeFileName(absl::string_view name);

// Where the shards lie: in an absolute root of their own where the source's is one, else below a
// declared root, or below one that has to be declared.
struct ShardPlace {
  std::string root, path, hint;  // the hint: what feedwater.yaml lacks, or ""
};
// InvalidArgument: root or path are not UTF-8, and so no section can name them.
absl::StatusOr<ShardPlace> FindShardPlace(const LocalPipeline& local, const std::string& folder);

class ShardSection {
 public:
  // All outlive it. `journal` is of the folder, and has at least one shard when Write is called.
  ShardSection(const LocalPipeline& local, const RecordMembers& members,
               const std::vector<server::FieldSpec>& fields, const ShardJournal& journal,
               ShardPlace place);

  // Writes the file, and OUT/classes.txt where there are many. `origin`: a comment of one line.
  absl::Status Write(const std::string& origin);

  // Reads the file that an earlier run has written.
  absl::Status Load();

  // Opens what was written as a daemon would. DataLoss when it does not hold the records, fields
  // and classes that were written. `key_field`, where it is given: one more field, the name that
  // the files of a record share. REQUIRES: Write or Load.
  absl::StatusOr<std::shared_ptr<const server::Dataset>> Open(
      const std::string& key_field = "") const;

  const std::string& text() const { return text_; }  // "dataset:\n  format: ..."
  const std::string& hint() const { return place_.hint; }
  std::string file() const { return journal_.folder() + "/" + kSectionFile; }

 private:
  absl::StatusOr<std::string> ClassLines() const;
  std::string FilesText() const;

  const LocalPipeline& local_;
  const RecordMembers& members_;
  const std::vector<server::FieldSpec>& fields_;
  const ShardJournal& journal_;
  const ShardPlace place_;
  std::string text_;
};

}  // namespace feedwater::cli
