#include "client/cpp/position.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace feedwater {

Position::Position(Cursor cursor, EpochShape shape, bool resumed)
    : cursor_(std::move(cursor)), shape_(shape), resumed_(resumed) {
  Stand();
  ranges_ = cursor_.skips;
}

void Position::Stand() {
  cursor_.ForgetPassed();
  at_epoch_end_ = false;
  fresh_ = true;
  // Behind the end of an epoch no step is to come, and its place tells nothing.
  counted_from_ = cursor_.at.position < shape_.records ? cursor_.at.position : 0;
}

void Position::ForgetRanges(uint64_t epoch) {
  std::erase_if(ranges_, [&](const SkippedRange& range) { return range.epoch < epoch; });
}

int64_t Position::PlaceOf(uint64_t epoch, int64_t step) const {
  int64_t counted_from = epoch == cursor_.at.epoch ? counted_from_ : 0;
  for (const SkippedRange& range : ranges_) {  // sorted
    if (range.epoch == epoch && range.end < shape_.records && range.end / GlobalBatch() <= step)
      counted_from = range.end;
  }
  return counted_from % GlobalBatch() + step * GlobalBatch();
}

EpochPosition Position::Wanted() const {
  return cursor_.AfterSkips(at_epoch_end_ ? EpochPosition{cursor_.at.epoch + 1, 0} : cursor_.at);
}

uint64_t Position::epoch() const {
  return resumed_ && !HasRest() ? cursor_.at.epoch + 1 : cursor_.at.epoch;
}

bool Position::HasRest() const {
  const EpochPosition wanted = Wanted();
  const int64_t left = shape_.records - wanted.position;
  return wanted.epoch == cursor_.at.epoch && left >= (shape_.drop_last ? GlobalBatch() : 1);
}

absl::StatusOr<int64_t> Position::BeginOf(uint64_t epoch, int64_t step) const {
  if (step < 0 || step >= shape_.steps) {
    return absl::InvalidArgumentError(absl::StrCat("step ", step, " is not one of the ",
                                                   shape_.steps,
                                                   " steps of an epoch, which count from 0"));
  }
  return PlaceOf(epoch, step);
}

void Position::Take(uint64_t epoch, int64_t next_position, bool is_last, int64_t substituted) {
  if (epoch != cursor_.at.epoch) {
    cursor_.at.epoch = epoch;
    counted_from_ = 0;
    ForgetRanges(epoch);
  }
  cursor_.at.position = next_position;
  cursor_.substituted += substituted;
  cursor_.ForgetPassed();
  at_epoch_end_ = is_last;
  fresh_ = resumed_ = false;
}

void Position::BeginEpoch(uint64_t epoch) {
  if (epoch == cursor_.at.epoch) {
    ForgetRanges(epoch + 1);
    const auto later = std::find_if(cursor_.skips.begin(), cursor_.skips.end(),
                                    [&](const SkippedRange& range) { return range.epoch > epoch; });
    ranges_.insert(ranges_.begin(), cursor_.skips.begin(), later);
  }
  ForgetRanges(epoch);
  cursor_.at = {epoch, 0};
  resumed_ = false;
  Stand();
}

bool Position::ChooseEpoch(uint64_t epoch) {
  resumed_ = false;
  if (fresh_ && epoch == cursor_.at.epoch) return false;
  BeginEpoch(epoch);
  return true;
}

absl::Status Position::Load(const Cursor& saved) {
  if (absl::Status same = saved.CheckSameSource(cursor_); !same.ok()) return same;
  if (saved.at.position > shape_.records) {
    return absl::InvalidArgumentError(absl::StrCat("the state's position ", saved.at.position,
                                                   " is outside the epoch of ", shape_.records,
                                                   " records"));
  }
  cursor_.at = saved.at;
  cursor_.substituted = saved.substituted;
  cursor_.skips = saved.skips;
  resumed_ = true;
  Stand();
  ranges_ = cursor_.skips;
  return absl::OkStatus();
}

absl::Status Position::Skip(int64_t first, int64_t last, uint64_t epoch) {
  absl::StatusOr<int64_t> begin = BeginOf(epoch, first);
  if (!begin.ok()) return begin.status();
  absl::StatusOr<int64_t> last_begin = BeginOf(epoch, last);
  if (!last_begin.ok()) return last_begin.status();
  if (first > last) {
    return absl::InvalidArgumentError(
        absl::StrCat("steps ", first, " to ", last, " are no range: the first comes first"));
  }
  if (*begin >= shape_.records) {
    return absl::InvalidArgumentError(absl::StrCat("epoch ", epoch, " has no step ", first,
                                                   " behind the place where it was resumed"));
  }
  const int64_t end =
      std::min({*last_begin + GlobalBatch(), PlaceOf(epoch, last + 1), shape_.records});
  if (absl::Status added = cursor_.Skip({epoch, *begin, end}); !added.ok()) return added;
  cursor_.ForgetPassed();
  return absl::OkStatus();
}

}  // namespace feedwater
