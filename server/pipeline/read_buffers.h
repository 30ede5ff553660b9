// The read buffers of one worker: aligned for direct I/O, kept and used again. What stands beyond
// the base that every worker has reserved at start is reserved in the memory budget before it is
// allocated, and given back when it is idle.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/memory_budget.h"

namespace feedwater::server {

class ReadBuffers {
 public:
  static constexpr int64_t kBaseBytes = 16 << 20;  // reserved per worker by Runtime::Create

  class Buffer {
   public:
    std::byte* data() const { return data_.get(); }
    size_t capacity() const { return capacity_; }

   private:
    friend class ReadBuffers;
    struct Free {
      void operator()(std::byte* data) const { std::free(data); }
    };
    std::unique_ptr<std::byte[], Free> data_;
    size_t capacity_ = 0;
    MemoryReservation reservation_;
  };

  explicit ReadBuffers(std::shared_ptr<MemoryBudget> budget) : budget_(std::move(budget)) {}

  // ResourceExhausted when the budget or the machine does not have it. What is not planned is
  // reserved from `share`, of the user for whom it is, or where that is null from the whole.
  absl::StatusOr<Buffer> Get(size_t bytes, MemoryBudget* share = nullptr);
  // For a read that may hang: never one of those that are planned, which are everybody's.
  absl::StatusOr<Buffer> GetReserved(size_t bytes, MemoryBudget* share = nullptr);
  void Put(Buffer buffer);
  void FreeIdle();  // those that nobody has; they stay planned

 private:
  absl::StatusOr<Buffer> Make(size_t capacity, MemoryBudget* share, bool in_base);

  const std::shared_ptr<MemoryBudget> budget_;
  std::vector<Buffer> idle_;
  int64_t base_used_ =
      0;  // bytes of all buffers, idle or not, that have no reservation of their own
};

}  // namespace feedwater::server
