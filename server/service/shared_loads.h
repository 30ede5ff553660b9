// Things that are slow to make, wanted by several at once, and worth sharing while anybody uses
// them: opened datasets and loaded pipelines. Asked twice at the same time by one user for one key,
// it makes the thing once and gives it to both (single flight); asked again, by anybody, while
// somebody still holds it, it gives the same one. It keeps nothing alive itself and remembers no
// error.
//
// A user never waits for another user's flight: that one may stand still for what this user does
// not need, or step back.
//
// Things that can be out of date are looked at by every caller, or rather for it: what it gets was
// made, or found to be good still, after it asked.
//
// A thing is made on a thread of its own, so that a caller who is cancelled can leave at once; the
// work goes on for the others. When nobody is left it is told that it was given up. Each user has a
// few things made at a time, of which all but one step back behind the workers; its other callers
// wait, and nobody else does. Thread-safe. The destructor gives up what is in progress, and waits
// for it.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/base/thread.h"

namespace feedwater::server {

using Cancelled = std::function<bool()>;

template <typename T>
class SharedLoads {
 public:
  using Result = absl::StatusOr<std::shared_ptr<const T>>;

  using Charge = std::function<void(uid_t user, int64_t cpu_ns)>;

  // `what` names the things in messages ("pipelines"); at most `max_of_user` are made at a time for
  // one user. A caller who left may be back within `patience`: until then nothing is given up.
  // `charge` is told the CPU time of threads on which things are made; may be null.
  SharedLoads(std::string what, int max_of_user, absl::Duration patience = absl::ZeroDuration(),
              Charge charge = nullptr)
      : what_(std::move(what)),
        max_of_user_(max_of_user),
        patience_ns_(absl::ToInt64Nanoseconds(patience)),
        charge_(std::move(charge)) {}
  ~SharedLoads() {
    std::list<std::thread> threads;
    {
      MutexLock lock(&mu_);
      stopping_ = true;
      threads.swap(threads_);
    }
    Join(&threads);
  }

  // Both are called on a thread of its own. `given_up` may be asked at any time: nobody waits for
  // the thing any more, so whatever is returned will do.
  using Make = std::function<Result(const Cancelled& given_up)>;
  using StillGood = std::function<bool(const T&)>;

  // Cancelled when `cancelled` said so before the thing was there. `user` is whose account pays if
  // it must be made. `still_good`: null where things cannot be out of date.
  Result Get(uid_t user, const std::string& key, const Make& make, const Cancelled& cancelled,
             const StillGood& still_good = nullptr) ABSL_LOCKS_EXCLUDED(mu_) {
    JoinFinished(user);
    MutexLock lock(&mu_);
    const uint64_t asked = ++moments_;
    const auto left = [&] { return cancelled != nullptr && cancelled(); };
    for (;;) {
      std::shared_ptr<Flight> flight;
      if (auto found = flights_.find({user, key}); found != flights_.end()) {
        flight = found->second;
      } else {
        std::shared_ptr<const T> value;
        if (auto live = live_.find(key); live != live_.end()) value = live->second.lock();
        if (value != nullptr && still_good == nullptr) return value;
        if (of_user_[user] < max_of_user_) {
          FW_ASSIGN_OR_RETURN(flight, TakeOff(user, key, make, std::move(value), still_good));
        }
      }
      if (flight != nullptr) ++flight->waiting;
      bool has_left;
      do {
        has_left = left();
        if (!has_left) landed_.WaitWithTimeout(&mu_, absl::Milliseconds(100));
      } while (flight != nullptr && !flight->done && !has_left);
      if (flight != nullptr && --flight->waiting == 0) flight->left_ns = MonotonicNs();
      if (has_left && (flight == nullptr || !flight->done || flight->given_up)) {
        return absl::CancelledError(
            absl::StrCat("the caller left while ", what_, " were being opened"));
      }
      if (flight == nullptr || flight->given_up) continue;
      // An older flight looked before this caller asked.
      if (!flight->result.ok() || still_good == nullptr || flight->began > asked)
        return flight->result;
    }
  }

  // Forgets what nobody holds any more, and threads that are done; with `only`, of that user's
  // flights. Called now and then.
  void Tidy(std::optional<uid_t> only = std::nullopt) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      ForgetTheDead();
    }
    JoinFinished(only);
  }

 private:
  struct Flight {
    bool done = false;
    bool given_up = false;  // and was told so
    int waiting = 0;
    int64_t left_ns = 0;  // when nobody was waiting any more
    uint64_t began = 0;
    uid_t user = 0;
    std::thread::id thread;
    Result result = absl::UnavailableError("not made yet");
  };

  // `value`: what is there already, which is given out again if it is still good.
  absl::StatusOr<std::shared_ptr<Flight>> TakeOff(uid_t user, const std::string& key,
                                                  const Make& make, std::shared_ptr<const T> value,
                                                  const StillGood& still_good)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    auto flight = std::make_shared<Flight>();
    flight->began = ++moments_;
    flight->user = user;
    // Before it tells of its end it waits for this lock.
    FW_ASSIGN_OR_RETURN(std::thread thread,
                        StartThread(absl::StrCat("opening ", what_),
                                    [this, key, flight, make, value = std::move(value), still_good,
                                     is_further = of_user_[user] > 0] {
                                      if (is_further) StepBack();
                                      Land(key, flight, [&]() -> Result {
                                        if (value != nullptr && still_good(*value)) return value;
                                        return make([&] { return IsGivenUp(*flight); });
                                      });
                                    }));
    threads_.push_back(std::move(thread));
    flights_.emplace(std::pair(user, key), flight);
    flight->thread = threads_.back().get_id();
    ++of_user_[user];
    return flight;
  }

  void Land(const std::string& key, const std::shared_ptr<Flight>& flight,
            const std::function<Result()>& make) ABSL_LOCKS_EXCLUDED(mu_) {
    Result result = absl::UnavailableError("not made yet");
    try {
      result = make();
    } catch (const std::exception& error) {
      result = absl::InternalError(absl::StrCat("while opening ", what_, ": ", error.what()));
    }
    if (charge_ != nullptr) charge_(flight->user, ThreadCpuNs());  // the thread is the flight's
    MutexLock lock(&mu_);
    ForgetTheDead();
    if (result.ok()) live_[key] = *result;
    flight->result = std::move(result);
    flight->done = true;
    flights_.erase({flight->user, key});
    if (--of_user_[flight->user] == 0) of_user_.erase(flight->user);
    finished_.emplace_back(flight->user, flight->thread);
    landed_.SignalAll();
  }

  bool IsGivenUp(Flight& flight) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    const bool nobody = flight.waiting == 0 && MonotonicNs() - flight.left_ns >= patience_ns_;
    return flight.given_up |= nobody || stopping_;
  }

  // Threads that are done with their flights; all, or a user's. What they let go of at last may
  // take a while to free: the lock is not held meanwhile, and no user waits for another one's.
  void JoinFinished(std::optional<uid_t> user) ABSL_LOCKS_EXCLUDED(mu_) {
    std::list<std::thread> finished;
    {
      MutexLock lock(&mu_);
      for (auto it = finished_.begin(); it != finished_.end();) {
        if (user.has_value() && it->first != *user) {
          ++it;
          continue;
        }
        const auto thread = std::find_if(threads_.begin(), threads_.end(), [&](const auto& one) {
          return one.get_id() == it->second;
        });
        if (thread != threads_.end()) finished.splice(finished.end(), threads_, thread);
        it = finished_.erase(it);
      }
    }
    Join(&finished);
  }
  static void Join(std::list<std::thread>* threads) {
    for (std::thread& thread : *threads) thread.join();
  }

  void ForgetTheDead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (auto it = live_.begin(); it != live_.end();)
      it = it->second.expired() ? live_.erase(it) : std::next(it);
  }

  const std::string what_;
  const int max_of_user_;
  const int64_t patience_ns_;
  const Charge charge_;

  Mutex mu_;
  CondVar landed_;
  uint64_t moments_ ABSL_GUARDED_BY(mu_) = 0;  // counts callers and flights
  std::map<std::string, std::weak_ptr<const T>> live_ ABSL_GUARDED_BY(mu_);
  std::map<std::pair<uid_t, std::string>, std::shared_ptr<Flight>> flights_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::map<uid_t, int> of_user_ ABSL_GUARDED_BY(mu_);  // being made
  std::list<std::thread> threads_ ABSL_GUARDED_BY(mu_);
  std::list<std::pair<uid_t, std::thread::id>> finished_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
