// The states of a session's slots, without memory, sockets or locks: who may do what with a slot
// now. See server/batch/slot_pool.h for the picture. At most 64 slots (wire::kMaxSlots), so the
// free ones are a bit set.
//
// Not thread-safe: the session's mutex guards it.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "proto/shm/wire.h"

namespace feedwater::server {

class SlotTable {
 public:
  enum class State : uint8_t { kFree, kFilling, kLent };
  enum class Released { kOk, kNoSuchSlot, kWrongGeneration, kNotLent };

  SlotTable() = default;
  explicit SlotTable(int slots)  // REQUIRES: 1 <= slots <= wire::kMaxSlots
      : slots_(slots), free_(~uint64_t{0} >> (wire::kMaxSlots - slots)) {}

  int slots() const { return slots_; }
  int free() const { return std::popcount(free_); }
  int lent() const { return std::popcount(lent_); }
  State state(int slot) const {
    return Has(free_, slot) ? State::kFree : Has(lent_, slot) ? State::kLent : State::kFilling;
  }
  uint64_t generation(int slot) const { return generations_[slot]; }

  // The lowest free slot, whose memory is the likeliest to be in a cache; -1 when none is free.
  int Acquire() {
    if (free_ == 0) return -1;
    const int slot = std::countr_zero(free_);
    free_ &= ~Bit(slot);
    return slot;
  }
  // FILLING -> LENT. The new generation; 0 when the slot was not being filled.
  uint64_t Lend(int slot) {
    if (!IsFilling(slot)) return 0;
    lent_ |= Bit(slot);
    return ++generations_[slot];
  }
  // FILLING -> FREE. False when the slot was not being filled.
  bool Abandon(int slot) {
    if (!IsFilling(slot)) return false;
    free_ |= Bit(slot);
    return true;
  }
  // LENT -> FREE, on the word of a client that may say anything.
  Released Release(uint32_t slot, uint64_t generation) {
    if (slot >= static_cast<uint32_t>(slots_)) return Released::kNoSuchSlot;
    if (generation != generations_[slot]) return Released::kWrongGeneration;
    if (!Has(lent_, slot)) return Released::kNotLent;
    lent_ &= ~Bit(slot);
    free_ |= Bit(slot);
    return Released::kOk;
  }

 private:
  static uint64_t Bit(int slot) { return uint64_t{1} << slot; }
  static bool Has(uint64_t set, int slot) { return (set & Bit(slot)) != 0; }
  bool IsFilling(int slot) const {
    return slot >= 0 && slot < slots_ && !Has(free_, slot) && !Has(lent_, slot);
  }

  int slots_ = 0;
  uint64_t free_ = 0, lent_ = 0;  // never both; a slot in neither is being filled
  std::array<uint64_t, wire::kMaxSlots> generations_{};
};

static_assert(wire::kMaxSlots == 64, "the sets are one word");

}  // namespace feedwater::server
