#include "client/cli/every_record.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "client/cli/progress.h"
#include "server/base/mutex.h"
#include "server/base/no_throw.h"
#include "server/base/status.h"
#include "server/base/thread.h"

namespace feedwater::cli {
namespace {

// Records a thread takes at a time: neighbours of a shard, which are read together.
constexpr int64_t kChunk = 64;
constexpr size_t kMostInFlight = 64;

class Reading {
 public:
  Reading(const EveryRecord& how, const LocalPipeline& local) : how_(how), local_(local) {}

  absl::Status Go() {
    const size_t jobs = how_.jobs > 0 ? how_.jobs : local_.settings.cpus.size();
    std::vector<std::thread> threads;
    while (threads.size() < jobs) {
      {
        server::MutexLock lock(&mu_);
        ++running_;
      }
      absl::StatusOr<std::thread> thread = server::StartThread(how_.what, [this] { Work(); });
      if (thread.ok()) {
        threads.push_back(*std::move(thread));
        continue;
      }
      server::MutexLock lock(&mu_);
      --running_;
      if (threads.empty()) return thread.status();
      break;  // no more threads to be had; fewer do as well
    }
    ShowProgress();
    for (std::thread& thread : threads) thread.join();
    server::MutexLock lock(&mu_);
    return failure_;
  }

 private:
  void ShowProgress() {
    Progress progress(how_.what, "records");
    const int64_t total = local_.dataset().size();
    server::MutexLock lock(&mu_);
    while (running_ > 0) {
      ended_.WaitWithTimeout(&mu_, absl::Milliseconds(100));
      progress.Update(done_, total, how_.note == nullptr ? "" : how_.note());
    }
  }

  void Work() {
    const absl::Status status = server::NoThrow([this] { return WorkUntilDone(); });
    server::MutexLock lock(&mu_);
    if (!status.ok()) {
      stop_ = true;
      if (failure_.ok()) failure_ = status;
    }
    --running_;
    ended_.SignalAll();
  }

  absl::Status WorkUntilDone() {
    FW_ASSIGN_OR_RETURN(const std::unique_ptr<server::RecordReader> reader, local_.NewReader());
    FW_ASSIGN_OR_RETURN(const EveryRecord::Look look, how_.make_look());
    std::array<server::RecordBytes, kMostInFlight> room;
    std::vector<server::RecordBytes*> free;
    free.reserve(room.size());
    for (server::RecordBytes& bytes : room) free.push_back(&bytes);
    int64_t next = 0, end = 0;  // of this thread's chunk
    absl::Status failure;
    for (;;) {
      while (failure.ok() && !free.empty() && reader->wants_more() && TakeRecord(&next, &end)) {
        reader->Start(local_.dataset(), next++, free.back(), local_.job.get());
        free.pop_back();
      }
      server::RecordBytes* bytes = reader->Collect();
      if (bytes == nullptr) return failure;
      if (failure.ok()) failure = look(*bytes);
      ++done_;
      reader->Release(bytes);
      free.push_back(bytes);
    }
  }

  bool TakeRecord(int64_t* next, int64_t* end) {
    if (stop_) return false;
    if (*next < *end) return true;
    const int64_t records = local_.dataset().size();
    *next = next_chunk_.fetch_add(kChunk);
    *end = std::min(*next + kChunk, records);
    return *next < *end;
  }

  const EveryRecord& how_;
  const LocalPipeline& local_;
  std::atomic<int64_t> next_chunk_{0}, done_{0};
  std::atomic<bool> stop_{false};

  server::Mutex mu_;
  server::CondVar ended_;
  size_t running_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::Status EveryRecord::Run(const LocalPipeline& local) const {
  return Reading(*this, local).Go();
}

}  // namespace feedwater::cli
