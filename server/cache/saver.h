// The thread that keeps the files of caches: appends records to disk caches, reads and saves seek
// indexes. There is one for all of them, however many datasets are opened: each owner of a file has
// a task, whose step does one piece of its work, and tasks take turns.
//
// Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace feedwater::server {

class Saver : public std::enable_shared_from_this<Saver> {
 public:
  static std::shared_ptr<Saver> Create() { return std::shared_ptr<Saver>(new Saver()); }
  ~Saver();

  class Task {
   public:
    ~Task();  // waits for the step that runs; none does afterwards
    void Wake();

   private:
    friend class Saver;
    std::shared_ptr<Saver> saver_;
    std::function<bool()> step_;
    absl::Duration every_;
    bool is_ready_ = false;                    // guarded by the saver's lock
    absl::Time due_ = absl::InfiniteFuture();  // likewise
  };
  // `step` is called after each Wake, and at least once in `every`. It does one piece of work, and
  // tells whether there is more at once; it must not end a task. ResourceExhausted: no thread for
  // the first task.
  absl::StatusOr<std::unique_ptr<Task>> Add(std::function<bool()> step,
                                            absl::Duration every = absl::InfiniteDuration())
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Saver() = default;
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Time ReadyWhatIsDue(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MakeReady(Task* task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::set<Task*> tasks_ ABSL_GUARDED_BY(mu_);
  std::deque<Task*> ready_ ABSL_GUARDED_BY(mu_);  // the next one first
  const Task* running_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::thread thread_ ABSL_GUARDED_BY(mu_);  // from the first task on
};

}  // namespace feedwater::server
