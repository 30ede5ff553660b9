// Fetches whole records for one worker: what the cache has kept of a record, or else its bytes from
// the dataset's files. It turns a record's extents into reads (storage_reads.h), joins extents that
// lie near each other in one file (the parts of a record, records of a shard in stored order) over
// gaps that cost less than another read there (storage/storage_kind.h), keeps as many reads going
// as the storage needs, and hands a record back when all its bytes are there. What a record's bytes
// are, or its error, never depends on joining.
//
// Thread safety: belongs to one thread, that of its engine.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/cache/record_cache.h"
#include "server/pipeline/free_list.h"
#include "server/pipeline/job_files.h"
#include "server/pipeline/storage_reads.h"
#include "server/source/dataset.h"
#include "server/storage/engine.h"
#include "server/storage/fault.h"

namespace feedwater::server {

using OpenedFiles = std::vector<std::shared_ptr<const OpenedFile>>;

// A record's bytes on their way. Reused: Start sets everything again.
class RecordBytes {
 public:
  // Where they come from: the dataset's files, or what the cache has kept of the record.
  enum class Origin { kDataset, kMemory, kDisk };

  int64_t record() const { return record_; }
  // Not OK: no bytes.
  const absl::Status& status() const { return status_; }
  // Whether storage gave that error, which says nothing about the record (storage/fault.h).
  bool not_read() const { return not_read_; }
  // kDataset: the record's extents. kMemory: the kept payload. kDisk: the kept block, to be shown
  // to the cache.
  absl::Span<const absl::Span<const std::byte>> extents() const { return extents_; }
  Origin origin() const { return origin_; }
  const Extent& kept_at() const { return kept_at_; }  // kDisk: where the block lies
  // Of the files as the job knows them: the sum over the extents. 0: no cache was to be asked.
  uint64_t stamp() const { return stamp_; }
  int64_t size() const { return size_; }  // of all extents
  void* user = nullptr;                   // the owner's
  // The owner's, set before Start: its bytes are read ahead; of a record that a program gives, its
  // seed, and whether its bytes may be those that the program can still write to.
  bool is_ahead = false;
  ProvidedSeed seed{};
  bool in_place = false;

 private:
  friend class RecordReader;
  struct Read;
  const Dataset* dataset_ = nullptr;
  JobFiles* job_ = nullptr;
  const RecordCache* cache_ = nullptr;
  Origin origin_ = Origin::kDataset;
  int64_t record_ = 0;
  uint64_t stamp_ = 0;
  Extent kept_at_;
  int64_t size_ = 0;
  int missing_ = 0;     // extents still to come
  int held_reads_ = 0;  // by storage
  bool is_aside_ = false;
  Retries retries_;             // of what is done with the record
  int64_t due_ns_ = 0;          // not to be read before
  int64_t failed_extent_ = -1;  // the first one, so that the error told is always the same
  absl::Status status_;
  bool not_read_ = false;
  absl::InlinedVector<absl::Span<const std::byte>, 1> extents_;
  absl::InlinedVector<Read*, 1> reads_;
};

// Whether an error, of reading a record or of making a sample of it, tells of the machine or of the
// file and not of the record's bytes (storage/fault.h).
bool TellsOfTheMachine(const absl::Status& status, const RecordBytes& bytes);

// Who takes records from a reader.
class RecordOwner {
 public:
  virtual ~RecordOwner() = default;
  // Nobody waits for the record any more: there is no use in trying again to read it.
  virtual bool IsUnwanted(const RecordBytes& bytes) = 0;
  // Storage holds the record up (+1), or no longer (-1).
  virtual void HeldUp(const RecordBytes& bytes, int change) = 0;
  // Whose read it is: storage that hangs costs that user's threads (storage/storage_calls.h).
  virtual uint32_t UserOf(const RecordBytes& bytes) = 0;
};

class RecordReader final : private StorageReads::Client {
 public:
  static constexpr int64_t kMaxRecordBytes = 256 << 20;

  // A read of a dataset's file that fails for a reason that can pass is tried again for
  // `retry_for_ns`, each time with the file opened anew. With `calls` and an owner, files on
  // storage that may hang are opened and read by its threads, and what hangs is left to them when
  // nobody wants it any more. `kind` is what all roots are taken to lie on; nothing: what they do.
  // `make_room`: as StorageReads has it.
  RecordReader(std::unique_ptr<ReadEngine> engine, size_t engine_depth,
               std::shared_ptr<FileCache> files, std::shared_ptr<MemoryBudget> budget,
               int64_t retry_for_ns = 0, std::shared_ptr<StorageCalls> calls = nullptr,
               std::optional<StorageKind> kind = std::nullopt,
               std::shared_ptr<ReadCounts> counts = nullptr, RoomMaker make_room = nullptr);
  ~RecordReader() override;  // REQUIRES: nothing in flight

  // Whether another ticket's records should be started now: enough to keep the storage busy, and no
  // more memory than planned. Grows when this worker had to wait for a read, shrinks when it did
  // not for long. Reads that are held up do not count: there is other work.
  bool wants_more() const {
    return storage_.moving() < depth_ && storage_.moving_bytes() < ReadBuffers::kBaseBytes / 2;
  }
  void SetOwner(RecordOwner* owner) { owner_ = owner; }  // null: none
  void FreeIdleBuffers() { storage_.FreeIdleBuffers(); }

  // Takes what `cache` (may be null) has kept of the record, or else reads it, from files as `job`
  // knows them (may be null where there is no cache). All four stay alive until Collect gave `into`
  // back and Release took it.
  void Start(const Dataset& dataset, int64_t record, RecordBytes* into, JobFiles* job = nullptr,
             const RecordCache* cache = nullptr);
  // The same record once more, from the dataset's files.
  void StartAnew(RecordBytes* bytes);
  // The same after a while, where what was done with the record has failed for a reason that can
  // pass. False once this has been going on for `retry_for_ns`: *why then says so.
  bool TryAnew(RecordBytes* bytes, absl::Status* why);
  // A record that has all its bytes, or an error; waits for one. nullptr when nothing is in flight,
  // or when all that is has been held up for `held_up_ns`: the owner may have other work meanwhile.
  RecordBytes* Collect(int64_t held_up_ns = INT64_MAX);
  // The same, but nullptr where an engine would have to wait (pread reads at once instead).
  RecordBytes* CollectReady();
  void Release(RecordBytes* bytes);
  // Of a record that Collect gave: it waits for something else than storage, or no longer. Reads of
  // such records alone do not count in wants_more().
  void SetAside(RecordBytes* bytes, bool is_aside);
  // Adds the dataset's files that the record was read from and that can be proven here, each once.
  // Files on storage that may hang are proven where they are read.
  static void AddFiles(const RecordBytes& bytes, OpenedFiles* files);
  // Whether the stamps of its files stand for what was read: a file that was read within the tick
  // of its last change may have been written to once more under the same stamp.
  static bool IsSettled(const RecordBytes& bytes);

  size_t in_flight() const { return started_; }  // started and not collected
  // Time spent since the last call: waiting for the storage, and on everything else.
  int64_t TakeWaitNs() { return std::exchange(wait_ns_, 0); }
  // Reads that were made elsewhere (direct_copies.h).
  void CountDirect(uint64_t reads, int64_t bytes);
  int64_t TakeReadNs() { return std::exchange(read_ns_, 0); }

 private:
  using Read = RecordBytes::Read;

  bool IsUnwanted(const StorageRead& read) override;
  void HeldUp(const StorageRead& read, int change) override;
  void Finished(StorageRead* read) override;

  void StartAt(int64_t due_ns, const Dataset& dataset, int64_t record, RecordBytes* into,
               JobFiles* job, const RecordCache* cache);
  void StartAnewAt(int64_t due_ns, RecordBytes* bytes);
  void StartLooked(RecordBytes* into);
  // Has the files looked at by a thread that can be left behind, then goes on with StartLooked.
  void LookFirst(RecordBytes* into);
  void StartGiven(RecordGiver* giver, RecordBytes* into);
  void NotStarted(const absl::Status& status, RecordBytes* into);
  void StartExtents(const ObjectSource& source, RecordBytes* into);
  // The read that the extent can go with; may be null.
  Read* Neighbour(const ObjectSource& source, const Extent& extent, const RecordBytes& into) const;
  Read* NewRead(const ObjectSource& source, const Extent& extent, RecordBytes* bytes,
                int64_t index);
  std::optional<uint32_t> UserOf(const RecordBytes& bytes) const;
  void FinishedGiven(Read* read, const absl::Status& status);
  void Refuse(RecordBytes* bytes, int64_t extent, const absl::Status& status);
  void Arrived(RecordBytes* bytes);
  void FreeRead(Read* read);
  void CountAside(Read* read);
  void WaitForRead(int64_t held_up_ns);
  void CountRead(int64_t elapsed_ns, bool wanted_more);
  RecordBytes* PopReady();
  void PrefetchReady() const;

  const std::shared_ptr<ReadCounts> counts_;  // may be null
  const std::optional<StorageKind> kind_;
  StorageReads storage_;
  FreeList<Read> reads_;
  RecordOwner* owner_ = nullptr;
  std::deque<RecordBytes*> ready_;  // to be collected
  std::vector<Extent> extents_;     // scratch
  size_t started_ = 0;
  int depth_;
  int records_since_wait_ = 0;
  int64_t wait_ns_ = 0, read_ns_ = 0;
};

}  // namespace feedwater::server
