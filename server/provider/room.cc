// Which process has room for what is asked, and larger windows where none has. They are made with
// no lock held, and not on the thread that listens to processes: one of 256 MiB takes 100 ms.
#include <algorithm>
#include <utility>

#include "server/base/clock.h"
#include "server/provider/entries.h"
#include "server/provider/provided.h"

namespace feedwater::server {
namespace {

// Others may be a little larger; what is very large is rare. Each growth is by a quarter at least,
// whatever is asked for, so one process can want 40 of them.
int64_t GrownBytes(int64_t before_bytes, int64_t bytes, int64_t most_bytes) {
  constexpr int64_t kLarge = 16 << 20;
  const int64_t least_bytes = std::min(before_bytes + before_bytes / 4, most_bytes);
  return std::max(bytes > kLarge ? bytes : bytes + bytes / 4, least_bytes);
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

bool Provided::MayHaveRoomLocked(size_t lane, int64_t data_bytes) const {
  const std::vector<Channel*> channels = ChannelsLocked(lane);
  return std::any_of(channels.begin(), channels.end(), [&](Channel* channel) {
    if (channel->grows || !channel->FreeWindow().has_value()) return false;
    return channel->all_free() ||
           (!channel->drains && channel->shared()->data_bytes() >= data_bytes);
  });
}

void Provided::Finish(Deliveries deliveries) {
  Deliver(deliveries);
  std::vector<Growth> growths = std::move(deliveries.growths);
  deliveries = Deliveries();  // its windows are free from now on
  for (Growth& growth : growths) {
    maker_->Make(offer_.user, [self = shared_from_this(), growth = std::move(growth)] {
      Deliveries more;
      (void)self->Grow(growth, &more);  // whoever waits for it is told
      self->Finish(std::move(more));
    });
  }
}

absl::Status Provided::Grow(const Growth& growth, Deliveries* deliveries) {
  Channel& channel = *growth.channel;
  const int64_t most_bytes = offer_.kind == Offer::Kind::kSource ? kMostRecordRoom : kMostCallRoom;
  int64_t before_bytes = 0;
  {
    MutexLock lock(&mu_);
    if (channel.is_lost()) return absl::OkStatus();  // others are asked by now
    before_bytes = channel.shared()->data_bytes();
  }
  const int64_t grown_bytes = GrownBytes(before_bytes, growth.data_bytes, most_bytes);
  absl::StatusOr<std::shared_ptr<SharedWindows>> windows =
      SharedWindows::Make(grown_bytes, memory_);
  // With less slack, where there is no room for more.
  const int64_t least_bytes = std::max(growth.data_bytes, before_bytes + before_bytes / 16);
  if (absl::IsResourceExhausted(windows.status()))
    windows = SharedWindows::MakeWithRoom(std::min(least_bytes, grown_bytes), memory_);
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
