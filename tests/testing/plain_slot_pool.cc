#include "tests/testing/plain_slot_pool.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace feedwater::testing {

using server::BatchFailure;
using server::BatchMeta;
using server::MutexLock;

PlainSlotPool::PlainSlotPool(int slots, int64_t slot_bytes)
    : memory_(slots, std::vector<std::byte>(slot_bytes)), states_(slots, State::kFree) {}

void PlainSlotPool::OnSlotFree(std::function<void()> wake) { wake_ = std::move(wake); }

int PlainSlotPool::Acquire() {
  MutexLock lock(&mu_);
  if (closed_) return -1;
  const auto free = std::find(states_.begin(), states_.end(), State::kFree);
  if (free == states_.end()) return -1;
  *free = State::kFilling;
  return static_cast<int>(free - states_.begin());
}

void PlainSlotPool::Expect(int slot, State state, const char* call) {
  if (slot < 0 || slot >= slots() || states_[slot] != state) {
    violations_.push_back(absl::StrCat(call, " of slot ", slot, " in the wrong state"));
  }
}

void PlainSlotPool::Publish(int slot, const BatchMeta& meta) {
  MutexLock lock(&mu_);
  Expect(slot, State::kFilling, "Publish");
  states_[slot] = State::kLent;
  // Within one serial: the next step of the epoch, or the first batch of the next one.
  if (last_.has_value() && last_->serial == meta.serial) {
    const bool follows = last_->last_in_epoch
                             ? meta.epoch == last_->epoch + 1 && meta.step == 0
                             : meta.epoch == last_->epoch && meta.step == last_->step + 1;
    if (!follows || failed_) {
      violations_.push_back(absl::StrCat("epoch ", meta.epoch, " step ", meta.step,
                                         " published after epoch ", last_->epoch, " step ",
                                         last_->step, failed_ ? " and a failure" : ""));
    }
  } else if (last_.has_value() && meta.serial < last_->serial) {
    violations_.push_back(absl::StrCat("serial ", meta.serial, " published after ", last_->serial));
  }
  if (!last_.has_value() || last_->serial != meta.serial) failed_ = false;
  last_ = meta;
  events_.push_back({slot, meta, {}});
  changed_.SignalAll();
}

void PlainSlotPool::Fail(const BatchMeta& meta, const BatchFailure& failure) {
  MutexLock lock(&mu_);
  if (failed_ && last_.has_value() && last_->serial == meta.serial)
    violations_.push_back("a second failure");
  failed_ = true;
  last_ = meta;
  events_.push_back({-1, meta, failure});
  changed_.SignalAll();
}

void PlainSlotPool::Free(int slot, State from, const char* call) {
  {
    MutexLock lock(&mu_);
    Expect(slot, from, call);
    states_[slot] = State::kFree;
    changed_.SignalAll();
  }
  if (wake_) wake_();
}

void PlainSlotPool::Abandon(int slot) { Free(slot, State::kFilling, "Abandon"); }
void PlainSlotPool::Release(int slot) { Free(slot, State::kLent, "Release"); }

void PlainSlotPool::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
}

std::optional<PlainSlotPool::Event> PlainSlotPool::Next(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(&mu_);
  while (events_.empty()) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return std::nullopt;
    changed_.WaitWithTimeout(&mu_, left);
  }
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

int PlainSlotPool::free_slots() const {
  MutexLock lock(&mu_);
  return static_cast<int>(std::count(states_.begin(), states_.end(), State::kFree));
}

bool PlainSlotPool::WaitUntilAllFree(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(&mu_);
  while (std::count(states_.begin(), states_.end(), State::kFree) != slots()) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitWithTimeout(&mu_, left);
  }
  return true;
}

std::vector<std::string> PlainSlotPool::violations() const {
  MutexLock lock(&mu_);
  return violations_;
}

}  // namespace feedwater::testing
