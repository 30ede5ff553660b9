#include "server/pipeline/sample_rooms.h"

#include <algorithm>
#include <climits>
#include <utility>

namespace feedwater::server {
namespace {

constexpr char kTerm[] = "samples", kLargeTerm[] = "large samples";
// How often one that waits looks whether it is still wanted.
constexpr auto kLookEvery = absl::Milliseconds(100);

}  // namespace

SampleRooms::Wanted SampleRooms::WantedBy(int worker, const Claim* more) const {
  Wanted wanted;
  const auto add = [&](const Claim& claim) {
    if (claim.isolated_) {
      wanted.isolated += claim.bytes_;
    } else {
      wanted.own = std::max(wanted.own, claim.bytes_);
    }
  };
  for (const Claim* claim : claims_) {
    if (worker < claim->workers_) add(*claim);
  }
  if (more != nullptr) add(*more);
  return wanted;
}

absl::StatusOr<std::shared_ptr<const SampleRooms::Claim>> SampleRooms::Admit(const std::string& job,
                                                                             int64_t bytes,
                                                                             bool isolated) {
  std::shared_ptr<Claim> claim;  // destroyed without the lock, which its end takes
  std::shared_ptr<const Claim> same;
  MutexLock lock(&mu_);
  for (auto it = by_job_.begin(); it != by_job_.end();)
    it = it->second.expired() ? by_job_.erase(it) : std::next(it);
  if (auto known = by_job_.find(job); known != by_job_.end()) {
    same = known->second.lock();
    if (same != nullptr && same->bytes_ == bytes && same->isolated_ == isolated) return same;
  }
  claim.reset(new Claim(shared_from_this(), bytes, isolated));
  for (int i = 0; i < options_.workers; ++i) {
    Worker& worker = workers_[static_cast<size_t>(i)];
    const Wanted wanted = WantedBy(i, claim.get());
    const int64_t grows = wanted.all() - worker.reserved.load(std::memory_order_relaxed);
    if (options_.budget != nullptr && grows > 0) {
      absl::StatusOr<MemoryReservation> part = options_.budget->Reserve(kTerm, grows);
      if (!part.ok() && i == 0) return part.status();
      if (!part.ok()) break;
      worker.parts.push_back(*std::move(part));
      worker.reserved.fetch_add(grows, std::memory_order_relaxed);
    }
    Want(worker, wanted);
    claim->workers_ = i + 1 < options_.workers ? i + 1 : INT_MAX;
  }
  claims_.insert(claim.get());
  by_job_[job] = claim;
  return claim;
}

void SampleRooms::Leave(const Claim* claim) {
  {
    MutexLock lock(&mu_);
    if (claims_.erase(claim) == 0) return;
    for (int i = 0; i < options_.workers; ++i)
      Want(workers_[static_cast<size_t>(i)], WantedBy(i));
  }
  if (options_.shrunk) options_.shrunk();
}

void SampleRooms::Settle(int worker) {
  MutexLock lock(&mu_);
  SettleLocked(workers_[static_cast<size_t>(worker)]);
  changed_.SignalAll();
}

void SampleRooms::SettleLocked(Worker& worker) {
  int64_t excess = worker.reserved.load(std::memory_order_relaxed) -
                   worker.wanted.load(std::memory_order_relaxed);
  while (excess > 0 && !worker.parts.empty()) {
    const int64_t bytes = worker.parts.back().bytes();
    worker.parts.pop_back();
    worker.reserved.fetch_sub(bytes, std::memory_order_relaxed);
    excess -= bytes;
  }
  if (excess >= 0) return;
  // The last part was more than enough. Should somebody else be quicker, the next claim gets it.
  absl::StatusOr<MemoryReservation> rest = options_.budget->Reserve(kTerm, -excess);
  if (!rest.ok()) return;
  worker.parts.push_back(*std::move(rest));
  worker.reserved.fetch_add(-excess, std::memory_order_relaxed);
}

absl::StatusOr<SampleRooms::Room> SampleRooms::Enter(int64_t bytes, const std::atomic<bool>* gone) {
  Room room;
  if (options_.budget == nullptr || bytes <= 0) return room;
  MutexLock lock(&mu_);
  const uint64_t turn = ++last_turn_;
  waiting_.insert(turn);
  absl::Status refused;
  for (;;) {
    if (*waiting_.begin() == turn) {
      absl::StatusOr<MemoryReservation> reserved = options_.budget->Reserve(kLargeTerm, bytes);
      if (reserved.ok()) {
        room.reservation_ = *std::move(reserved);
        room.rooms_ = shared_from_this();
        ++large_;
        break;
      }
      refused = reserved.status();
      if (large_ == 0) break;
    }
    refused = absl::CancelledError("nobody wants the sample any more");
    if (gone != nullptr && gone->load(std::memory_order_relaxed)) break;
    changed_.WaitWithTimeout(&mu_, kLookEvery);
  }
  waiting_.erase(turn);
  changed_.SignalAll();
  if (room.rooms_ == nullptr) return refused;
  return room;
}

void SampleRooms::Room::Release() {
  if (rooms_ == nullptr) return;
  reservation_.Release();
  {
    MutexLock lock(&rooms_->mu_);
    --rooms_->large_;
    rooms_->changed_.SignalAll();
  }
  rooms_.reset();
}

int SampleRooms::waiting() const {
  MutexLock lock(&mu_);
  return static_cast<int>(waiting_.size());
}

}  // namespace feedwater::server
