// A stream's next epoch: its order is made by one worker, without the scheduler's lock, while the
// others wait for it.
#include "server/base/clock.h"
#include "server/pipeline/scheduler.h"

namespace feedwater::server {

bool Scheduler::BeginEpoch(Stream& stream) {
  OrderCursor& next = Guarded(stream).next;
  if (next.step < next.order->steps()) return true;
  const auto order = Guarded(stream.job()).next_orders.Find(next.order->epoch() + 1);
  if (order == nullptr) return false;
  next = {order, 0};
  return true;
}

bool Scheduler::AwaitsOrder(const Stream& stream) const {
  if (Guarded(stream).makes_order) return true;
  const OrderCursor& next = Guarded(stream).next;
  if (next.step < next.order->steps()) return false;
  return Guarded(stream.job()).next_orders.IsBeingMade(next.order->epoch() + 1);
}

int64_t Scheduler::MakeOrder(Stream& stream) {
  const int64_t start_ns = ThreadCpuNs();
  OrderCursor at;
  {
    MutexLock lock(&mu_);
    at = Guarded(stream).next;
  }
  const bool is_at_end = at.step == at.order->steps();
  std::shared_ptr<const EpochOrder> order;
  if (is_at_end) {
    order = PrepareEpoch(stream.job(), at.order->epoch() + 1);
  } else {
    at.order->Prepare();
  }
  const int64_t cpu_ns = ThreadCpuNs() - start_ns;
  {
    MutexLock lock(&mu_);
    auto& state = Guarded(stream);
    state.makes_order = false;
    // Unless somebody else makes it, or the stream has been told to go elsewhere.
    if (order != nullptr && state.next.order == at.order && state.next.step == at.step)
      state.next = {order, 0};
    Use(stream.job(), static_cast<double>(cpu_ns));
  }
  WakeFor(stream.job());  // workers that found it waiting
  return cpu_ns;
}

std::shared_ptr<const EpochOrder> Scheduler::PrepareEpoch(Job& job, uint64_t epoch) {
  {
    MutexLock lock(&mu_);
    EpochOrders& orders = Guarded(job).next_orders;
    if (auto known = orders.Find(epoch); known != nullptr) return known;
    if (orders.IsBeingMade(epoch)) return nullptr;
    orders.BeginMaking(epoch);
  }
  auto order = std::make_shared<const EpochOrder>(job.order_config(), epoch, 0);
  order->Prepare();
  {
    MutexLock lock(&mu_);
    Guarded(job).next_orders.Add(order);
  }
  WakeFor(job);  // workers that found its streams waiting for it
  return order;
}

}  // namespace feedwater::server
