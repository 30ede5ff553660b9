// One connection to a daemon's data socket: the hand-shake, the mapped arena, and the messages of
// proto/shm/wire.h.
//
// A Session is shared by its Stream and by every Batch it has lent, so the arena stays mapped while
// any batch lives, even after the daemon is gone. Release may be called from any thread; everything
// else belongs to the stream's thread.
//
// It belongs to the process that connected. A forked child has copies of the batches and of the
// socket, and what it sent would be taken for the parent's word: there SendSeek, HangUp and Release
// do nothing, and Receive is FailedPrecondition.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/shm/wire.h"

namespace feedwater {

class Session {
 public:
  using Message = std::variant<wire::Ready, wire::FailedWithReason, wire::Closing>;

  // Connects and exchanges HELLO and WELCOME. Unavailable when nobody listens, PermissionDenied
  // when this user may not connect, FailedPrecondition naming both versions when the protocols
  // differ. `greeted`, if not null, tells whether a daemon has answered, be it with a refusal.
  static absl::StatusOr<std::shared_ptr<Session>> Connect(const std::string& address,
                                                          bool* greeted = nullptr);
  ~Session();
  Session(const Session&) = delete;

  const std::array<uint8_t, 16>& ticket() const { return ticket_; }
  // FailedPrecondition in a process that was forked off the one that connected.
  absl::Status CheckProcess() const;
  // Waits for ARENA, checks its seals and size, and maps it read-only. Call after OpenStream has
  // succeeded.
  // With `protect` a slot can be read only while it is lent: anything else is a SIGSEGV at the
  // reader's place instead of another batch's bytes.
  absl::Status MapArena(uint64_t slot_bytes, uint32_t slots, bool protect);

  // The next message, or DeadlineExceeded after `timeout_ms`; Unavailable once the daemon has hung
  // up.
  absl::StatusOr<Message> Receive(int timeout_ms);
  // A daemon that hung up is found by the next Receive, with its last word.
  void SendSeek(uint32_t serial, uint64_t epoch, int64_t position);
  void Lend(uint32_t slot);  // before the slot is read
  void HangUp();             // the daemon ends the session now; lent batches stay mapped
  void Release(uint32_t slot,
               uint64_t generation);  // never fails: a daemon that is gone needs no release

  const std::byte* slot(uint32_t slot) const { return arena_ + slot * slot_bytes_; }
  uint32_t slots() const { return slots_; }
  uint32_t lent() const {
    return lent_.load(std::memory_order_relaxed);
  }  // batches alive in this process
  void CountLent() { lent_.fetch_add(1, std::memory_order_relaxed); }

 private:
  explicit Session(int fd) : fd_(fd) {}
  bool is_of_this_process() const { return getpid() == pid_; }

  const int fd_;
  const pid_t pid_ = getpid();
  std::array<uint8_t, 16> ticket_{};
  uint16_t minor_ = 0;  // the minor version that both sides speak
  std::byte* arena_ = nullptr;
  uint64_t slot_bytes_ = 0;
  uint32_t slots_ = 0;
  bool protect_ = false;
  std::atomic<uint32_t> lent_{0};
};

}  // namespace feedwater
