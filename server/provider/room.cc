// Which process has room for what is asked, and larger windows where none has. They are made with
// no lock held: one of 256 MiB takes 100 ms.
#include <algorithm>
#include <utility>

#include "server/base/clock.h"
#include "server/provider/provided.h"

namespace feedwater::server {
namespace {

// Others may be a little larger; what is very large is rare.
int64_t WithSlack(int64_t bytes) {
  constexpr int64_t kLarge = 16 << 20;
  return bytes > kLarge ? bytes : bytes + bytes / 4;
}

}  // namespace

std::vector<Channel*> Provided::ChannelsLocked(size_t lane) const {
  std::vector<Channel*> found;
  for (const auto& [id, channel] : channels_) {
    if (channel->lane != lane) continue;
    found.push_back(channel.get());
    if (is_in_order()) break;
  }
  return found;
}

Channel* Provided::LeastBusyLocked(size_t lane) {
  Channel* least = nullptr;
  for (Channel* const channel : ChannelsLocked(lane)) {
    if (channel->drains || !channel->FreeWindow().has_value()) continue;
    if (least == nullptr || channel->busy() < least->busy()) least = channel;
  }
  return least;
}

Channel* Provided::WithRoomLocked(size_t lane, int64_t data_bytes, Deliveries* deliveries) {
  Channel *emptiest = nullptr, *least = nullptr;
  bool grows = false;
  for (Channel* const channel : ChannelsLocked(lane)) {
    grows |= channel->grows;
    const bool has_room = channel->shared()->data_bytes() >= data_bytes;
    const bool may_have = !channel->drains || channel->all_free();
    if (has_room && may_have && channel->FreeWindow().has_value() &&
        (least == nullptr || channel->busy() < least->busy())) {
      least = channel;
    }
    // The others' windows grow when it is their turn.
    if (!has_room && (emptiest == nullptr || channel->all_free() || channel->drains))
      emptiest = channel;
  }
  if (least != nullptr || emptiest == nullptr || grows) return least;
  emptiest->drains = !emptiest->all_free();
  emptiest->grows = emptiest->all_free();
  if (emptiest->grows) deliveries->growths.push_back({channels_[emptiest->id()], data_bytes});
  return nullptr;
}

void Provided::Finish(Deliveries deliveries) {
  Deliver(deliveries);
  std::vector<Growth> growths = std::move(deliveries.growths);
  deliveries = Deliveries();  // its windows are free from now on
  while (!growths.empty()) {
    const Growth growth = std::move(growths.back());
    growths.pop_back();
    Deliveries more;
    (void)Grow(growth, &more);  // whoever waits for it has been told
    Deliver(more);
    for (Growth& another : more.growths) growths.push_back(std::move(another));
  }
}

absl::Status Provided::Grow(const Growth& growth, Deliveries* deliveries) {
  Channel& channel = *growth.channel;
  absl::StatusOr<std::shared_ptr<SharedWindows>> windows =
      SharedWindows::Make(WithSlack(growth.data_bytes), memory_);
  std::shared_ptr<const SharedWindows> before;  // unmapped without the lock
  absl::Status status = windows.status();
  {
    MutexLock lock(&mu_);
    channel.grows = false;
    if (status.ok() && !channel.is_lost()) {
      before = channel.shared();
      status = channel.Give(*std::move(windows));
      if (absl::IsCancelled(status)) status = absl::OkStatus();  // it has hung up, which is read
    }
    if (!status.ok()) {
      std::deque<AskedRecord>& alone = LaneLocked(channel.lane).alone;
      const auto wants = std::find_if(alone.begin(), alone.end(), [&](const AskedRecord& asked) {
        return asked.data_bytes == growth.data_bytes;
      });
      if (wants != alone.end()) {
        deliveries->all.push_back({std::move(wants->taker), status, {}, nullptr});
        alone.erase(wants);
      }
    }
    DispatchLocked(MonotonicNs(), deliveries);
  }
  changed_.SignalAll();
  return status;
}

}  // namespace feedwater::server
