// What has been converted so far: OUT/.convert.json, which says what the shards of a folder were
// made from and how far that went, and OUT/bad_records.jsonl. `feedwater convert` writes it after
// each whole shard, and goes on from it when it is run again. Belongs to one thread.
//
// Order at the end of a shard: the shard appears under its name (base/atomic_file.h), then its bad
// records reach the disk, then the journal. So whatever the journal says is there; what it does not
// say is made again.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/record_members.h"

namespace feedwater::cli {

struct Shard {
  int64_t first = 0;      // its first position: a record's place in the order of writing
  int64_t positions = 0;  // positions, its bad records among them
  int64_t records = 0;    // that are in it
  int64_t bytes = 0;
  std::vector<ImageKinds> kinds;  // by field
  std::string files;              // of its records (ShardState); "": it is not known
};

struct BadRecord {
  int64_t record = 0;
  std::string path;
  int64_t offset = 0;
  std::string reason;
};

class ShardJournal {
 public:
  // Opens the journal of a folder that is there. `made_from`: what decides every byte of the
  // shards, a JSON object; where the folder was made from something else, InvalidArgument that
  // names the difference and the cure. Shards that are missing or cut are left out, with all behind
  // them; `note` then says so. `identity`: of the files that the dataset is read from now
  // (server::Dependencies; "": the digest says it all). Where the shards are of others, though the
  // dataset has the same digest, which does not look at all bytes, FailedPrecondition; where all
  // shards are whole, `note` says so. A journal of an earlier version tells none, and is gone on
  // with. `name`: the shards'. `files`: what the command writes beside them. Without a journal, any
  // shard or such file is somebody else's: InvalidArgument, and it stays.
  static absl::StatusOr<ShardJournal> Open(const std::string& folder, const std::string& name,
                                           nlohmann::ordered_json made_from, std::string identity,
                                           size_t fields, const std::vector<std::string>& files,
                                           std::string* note);

  // The same of a folder that is to be read alone, and into which nothing is written. NotFound: it
  // has no journal.
  static absl::StatusOr<ShardJournal> OpenWritten(const std::string& folder,
                                                  const std::string& name,
                                                  nlohmann::ordered_json made_from, size_t fields);
  // What the shards of a folder were made from. NotFound: it has no journal.
  static absl::StatusOr<nlohmann::ordered_json> MadeFromOf(const std::string& folder);

  const std::vector<Shard>& shards() const { return shards_; }
  int64_t next_position() const {
    return shards_.empty() ? 0 : shards_.back().first + shards_.back().positions;
  }
  int64_t records() const;
  int64_t bytes() const;
  int64_t bad() const { return bad_; }
  std::vector<ImageKinds> kinds() const;   // of all shards, by field
  std::string FileOf(size_t shard) const;  // its name within the folder
  std::string folder() const { return folder_; }
  std::string bad_file() const;

  // A whole shard is there, under FileOf(shards().size()).
  absl::Status Add(Shard shard, const std::vector<BadRecord>& bad);
  // Bad records of a dataset that has no good one.
  absl::Status AddBad(const std::vector<BadRecord>& bad);

 private:
  ShardJournal() = default;
  absl::Status Read(std::string* note);
  absl::Status CompareIdentities(std::string now, std::string* note);
  absl::Status CheckNothingIsThere(const std::vector<std::string>& files) const;
  absl::Status AppendBad(const std::vector<BadRecord>& bad);
  absl::Status Save() const;

  std::string folder_, name_, identity_;
  nlohmann::ordered_json made_from_;
  size_t fields_ = 0;
  std::vector<Shard> shards_;
  std::vector<int64_t> bad_ends_, bad_counts_;  // of the list, bytes and lines, after each shard
  int64_t bad_ = 0, bad_bytes_ = 0;
};

nlohmann::ordered_json ToJson(const BadRecord& bad);

}  // namespace feedwater::cli
