// The memory in which samples are made, as terms of the budget. Every job claims what its plan
// knows of a sample, for each worker that runs it; workers' buffers serve one job after the other,
// so that the largest claim counts; decoder processes keep theirs, so that theirs add up. An image
// that takes more is given a room of its own for the time of its sample.
//
// A job is admitted where one worker has room for it; it then runs on as many as have, and on more
// once there is room. A room for a large image waits for other large images to end, in the order of
// asking, and two seconds for memory that is taken by anything else; what cannot fit is refused.
// Claims and rooms of one user stay within that user's share, and a user who waits for its share
// delays no other one.
//
// Thread-safe. Order of locks: this one, then the budget's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/base/room_maker.h"
#include "server/base/user_shares.h"

namespace feedwater::server {

class SampleRooms : public std::enable_shared_from_this<SampleRooms> {
 public:
  struct Options {
    std::shared_ptr<UserShares> shares;  // of the budget; null: there is room for everything
    int workers = 1;
    std::function<void()> changed;  // workers may give back memory: Settle; may be null
    absl::Duration patience = absl::Seconds(2);  // with memory that comes back
    RoomMaker make_room;                         // for a large image; may be null
  };
  static std::shared_ptr<SampleRooms> Create(Options options) {
    return std::shared_ptr<SampleRooms>(new SampleRooms(std::move(options)));
  }

  // One job's; ends with its last holder.
  class Claim {
   public:
    ~Claim() { rooms_->Leave(this); }
    // Those with lower numbers run the job; INT_MAX: all. Never fewer than before.
    int workers() const { return workers_.load(std::memory_order_relaxed); }
    int64_t bytes() const { return bytes_; }  // for a sample, on each of them

   private:
    friend class SampleRooms;
    Claim(std::shared_ptr<SampleRooms> rooms, uint32_t user, int64_t bytes, int64_t process_bytes)
        : rooms_(std::move(rooms)), user_(user), bytes_(bytes), process_bytes_(process_bytes) {}
    const std::shared_ptr<SampleRooms> rooms_;
    const uint32_t user_;
    const int64_t bytes_, process_bytes_;
    std::atomic<int> workers_{0};
  };
  // `job`: claims of one name and user that live at the same time are one. `process_bytes`: what
  // the process takes that each worker starts for an isolated job, beside its samples; 0: it is not
  // isolated. ResourceExhausted with the budget's sum when not even one worker has room.
  absl::StatusOr<std::shared_ptr<const Claim>> Admit(uint32_t user, const std::string& job,
                                                     int64_t bytes, int64_t process_bytes)
      ABSL_LOCKS_EXCLUDED(mu_);

  // What the worker's buffers may take at this moment.
  int64_t OfWorker(int worker) const {
    return workers_[static_cast<size_t>(worker)].own.load(std::memory_order_relaxed);
  }
  // The worker's buffers take no more than that: gives the rest back.
  void Settle(int worker) ABSL_LOCKS_EXCLUDED(mu_);
  // Lets jobs run on more workers where there is room by now. Called now and then.
  void UseRoom() ABSL_LOCKS_EXCLUDED(mu_);
  bool IsSettled(int worker) const {
    const Worker& one = workers_[static_cast<size_t>(worker)];
    return one.reserved.load(std::memory_order_relaxed) <=
           one.wanted.load(std::memory_order_relaxed);
  }

  // Room for a large image while it lives.
  class Room {
   public:
    Room() = default;
    Room(Room&& other) noexcept = default;
    Room& operator=(Room&& other) noexcept {
      Release();
      rooms_ = std::move(other.rooms_);
      user_ = other.user_;
      of_user_ = std::move(other.of_user_);
      reservation_ = std::move(other.reservation_);
      return *this;
    }
    ~Room() { Release(); }
    int64_t bytes() const { return reservation_.bytes(); }
    void Release();

   private:
    friend class SampleRooms;
    std::shared_ptr<SampleRooms> rooms_;
    uint32_t user_ = 0;
    MemoryReservation of_user_, reservation_;
  };
  // Waits until there is one, or until `gone` (may be null) becomes true: Cancelled.
  // ResourceExhausted when it can never fit, or there is none after some seconds without another
  // large image under way. A caller that holds memory meanwhile (`holds`: its record's) may hold
  // what another one waits for. So only the first such caller waits; the others get an error that
  // IsTransient, give back what they hold, and ask again.
  // Without `waits`: ResourceExhausted where the room is not there at once.
  absl::StatusOr<Room> Enter(uint32_t user, int64_t bytes, const std::atomic<bool>* gone,
                             bool holds = false, bool waits = true) ABSL_LOCKS_EXCLUDED(mu_);
  int waiting() const ABSL_LOCKS_EXCLUDED(mu_);
  size_t pieces() const ABSL_LOCKS_EXCLUDED(mu_);  // that claims are made of

 private:
  // Memory that grows by pieces and shrinks at will.
  struct Pieces {
    std::vector<MemoryReservation> pieces;
    int64_t bytes = 0;
    void Add(MemoryReservation piece);
    void ShrinkTo(int64_t most);
  };
  struct Worker {
    Pieces memory;                                        // guarded by mu_
    std::atomic<int64_t> reserved{0}, wanted{0}, own{0};  // own: what is wanted for its buffers
  };

  explicit SampleRooms(Options options)
      : options_(std::move(options)),
        budget_(options_.shares == nullptr ? nullptr : options_.shares->whole()),
        workers_(static_cast<size_t>(options_.workers)) {}
  std::shared_ptr<MemoryBudget> ShareOf(uint32_t user) const;
  bool HasUnsettled() const;
  void Leave(Claim* claim) ABSL_LOCKS_EXCLUDED(mu_);
  struct Wanted {
    int64_t own = 0, isolated = 0;
    int64_t all() const { return own + isolated; }
  };
  // By all claims, or by one user's; with `more`, which is not among the claims yet.
  Wanted WantedBy(int worker, const Claim* more = nullptr,
                  std::optional<uint32_t> user = std::nullopt) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Lets the claim be used on more workers, as far as there is room. The last refusal.
  absl::Status Extend(Claim* claim) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Want(Worker& worker, const Wanted& wanted) {
    worker.own.store(wanted.own, std::memory_order_relaxed);
    worker.wanted.store(wanted.all(), std::memory_order_relaxed);
  }
  // Whether a claim got more workers.
  bool ExtendAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  struct Waiting {
    uint32_t user = 0;
    bool has_share = false;  // is within the user's share, and waits for memory
    bool is_stuck = false;   // there was no room, and no large image under way makes some
  };
  // Whoever waits for the same thing and came before; null: nobody.
  const Waiting* FirstBefore(uint64_t turn) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsStuck(const Waiting& first) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const std::shared_ptr<MemoryBudget> budget_;
  mutable Mutex mu_;
  CondVar changed_;
  std::vector<Worker> workers_;
  std::set<Claim*> claims_ ABSL_GUARDED_BY(mu_);
  // What each user's claims take of its share, on each worker, as if nobody else had any.
  std::map<uint32_t, std::vector<Pieces>> of_users_ ABSL_GUARDED_BY(mu_);
  std::map<std::pair<uint32_t, std::string>, std::weak_ptr<const Claim>> by_job_
      ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, Waiting> waiting_ ABSL_GUARDED_BY(mu_);  // by turn
  uint64_t last_turn_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint32_t, int> large_ ABSL_GUARDED_BY(mu_);  // rooms of each user who has one
};

}  // namespace feedwater::server
