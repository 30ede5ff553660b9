#include "server/pipeline/sample_rooms.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "absl/time/clock.h"
#include "server/base/status.h"
#include "server/storage/fault.h"

namespace feedwater::server {
namespace {

constexpr char kTerm[] = "samples", kLargeTerm[] = "large samples";
// How often one that waits looks whether it is still wanted.
constexpr auto kLookEvery = absl::Milliseconds(100);

}  // namespace

void SampleRooms::Pieces::Add(MemoryReservation piece) {
  if (piece.bytes() == 0) return;  // it would stay: only what is larger than wanted shrinks
  bytes += piece.bytes();
  pieces.push_back(std::move(piece));
}

void SampleRooms::Pieces::ShrinkTo(int64_t most) {
  while (bytes > most && !pieces.empty()) {
    MemoryReservation& piece = pieces.back();
    const int64_t less = std::min(bytes - most, piece.bytes());
    piece.ShrinkTo(piece.bytes() - less);
    bytes -= less;
    if (piece.bytes() == 0) pieces.pop_back();
  }
}

SampleRooms::Wanted SampleRooms::WantedBy(int worker, const Claim* more,
                                          std::optional<uint32_t> user) const {
  Wanted wanted;
  const auto add = [&](const Claim& claim) {
    if (claim.process_bytes_ > 0) {
      wanted.isolated += claim.process_bytes_ + claim.bytes_;
    } else {
      wanted.own = std::max(wanted.own, claim.bytes_);
    }
  };
  for (const Claim* claim : claims_) {
    if (worker < claim->workers() && claim->user_ == user.value_or(claim->user_)) add(*claim);
  }
  if (more != nullptr) add(*more);
  return wanted;
}

// Null: none but the whole.
std::shared_ptr<MemoryBudget> SampleRooms::ShareOf(uint32_t user) const {
  if (options_.shares == nullptr) return nullptr;
  std::shared_ptr<MemoryBudget> share = options_.shares->Of(user);
  return share == budget_ ? nullptr : share;
}

absl::StatusOr<std::shared_ptr<const SampleRooms::Claim>> SampleRooms::Admit(
    uint32_t user, const std::string& job, int64_t bytes, int64_t process_bytes) {
  std::shared_ptr<Claim> claim;  // destroyed without the lock, which its end takes
  std::shared_ptr<const Claim> same;
  MutexLock lock(&mu_);
  for (auto it = by_job_.begin(); it != by_job_.end();)
    it = it->second.expired() ? by_job_.erase(it) : std::next(it);
  if (auto known = by_job_.find({user, job}); known != by_job_.end()) {
    same = known->second.lock();
    if (same != nullptr && same->bytes_ == bytes && same->process_bytes_ == process_bytes)
      return same;
  }
  claim.reset(new Claim(shared_from_this(), user, bytes, process_bytes));
  absl::Status refused = Extend(claim.get());
  // What ended jobs had comes back once the workers have looked.
  const absl::Time until = absl::Now() + options_.patience;
  while (claim->workers() == 0 && HasUnsettled() && absl::Now() < until) {
    changed_.WaitWithTimeout(&mu_, kLookEvery);
    refused = Extend(claim.get());
  }
  if (claim->workers() == 0) return refused;
  claims_.insert(claim.get());
  by_job_[{user, job}] = claim;
  return claim;
}

bool SampleRooms::HasUnsettled() const {
  for (int i = 0; i < options_.workers; ++i) {
    if (!IsSettled(i)) return true;
  }
  return false;
}

absl::Status SampleRooms::Extend(Claim* claim) {
  const std::shared_ptr<MemoryBudget> share = ShareOf(claim->user_);
  std::vector<Pieces>& of_user = of_users_[claim->user_];
  of_user.resize(workers_.size());
  for (int i = claim->workers(); i < options_.workers; ++i) {
    Worker& worker = workers_[static_cast<size_t>(i)];
    Pieces& paid = of_user[static_cast<size_t>(i)];
    const Wanted wanted = WantedBy(i, claim);
    const int64_t grows = wanted.all() - worker.memory.bytes;
    // A user pays for the own claims, also where others' take as much at the same time.
    const int64_t adds = WantedBy(i, claim, claim->user_).all() - paid.bytes;
    MemoryReservation of_share;
    if (share != nullptr && adds > 0) {
      FW_ASSIGN_OR_RETURN(of_share, share->ReserveOfShare(kTerm, adds));
    }
    if (budget_ != nullptr && grows > 0) {
      FW_ASSIGN_OR_RETURN(MemoryReservation part, budget_->Reserve(kTerm, grows));
      worker.memory.Add(std::move(part));
      worker.reserved.store(worker.memory.bytes, std::memory_order_relaxed);
    }
    paid.Add(std::move(of_share));
    Want(worker, wanted);
    claim->workers_ = i + 1 < options_.workers ? i + 1 : INT_MAX;
  }
  return absl::OkStatus();
}

void SampleRooms::Leave(Claim* claim) {
  bool was_admitted;
  {
    MutexLock lock(&mu_);
    was_admitted = claims_.erase(claim) > 0;
    bool has_others = false;
    for (const Claim* other : claims_) has_others |= other->user_ == claim->user_;
    for (int i = 0; i < options_.workers; ++i) {
      Want(workers_[static_cast<size_t>(i)], WantedBy(i));
      if (const auto paid = of_users_.find(claim->user_); paid != of_users_.end())
        paid->second[static_cast<size_t>(i)].ShrinkTo(WantedBy(i, nullptr, claim->user_).all());
    }
    if (!has_others) of_users_.erase(claim->user_);
  }
  if (was_admitted && options_.changed) options_.changed();
}

bool SampleRooms::ExtendAll() {
  bool extended = false;
  for (Claim* claim : claims_) {
    const int before = claim->workers();
    if (before < INT_MAX) Extend(claim).IgnoreError();
    extended |= claim->workers() > before;
  }
  return extended;
}

void SampleRooms::Settle(int worker) {
  bool extended = false;
  {
    MutexLock lock(&mu_);
    Worker& one = workers_[static_cast<size_t>(worker)];
    one.memory.ShrinkTo(one.wanted.load(std::memory_order_relaxed));
    one.reserved.store(one.memory.bytes, std::memory_order_relaxed);
    extended = ExtendAll();
    changed_.SignalAll();
  }
  if (extended && options_.changed) options_.changed();
}

void SampleRooms::UseRoom() {
  bool extended = false;
  {
    MutexLock lock(&mu_);
    extended = ExtendAll();
  }
  if (extended && options_.changed) options_.changed();
}

const SampleRooms::Waiting* SampleRooms::FirstBefore(uint64_t turn) const {
  const auto own = waiting_.find(turn);
  const auto first = std::find_if(waiting_.begin(), own, [&](const auto& earlier) {
    return own->second.has_share ? earlier.second.has_share
                                 : earlier.second.user == own->second.user;
  });
  return first == own ? nullptr : &first->second;
}

// Whether it waits for memory, or stands in the row of one that does, which nobody gives back.
bool SampleRooms::IsStuck(const Waiting& first) const {
  if (first.is_stuck || !first.has_share) return first.is_stuck;
  return std::find_if(waiting_.begin(), waiting_.end(),
                      [](const auto& waiting) { return waiting.second.has_share; })
      ->second.is_stuck;
}

absl::StatusOr<SampleRooms::Room> SampleRooms::Enter(uint32_t user, int64_t bytes,
                                                     const std::atomic<bool>* gone, bool holds,
                                                     bool waits) {
  Room room;
  if (budget_ == nullptr || bytes <= 0) return room;
  MutexLock lock(&mu_);
  const std::shared_ptr<MemoryBudget> share = ShareOf(user);
  const uint64_t turn = ++last_turn_;
  Waiting& self = waiting_[turn] = {user, share == nullptr, false};
  absl::Status refused;
  absl::Time patient_until = absl::Now() + options_.patience;
  for (bool asked_for_room = options_.make_room == nullptr;;) {
    const bool comes_back = self.has_share ? !large_.empty() : large_.count(user) > 0;
    const Waiting* const first = FirstBefore(turn);
    if (first == nullptr) {
      MemoryBudget& from = self.has_share ? *budget_ : *share;
      absl::StatusOr<MemoryReservation> reserved = from.ReserveOfShare(kLargeTerm, bytes);
      if (reserved.ok() && !self.has_share) {
        room.of_user_ = *std::move(reserved);
        self.has_share = true;
        self.is_stuck = false;
        continue;
      }
      if (reserved.ok()) {
        room.reservation_ = *std::move(reserved);
        room.rooms_ = shared_from_this();
        room.user_ = user;
        ++large_[user];
        break;
      }
      refused = reserved.status();
      if (bytes > from.limit_bytes() || !waits) break;
      if (!comes_back && !asked_for_room) {
        asked_for_room = true;
        // Memory is short; the share must not look as if it were.
        if (share != nullptr && self.has_share) {
          room.of_user_.Release();
          self.has_share = false;
        }
        mu_.Unlock();
        const bool may_help = options_.make_room(user, refused);
        mu_.Lock();
        if (may_help) continue;
      }
      self.is_stuck = !comes_back;
      if (comes_back) patient_until = absl::Now() + options_.patience;
      if (absl::Now() >= patient_until) {
        if (holds) refused = StorageStatus(ENOMEM, refused.message());
        break;
      }
    } else if (!waits) {
      refused = absl::ResourceExhaustedError("other large samples wait for memory first");
      break;
    } else if (holds && IsStuck(*first)) {
      refused = StorageStatus(ENOMEM, "other large samples wait for memory first");
      break;
    }
    refused = absl::CancelledError("the sample is no longer needed");
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
  of_user_.Release();
  {
    MutexLock lock(&rooms_->mu_);
    if (--rooms_->large_[user_] == 0) rooms_->large_.erase(user_);
    for (auto& [turn, waiting] : rooms_->waiting_) waiting.is_stuck = false;  // until it has looked
    rooms_->changed_.SignalAll();
  }
  rooms_.reset();
}

size_t SampleRooms::pieces() const {
  MutexLock lock(&mu_);
  size_t count = 0;
  for (const Worker& worker : workers_) count += worker.memory.pieces.size();
  for (const auto& [user, paid] : of_users_)
    for (const Pieces& of_worker : paid) count += of_worker.pieces.size();
  return count;
}

int SampleRooms::waiting() const {
  MutexLock lock(&mu_);
  return static_cast<int>(waiting_.size());
}

}  // namespace feedwater::server
