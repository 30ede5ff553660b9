// What is asked of a source's processes: which of those that wait goes to which process, how many
// at a time, and what becomes of the answers.
#include <algorithm>
#include <utility>

#include "server/base/clock.h"
#include "server/base/payload.h"
#include "server/provider/entries.h"
#include "server/provider/provided.h"

namespace feedwater::server {
namespace {

// Of cheap records many are asked for at once, so that the messages do not count; more than this
// would make a batch wait for one process.
constexpr double kChunkNs = 2e6;
constexpr size_t kLeastSwept = 1024;  // records: fewer are not looked through for each Ask

}  // namespace

void Provided::Ask(int64_t record, const ProvidedSeed& seed, std::weak_ptr<RecordTaker> taker) {
  AskedRecord asked{record, seed, std::move(taker)};
  const size_t lane = LaneOf(asked);
  MutexLock lock(&mu_);
  // Whoever asks leaves at most as much behind as is wanted: to look through it costs each Ask the
  // same.
  if (++asked_since_sweep_ > std::max(kLeastSwept, wanted_)) SweepLocked();
  Put(std::move(asked), &LaneLocked(lane).waiting);
}

void Provided::SweepLocked() {
  wanted_ = asked_since_sweep_ = 0;
  for (auto it = lanes_.begin(); it != lanes_.end(); it = LetGoLocked(it)) {
    for (std::deque<AskedRecord>* queue : {&it->second.alone, &it->second.waiting}) {
      std::erase_if(*queue, [](const AskedRecord& asked) { return asked.taker.expired(); });
      wanted_ += queue->size();
    }
  }
}

void Provided::Flush() {
  Deliveries deliveries;
  {
    MutexLock lock(&mu_);
    DispatchLocked(MonotonicNs(), &deliveries);
  }
  Finish(std::move(deliveries));
}

void Provided::DispatchLocked(int64_t now_ns, Deliveries* deliveries) {
  if (is_superseded_) return DispatchAllLocked(now_ns, deliveries);
  for (const auto& [id, channel] : channels_) channel->drains = false;  // unless it is wanted still
  for (const auto& [id, channel] : channels_) {
    const auto lane = lanes_.find(channel->lane);
    if (lane == lanes_.end()) continue;
    DispatchLaneLocked(lane->first, lane->second, now_ns, deliveries);
    LetGoLocked(lane);
    if (!is_in_order()) break;  // there is one lane
  }
}

void Provided::DispatchAllLocked(int64_t now_ns, Deliveries* deliveries) {
  for (const auto& [id, channel] : channels_) channel->drains = false;
  for (auto it = lanes_.begin(); it != lanes_.end(); it = LetGoLocked(it))
    DispatchLaneLocked(it->first, it->second, now_ns, deliveries);
}

void Provided::DispatchLaneLocked(size_t number, Lane& lane, int64_t now_ns,
                                  Deliveries* deliveries) {
  std::deque<AskedRecord>&waiting = lane.waiting, &alone = lane.alone;
  if (waiting.empty() && alone.empty()) return;
  if (IsAbsentLocked(lane, now_ns)) {
    for (std::deque<AskedRecord>* queue : {&alone, &waiting}) {
      for (AskedRecord& asked : *queue)
        deliveries->all.push_back({std::move(asked.taker), Absent(number), {}, nullptr});
      queue->clear();
    }
    return;
  }
  if (lane.absence.since_ns != 0) return;  // nobody is there to be asked
  while (!alone.empty()) {
    if (alone.front().taker.expired()) {
      alone.pop_front();
      continue;
    }
    // Told when a process is there: where none is left the program has ended, which is not the
    // record's fault.
    if (!alone.front().why.ok()) {
      deliveries->all.push_back(
          {std::move(alone.front().taker), std::move(alone.front().why), {}, nullptr});
      alone.pop_front();
      continue;
    }
    Channel* const channel = WithRoomLocked(number, alone.front().data_bytes, deliveries);
    if (channel == nullptr) break;
    std::vector<AskedRecord> records;
    records.push_back(std::move(alone.front()));
    alone.pop_front();
    AskRecordsLocked(*channel, std::move(records), now_ns);
  }
  while (!waiting.empty()) {
    Channel* const channel = LeastBusyLocked(number);
    if (channel == nullptr) return;
    const size_t chunk = ChunkLocked(*channel);
    std::vector<AskedRecord> records;
    while (!waiting.empty() && records.size() < chunk) {
      if (!waiting.front().taker.expired()) records.push_back(std::move(waiting.front()));
      waiting.pop_front();
    }
    if (!records.empty()) AskRecordsLocked(*channel, std::move(records), now_ns);
  }
}

// How many records a process is asked for at once: so many that the messages do not count, and so
// few that the others have some, too.
size_t Provided::ChunkLocked(const Channel& channel) const {
  size_t windows = 0;
  for (const Channel* const other : ChannelsLocked(channel.lane))
    windows += other->busy() == channel.busy();
  const double by_time = kChunkNs / std::max(entry_ns_, 1.0);
  const double by_room = static_cast<double>(channel.shared()->data_bytes()) /
                         std::max(entry_bytes_ > 0 ? entry_bytes_ : double{kGuessedBytes}, 1.0);
  const size_t waiting = lanes_.at(channel.lane).waiting.size();
  const size_t share = (waiting + windows - 1) / std::max<size_t>(windows, 1);
  const auto most = static_cast<size_t>(
      std::clamp(std::min(by_time, by_room), 1.0, static_cast<double>(wire::kMaxEntries)));
  return std::max<size_t>(std::min(share, most), 1);
}

void Provided::AskRecordsLocked(Channel& channel, std::vector<AskedRecord> records,
                                int64_t now_ns) {
  const uint32_t window = *channel.FreeWindow();
  for (uint32_t i = 0; i < records.size(); ++i) {
    wire::Entry entry{};
    entry.record = records[i].record;
    entry.seed[0] = records[i].seed[0];
    entry.seed[1] = records[i].seed[1];
    channel.shared()->WriteEntry(window, i, entry);
  }
  const auto entries = static_cast<uint32_t>(records.size());
  channel.windows()[window].records = std::move(records);
  channel.SendAsk(window, entries, now_ns);
}

void Provided::TakeRecordsLocked(Channel& channel, uint32_t number, Deliveries* deliveries) {
  constexpr double kNew = 0.2;
  Channel::Window& window = channel.windows()[number];
  const SharedWindows& shared = *channel.shared();
  const auto reading =
      std::make_shared<const Reading>(shared_from_this(), channels_[channel.id()], number);
  deliveries->readings.push_back(reading);
  for (uint32_t i = 0; i < window.records.size(); ++i) {
    AskedRecord& asked = window.records[i];
    const wire::Entry entry = shared.ReadEntry(number, i);
    const absl::Span<const std::byte> bytes = shared.Data(number, entry.offset, entry.bytes);
    Delivery delivery{std::move(asked.taker), {}, {}, nullptr};
    const bool is_made = entry.code == static_cast<uint32_t>(wire::EntryCode::kMade);
    if (entry.code == static_cast<uint32_t>(wire::EntryCode::kTooLarge)) {
      delivery.status = TooLarge(entry.bytes);
      if (entry.bytes <= static_cast<uint64_t>(kMostEntryBytes)) {
        const auto wants_bytes = static_cast<int64_t>(entry.bytes);
        const int64_t had_bytes = window.records.size() > 1 ? 0 : shared.data_bytes();
        asked.data_bytes = RoomAfter(had_bytes, wants_bytes, &asked.is_doubted);
        if (asked.data_bytes > 0 && asked.data_bytes <= kMostRecordRoom) {
          asked.taker = std::move(delivery.taker);
          Put(std::move(asked), &LaneLocked(channel.lane).alone);
          continue;
        }
        delivery.status = NeverFits(had_bytes, wants_bytes);
      }
    } else if (bytes.size() != entry.bytes || (is_made && entry.offset % wire::kPayloadUnit != 0)) {
      delivery.status = absl::InvalidArgumentError("what was given lies outside its window");
    } else if (entry.code == static_cast<uint32_t>(wire::EntryCode::kFailed)) {
      delivery.status = absl::InvalidArgumentError(TextOf(bytes));
    } else if (!is_made) {
      delivery.status = absl::InvalidArgumentError("was answered with an unknown code");
    } else {
      delivery.bytes = bytes;
      delivery.holds = reading;
      entry_bytes_ += kNew * (static_cast<double>(entry.bytes) - entry_bytes_);
    }
    if (is_in_order()) {
      const int64_t behind = asked.record / workers() + 1;
      const bool is_new = channel.epoch != asked.seed;
      channel.farthest = std::max(is_new ? 0 : channel.farthest, behind);
      if (!asked.is_unwanted) {
        channel.next_place = behind;
      } else if (is_new) {  // its iterator may not have come so far
        channel.next_place = 0;
      }
      channel.epoch = asked.seed;
    }
    ++(delivery.status.ok() ? counts_.made : counts_.failed);
    deliveries->all.push_back(std::move(delivery));
  }
  window.records.clear();
}

void Provided::FreeWindow(Channel& channel, const SharedWindows* shared, uint32_t window) {
  Deliveries deliveries;
  {
    MutexLock lock(&mu_);
    if (channel.shared().get() != shared) return;
    channel.windows()[window].state = Channel::State::kFree;
    if (channel.is_lost()) return;
    DispatchLocked(MonotonicNs(), &deliveries);
  }
  changed_.SignalAll();
  Finish(std::move(deliveries));
}

}  // namespace feedwater::server
