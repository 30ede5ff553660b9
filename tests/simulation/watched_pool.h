// A SlotPool between the scheduler and a session that follows every slot through its states. A
// transition that the picture in server/batch/slot_pool.h does not have is a violation.
//
// Not thread-safe: a simulation has one thread.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/transport/session.h"

namespace feedwater::simulation {

class WatchedPool final : public server::SlotPool {
 public:
  enum class State { kFree, kFilling, kLent };

  // `told` is called with every violation.
  WatchedPool(std::shared_ptr<server::Session> session, int slots,
              std::function<void(std::string)> told)
      : session_(std::move(session)), told_(std::move(told)), states_(slots, State::kFree) {}

  int slots() const override { return static_cast<int>(states_.size()); }
  std::byte* data(int slot) override { return session_->data(slot); }
  int Acquire() override {
    const int slot = session_->Acquire();
    if (slot >= 0) Move(slot, State::kFree, State::kFilling, "Acquire");
    return slot;
  }
  void Publish(int slot, const server::BatchMeta& meta) override {
    const bool open = session_->open();
    Move(slot, State::kFilling, State::kLent, "Publish");
    session_->Publish(slot, meta);
    if (!open) states_[slot] = State::kFree;  // a dead session's slot is nobody's
  }
  void Abandon(int slot) override {
    Move(slot, State::kFilling, State::kFree, "Abandon");
    session_->Abandon(slot);
  }
  void Fail(const server::BatchMeta& meta, const server::BatchFailure& failure) override {
    session_->Fail(meta, failure);
  }
  void OnSlotFree(std::function<void()> wake) override { session_->OnSlotFree(std::move(wake)); }

  // The session has obeyed a client's release.
  void Released(int slot) { Move(slot, State::kLent, State::kFree, "Release"); }
  int Count(State state) const {
    return static_cast<int>(std::count(states_.begin(), states_.end(), state));
  }

 private:
  void Move(int slot, State from, State to, const char* call) {
    if (slot < 0 || slot >= slots() || states_[slot] != from) {
      told_(absl::StrCat(call, " of slot ", slot, ", which is in another state"));
      return;
    }
    states_[slot] = to;
  }

  const std::shared_ptr<server::Session> session_;
  const std::function<void(std::string)> told_;
  std::vector<State> states_;
};

}  // namespace feedwater::simulation
