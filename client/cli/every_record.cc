#include "client/cli/every_record.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "client/cli/progress.h"
#include "client/cli/worker_threads.h"
#include "server/base/status.h"

namespace feedwater::cli {
namespace {

// Records a thread takes at a time: neighbours of a shard, which are read together.
constexpr int64_t kChunk = 64;
constexpr size_t kMostInFlight = 64;

class Reading {
 public:
  Reading(const EveryRecord& how, const LocalPipeline& local) : how_(how), local_(local) {}

  absl::Status Go() {
    Progress progress(how_.what, "records");
    return RunInThreads(
        how_.jobs > 0 ? how_.jobs : local_.settings.cpus.size(), how_.what,
        [this] { return WorkUntilDone(); },
        [&] {
          progress.Update(done_, local_.dataset().size(), how_.note == nullptr ? "" : how_.note());
        },
        &stop_);
  }

 private:
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
};

}  // namespace

absl::Status EveryRecord::Run(const LocalPipeline& local) const {
  return Reading(*this, local).Go();
}

}  // namespace feedwater::cli
