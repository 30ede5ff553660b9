// Where an error of storage comes from, decided in one place for every errno.
//
// No errno tells of a record: what is wrong with a record is wrong with its bytes, and they are
// only known when they were read. So an error of storage never makes a record bad. It ends the
// job, at once or when trying again has not helped.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/base/status.h"

namespace feedwater::server {

enum class Fault {
  kRequest,    // the path: missing, not permitted, no file. The dataset is not what its index says
  kTransient,  // the machine, the device or the network, in a way that can pass
  kMachine,    // the machine or the file system, in a way that does not pass by itself
};
Fault FaultOf(int error);

// A status for an error of storage. kTransient: Unavailable, or ResourceExhausted where something
// of this machine has run out. Others: what absl::ErrnoToStatusCode says.
absl::Status StorageStatus(int error, absl::string_view message);
// With the message "what: strerror (errno N)".
absl::Status StorageError(int error, absl::string_view what);

// Whether the status, or one that it was annotated from, came from a kTransient error.
bool IsTransient(const absl::Status& status);

// Whether an error, of storage or of making a sample, tells of the machine (no file handles, no
// memory, storage away) and not of the record: putting another record in its place would hide it,
// and make the bytes depend on the machine.
bool TellsOfTheMachine(const absl::Status& status);

// A file is not the one that was indexed: FailedPrecondition.
absl::Status FileChangedError(absl::string_view message);

// When to try again, and when to stop: pauses that double from 2 ms to half a second, each changed
// by chance so that those who failed together do not come back together.
class Retries {
 public:
  // Begins with the first failure.
  void Start(int64_t now_ns, int64_t for_ns);
  bool started() const { return until_ns_ != 0; }
  // When to try again; -1: the time is over.
  int64_t Next(int64_t now_ns);
  int count() const { return count_; }
  // The status of the last attempt, with how often and how long it was tried.
  absl::Status GaveUp(const absl::Status& status, int64_t now_ns) const;

 private:
  int64_t began_ns_ = 0, until_ns_ = 0, pause_ns_ = 0;
  int count_ = 0;
};

// Runs `attempt` until it succeeds, fails for good, or `for_ns` are over since its first transient
// failure. Sleeps in between.
absl::Status RetryTransient(int64_t for_ns, const std::function<absl::Status()>& attempt);

}  // namespace feedwater::server
