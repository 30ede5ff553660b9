#include "server/pipeline/bad_sample.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

constexpr int64_t kAlwaysAllowed = 32;
constexpr int64_t kAllowedShare = 4;  // one in so many

}  // namespace

int64_t AllowedBadSamples(double max_bad_fraction, int64_t samples) {
  if (!(max_bad_fraction > 0)) return 0;
  if (max_bad_fraction >= 1) return samples;
  const auto by_fraction = static_cast<int64_t>(
      std::floor(max_bad_fraction * static_cast<double>(samples) + 1e-6));  // 0.29 * 100
  const int64_t always =
      std::min(kAlwaysAllowed, samples / kAllowedShare + (samples % kAllowedShare != 0));
  return std::max(by_fraction, always);
}

std::string NameOf(const BadSample& bad) {
  return absl::StrCat("record ", bad.record,
                      bad.path.empty() ? "" : absl::StrCat(" (", bad.path, ")"));
}

BadSample BadRecord(const Dataset& dataset, int64_t record) {
  RecordPlace place = PlaceOf(dataset, record);
  BadSample bad;
  bad.record = record;
  bad.path = std::move(place.path);
  bad.offset = place.offset;
  bad.length = place.bytes;
  return bad;
}

int64_t BadPlaces::MostBytes(int64_t samples) {
  // A vector doubles as it grows; a node of a map has some words of its own.
  constexpr int64_t kEntryBytes = 2 * sizeof(Entry), kReasonBytes = kMaxReasonBytes + 128;
  return samples * kEntryBytes + std::min<int64_t>(samples, kReasons) * kReasonBytes;
}

void BadPlaces::Add(const std::vector<BadSample>& bad) {
  for (const BadSample& one : bad) {
    places_.push_back({one.place, one.record, one.stood_in});
    if (reasons_.size() == kReasons && one.place > reasons_.rbegin()->first) continue;
    reasons_.emplace(one.place, one.reason.substr(0, kMaxReasonBytes));
    if (reasons_.size() > kReasons) reasons_.erase(std::prev(reasons_.end()));
  }
}

void BadPlaces::Sort() {
  std::sort(places_.begin(), places_.end(),
            [](const Entry& a, const Entry& b) { return a.place < b.place; });
}

void BadPlaces::KeepFirst(size_t size) { places_.resize(size); }

void BadPlaces::KeepOnly(int64_t place) {
  places_.erase(std::remove_if(places_.begin(), places_.end(),
                               [place](const Entry& one) { return one.place != place; }),
                places_.end());
}

BadSample BadPlaces::At(const Dataset& dataset, const Entry& place) const {
  BadSample bad = BadRecord(dataset, place.record);
  bad.place = place.place;
  bad.stood_in = place.stood_in;
  const auto reason = reasons_.find(place.place);
  if (reason != reasons_.end()) bad.reason = reason->second;
  return bad;
}

BatchFailure TooManyBadSamples(double max_bad_fraction, int64_t count, int64_t samples,
                               uint64_t epoch, const BadSample& last) {
  BatchFailure failure;
  failure.record = last.record;
  failure.path = last.path;
  failure.reason = wire::FailReason::kTooManyBad;
  failure.status = absl::DataLossError(absl::StrCat(
      count, " of this rank's ", samples, " samples of epoch ", epoch,
      " are bad, more than max_bad_fraction = ", max_bad_fraction, " allows (",
      AllowedBadSamples(max_bad_fraction, samples),
      "): mend or remove what `feedwater status --bad` lists, or raise max_bad_fraction in the "
      "pipeline; the last one: ",
      last.reason.empty() ? absl::StrCat("record ", last.record) : last.reason));
  return failure;
}

std::optional<BatchFailure> BadSampleCount::Add(const Dataset& dataset, double max_bad_fraction,
                                                int64_t samples, uint64_t epoch, BadPlaces* bad) {
  if (epoch_ != epoch) {
    epoch_ = epoch;
    found_ = 0;
  }
  const int64_t left = AllowedBadSamples(max_bad_fraction, samples) - found_;
  const auto found = static_cast<int64_t>(bad->places().size());
  if (max_bad_fraction >= 1 || found <= left) {
    found_ += found;
    return std::nullopt;
  }
  bad->KeepFirst(static_cast<size_t>(left) + 1);
  found_ += left + 1;
  return TooManyBadSamples(max_bad_fraction, found_, samples, epoch,
                           bad->At(dataset, bad->places().back()));
}

}  // namespace feedwater::server
