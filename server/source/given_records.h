// Records that a program of a user's gives, in place of files (format `python`): what a dataset of
// them is made of, and how one is asked for. Who talks with that program is server/provider.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/source/dataset.h"

namespace feedwater::server {

// Of all that is random in a record, or in what an op makes: of (seed, epoch, record, op) alone.
using ProvidedSeed = std::array<uint64_t, 2>;

// Who waits for a record.
class RecordTaker {
 public:
  virtual ~RecordTaker() = default;
  // Once, on any thread; must not wait. Not OK: there are no bytes. The program may still write to
  // the bytes while they are read; they stay where they are as long as `holds` lives.
  virtual void Given(const absl::Status& status, absl::Span<const std::byte> bytes,
                     std::shared_ptr<const void> holds) = 0;
};

// Thread-safe.
class RecordGiver {
 public:
  virtual ~RecordGiver() = default;
  // Never waits. A record that nobody waits for any more (`taker` has gone) need not be made.
  virtual void Ask(int64_t record, const ProvidedSeed& seed, std::weak_ptr<RecordTaker> taker) = 0;
  // What was asked for is wanted now, as far as one can tell all of it.
  virtual void Flush() = 0;
  // FailedPrecondition: the program offers something else by now.
  virtual absl::Status LookAgain() const = 0;
  // What the program says that it gives (OfferedSource::Identity).
  virtual std::string identity() const { return ""; }
  // Records are made one after the other, as an iterator gives them: the seed is that of the epoch.
  bool is_in_order() const { return workers() > 0; }
  // Worker w of so many makes records w, w + workers, ...; 0: any process makes any record.
  virtual int64_t workers() const { return 0; }
};

// Unavailable: no process serves a source or an op of the user's own. Clients tell it from a daemon
// that is not there.
absl::Status NotServedError(absl::string_view message);
bool IsNotServed(const absl::Status& status);

// A source as its program has offered it.
struct OfferedSource {
  uint32_t user = 0;
  std::string name, version;
  int64_t records = 0;
  int64_t workers = 0;  // of an iterable dataset: worker w makes records w, w + workers, ...
  std::vector<FieldSpec> fields;
  std::vector<std::string> classes;
  std::string contents;  // a digest of what the program serves; empty: not known

  // 32 hex digits over all but the name and the user: the same on another host.
  std::string Digest() const;
  // What its program says that it is: the version, else the digest of what it serves. Never empty.
  std::string Identity() const;
};

// The sources that programs of users provide. Thread-safe.
class OfferedSources {
 public:
  struct Found {
    OfferedSource source;
    std::shared_ptr<RecordGiver> giver;
  };
  virtual ~OfferedSources() = default;
  // NotServedError: no process provides it at the moment.
  virtual absl::StatusOr<Found> Find(int64_t user, const std::string& name) = 0;
};

// RecordGiver::workers of what gives its records; 0: files do.
inline int64_t WorkersOf(const Dataset& dataset) {
  return dataset.giver() == nullptr ? 0 : dataset.giver()->workers();
}

// What is remembered of a record in an epoch goes by this and its number. As Dataset::contents, but
// an iterable dataset's record is another one in another epoch: the epoch stands in the last
// digits.
std::string ContentsIn(const Dataset& dataset, uint64_t epoch);
constexpr int kContentsDigits = 32, kOfAnyEpoch = 20;
// What all epochs of an iterable dataset have alike.
inline absl::string_view OfAnyEpoch(absl::string_view contents) {
  return contents.substr(0, kOfAnyEpoch);
}

// What to add to the error of a pipeline that reads a field which these records do not have, where
// their values have no names: how to give them some. Else "".
std::string NamesCure(const Dataset& dataset);

// A dataset of these records. `budget` may be null.
absl::StatusOr<std::shared_ptr<const Dataset>> GivenDataset(OfferedSources::Found found,
                                                            MemoryBudget* budget);

}  // namespace feedwater::server
