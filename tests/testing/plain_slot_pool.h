// A SlotPool over plain memory, with the trainer's side as calls: Next waits for what comes,
// Release gives a slot back. It writes down every breach of the slot states and of the order, so a
// test asks for violations() at its end.
//
// Thread safety: all calls may come from any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/batch/slot_layout.h"
#include "server/batch/slot_pool.h"

namespace feedwater::testing {

class PlainSlotPool final : public server::SlotPool {
 public:
  // What the trainer sees: a batch in a slot, or a failure in a batch's place (slot -1).
  struct Event {
    int slot = -1;
    server::BatchMeta meta;
    server::BatchFailure failure;
  };

  PlainSlotPool(int slots, int64_t slot_bytes);

  int slots() const override { return static_cast<int>(memory_.size()); }
  int Acquire() override;
  std::byte* data(int slot) override { return memory_[slot].data(); }
  void Publish(int slot, const server::BatchMeta& meta) override;
  void Abandon(int slot) override;
  void Fail(const server::BatchMeta& meta, const server::BatchFailure& failure) override;
  void OnSlotFree(std::function<void()> wake) override;

  std::optional<Event> Next(
      absl::Duration timeout = absl::Seconds(60));  // nothing: the time ran out
  void Release(int slot);
  void Close();  // as when the client dies: Acquire gives no more slots

  int free_slots() const;
  bool WaitUntilAllFree(absl::Duration timeout = absl::Seconds(60));
  std::vector<std::string> violations() const;

 private:
  enum class State { kFree, kFilling, kLent };
  void Expect(int slot, State state, const char* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Free(int slot, State from, const char* call);

  std::vector<std::vector<std::byte>> memory_;
  std::function<void()> wake_;
  mutable server::Mutex mu_;
  server::CondVar changed_;
  std::vector<State> states_ ABSL_GUARDED_BY(mu_);
  std::deque<Event> events_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> violations_ ABSL_GUARDED_BY(mu_);
  std::optional<server::BatchMeta> last_ ABSL_GUARDED_BY(mu_);
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace feedwater::testing
