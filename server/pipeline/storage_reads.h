// The reads of one worker: from files, by the engine or, where storage may hang, by threads that
// can be left behind; and of records that programs give. A read that fails for a reason that can
// pass is tried again. What is read, and for whom, is its client's business (record_reader.h).
//
// Thread safety: belongs to one thread, that of its engine.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/room_maker.h"
#include "server/pipeline/away_read.h"
#include "server/pipeline/job_files.h"
#include "server/pipeline/read_buffers.h"
#include "server/pipeline/read_counts.h"
#include "server/source/dataset.h"
#include "server/storage/engine.h"
#include "server/storage/fault.h"

namespace feedwater::server {

// One read. Its client derives from it, and owns it.
struct StorageRead {
  // Set by the client.
  const ObjectSource* source = nullptr;
  uint32_t object = 0;
  int64_t offset = 0, length = 0;
  JobFiles* job = nullptr;       // opens a dataset's files as the job knows them; may be null
  bool is_of_dataset = true;     // else of a cache: not tried again, never left behind
  bool is_ahead = false;         // its bytes were read ahead
  std::optional<uint32_t> user;  // whose threads it may take; nobody's: it is never left behind
  int64_t due_ns = 0;            // not to be read before
  std::vector<Extent> looks_at;  // not empty: nothing is read, the files of these are looked at
  // Not null: this program gives the record, and `length` is set when it has come. It is copied,
  // unless it may be read `in_place`: then the program may still write to it.
  RecordGiver* giver = nullptr;
  int64_t record = 0;
  ProvidedSeed seed{};
  bool in_place = false;

  // Filled here.
  ReadOp op;
  ReadBuffers::Buffer buffer;
  std::shared_ptr<const void> holds;  // the program's memory
  bool is_settled = true;             // what it gives is what its file's stamp stands for
  Retries retries;
  bool is_held = false;         // storage holds it up
  bool is_aside = false;        // it has its bytes, and nobody uses them now
  bool asked_for_room = false;  // for its buffer
  std::shared_ptr<AwayRead> away;
};

class StorageReads {
 public:
  class Client {
   public:
    virtual ~Client() = default;
    // Nobody waits for the read any more.
    virtual bool IsUnwanted(const StorageRead& read) = 0;
    // Storage holds the read up (+1), or no longer (-1).
    virtual void HeldUp(const StorageRead& read, int change) = 0;
    // The read has its bytes, or an error for good: op.status. It stays open until Free.
    virtual void Finished(StorageRead* read) = 0;
  };

  // `retry_for_ns`: how long a read is tried again, each time with its file opened anew. `calls`
  // may be null: then no read is left behind. So may `counts`: nothing is counted. `make_room` may
  // be null, too; else it is asked once for each read of a user whose buffer was refused. `client`
  // outlives this object.
  StorageReads(std::unique_ptr<ReadEngine> engine, size_t engine_depth,
               std::shared_ptr<FileCache> files, std::shared_ptr<MemoryBudget> budget,
               int64_t retry_for_ns, std::shared_ptr<StorageCalls> calls,
               std::shared_ptr<ReadCounts> counts, RoomMaker make_room, Client* client);
  ~StorageReads();  // REQUIRES: no read is open

  void Add(StorageRead* read);  // opens it; the engine gets it with the next Submit
  void Free(StorageRead* read);
  // Of a read that was given to Finished.
  void SetAside(StorageRead* read, bool is_aside);
  // The read that was added last, while the engine has not got it; it may be lengthened. Else null.
  StorageRead* last_added() const { return queue_.empty() ? nullptr : queue_.back(); }
  void Lengthen(StorageRead* read, int64_t by);

  void Submit();  // gives the engine what was added, as far as it has room
  // Takes back what others have read, starts what is to be tried again, and ends what nobody wants.
  void LookAround();
  bool CollectOne(bool wait);  // one read of the engine
  // Waits for a read, but for one that is held up until *slept_ns is `held_up_ns` at most. False:
  // there is nothing to wait for.
  bool Await(int64_t held_up_ns, int64_t* slept_ns);

  bool has_added() const { return !queue_.empty(); }
  // Submitted since the engine was last asked for completions.
  bool unstarted() const { return unstarted_; }
  bool TakeUnstarted() { return std::exchange(unstarted_, false); }

  // Open reads that storage does not hold up and that are not set aside, and their bytes.
  int moving() const { return open_reads_ - held_reads_; }
  int64_t moving_bytes() const { return open_bytes_ - held_bytes_; }

  // The root, when files of `source` may be read by threads that are left behind; it must live as
  // long as a call that hangs. Else null.
  std::shared_ptr<const Root> MayBeLeft(const ObjectSource& source, uint32_t object) const;
  int64_t retry_for_ns() const { return retry_for_ns_; }
  void FreeIdleBuffers() { buffers_.FreeIdle(); }

 private:
  using OpenFile = std::function<absl::StatusOr<std::shared_ptr<const OpenedFile>>()>;

  void Count(const StorageRead& read);
  absl::Status Begin(StorageRead* read);  // gives it to the engine, or sends it away
  absl::Status GetBuffer(StorageRead* read, size_t capacity, bool goes_away);
  void SendAway(StorageRead* read, OpenFile open);
  std::shared_ptr<AwayRead> GoAway(StorageRead* read);
  void AskForRecord(StorageRead* read);
  absl::Status TakeGiven(AwayRead* away, StorageRead* read);
  void FlushAsked();
  void TakeReturned();
  void LookAfterAway();  // what is held up, and what nobody wants any more
  void LeaveBehind(StorageRead* read);
  void TakeDue();  // reads whose time has come again
  void Completed(StorageRead* read);
  bool TryLater(StorageRead* read);
  void Postpone(StorageRead* read, int64_t due_ns);
  void SetHeld(StorageRead* read, bool held);
  int64_t AwaitStorage(int64_t at_most_ns);

  const std::unique_ptr<ReadEngine> engine_;
  const size_t engine_depth_;
  const std::shared_ptr<FileCache> files_;
  const std::shared_ptr<StorageCalls> calls_;
  const std::shared_ptr<ReadCounts> counts_;
  const int64_t retry_for_ns_;
  const RoomMaker make_room_;
  Client* const client_;
  // Where the last read of a dataset ended.
  const ObjectSource* last_source_ = nullptr;
  uint32_t last_object_ = 0;
  int64_t last_end_ = 0;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  ReadBuffers buffers_;
  std::deque<StorageRead*> queue_;                   // not submitted yet
  std::vector<StorageRead*> later_;                  // to be tried again, or not due yet
  std::vector<StorageRead*> away_;                   // with `calls`, or with programs
  std::vector<RecordGiver*> asked_;                  // for records since the last Flush
  std::vector<std::shared_ptr<AwayRead>> returned_;  // scratch
  bool unstarted_ = false;
  int open_reads_ = 0;
  int64_t open_bytes_ = 0;
  int held_reads_ = 0;  // of the open ones, or set aside
  int64_t held_bytes_ = 0;
};

}  // namespace feedwater::server
