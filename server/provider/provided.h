// What one user's program provides under one name, a source or an op: the processes that serve it
// together, and what is asked of them. It decides which process makes what, how much is asked for
// at once, and what becomes of it when a process ends.
//
// A process that ends, or does not answer in time, is blamed on what it had been asked for first:
// that is asked of another one, alone, and after the second time it is an error of that record (or
// sample). Where no process is left, everything waits a while for one, then fails with Unavailable.
//
// Records of an iterable dataset are made one after the other: each of its workers has a lane of
// its own, with the records that are its.
//
// Thread-safe. Records are handed over, and waiting calls woken, with no lock held.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/clock.h"
#include "server/base/memory_budget.h"
#include "server/base/mutex.h"
#include "server/graph/op_caller.h"
#include "server/provider/channel.h"
#include "server/provider/window_maker.h"
#include "server/source/given_records.h"

namespace feedwater::server {

struct Offer {
  enum class Kind { kSource, kOp };
  Kind kind = Kind::kSource;
  uint32_t user = 0;
  OfferedSource source;  // of an op: name and version alone
  double timeout_seconds = 60;
  int64_t worker = 0;  // of an iterable dataset: which one this process is

  const char* KindName() const { return kind == Kind::kSource ? "source" : "op"; }
  // What makes it another one; "": it is the same. The timeout does not.
  std::string DifferenceFrom(const Offer& other) const;
};

struct ProvidedCounts {
  int processes = 0;
  uint64_t made = 0, failed = 0, died = 0;
  int64_t busy_ns = 0;
  int64_t waiting = 0;
};

class Provided final : public RecordGiver, public std::enable_shared_from_this<Provided> {
 public:
  // How long what is asked for waits for a process where there is none.
  static constexpr int64_t kAbsentNs = 10'000'000'000;
  // The same for a worker whose program serves others: it starts another process, which has 300 s
  // to unpickle the dataset.
  static constexpr int64_t kStartingNs = 310'000'000'000;
  // Absent workers that are remembered while nothing is asked of them, and what each takes.
  static constexpr int64_t kMostAbsences = 1024, kAbsenceBytes = 80;

  // `own`: what the offer itself takes. `deaths`: counts processes of all that is provided; may be
  // null.
  Provided(Offer offer, WindowMemory memory, std::shared_ptr<WindowMaker> maker,
           MemoryReservation own = {}, std::shared_ptr<std::atomic<uint64_t>> deaths = nullptr)
      : offer_(std::move(offer)),
        memory_(std::move(memory)),
        maker_(std::move(maker)),
        own_(std::move(own)),
        deaths_(std::move(deaths)) {}

  const Offer& offer() const { return offer_; }
  // From now on something else is provided under its name, and no process comes in any more; who
  // waits is told by the next Flush. False: processes serve it, and nothing changes.
  bool SupersedeIfEmpty() ABSL_LOCKS_EXCLUDED(mu_);

  // A process more. ResourceExhausted: there is no memory for its windows.
  absl::Status Enter(std::shared_ptr<Channel> channel) ABSL_LOCKS_EXCLUDED(mu_);
  // The process has answered, or hung up. False: the channel is lost, and to be let go.
  bool Read(Channel& channel) ABSL_LOCKS_EXCLUDED(mu_);
  void Lose(Channel& channel, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  // Looks for what has waited too long; gives the channels that are lost by now.
  std::vector<uint64_t> LookAround(int64_t now_ns) ABSL_LOCKS_EXCLUDED(mu_);
  int processes() const ABSL_LOCKS_EXCLUDED(mu_);
  ProvidedCounts Counts() const ABSL_LOCKS_EXCLUDED(mu_);

  // RecordGiver
  void Ask(int64_t record, const ProvidedSeed& seed, std::weak_ptr<RecordTaker> taker) override
      ABSL_LOCKS_EXCLUDED(mu_);
  void Flush() override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status LookAgain() const override ABSL_LOCKS_EXCLUDED(mu_);
  int64_t workers() const override { return offer_.source.workers; }
  std::string identity() const override { return offer_.source.Identity(); }

  // As OpCaller::Call.
  absl::Status Call(const OpCall& call,
                    absl::FunctionRef<absl::Status(absl::Span<const Tensor>)> take)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Ongoing;  // a call (calls.cc)

  // While it lives, a window's bytes stay as the process has left them, as far as the daemon
  // decides.
  class Reading {
   public:
    Reading(std::shared_ptr<Provided> owner, std::shared_ptr<Channel> channel, uint32_t window)
        : owner_(std::move(owner)),
          channel_(std::move(channel)),
          shared_(channel_->shared()),
          window_(window) {}
    ~Reading() { owner_->FreeWindow(*channel_, shared_.get(), window_); }

   private:
    const std::shared_ptr<Provided> owner_;
    const std::shared_ptr<Channel> channel_;
    const std::shared_ptr<SharedWindows> shared_;
    const uint32_t window_;
  };
  // A process that is to be given larger windows.
  struct Growth {
    std::shared_ptr<Channel> channel;
    int64_t data_bytes = 0;
  };
  // What is to be said and done once the lock is released.
  struct Delivery {
    std::weak_ptr<RecordTaker> taker;
    absl::Status status;
    absl::Span<const std::byte> bytes;
    std::shared_ptr<const void> holds;
  };
  struct Deliveries {
    std::vector<Delivery> all;
    std::vector<std::shared_ptr<const Reading>> readings;  // which free their windows at their end
    std::vector<Growth> growths;
  };
  static void Deliver(const Deliveries& deliveries);
  // Says what is to be said, and has the larger windows made.
  void Finish(Deliveries deliveries) ABSL_LOCKS_EXCLUDED(mu_);
  // Makes larger windows, which takes its time.
  absl::Status Grow(const Growth& growth, Deliveries* deliveries) ABSL_LOCKS_EXCLUDED(mu_);

  // That no process makes what is asked of a lane.
  struct Absence {
    int64_t since_ns = 0;  // 0: some process is there
    pid_t program = 0;     // whose process was lost last; 0: none was
  };
  // What is asked of the same processes: everything, or the records of one worker.
  struct Lane {
    std::deque<AskedRecord> waiting;
    std::deque<AskedRecord> alone;  // those that need room, or have met a death
    Absence absence;

    bool is_idle() const { return waiting.empty() && alone.empty(); }
  };
  using Lanes = std::map<size_t, Lane>;
  Lane& LaneLocked(size_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Lets the lane go if nothing is asked of it; that its worker is absent is remembered. The next.
  Lanes::iterator LetGoLocked(Lanes::iterator lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  size_t LaneOf(const AskedRecord& asked) const {
    return static_cast<size_t>(asked.record % std::max<int64_t>(workers(), 1));
  }
  // A worker makes its records in their order; any other order would make it begin anew.
  void Put(AskedRecord asked, std::deque<AskedRecord>* queue) const;
  bool IsAbsentLocked(const Lane& lane, int64_t now_ns) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::string What() const;  // "source 'mine'"
  absl::Status Absent(size_t lane) const;
  // Asks the processes that are there. Those who wait for an absent one are told by
  // DispatchAllLocked, of which there is one with every look around: they may be many.
  void DispatchLocked(int64_t now_ns, Deliveries* deliveries) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DispatchAllLocked(int64_t now_ns, Deliveries* deliveries) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DispatchLaneLocked(size_t number, Lane& lane, int64_t now_ns, Deliveries* deliveries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The processes that are asked what is asked of a lane: all of it, or the first worker of that
  // number, since what one worker has made the next one would have to make anew.
  std::vector<Channel*> ChannelsLocked(size_t lane) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Channel* LeastBusyLocked(size_t lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A channel with a free window of so much room; where that takes a larger window, one is prepared
  // for. Null: none yet.
  Channel* WithRoomLocked(size_t lane, int64_t data_bytes, Deliveries* deliveries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether WithRoomLocked would give one, or prepare for a larger window at once.
  bool MayHaveRoomLocked(size_t lane, int64_t data_bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  size_t ChunkLocked(const Channel& channel) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AskRecordsLocked(Channel& channel, std::vector<AskedRecord> records, int64_t now_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeRecordsLocked(Channel& channel, uint32_t window, Deliveries* deliveries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Forgets what waits for a process and is wanted by nobody any more: a process that does not
  // answer would let it pile up.
  void SweepLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of an iterable dataset: tells the process of records that nobody waits for any more.
  void TellUnwantedLocked(Channel& channel) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int64_t AllowedNsLocked(Channel& channel) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status DeathOf(const Channel& channel, const absl::Status& why,
                       const std::string& last_words) const;
  void LoseLocked(Channel& channel, const absl::Status& why, Deliveries* deliveries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountAnswerLocked(const Channel::Window& window, size_t entries, int64_t began_ns,
                         int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FreeWindow(Channel& channel, const SharedWindows* shared, uint32_t window)
      ABSL_LOCKS_EXCLUDED(mu_);
  // A channel that has room for the call's input.
  absl::StatusOr<Channel*> AwaitChannel(const OpCall& call, int64_t data_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Gives the input to a process.
  absl::Status Ask(const OpCall& call, int64_t input_bytes, Ongoing* ongoing)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Asks, again where a process ends, until there is an answer.
  absl::Status AwaitAnswer(const OpCall& call, int64_t input_bytes, Ongoing* ongoing)
      ABSL_LOCKS_EXCLUDED(mu_);

  const Offer offer_;
  const WindowMemory memory_;
  const std::shared_ptr<WindowMaker> maker_;
  const MemoryReservation own_;
  const std::shared_ptr<std::atomic<uint64_t>> deaths_;

  mutable Mutex mu_;
  CondVar changed_;  // a window is free, or a channel came or went
  std::map<uint64_t, std::shared_ptr<Channel>> channels_ ABSL_GUARDED_BY(mu_);
  Lanes lanes_ ABSL_GUARDED_BY(mu_);  // those of which something is asked; an op has one
  std::map<size_t, Absence> absences_ ABSL_GUARDED_BY(mu_);  // of lanes that are not there
  size_t asked_since_sweep_ ABSL_GUARDED_BY(mu_) = 0;        // records
  size_t wanted_ ABSL_GUARDED_BY(mu_) = 0;                   // those that the last sweep left
  int64_t callers_ ABSL_GUARDED_BY(mu_) = 0;                 // that wait for a window
  double entry_ns_ ABSL_GUARDED_BY(mu_) = 1e6;               // what one takes, smoothed
  double entry_bytes_ ABSL_GUARDED_BY(mu_) = 0;              // likewise; 0: not known
  bool is_superseded_ ABSL_GUARDED_BY(mu_) = false;
  ProvidedCounts counts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
