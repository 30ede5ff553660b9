// How many workers the slow jobs of one user may hold at a time. A sample cannot be taken away from
// its worker: CPU time alone would share fairly in the long run and still let samples of seconds
// stand on every worker while everybody else's slots run empty. So jobs that are slow, and new ones
// that may be, get no more workers than their user's share of them while other users have jobs;
// a new job has one until its first sample is done. Jobs that wait for a user's program may wait
// for minutes, and give way to others only now and then (turns.h): where several users are
// admitted, all of them together leave a quarter of the workers to the others, one at least,
// whoever has jobs now.
//
// Not thread-safe: guarded by the scheduler's lock.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace feedwater::server {

class WorkerShares {
 public:
  // A ticket that takes so much CPU time has a slow sample in it, and a job is slow for so many
  // samples after one.
  static constexpr int64_t kSlowNs = 250'000'000;
  static constexpr int64_t kSlowSamples = 256;
  static constexpr int kAnyWorker = -1;

  explicit WorkerShares(int workers) : workers_(workers) {}  // 0: no limits
  void AdmitOthers(bool admits_others) { admits_others_ = admits_others; }

  // Whether `worker` may take a slow job's ticket of this user; `users`: how many have jobs.
  // kAnyWorker: whether a worker may that does not work for this user yet. `calls_out`: the job
  // waits for a user's program.
  bool MayTake(uint32_t uid, int worker, int users, bool calls_out) const;
  void Taken(uint32_t uid, int worker, bool calls_out);
  void Done(uint32_t uid, int worker, bool calls_out);

 private:
  using Tickets = std::map<int, int>;  // by worker, none that is 0

  const int workers_;
  bool admits_others_ = false;
  std::map<uint32_t, Tickets> tickets_;  // by user
  Tickets calls_;                        // all users'
};

}  // namespace feedwater::server
