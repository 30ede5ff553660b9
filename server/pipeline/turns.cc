#include "server/pipeline/turns.h"

#include <algorithm>
#include <iterator>

namespace feedwater::server {
namespace {

// How far a user who had little in hand for a while may stand before the others here: shares in the
// long run are the scheduler's.
constexpr int64_t kCreditNs = 10'000'000;
// How far one user may pass the others before the turn changes: with each turn, the jobs' time is
// told to the scheduler.
constexpr int64_t kTurnNs = 200'000;
constexpr size_t kHandsKept = 64;  // of users who may have nothing in hand

}  // namespace

void Turns::Take(uint32_t user, bool slow, int64_t samples) {
  Hand& hand = hands_[user];
  if (hand.samples == 0) ++users_in_hand_;
  hand.samples += samples;
  if (!slow) hand.quick += samples;
}

void Turns::Done(const Sample& sample) {
  Hand& hand = hands_[sample.user];
  if (!sample.slow) --hand.quick;
  if (--hand.samples == 0) --users_in_hand_;
}

void Turns::HeldUp(const Sample& sample, int change) {
  if (!sample.slow) hands_[sample.user].quick_held_up += change;
}

void Turns::Queue(Sample* sample) {
  Hand& hand = hands_[sample->user];
  hand.queue.push_back(sample);
  ++queued_;
  if (sample->slow) ++hand.slow_queued;
}

Turns::Sample* Turns::Next() {
  if (queued_ == 0) return nullptr;
  Hand* least = nullptr;
  int64_t least_place_ns = 0;
  uint32_t least_user = 0;
  std::deque<Sample*>::iterator first;
  for (auto& [user, hand] : hands_) {
    if (hand.queue.empty()) continue;
    hand.used_ns = std::max(hand.used_ns, floor_ns_ - kCreditNs);
    const int64_t place_ns = hand.used_ns - (user == turn_of_ ? kTurnNs : 0);
    if (least != nullptr && place_ns >= least_place_ns) continue;
    auto next = hand.queue.begin();
    if (hand.slow_queued > 0 && SlowMustWait(user)) {
      next = std::find_if(next, hand.queue.end(), [this](const Sample* sample) {
        return !sample->slow || pointless_(*sample);
      });
    }
    if (next == hand.queue.end()) continue;
    least = &hand;
    least_place_ns = place_ns;
    least_user = user;
    first = next;
  }
  if (least == nullptr) return nullptr;
  turn_of_ = least_user;
  floor_ns_ = std::max(floor_ns_, least->used_ns);
  Sample* const sample = *first;
  least->queue.erase(first);
  --queued_;
  if (sample->slow) --least->slow_queued;
  return sample;
}

void Turns::Suspend(Sample* sample) {
  hands_[sample->user].suspended.push_back(sample);
  ++suspended_;
}

bool Turns::HasSuspended(const Sample& sample) const {
  const auto hand = hands_.find(sample.user);
  return hand != hands_.end() &&
         std::any_of(hand->second.suspended.begin(), hand->second.suspended.end(),
                     [&](const Sample* other) { return other->job == sample.job; });
}

Turns::Sample* Turns::Resume(bool any) {
  if (suspended_ == 0) return nullptr;
  for (auto& [user, hand] : hands_) {
    auto next = hand.suspended.begin();
    while (!any && next != hand.suspended.end() && !IsReady(hand, **next)) ++next;
    if (next == hand.suspended.end()) continue;
    Sample* const sample = *next;
    hand.suspended.erase(next);
    --suspended_;
    return sample;
  }
  return nullptr;
}

bool Turns::OthersWait(uint32_t user) const {
  return std::any_of(hands_.begin(), hands_.end(), [&](const auto& other) {
    const Hand& hand = other.second;
    if (other.first == user) return false;
    if (hand.samples > static_cast<int64_t>(hand.suspended.size())) return true;
    return std::any_of(hand.suspended.begin(), hand.suspended.end(),
                       [&](const Sample* sample) { return IsReady(hand, *sample); });
  });
}

bool Turns::IsReady(const Hand& hand, const Sample& sample) const {
  if (pointless_(sample)) return true;
  if (!sample.calls.empty()) return sample.calls.IsReady();
  return std::all_of(hand.suspended.begin(), hand.suspended.end(), [&](const Sample* other) {
    return other->job != sample.job || other->calls.empty();
  });
}

// Whether quick samples of another user are in hand that storage does not keep.
bool Turns::SlowMustWait(uint32_t user) const {
  return std::any_of(hands_.begin(), hands_.end(), [user](const auto& other) {
    return other.first != user && other.second.quick > other.second.quick_held_up;
  });
}

void Turns::Made(const Sample& sample, int64_t cpu_ns) {
  slow_made_ = sample.slow;
  hands_[sample.user].used_ns += cpu_ns;
}

Turns::Whose Turns::MayTake() const {
  Whose whose;
  if (slow_made_) return whose;
  for (const auto& [user, hand] : hands_) {
    if (hand.slow_queued == 0) continue;
    if (whose.only_user.has_value()) return {true, std::nullopt};
    whose.only_user = user;
  }
  return whose;
}

void Turns::DropIdleUsers() {
  if (hands_.size() <= kHandsKept) return;
  for (auto it = hands_.begin(); it != hands_.end();)
    it = it->second.samples == 0 ? hands_.erase(it) : std::next(it);
}

}  // namespace feedwater::server
