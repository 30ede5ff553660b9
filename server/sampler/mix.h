// A mix: several datasets, its sources, in one epoch. MixSchedule says which source stands at which
// position, exactly in the shares of the weights; Mix adds how many records the sources have and
// where an epoch ends. Immutable and thread-safe. README.md of this folder gives both as formulas.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "server/base/status.h"

namespace feedwater::server {

// Tijdeman's schedule, one period of it in a table: at no position has any source had a whole
// sample more or less than its share.
class MixSchedule {
 public:
  static constexpr int64_t kMaxPeriod = 1 << 16;
  static constexpr size_t kMaxSources = 64;

  // The weights are divided by what divides them all; the period is their sum. InvalidArgument for
  // no source or too many, a weight below 1 or a longer period than kMaxPeriod.
  static absl::StatusOr<MixSchedule> Create(std::vector<int64_t> weights);

  int64_t period() const { return static_cast<int64_t>(sources_.size()); }
  const std::vector<int64_t>& weights() const { return weights_; }

  struct Turn {
    size_t source = 0;
    int64_t nth = 0;  // of the source's, from 0
  };
  Turn TurnAt(int64_t position) const {
    const auto place = static_cast<size_t>(position % period());
    const size_t source = sources_[place];
    return {source, position / period() * weights_[source] + nth_[place]};
  }
  // Its inverse: where the source has its n-th turn; more than any number of positions where that
  // is 2^62 or more.
  int64_t PositionOf(size_t source, int64_t nth) const;
  // How many turns a source has before a position.
  int64_t TurnsBefore(size_t source, int64_t position) const;

 private:
  explicit MixSchedule(std::vector<int64_t> weights);

  std::vector<int64_t> weights_;  // without a common divisor
  std::vector<uint8_t> sources_;  // by place in the period
  std::vector<uint16_t> nth_;     // of its source's turns in the period
  std::vector<uint16_t> places_;  // of each source's turns, one source after the other
  std::vector<size_t> first_;     // of a source in places_
};

struct MixSource {
  int64_t records = 0, weight = 1;
  std::vector<int64_t> shard_starts = {};  // as Dataset::shard_starts(), counted in the source
};

// Where an epoch ends: when every source, or one of them, has had a turn for each of its records,
// or after a number of samples.
enum class MixStop { kAll, kFirst, kSamples };

class Mix {
 public:
  struct Source : MixSource {
    int64_t first = 0;      // its first record, in the concatenation
    int64_t per_epoch = 0;  // samples
  };

  // `samples` is for kSamples. InvalidArgument, which names a source by its number, where a source
  // would have no turn in an epoch; and for numbers that are too large.
  static absl::StatusOr<std::shared_ptr<const Mix>> Create(const std::vector<MixSource>& sources,
                                                           MixStop stop, int64_t samples = 0);

  const MixSchedule& schedule() const { return schedule_; }
  const std::vector<Source>& sources() const { return sources_; }
  int64_t records() const { return records_; }      // of all sources
  int64_t positions() const { return positions_; }  // of an epoch
  size_t SourceOf(int64_t record) const;            // REQUIRES: record in [0, records())

 private:
  explicit Mix(MixSchedule schedule) : schedule_(std::move(schedule)) {}

  MixSchedule schedule_;
  std::vector<Source> sources_;
  int64_t records_ = 0, positions_ = 0;
};

}  // namespace feedwater::server
