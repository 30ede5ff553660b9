// Things that are slow to make, wanted by several at once, and worth sharing while anybody uses
// them: opened datasets and loaded pipelines. Asked twice at the same time for one key, it makes
// the thing once and gives it to both (single flight); asked again while somebody still holds it,
// it gives the same one. It keeps nothing alive itself and remembers no error.
//
// Things that can be out of date are looked at by every caller, or rather for it: what it gets was
// made, or found to be good still, after it asked.
//
// A thing is made on a thread of its own, so that a caller who is cancelled can leave at once; the
// work goes on for the others. Each user has a few things made at a time, of which all but one step
// back behind the workers; its other callers wait, and nobody else does. Thread-safe. The
// destructor waits for work in progress.
#pragma once

#include <sys/types.h>

#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/base/thread.h"

namespace feedwater::server {

using Cancelled = std::function<bool()>;

template <typename T>
class SharedLoads {
 public:
  using Result = absl::StatusOr<std::shared_ptr<const T>>;

  // `what` names the things in messages ("pipelines"); at most `max_of_user` are made at a time for
  // one user.
  SharedLoads(std::string what, int max_of_user)
      : what_(std::move(what)), max_of_user_(max_of_user) {}
  ~SharedLoads() {
    std::list<std::thread> threads;
    {
      MutexLock lock(&mu_);
      threads.swap(threads_);
    }
    for (std::thread& thread : threads) thread.join();
  }

  using StillGood = std::function<bool(const T&)>;  // like `make`, called on a thread of its own

  // Cancelled when `cancelled` said so before the thing was there. `user` is whose account pays if
  // it must be made. `still_good`: null where things cannot be out of date.
  Result Get(uid_t user, const std::string& key, const std::function<Result()>& make,
             const Cancelled& cancelled, const StillGood& still_good = nullptr)
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    const uint64_t asked = ++moments_;
    const auto left = [&] { return cancelled != nullptr && cancelled(); };
    for (;;) {
      std::shared_ptr<Flight> flight;
      if (auto found = flights_.find(key); found != flights_.end()) {
        flight = found->second;
      } else {
        std::shared_ptr<const T> value;
        if (auto live = live_.find(key); live != live_.end()) value = live->second.lock();
        if (value != nullptr && still_good == nullptr) return value;
        JoinFinished();
        if (of_user_[user] < max_of_user_) {
          FW_ASSIGN_OR_RETURN(flight, TakeOff(user, key, make, std::move(value), still_good));
        }
      }
      while (flight == nullptr || !flight->done) {
        if (left()) {
          return absl::CancelledError(
              absl::StrCat("the caller left while ", what_, " were being opened"));
        }
        landed_.WaitWithTimeout(&mu_, absl::Milliseconds(100));
        if (flight == nullptr) break;
      }
      if (flight == nullptr) continue;
      // An older flight looked before this caller asked.
      if (!flight->result.ok() || still_good == nullptr || flight->began > asked)
        return flight->result;
    }
  }

  // Forgets what nobody holds any more, and threads that are done. Called now and then.
  void Tidy() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    ForgetTheDead();
    JoinFinished();
  }

 private:
  struct Flight {
    bool done = false;
    uint64_t began = 0;
    uid_t user = 0;
    std::thread::id thread;
    Result result = absl::UnavailableError("not made yet");
  };

  // `value`: what is there already, which is given out again if it is still good.
  absl::StatusOr<std::shared_ptr<Flight>> TakeOff(uid_t user, const std::string& key,
                                                  const std::function<Result()>& make,
                                                  std::shared_ptr<const T> value,
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
                                        return make();
                                      });
                                    }));
    threads_.push_back(std::move(thread));
    flights_.emplace(key, flight);
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
    MutexLock lock(&mu_);
    ForgetTheDead();
    if (result.ok()) live_[key] = *result;
    flight->result = std::move(result);
    flight->done = true;
    flights_.erase(key);
    if (--of_user_[flight->user] == 0) of_user_.erase(flight->user);
    finished_.push_back(flight->thread);
    landed_.SignalAll();
  }

  void JoinFinished() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (std::thread::id id : finished_) {
      for (auto it = threads_.begin(); it != threads_.end(); ++it) {
        if (it->get_id() != id) continue;
        it->join();  // it has given up the lock for the last time, or is about to
        threads_.erase(it);
        break;
      }
    }
    finished_.clear();
  }

  void ForgetTheDead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (auto it = live_.begin(); it != live_.end();)
      it = it->second.expired() ? live_.erase(it) : std::next(it);
  }

  const std::string what_;
  const int max_of_user_;

  Mutex mu_;
  CondVar landed_;
  uint64_t moments_ ABSL_GUARDED_BY(mu_) = 0;  // counts callers and flights
  std::map<std::string, std::weak_ptr<const T>> live_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<Flight>> flights_ ABSL_GUARDED_BY(mu_);
  std::map<uid_t, int> of_user_ ABSL_GUARDED_BY(mu_);  // being made
  std::list<std::thread> threads_ ABSL_GUARDED_BY(mu_);
  std::list<std::thread::id> finished_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
