// The slot states against a model: random calls, right and wrong, on both the table and a plain
// list; every answer and every state must agree.
#include "server/transport/slot_table.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/testing/test_seed.h"

namespace feedwater::server {
namespace {

using State = SlotTable::State;
using Released = SlotTable::Released;

struct Model {
  struct Slot {
    State state = State::kFree;
    uint64_t generation = 0;
  };
  std::vector<Slot> slots;

  int Acquire() {
    for (size_t i = 0; i < slots.size(); ++i) {
      if (slots[i].state != State::kFree) continue;
      slots[i].state = State::kFilling;
      return static_cast<int>(i);
    }
    return -1;
  }
  bool Filling(int64_t slot) const {
    return slot >= 0 && slot < static_cast<int64_t>(slots.size()) &&
           slots[slot].state == State::kFilling;
  }
  uint64_t Lend(int slot) {
    if (!Filling(slot)) return 0;
    slots[slot].state = State::kLent;
    return ++slots[slot].generation;
  }
  bool Abandon(int slot) {
    if (!Filling(slot)) return false;
    slots[slot].state = State::kFree;
    return true;
  }
  Released Release(uint32_t slot, uint64_t generation) {
    if (slot >= slots.size()) return Released::kNoSuchSlot;
    if (generation != slots[slot].generation) return Released::kWrongGeneration;
    if (slots[slot].state != State::kLent) return Released::kNotLent;
    slots[slot].state = State::kFree;
    return Released::kOk;
  }
};

TEST(SlotTable, AgreesWithAPlainModelUnderRandomCalls) {
  const uint32_t seed = testing::TestSeed();
  SCOPED_TRACE(::testing::Message() << "FEEDWATER_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2'000; ++round) {
    const int n = 1 + static_cast<int>(random() % wire::kMaxSlots);
    SlotTable table(n);
    Model model;
    model.slots.resize(n);
    for (int step = 0; step < 300; ++step) {
      const int slot = static_cast<int>(random() % (n + 4)) - 2;  // some that do not exist
      switch (random() % 4) {
        case 0:
          ASSERT_EQ(table.Acquire(), model.Acquire());
          break;
        case 1:
          ASSERT_EQ(table.Lend(slot), model.Lend(slot));
          break;
        case 2:
          ASSERT_EQ(table.Abandon(slot), model.Abandon(slot));
          break;
        case 3: {
          const bool exists = slot >= 0 && slot < n;
          uint64_t generation = exists ? model.slots[slot].generation : random() % 3;
          if (random() % 8 == 0) generation += random() % 3 - 1;
          ASSERT_EQ(table.Release(slot, generation), model.Release(slot, generation));
          break;
        }
      }
      int free = 0, lent = 0;
      for (int i = 0; i < n; ++i) {
        ASSERT_EQ(table.state(i), model.slots[i].state) << "slot " << i << " step " << step;
        ASSERT_EQ(table.generation(i), model.slots[i].generation);
        free += model.slots[i].state == State::kFree;
        lent += model.slots[i].state == State::kLent;
      }
      ASSERT_EQ(table.free(), free);
      ASSERT_EQ(table.lent(), lent);
    }
  }
}

TEST(SlotTable, GenerationsBeginWithOneAndAReleaseOfNoneIsRefused) {
  SlotTable table(2);
  EXPECT_EQ(table.Release(0, 0), Released::kNotLent);
  EXPECT_EQ(table.Acquire(), 0);
  EXPECT_EQ(table.Release(0, 0), Released::kNotLent);
  EXPECT_EQ(table.Lend(0), 1u);
  EXPECT_EQ(table.Release(0, 0), Released::kWrongGeneration);
  EXPECT_EQ(table.Release(0, 1), Released::kOk);
  EXPECT_EQ(table.Release(0, 1), Released::kNotLent);
}

TEST(SlotTable, AllSixtyFourSlotsCanBeLent) {
  SlotTable table(wire::kMaxSlots);
  for (uint32_t i = 0; i < wire::kMaxSlots; ++i) EXPECT_EQ(table.Lend(table.Acquire()), 1u);
  EXPECT_EQ(table.Acquire(), -1);
  EXPECT_EQ(table.lent(), 64);
  EXPECT_EQ(table.Release(63, 1), Released::kOk);
  EXPECT_EQ(table.Acquire(), 63);
}

TEST(SlotTable, ATableWithoutSlotsGivesNone) {
  SlotTable table;
  EXPECT_EQ(table.Acquire(), -1);
  EXPECT_EQ(table.Release(0, 0), Released::kNoSuchSlot);
}

}  // namespace
}  // namespace feedwater::server
