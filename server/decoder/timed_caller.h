// Runs ops of the user's own through another caller, and counts how long that has kept the thread:
// their CPU time is the user's own processes', but the worker is held.
#pragma once

#include <cstdint>
#include <utility>

#include "server/base/clock.h"
#include "server/graph/op_caller.h"

namespace feedwater::server {

class TimedCaller final : public OpCaller {
 public:
  void Use(OpCaller* caller) { caller_ = caller; }  // null: nobody runs any
  void UseTurn(CallTurn* turn) { turn_ = turn; }    // of the next calls; may be null
  OpCaller* get() { return caller_ == nullptr ? nullptr : this; }
  int64_t TakeHeldNs() { return std::exchange(held_ns_, 0); }

  absl::Status Call(const OpCall& call,
                    absl::FunctionRef<absl::Status(absl::Span<const Tensor>)> take) override {
    const int64_t start = MonotonicNs();
    OpCall in_turn = call;
    in_turn.turn = turn_;
    absl::Status status = caller_->Call(in_turn, take);
    held_ns_ += MonotonicNs() - start;
    return status;
  }

 private:
  OpCaller* caller_ = nullptr;
  CallTurn* turn_ = nullptr;
  int64_t held_ns_ = 0;
};

}  // namespace feedwater::server
