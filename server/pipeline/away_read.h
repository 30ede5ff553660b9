// One read that others do: of a file on storage that may hang, by a thread of StorageCalls, or of a
// record that a program gives. It owns, or keeps alive, all that it uses, so that whoever asked for
// it can leave without it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "server/base/mutex.h"
#include "server/pipeline/read_buffers.h"
#include "server/source/given_records.h"
#include "server/storage/engine.h"
#include "server/storage/storage_calls.h"

namespace feedwater::server {

class AwayRead;

// Where a reader's reads come back to. Thread-safe.
class Mailbox {
 public:
  void Put(std::shared_ptr<AwayRead> read) ABSL_LOCKS_EXCLUDED(mu_);
  // Nobody waits for the read any more: what it brings, or has brought already, is dropped. Whoever
  // asked for it may be asleep by then, so it must not lie here.
  void Leave(AwayRead* read) ABSL_LOCKS_EXCLUDED(mu_);
  // Appends what has come back.
  void Take(std::vector<std::shared_ptr<AwayRead>>* reads) ABSL_LOCKS_EXCLUDED(mu_);
  // Until something has come back.
  void Wait(int64_t at_most_ns) ABSL_LOCKS_EXCLUDED(mu_);
  // What comes back from now on is dropped.
  void Close() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  std::atomic<bool> any_{false};
  Mutex mu_;
  CondVar came_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::shared_ptr<AwayRead>> back_ ABSL_GUARDED_BY(mu_);
};

class AwayRead final : public StorageCall,
                       public RecordTaker,
                       public std::enable_shared_from_this<AwayRead> {
 public:
  void Run() override;
  void Given(const absl::Status& status, absl::Span<const std::byte> bytes,
             std::shared_ptr<const void> holds) override;

  // Set before it is started, and not touched by anybody else until it is back.
  ReadOp op;                   // its file may be missing
  ReadBuffers::Buffer buffer;  // of `op`
  bool is_settled = true;      // IsSettled when it was read
  // Gives the file; null: there was only something to look at.
  std::function<absl::StatusOr<std::shared_ptr<const OpenedFile>>()> open;
  std::shared_ptr<Mailbox> home;
  // Of a record that a program gives: set when it is back.
  absl::Span<const std::byte> given;
  std::shared_ptr<const void> holds;

  // The reader's own.
  uint32_t user = 0;
  int64_t sent_ns = 0;
  void* read = nullptr;

 private:
  friend class Mailbox;
  bool is_left_ = false;  // guarded by its home's lock
};

}  // namespace feedwater::server
