// A bad sample: a place of a batch whose own record could not be made into a sample. Workers find
// them, the scheduler puts them in the order of the places and holds them against the limit, and
// the log keeps them for people.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/batch/slot_pool.h"
#include "server/source/dataset.h"

namespace feedwater::server {

inline constexpr int64_t kMaxSubstitutes = 100;  // records tried in a bad one's place

struct BadSample {
  int64_t place = 0;            // in the rank's batch
  int64_t record = 0;           // that should have stood there
  int64_t stood_in = -1;        // the record that stands there instead; -1: none
  std::string path;             // where it lies, as PlaceOf has it
  int64_t offset = 0;           // of its bytes in that file
  int64_t length = 0;           // of all its extents
  std::string reason;           // without record and path
  bool is_of_own_code = false;  // the job runs code of its user, which may have given the reason
  absl::StatusCode code = absl::StatusCode::kDataLoss;
};

// "record 3 (cats/7.jpg)", for people.
std::string NameOf(const BadSample& bad);

// A record of the dataset as a bad sample: where it lies, and nothing of a place or reason.
BadSample BadRecord(const Dataset& dataset, int64_t record);

// The bad samples of one batch until it is published. Every place may be bad, so each takes few
// bytes; reasons are kept of the first places only.
class BadPlaces {
 public:
  struct Entry {
    int64_t place = 0, record = 0, stood_in = -1;  // as in BadSample
  };
  static constexpr size_t kReasons = 64;
  static constexpr size_t kMaxReasonBytes = 512;  // what is longer is cut
  // The most that those of a batch of so many samples take.
  static int64_t MostBytes(int64_t samples);

  void Add(const std::vector<BadSample>& bad);
  void Sort();                  // by place, whoever was faster
  void KeepFirst(size_t size);  // REQUIRES: sorted
  void KeepOnly(int64_t place);
  const std::vector<Entry>& places() const { return places_; }
  // The whole of one of them; the reason is empty where it was not kept.
  BadSample At(const Dataset& dataset, const Entry& place) const;

 private:
  std::vector<Entry> places_;
  std::map<int64_t, std::string> reasons_;  // by place
};

// How many bad samples a rank may meet in one epoch of `samples` (its share) before the stream
// fails: the fraction of them. A few are let pass whatever the fraction, or one bad sample in an
// epoch of a hundred would be ten times the default limit; but never so many that a small dataset
// could be bad throughout. A fraction of 0 means none, a fraction of 1 any number.
int64_t AllowedBadSamples(double max_bad_fraction, int64_t samples);

// The error for the client when `last`, the `count`-th bad sample of the epoch, is over the limit.
BatchFailure TooManyBadSamples(double max_bad_fraction, int64_t count, int64_t samples,
                               uint64_t epoch, const BadSample& last);

// Counts one rank's bad samples of an epoch, from its start or the last seek, and holds them
// against the limit. The count goes by places, in the order of the rank's batches: which batch
// fails is as much a function of order and records as its bytes are, whatever the other ranks and
// the workers do.
class BadSampleCount {
 public:
  void Reset() { found_ = 0; }  // after a seek
  // Counts those of a finished batch of `epoch`, in which the rank has `samples`. Over the limit
  // `bad` is left with those that count, and the failure is returned.
  std::optional<BatchFailure> Add(const Dataset& dataset, double max_bad_fraction, int64_t samples,
                                  uint64_t epoch, BadPlaces* bad);

 private:
  uint64_t epoch_ = 0;
  int64_t found_ = 0;
};

}  // namespace feedwater::server
