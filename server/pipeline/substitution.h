// What becomes of a place in a batch whose record could not be made into a sample. Which records
// are tried instead is a rule that looks at nothing but the order and the records, so that every
// run chooses alike.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "server/pipeline/bad_sample.h"
#include "server/pipeline/stream.h"
#include "server/sampler/order.h"

namespace feedwater::server {

// The record that is tried `tries`-th (from 1 on) at the place that stands at `position` of the
// epoch's global order: the one that stands so many positions behind it, or, where records are made
// in their order by so many `workers` (0: they are not), so many of the same worker's behind it, up
// to the end of the epoch. Nothing: no more are tried.
std::optional<Pick> SubstituteFor(int64_t position, int64_t tries, const EpochOrder& order,
                                  int64_t positions, int64_t workers);

// One place of a batch.
class Substitution {
 public:
  void Begin() {
    tries_ = 0;
    bad_ = BadSample();
    bad_.record = -1;
  }
  // The place's own record is tried, and not a substitute.
  bool is_own() const { return tries_ == 0; }
  bool has_bad() const { return bad_.record >= 0; }

  // The record that was tried last is bad. Of those of one place only its own one is reported.
  void FoundBad(BadSample bad) {
    if (is_own()) bad_ = std::move(bad);
  }
  // The record to try next; nothing where none is left.
  std::optional<Pick> Next(int64_t position, const EpochOrder& order, int64_t positions,
                           int64_t workers);
  // That record is a good one.
  void FoundGood(int64_t record) {
    if (!is_own()) bad_.stood_in = record;
  }

  // Why the batch cannot be had.
  BatchFailure Failure(BadSamplePolicy policy, int64_t workers) const;
  BadSample TakeBad() { return std::move(bad_); }

 private:
  int64_t tries_ = 0;  // of substitutes
  BadSample bad_;      // the place's own record, once that is known to be bad; record -1 before
};

// The machine could not read the record: the message names it, but nothing is wrong with it.
BatchFailure MachineFailure(const BadSample& unread, const absl::Status& status);

}  // namespace feedwater::server
