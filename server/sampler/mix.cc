#include "server/sampler/mix.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/units.h"

namespace feedwater::server {
namespace {

constexpr int64_t kMaxPositions = int64_t{1} << 62;

}  // namespace

absl::StatusOr<MixSchedule> MixSchedule::Create(std::vector<int64_t> weights) {
  if (weights.empty() || weights.size() > kMaxSources) {
    return absl::InvalidArgumentError(
        absl::StrCat("a mix has 1 to ", kMaxSources, " sources, not ", weights.size()));
  }
  int64_t divisor = 0, sum = 0;
  for (const int64_t weight : weights) {
    if (weight < 1) return absl::InvalidArgumentError(absl::StrCat("a weight is ", weight));
    divisor = std::gcd(divisor, weight);
  }
  for (int64_t& weight : weights) {
    weight /= divisor;
    if (weight > kMaxPeriod || (sum += weight) > kMaxPeriod) {
      return absl::InvalidArgumentError(
          absl::StrCat("the weights of a mix, divided by what divides them all, add up to more "
                       "than ",
                       kMaxPeriod, ": round them"));
    }
  }
  return MixSchedule(std::move(weights));
}

MixSchedule::MixSchedule(std::vector<int64_t> weights) : weights_(std::move(weights)) {
  const auto sources = weights_.size();
  const int64_t period = std::accumulate(weights_.begin(), weights_.end(), int64_t{0});
  // D = 2n - 2 keeps everything in whole numbers; each product stays below 2^56.
  const int64_t denominator = std::max<int64_t>(1, 2 * static_cast<int64_t>(sources) - 2);
  std::vector<int64_t> taken(sources);
  sources_.reserve(static_cast<size_t>(period));
  nth_.reserve(static_cast<size_t>(period));
  for (int64_t t = 1; t <= period; ++t) {
    // Of the sources whose next turn may stand here, the one whose turn has to come soonest.
    size_t next = sources;
    for (size_t i = 0; i < sources; ++i) {
      if (denominator * (t * weights_[i] - taken[i] * period) < period) continue;
      const auto due = [&](size_t source) { return denominator * (taken[source] + 1) - 1; };
      if (next == sources || due(i) * weights_[next] < due(next) * weights_[i]) next = i;
    }
    sources_.push_back(static_cast<uint8_t>(next));
    nth_.push_back(static_cast<uint16_t>(taken[next]++));
  }
  for (size_t i = 0; i < sources; ++i) {
    first_.push_back(places_.size());
    for (size_t place = 0; place < sources_.size(); ++place) {
      if (sources_[place] == i) places_.push_back(static_cast<uint16_t>(place));
    }
  }
}

int64_t MixSchedule::PositionOf(size_t source, int64_t nth) const {
  const int64_t weight = weights_[source];
  const __int128 position = static_cast<__int128>(nth / weight) * period() +
                            places_[first_[source] + static_cast<size_t>(nth % weight)];
  return position < kMaxPositions ? static_cast<int64_t>(position) : INT64_MAX;
}

int64_t MixSchedule::TurnsBefore(size_t source, int64_t position) const {
  const auto begin = places_.begin() + static_cast<ptrdiff_t>(first_[source]);
  const auto end = begin + weights_[source];
  return position / period() * weights_[source] +
         (std::lower_bound(begin, end, position % period()) - begin);
}

absl::StatusOr<std::shared_ptr<const Mix>> Mix::Create(const std::vector<MixSource>& sources,
                                                       MixStop stop, int64_t samples) {
  std::vector<int64_t> weights;
  for (const MixSource& source : sources) weights.push_back(source.weight);
  FW_ASSIGN_OR_RETURN(MixSchedule schedule, MixSchedule::Create(std::move(weights)));
  std::shared_ptr<Mix> mix(new Mix(std::move(schedule)));
  int64_t longest = 0, shortest = INT64_MAX;
  size_t longest_source = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    Source source{sources[i]};
    if (source.records < 1)
      return absl::InvalidArgumentError(absl::StrCat("source ", i, " of the mix has no records"));
    source.first = mix->records_;
    if (source.records > kMaxPositions - mix->records_)
      return absl::InvalidArgumentError("the sources of the mix have too many records");
    mix->records_ += source.records;
    const int64_t last = mix->schedule_.PositionOf(i, source.records - 1);
    if (last > longest) {
      longest = last;
      longest_source = i;
    }
    shortest = std::min(shortest, last);
    mix->sources_.push_back(std::move(source));
  }
  if (stop == MixStop::kSamples) {
    if (samples < 1 || samples > kMaxPositions) {
      return absl::InvalidArgumentError(
          absl::StrCat("an epoch of ", samples, " samples; 1 to 2^62 are possible"));
    }
    mix->positions_ = samples;
  } else {
    const int64_t last = stop == MixStop::kAll ? longest : shortest;
    if (last == INT64_MAX) {
      return absl::InvalidArgumentError(
          absl::StrCat("an epoch that sees all of source ", longest_source,
                       " of the mix has 2^62 positions or more: give it a larger weight, or stop "
                       "after a number of samples"));
    }
    mix->positions_ = last + 1;
  }
  for (size_t i = 0; i < mix->sources_.size(); ++i) {
    Source& source = mix->sources_[i];
    source.per_epoch = mix->schedule_.TurnsBefore(i, mix->positions_);
    if (source.per_epoch > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "source ", i, " of the mix has no sample in an epoch of ",
        FormatCount(mix->positions_, "sample"), ", and so would never be seen: its share is ",
        mix->schedule_.weights()[i], " of ", mix->schedule_.period(),
        ". Cure: a larger weight, or a `stop` that gives longer epochs"));
  }
  return std::shared_ptr<const Mix>(std::move(mix));
}

size_t Mix::SourceOf(int64_t record) const {
  const auto after =
      std::upper_bound(sources_.begin(), sources_.end(), record,
                       [](int64_t wanted, const Source& source) { return wanted < source.first; });
  return static_cast<size_t>(after - sources_.begin()) - 1;
}

}  // namespace feedwater::server
