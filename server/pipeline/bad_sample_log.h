// The quarantine report: every record that was found to be bad, once, with how often and what stood
// in. In memory for `feedwater status --bad`, and as JSON lines in state_dir/bad_samples.jsonl for
// everybody else. A record that is found for the first time is appended at once; the counts of
// known ones are saved by Flush, which writes the file anew and renames it into place. A line that
// is cut short or no entry is left out when the file is read, and of two lines about one record the
// later one holds.
//
// It also knows the samples that crashed the daemon (breadcrumbs.h). After the second crash a
// sample is put aside: workers take it for bad without touching it. That set is settled before the
// first sample and then constant. Deleting the file while the daemon is down forgets everything.
//
// Bounded: so many records, and so many bytes of text of each, as the file has it. Where they are
// full, records of an iterable dataset take the place of those of its earliest epoch; else a user
// who has fewer of them gets the place of one of the user who has most; what is left out is
// counted.
//
// Thread safety: all calls may come from any thread, except AddCrash.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/fd.h"
#include "server/base/mutex.h"
#include "server/base/status.h"
#include "server/graph/pipeline_spec.h"
#include "server/pipeline/bad_sample.h"

namespace feedwater::server {

class BadSampleLog {
 public:
  static constexpr size_t kMaxRecords = 10'000;
  static constexpr int kCrashesToQuarantine = 2;
  static constexpr size_t kMaxPipelines = 16;  // of one record
  static constexpr int64_t kNobody = -1;       // no user in particular

  struct Entry {
    std::string dataset;  // digest
    int64_t record = 0;
    int64_t user = kNobody;              // whose job met it first
    std::string pipeline, path, reason;  // pipeline: the one that met it last
    int64_t only_for = kNobody;          // whose own code gave the reason; kNobody: nobody's
    std::vector<std::string> pipelines;  // digests of those that met it, the last ones at the end
    int64_t offset = 0, length = 0;
    uint64_t count = 0;                     // places of published batches
    int64_t first_seen = 0, last_seen = 0;  // seconds since 1970
    std::string action;                     // the last one: fail, substitute, skip_with_count
    int64_t stood_in = -1;                  // the last one; -1: nothing
    int crashes = 0;                        // of the daemon, while it worked on this sample
    int signal = 0;                         // of the last one
    bool quarantined() const { return crashes >= kCrashesToQuarantine; }
    // The reason, unless it is what another user's own code says of that user's data. Root and the
    // daemon's user read everything.
    std::string ReasonFor(int64_t reader) const;
    // What one pipeline cannot decode, another one may not even look at.
    bool IsBadFor(const std::string& pipeline_digest) const;
  };

  // Reads what an earlier daemon has left in the folder. "" keeps the log in memory only. Never
  // fails: what cannot be read or written is a line in the daemon's log.
  static std::shared_ptr<BadSampleLog> Open(const std::string& state_dir);
  ~BadSampleLog();

  // A sample during which the daemon died. REQUIRES: no other call has been made yet.
  void AddCrash(const std::string& dataset, int64_t record, const std::string& path, int64_t offset,
                int64_t length, int signal);
  // Why the sample may not be worked on; empty: it may. Cheap where no sample is put aside.
  std::string WhyQuarantined(const std::string& dataset, int64_t record) const;

  void Add(const std::string& dataset, const PipelineSpec& pipeline, const BadSample& bad,
           int64_t user = kNobody) ABSL_LOCKS_EXCLUDED(mu_);
  void Flush() ABSL_LOCKS_EXCLUDED(mu_);  // saves counts, if there is something to save

  struct Report {
    std::vector<Entry> entries;  // by dataset and record
    uint64_t not_listed = 0;     // events of records for which there was no room
    std::string file;            // "" without one
  };
  Report Get() const ABSL_LOCKS_EXCLUDED(mu_);
  size_t records() const ABSL_LOCKS_EXCLUDED(mu_);
  size_t quarantined() const { return quarantine_.size(); }

 private:
  using Key = std::pair<std::string, int64_t>;

  explicit BadSampleLog(std::string file) : file_(std::move(file)) {}
  absl::Status Load() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // If this record has not been met before: the number of those of this user, while it is small.
  // Else 0.
  int Note(const std::string& dataset, const PipelineSpec& pipeline, const BadSample& bad,
           int64_t user) ABSL_LOCKS_EXCLUDED(mu_);
  Entry* FindOrMake(const std::string& dataset, int64_t record, int64_t user)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MakeRoom(const std::string& dataset, int64_t user) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Drop(std::map<Key, Entry>::iterator entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Append(const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Complain(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string file_;
  std::set<Key> quarantine_;  // settled by Open and AddCrash, then constant

  Mutex flush_mu_;  // one writer of the file's successor; taken before mu_
  mutable Mutex mu_;
  std::map<Key, Entry> entries_ ABSL_GUARDED_BY(mu_);
  std::map<int64_t, size_t> of_user_ ABSL_GUARDED_BY(mu_);  // entries
  std::map<int64_t, int> met_ ABSL_GUARDED_BY(mu_);         // new records, by user
  uint64_t not_listed_ ABSL_GUARDED_BY(mu_) = 0;
  bool dirty_ ABSL_GUARDED_BY(mu_) = false;  // the file lacks something
  bool complained_ ABSL_GUARDED_BY(mu_) = false;
  int64_t file_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // with what is to be appended
  Fd append_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
