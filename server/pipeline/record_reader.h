// Reads whole records for one worker. It turns a record's extents into reads, joins extents that
// lie next to each other in one file (records of a shard in stored order), keeps as many reads
// going as the storage needs, and hands a record back when all its bytes are there. What a record's
// bytes are, or its error, never depends on joining.
//
// Thread safety: belongs to one thread, that of its engine.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/cache/record_cache.h"
#include "server/pipeline/free_list.h"
#include "server/pipeline/job_files.h"
#include "server/pipeline/read_buffers.h"
#include "server/source/dataset.h"
#include "server/storage/engine.h"

namespace feedwater::server {

using OpenedFiles = std::vector<std::shared_ptr<const OpenedFile>>;

// A record's bytes on their way. Reused: Start sets everything again.
class RecordBytes {
 public:
  // Where they come from: the dataset's files, or what the cache has kept of the record.
  enum class Origin { kDataset, kMemory, kDisk };

  int64_t record() const { return record_; }
  // Not OK: no bytes. ResourceExhausted and Unavailable tell of the machine, everything else of the
  // record.
  const absl::Status& status() const { return status_; }
  // kDataset: the record's extents. kMemory: the kept payload. kDisk: the kept block, to be shown
  // to the cache.
  absl::Span<const absl::Span<const std::byte>> extents() const { return extents_; }
  Origin origin() const { return origin_; }
  const Extent& kept_at() const { return kept_at_; }  // kDisk: where the block lies
  // Of the files as the job knows them: the sum over the extents. 0: no cache was to be asked.
  uint64_t stamp() const { return stamp_; }
  int64_t size() const { return size_; }  // of all extents
  void* user = nullptr;                   // the owner's

 private:
  friend class RecordReader;
  struct Read;
  JobFiles* job_ = nullptr;
  Origin origin_ = Origin::kDataset;
  int64_t record_ = 0;
  uint64_t stamp_ = 0;
  Extent kept_at_;
  int64_t size_ = 0;
  int missing_ = 0;             // extents still to come
  int64_t failed_extent_ = -1;  // the first one, so that the error told is always the same
  absl::Status status_;
  absl::InlinedVector<absl::Span<const std::byte>, 1> extents_;
  absl::InlinedVector<Read*, 1> reads_;
};

class RecordReader {
 public:
  static constexpr int64_t kMaxRecordBytes = 256 << 20;

  RecordReader(std::unique_ptr<ReadEngine> engine, size_t engine_depth, FileCache* files,
               std::shared_ptr<MemoryBudget> budget);
  ~RecordReader();  // REQUIRES: nothing in flight

  // Whether another ticket's records should be started now: enough to keep the storage busy, and no
  // more memory than planned. Grows when this worker had to wait for a read, shrinks when it did
  // not for long.
  bool wants_more() const {
    return open_reads_ < depth_ && open_bytes_ < ReadBuffers::kBaseBytes / 2;
  }

  // Takes what `cache` (may be null) has kept of the record, or else reads it, from files as `job`
  // knows them (may be null where there is no cache). All four stay alive until Collect gave `into`
  // back and Release took it.
  void Start(const Dataset& dataset, int64_t record, RecordBytes* into, JobFiles* job = nullptr,
             const RecordCache* cache = nullptr);
  // The same record once more, from the dataset's files.
  void StartAnew(const Dataset& dataset, RecordBytes* bytes);
  // A record that has all its bytes, or an error; waits for one. nullptr when nothing is in flight.
  RecordBytes* Collect();
  void Release(RecordBytes* bytes);
  // Adds the dataset's files that the record was read from, each once.
  static void AddFiles(const RecordBytes& bytes, OpenedFiles* files);

  size_t in_flight() const { return started_; }  // started and not collected
  // Time spent since the last call: waiting for the storage, and on everything else.
  int64_t TakeWaitNs() { return std::exchange(wait_ns_, 0); }
  int64_t TakeReadNs() { return std::exchange(read_ns_, 0); }

 private:
  using Read = RecordBytes::Read;

  void Submit();  // gives the engine what Start has gathered, as far as it has room
  void Refuse(RecordBytes* bytes, int64_t extent, const absl::Status& status);
  void Arrived(RecordBytes* bytes);
  void StartExtents(const ObjectSource& source, RecordBytes* into);
  void StartFailed(absl::Status status, RecordBytes* into);
  Read* NewRead(const ObjectSource& source, const Extent& extent, RecordBytes* bytes,
                int64_t index);
  absl::Status Open(Read* read);
  void Completed(Read* read);
  void FreeRead(Read* read);
  bool CollectOne(bool wait);  // one read of the engine
  void WaitForRead();

  const std::unique_ptr<ReadEngine> engine_;
  const size_t engine_depth_;
  FileCache* const files_;
  ReadBuffers buffers_;
  FreeList<Read> reads_;
  std::deque<Read*> queue_;         // not submitted yet
  std::deque<RecordBytes*> ready_;  // to be collected
  std::vector<Extent> extents_;     // scratch
  size_t started_ = 0;
  int open_reads_ = 0;      // made and not freed
  int64_t open_bytes_ = 0;  // of them
  int depth_;
  int records_since_wait_ = 0;
  bool unstarted_ = false;  // submitted since the engine was last asked for completions
  int64_t wait_ns_ = 0, read_ns_ = 0;
};

}  // namespace feedwater::server
