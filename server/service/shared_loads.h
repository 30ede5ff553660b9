// Things that are slow to make, wanted by several at once, and worth sharing while anybody uses
// them: opened datasets and loaded pipelines. Asked twice at the same time for one key, it makes
// the thing once and gives it to both (single flight); asked again while somebody still holds it,
// it gives the same one. It keeps nothing alive itself and remembers no error.
//
// Things that can be out of date are looked at by every caller, or rather for it: what it gets was
// made, or found to be good still, after it asked.
//
// A thing is made on a thread of its own, so that a caller who is cancelled can leave at once; the
// work goes on for the others. Thread-safe. The destructor waits for work in progress.
#pragma once

#include <cstddef>
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

  // `what` names the things in messages ("pipelines"); at most `max_at_once` are made at a time.
  SharedLoads(std::string what, size_t max_at_once)
      : what_(std::move(what)), max_at_once_(max_at_once) {}
  ~SharedLoads() {
    std::list<std::thread> threads;
    {
      MutexLock lock(&mu_);
      threads.swap(threads_);
    }
    for (std::thread& thread : threads) thread.join();
  }

  using StillGood = std::function<bool(const T&)>;  // like `make`, called on a thread of its own

  // ResourceExhausted when too many are being made; Cancelled when `cancelled` said so before the
  // thing was there. `still_good`: null where things cannot be out of date.
  Result Get(const std::string& key, std::function<Result()> make, const Cancelled& cancelled,
             StillGood still_good = nullptr) ABSL_LOCKS_EXCLUDED(mu_) {
    uint64_t asked;
    {
      MutexLock lock(&mu_);
      asked = ++moments_;
    }
    for (;;) {
      std::shared_ptr<Flight> flight;
      Result result = Fly(key, make, cancelled, still_good, &flight);
      // An older flight looked before this caller asked.
      if (!result.ok() || still_good == nullptr || flight == nullptr || flight->began > asked)
        return result;
    }
  }

 private:
  struct Flight {
    bool done = false;
    uint64_t began = 0;
    std::thread::id thread;
    Result result = absl::UnavailableError("not made yet");
  };

  // One flight, a new one or that which is in the air; `flight` stays null when none was needed.
  Result Fly(const std::string& key, const std::function<Result()>& make,
             const Cancelled& cancelled, const StillGood& still_good,
             std::shared_ptr<Flight>* joined) ABSL_LOCKS_EXCLUDED(mu_) {
    std::shared_ptr<Flight>& flight = *joined;
    {
      MutexLock lock(&mu_);
      std::shared_ptr<const T> value;
      if (auto live = live_.find(key); live != live_.end()) {
        value = live->second.lock();
        if (value != nullptr && still_good == nullptr) return value;
        if (value == nullptr) live_.erase(live);
      }
      if (auto found = flights_.find(key); found != flights_.end()) {
        flight = found->second;
      } else {
        JoinFinished();
        if (flights_.size() >= max_at_once_) {
          return absl::ResourceExhaustedError(
              absl::StrCat(flights_.size(), " ", what_,
                           " are being opened already; try again when they are done"));
        }
        flight = std::make_shared<Flight>();
        flight->began = ++moments_;
        // Before it tells of its end it waits for this lock.
        auto thread =
            StartThread(absl::StrCat("opening ", what_),
                        [this, key, flight = flight, make, value = std::move(value), still_good] {
                          Land(key, flight, [&]() -> Result {
                            if (value != nullptr && still_good(*value)) return value;
                            return make();
                          });
                        });
        if (!thread.ok()) return thread.status();
        threads_.push_back(*std::move(thread));
        flights_.emplace(key, flight);
        flight->thread = threads_.back().get_id();
      }
      while (!flight->done) {
        if (cancelled != nullptr && cancelled()) {
          return absl::CancelledError(
              absl::StrCat("the caller left while ", what_, " were being opened"));
        }
        landed_.WaitWithTimeout(&mu_, absl::Milliseconds(100));
      }
      return flight->result;
    }
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
  const size_t max_at_once_;

  Mutex mu_;
  CondVar landed_;
  uint64_t moments_ ABSL_GUARDED_BY(mu_) = 0;  // counts callers and flights
  std::map<std::string, std::weak_ptr<const T>> live_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<Flight>> flights_ ABSL_GUARDED_BY(mu_);
  std::list<std::thread> threads_ ABSL_GUARDED_BY(mu_);
  std::list<std::thread::id> finished_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
