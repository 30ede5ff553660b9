// The orders of whole epochs that a job's ranks come to next. A worker makes one ahead of time,
// without the scheduler's lock, and the others wait for it instead of making it, too.
//
// Not thread-safe: guarded by the scheduler's lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "server/sampler/order.h"

namespace feedwater::server {

class EpochOrders {
 public:
  // Null when it has not been made, or was dropped for later ones.
  std::shared_ptr<const EpochOrder> Find(uint64_t epoch) const {
    for (const auto& order : made_) {
      if (order->epoch() == epoch) return order;
    }
    return nullptr;
  }
  bool IsBeingMade(uint64_t epoch) const {
    return std::find(being_made_.begin(), being_made_.end(), epoch) != being_made_.end();
  }
  void BeginMaking(uint64_t epoch) { being_made_.push_back(epoch); }  // Add ends it
  void Add(std::shared_ptr<const EpochOrder> order) {
    being_made_.erase(std::find(being_made_.begin(), being_made_.end(), order->epoch()));
    if (made_.size() == kMost) made_.erase(made_.begin());
    made_.push_back(std::move(order));
  }

  static constexpr size_t kMost = 4;  // ranks may stand in different epochs

 private:
  std::vector<std::shared_ptr<const EpochOrder>> made_;  // the oldest first
  std::vector<uint64_t> being_made_;
};

}  // namespace feedwater::server
