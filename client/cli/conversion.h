// What `feedwater convert` and `feedwater materialize` have in common: a pipeline's records go, one
// by one, into the tar shards of a folder, with a section that reads them; after a kill the same
// command goes on. Belongs to one thread, which calls the steps in their order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/command.h"
#include "client/cli/local_pipeline.h"
#include "client/cli/record_members.h"
#include "client/cli/shard_comparison.h"
#include "client/cli/shard_journal.h"
#include "client/cli/shard_maker.h"
#include "client/cli/shard_section.h"
#include "server/base/process_lock.h"

namespace feedwater::cli {

struct ConversionArguments {
  std::string pipeline, out, config, shard_bytes = "256MiB";
  size_t jobs = 0;
  int64_t allow_bad = 0;
  bool verify = false;
};
void AddConversionOptions(CLI::App* command, ConversionArguments* arguments);

// What a command makes of the records.
struct ConversionWork {
  std::vector<server::FieldSpec> fields;  // that the shards hold
  std::optional<RecordMembers> members;   // of these
  nlohmann::ordered_json made_from;       // what decides a byte of them, beside the dataset
  ShardMaker maker;                       // all but local, members, jobs and is_interrupted
  std::vector<std::string> more_files;    // that the command writes beside shards and section
};

class Conversion {
 public:
  // `command`: "convert". `context` and `arguments` outlive it.
  Conversion(const Context& context, std::string command, const ConversionArguments& arguments);

  // The number of --shard-bytes.
  absl::StatusOr<int64_t> ShardBytes() const;
  // Opens the pipeline; InvalidArgument for a dataset that no shards can hold.
  absl::Status Open();
  const LocalPipeline& local() const { return local_; }
  // By field of the dataset, whether its first records that can be read hold texts there.
  absl::StatusOr<std::vector<bool>> FindTexts() const;
  // Makes the folder, writes what shards are missing, and the section; reads all of it back and
  // compares it with the source where --verify says so. An error says how it goes on.
  absl::Status Run(ConversionWork work);
  // Compares what an earlier run has made with its source; writes nothing. FailedPrecondition: it
  // is not finished.
  absl::StatusOr<std::unique_ptr<ShardComparison>> Compare(ConversionWork work);
  // Prints what was done, and sets the exit status where too many records are bad. `more`: of the
  // command's own, for --json. `use`: how what was made is used.
  void Report(Context* context, const nlohmann::ordered_json& more, const std::string& use) const;

  const ShardSection& section() const { return *section_; }
  const ShardJournal& journal() const { return *journal_; }
  // As Run has checked it.
  const server::Dataset& written() const { return *written_; }

 private:
  absl::Status CheckOutIsElsewhere() const;
  absl::Status OpenFolder();
  absl::Status LookAtSources();
  absl::StatusOr<std::unique_ptr<ShardComparison>> CompareAll();
  absl::Status Explain(const absl::Status& status) const;
  std::string CureOfChange() const;
  nlohmann::ordered_json MadeFrom() const;
  size_t Jobs() const;

  const Context& context_;
  const std::string command_;
  const ConversionArguments& arguments_;
  const int64_t start_ns_;
  LocalPipeline local_;
  ConversionWork work_;
  std::string dataset_key_, folder_, note_;
  server::ProcessLock lock_;
  ShardPlace place_;
  std::optional<ShardJournal> journal_;
  std::optional<ShardSection> section_;
  std::shared_ptr<const server::Dataset> written_;
  int64_t kept_shards_ = 0;
  std::optional<int64_t> compared_;  // records
};

}  // namespace feedwater::cli
