// The read buffers of one worker: aligned for direct I/O, on huge pages, and reused. What
// stands beyond the base that every worker has reserved at start is reserved in the memory budget
// before it is allocated, and given back when it is idle.
//
// Thread safety: belongs to one thread; buffers may end on any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/huge_region.h"
#include "server/base/memory_budget.h"

namespace feedwater::server {

class ReadBuffers {
 public:
  static constexpr int64_t kBaseBytes = 16 << 20;  // reserved per worker by Runtime::Create

  // Bytes that are counted for as long as this lives, wherever it ends.
  class Count {
   public:
    Count() = default;
    Count(std::shared_ptr<std::atomic<int64_t>> of, size_t bytes)
        : of_(std::move(of)), bytes_(static_cast<int64_t>(bytes)) {
      *of_ += bytes_;
    }
    Count(Count&& other) noexcept : of_(std::move(other.of_)), bytes_(other.bytes_) {}
    Count& operator=(Count&& other) noexcept {
      std::swap(of_, other.of_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Count() {
      if (of_ != nullptr) *of_ -= bytes_;
    }

   private:
    std::shared_ptr<std::atomic<int64_t>> of_;
    int64_t bytes_ = 0;
  };

  class Buffer {
   public:
    std::byte* data() const { return data_.get(); }
    size_t capacity() const { return capacity_; }

   private:
    friend class ReadBuffers;
    class Free {
     public:
      Free() : bytes_(0) {}
      Free(std::shared_ptr<HugeRegion> region, size_t bytes)
          : region_(std::move(region)), bytes_(bytes) {}
      void operator()(std::byte* data) const {
        region_ != nullptr ? region_->Give(data, bytes_) : std::free(data);
      }

     private:
      std::shared_ptr<HugeRegion> region_;  // that it is a piece of; null: it is the heap's
      size_t bytes_;
    };
    size_t capacity_ = 0;
    MemoryReservation reservation_;
    Count planned_, away_;  // without a reservation; and for a read that may hang
    std::unique_ptr<std::byte[], Free> data_;
  };

  explicit ReadBuffers(std::shared_ptr<MemoryBudget> budget);

  // ResourceExhausted when the budget or the machine does not have it. What is not planned is
  // reserved from `share`, of the user for whom it is, or where that is null from the whole.
  absl::StatusOr<Buffer> Get(size_t bytes, MemoryBudget* share = nullptr);
  // For a read that may hang, and leave the buffer to a call that nobody waits for: from `share`,
  // or where that is full of those that are planned, of which such reads never have more than half.
  absl::StatusOr<Buffer> GetForAway(size_t bytes, MemoryBudget* share = nullptr);
  void Put(Buffer buffer);
  void FreeIdle();  // those that nobody has; they stay planned

 private:
  absl::StatusOr<Buffer> Make(size_t capacity, MemoryBudget* share, bool planned);
  bool HasPlanned(size_t capacity) const {
    return *planned_ + static_cast<int64_t>(capacity) <= kBaseBytes;
  }

  const std::shared_ptr<MemoryBudget> budget_;
  const std::shared_ptr<HugeRegion> region_;  // of those that are planned; may be null
  // Bytes of all buffers that have no reservation of their own; those of them that are away.
  const std::shared_ptr<std::atomic<int64_t>> planned_ = std::make_shared<std::atomic<int64_t>>(0);
  const std::shared_ptr<std::atomic<int64_t>> away_ = std::make_shared<std::atomic<int64_t>>(0);
  std::vector<Buffer> idle_;
};

}  // namespace feedwater::server
