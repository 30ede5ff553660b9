// Whose sample a worker makes next when it holds samples of several users. Fair shares of what is
// taken are not enough: a worker takes many at a time, and what stands in a row is used up in that
// row. So the user who has used the least CPU time on this worker is next, and a sample that may
// take long waits until nothing quick of another user is in hand. A sample that waits for its
// user's program is suspended where others have work, and made again, from its beginning, once the
// program has answered. Of one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>

#include "server/graph/op_caller.h"

namespace feedwater::server {

class Job;

class Turns {
 public:
  // What a worker's sample is to it.
  struct Sample {
    uint32_t user = 0;
    bool slow = false;         // may take long
    const Job* job = nullptr;  // whose it is
    SuspendedCalls calls;      // it is suspended for these; none: behind another one of its job
  };

  // `pointless`: nobody wants the sample any more, so that it takes no time.
  explicit Turns(std::function<bool(const Sample&)> pointless) : pointless_(std::move(pointless)) {}

  // A ticket of `samples` is in hand now; each of them ends with Done.
  void Take(uint32_t user, bool slow, int64_t samples);
  void Done(const Sample& sample);
  // Storage holds the sample up (+1), or no longer (-1): no slow sample waits for it meanwhile.
  void HeldUp(const Sample& sample, int change);

  // Samples of more than one user are in hand, so that they go through the queues.
  bool several() const { return users_in_hand_ > 1; }
  // Nobody else's are.
  bool MayHaveAll(uint32_t user) const {
    const auto hand = hands_.find(user);
    return users_in_hand_ == (hand != hands_.end() && hand->second.samples > 0 ? 1 : 0);
  }
  void Queue(Sample* sample);  // can be made now
  int64_t queued() const { return queued_; }
  // The next one, no longer queued; null when none of those queued may be made yet.
  Sample* Next();
  void Suspend(Sample* sample);
  // Samples of the job are.
  bool HasSuspended(const Sample& sample) const;
  // One that can go on: a call of it is ready, or nobody wants it any more. With `any`, whichever.
  // Null: none.
  Sample* Resume(bool any);
  // Others' samples are in hand that are not suspended, or can go on.
  bool OthersWait(uint32_t user) const;
  // What it took.
  void Made(const Sample& sample, int64_t cpu_ns);

  // Whose tickets may be taken: what is taken beside a slow sample of another user would be made
  // after it, or delay it for ever. So there is one ticket for anybody between two of them.
  struct Whose {
    bool nobody = false;
    std::optional<uint32_t> only_user;  // not set: anybody's
  };
  Whose MayTake() const;
  // A ticket was asked for.
  void Asked() { slow_made_ = false; }

  // Drops the hands of users who have had no sample here for long.
  void DropIdleUsers();

 private:
  // What is in hand of one user: taken and not done. What a user has used is remembered when
  // nothing of it is left.
  struct Hand {
    int64_t samples = 0;
    int64_t quick = 0, quick_held_up = 0;  // of tickets that are not slow; by storage
    int64_t used_ns = 0;
    std::deque<Sample*> queue;
    int64_t slow_queued = 0;  // of these
    std::deque<Sample*> suspended;
  };
  bool SlowMustWait(uint32_t user) const;
  // Of a suspended sample of that hand.
  bool IsReady(const Hand& hand, const Sample& sample) const;

  const std::function<bool(const Sample&)> pointless_;
  std::map<uint32_t, Hand> hands_;
  int users_in_hand_ = 0;   // hands with samples
  int64_t floor_ns_ = 0;    // used_ns of the one picked last; never falls
  int64_t queued_ = 0;      // of all hands
  int64_t suspended_ = 0;   // likewise
  uint32_t turn_of_ = 0;    // the user picked last
  bool slow_made_ = false;  // the sample before this was slow
};

}  // namespace feedwater::server
