#include "server/pipeline/storage_reads.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "server/base/clock.h"
#include "server/base/log_limiter.h"
#include "spdlog/spdlog.h"

namespace feedwater::server {
namespace {

constexpr int64_t kHeldUpNs = 250'000'000;    // a read that takes longer is held up
constexpr int64_t kLookEveryNs = 10'000'000;  // whether reads that are held up are still wanted

absl::Status Unwanted() { return absl::CancelledError("this read is no longer needed"); }

MemoryBudget* ShareOf(const StorageRead& read) {  // of its job's user; may be null
  return read.job == nullptr ? nullptr : read.job->share();
}

}  // namespace

StorageReads::StorageReads(std::unique_ptr<ReadEngine> engine, size_t engine_depth,
                           std::shared_ptr<FileCache> files, std::shared_ptr<MemoryBudget> budget,
                           int64_t retry_for_ns, std::shared_ptr<StorageCalls> calls,
                           std::shared_ptr<ReadCounts> counts, RoomMaker make_room, Client* client)
    : engine_(std::move(engine)),
      engine_depth_(engine_depth),
      files_(std::move(files)),
      calls_(std::move(calls)),
      counts_(std::move(counts)),
      retry_for_ns_(retry_for_ns),
      make_room_(std::move(make_room)),
      client_(client),
      buffers_(std::move(budget)) {}

StorageReads::~StorageReads() { mailbox_->Close(); }

void StorageReads::Add(StorageRead* read) {
  read->is_held = read->is_aside = false;
  read->asked_for_room = false;
  read->is_settled = true;
  ++open_reads_;
  open_bytes_ += read->length;
  queue_.push_back(read);
}

void StorageReads::Lengthen(StorageRead* read, int64_t by) {
  read->length += by;
  open_bytes_ += by;
}

void StorageReads::Free(StorageRead* read) {
  read->op.file = nullptr;
  read->holds = nullptr;
  --open_reads_;
  open_bytes_ -= read->length;
  if (read->buffer.capacity() > 0) buffers_.Put(std::exchange(read->buffer, ReadBuffers::Buffer()));
}

std::shared_ptr<const Root> StorageReads::MayBeLeft(const ObjectSource& source,
                                                    uint32_t object) const {
  return calls_ == nullptr ? nullptr : source.RootOf(object).weak_from_this().lock();
}

void StorageReads::Submit() {
  while (!queue_.empty() && engine_->in_flight() < engine_depth_) {
    StorageRead* read = queue_.front();
    queue_.pop_front();
    const bool is_unwanted = client_->IsUnwanted(*read);
    if (read->due_ns > MonotonicNs() && !is_unwanted) {
      read->op.status = Unwanted();  // if that is so then
      Postpone(read, read->due_ns);
      continue;
    }
    absl::Status begun = is_unwanted ? Unwanted() : Begin(read);
    if (begun.ok()) continue;
    read->op.status = std::move(begun);
    Completed(read);
  }
  FlushAsked();
}

void StorageReads::Count(const StorageRead& read) {
  if (counts_ == nullptr || !read.is_of_dataset) return;
  if (read.is_ahead) return server::Add(&counts_->found_ahead);
  server::Add(&counts_->reads);
  server::Add(&counts_->bytes, read.length);
  if (read.source != last_source_ || read.object != last_object_ || read.offset != last_end_)
    server::Add(&counts_->seeks);
  last_source_ = read.source;
  last_object_ = read.object;
  last_end_ = read.offset + read.length;
}

absl::Status StorageReads::Begin(StorageRead* read) {
  ReadOp& op = read->op;
  op = ReadOp();
  JobFiles* const job = read->job;
  if (read->giver != nullptr) {
    AskForRecord(read);
    return absl::OkStatus();
  }
  if (!read->looks_at.empty()) {
    SendAway(read,
             [job = job->shared_from_this(),
              extents = read->looks_at]() -> absl::StatusOr<std::shared_ptr<const OpenedFile>> {
               FW_RETURN_IF_ERROR(job->StampOf(extents, Reach::kAnywhere).status());
               return std::shared_ptr<const OpenedFile>();
             });
    return absl::OkStatus();
  }
  const bool may_be_left = read->is_of_dataset && read->user.has_value();
  std::shared_ptr<const Root> root = may_be_left ? MayBeLeft(*read->source, read->object) : nullptr;
  const Reach reach = root != nullptr ? Reach::kLocal : Reach::kAnywhere;
  const uint32_t user = root != nullptr ? *read->user : 0;
  const bool is_of_job = job != nullptr && read->is_of_dataset;
  absl::StatusOr<std::shared_ptr<const OpenedFile>> file =
      is_of_job ? job->Open(read->object, reach, user)
                : files_->Open(read->source->RootOf(read->object),
                               read->source->ObjectPath(read->object), reach, user);
  const bool is_elsewhere = IsElsewhere(file.status());
  if (!file.ok() && !is_elsewhere) return file.status();
  const bool goes_away = root != nullptr && (is_elsewhere || !(*file)->is_local);
  const bool direct_io = is_elsewhere ? files_->direct_io() : (*file)->direct_io;
  FW_RETURN_IF_ERROR(GetBuffer(read, ReadBufferBytes(read->length, direct_io), goes_away));
  if (file.ok()) op.file = *std::move(file);
  op.offset = read->offset;
  op.length = read->length;
  op.buffer = absl::Span<std::byte>(read->buffer.data(), read->buffer.capacity());
  op.user = read;
  Count(*read);
  if (!goes_away) {
    if (is_of_job) read->is_settled = IsSettled(*op.file);
    engine_->Submit(&op);
    unstarted_ = true;
  } else if (is_of_job) {
    SendAway(read, [job = job->shared_from_this(), object = read->object, user] {
      return job->Open(object, Reach::kAnywhere, user);
    });
  } else {
    SendAway(read,
             [files = files_, root = std::move(root), path = read->source->ObjectPath(read->object),
              user] { return files->Open(*root, path, Reach::kAnywhere, user); });
  }
  return absl::OkStatus();
}

absl::Status StorageReads::GetBuffer(StorageRead* read, size_t capacity, bool goes_away) {
  MemoryBudget* const share = ShareOf(*read);
  const bool fits = share == nullptr || static_cast<int64_t>(capacity) <= share->limit_bytes();
  const auto get = [&] {
    return goes_away ? buffers_.GetForAway(capacity, share) : buffers_.Get(capacity, share);
  };
  absl::StatusOr<ReadBuffers::Buffer> buffer = get();
  if (RefusedMemoryOf(buffer.status()) && fits && make_room_ != nullptr && read->user.has_value() &&
      !std::exchange(read->asked_for_room, true) && make_room_(*read->user, buffer.status())) {
    buffer = get();
  }
  if (buffer.ok()) {
    read->buffer = *std::move(buffer);
    return absl::OkStatus();
  }
  // Others have the memory at the moment: a running job tries again before it ends for that.
  return fits ? StorageStatus(ENOMEM, buffer.status().message()) : buffer.status();
}

void StorageReads::SendAway(StorageRead* read, OpenFile open) {
  const std::shared_ptr<AwayRead> away = GoAway(read);
  away->op = std::exchange(read->op, ReadOp());
  away->buffer = std::exchange(read->buffer, ReadBuffers::Buffer());
  away->user = *read->user;
  away->open = std::move(open);
  calls_->Start(*read->user, away);
}

std::shared_ptr<AwayRead> StorageReads::GoAway(StorageRead* read) {
  auto away = std::make_shared<AwayRead>();
  away->home = mailbox_;
  away->read = read;
  away->sent_ns = MonotonicNs();
  read->away = away;
  away_.push_back(read);
  return away;
}

void StorageReads::AskForRecord(StorageRead* read) {
  read->giver->Ask(read->record, read->seed, GoAway(read));
  if (std::find(asked_.begin(), asked_.end(), read->giver) == asked_.end())
    asked_.push_back(read->giver);
}

void StorageReads::FlushAsked() {
  for (RecordGiver* giver : asked_) giver->Flush();
  asked_.clear();
}

// What may still be written to is copied before anybody looks at it.
absl::Status StorageReads::TakeGiven(AwayRead* away, StorageRead* read) {
  FW_RETURN_IF_ERROR(away->op.status);
  const absl::Span<const std::byte> given = away->given;
  SetHeld(read, false);  // which counts its length
  Lengthen(read, static_cast<int64_t>(given.size()) - read->length);
  if (read->in_place) {
    read->op.data = given.data();
    read->holds = std::move(away->holds);
    return absl::OkStatus();
  }
  FW_RETURN_IF_ERROR(GetBuffer(read, ReadBufferBytes(read->length, /*direct_io=*/false),
                               /*goes_away=*/false));
  std::memcpy(read->buffer.data(), given.data(), given.size());
  read->op.data = read->buffer.data();
  return absl::OkStatus();
}

void StorageReads::LookAround() {
  TakeReturned();
  LookAfterAway();
  TakeDue();
}

void StorageReads::TakeReturned() {
  mailbox_->Take(&returned_);
  for (std::shared_ptr<AwayRead>& away : returned_) {
    auto* const read = static_cast<StorageRead*>(away->read);
    if (read->giver != nullptr) {
      read->op.status = TakeGiven(away.get(), read);
    } else {
      read->op = std::move(away->op);
      read->buffer = std::move(away->buffer);
      read->is_settled = away->is_settled;
    }
    read->away = nullptr;
    away_.erase(std::find(away_.begin(), away_.end(), read));
    Completed(read);
  }
  returned_.clear();
}

void StorageReads::LookAfterAway() {
  if (away_.empty()) return;
  const int64_t now = MonotonicNs();
  for (size_t i = 0; i < away_.size();) {
    StorageRead* const read = away_[i];
    if (client_->IsUnwanted(*read)) {
      away_[i] = away_.back();
      away_.pop_back();
      LeaveBehind(read);
      continue;
    }
    if (now - read->away->sent_ns > kHeldUpNs) SetHeld(read, true);
    ++i;
  }
}

// The thread that has it may hang for ever. The buffer goes with the call, and counts until then.
void StorageReads::LeaveBehind(StorageRead* read) {
  const std::shared_ptr<AwayRead> away = std::move(read->away);
  read->away = nullptr;
  mailbox_->Leave(away.get());
  if (read->giver == nullptr) calls_->Cancel(away->user, away.get());
  read->op.status = Unwanted();
  Completed(read);
}

void StorageReads::TakeDue() {
  if (later_.empty()) return;
  const int64_t now = MonotonicNs();
  for (size_t i = 0; i < later_.size();) {
    StorageRead* const read = later_[i];
    const bool is_unwanted = client_->IsUnwanted(*read);
    if (read->due_ns > now && !is_unwanted) {
      ++i;
      continue;
    }
    later_[i] = later_.back();
    later_.pop_back();
    if (is_unwanted) {
      Completed(read);  // with the error that it has
    } else {
      queue_.push_back(read);
    }
  }
}

bool StorageReads::CollectOne(bool wait) {
  ReadOp* op = engine_->Collect(wait);
  if (op == nullptr) return false;
  Completed(static_cast<StorageRead*>(op->user));
  return true;
}

bool StorageReads::Await(int64_t held_up_ns, int64_t* slept_ns) {
  if (engine_->in_flight() > 0) {
    CollectOne(/*wait=*/true);
    return true;
  }
  if ((later_.empty() && away_.empty()) || *slept_ns >= held_up_ns) return false;
  *slept_ns += AwaitStorage(held_up_ns - *slept_ns);
  return true;
}

// For a read that comes back or whose time comes again, and at most so long. Returns how long.
int64_t StorageReads::AwaitStorage(int64_t at_most_ns) {
  const int64_t start = MonotonicNs();
  int64_t until = start + std::min(at_most_ns, kLookEveryNs);
  for (const StorageRead* read : later_) until = std::min(until, read->due_ns);
  if (until > start) mailbox_->Wait(until - start);
  return MonotonicNs() - start;
}

void StorageReads::Completed(StorageRead* read) {
  if (!read->op.status.ok() && TryLater(read)) return;
  SetHeld(read, false);
  client_->Finished(read);
}

// What a cache has on its disk is not worth a wait: the record is then read from its dataset.
bool StorageReads::TryLater(StorageRead* read) {
  absl::Status& status = read->op.status;
  if (!IsTransient(status) || !read->is_of_dataset) return false;
  if (read->giver == nullptr)
    files_->Forget(read->source->RootOf(read->object), read->source->ObjectPath(read->object));
  const int64_t now = MonotonicNs();
  if (!read->retries.started()) read->retries.Start(now, retry_for_ns_);
  const int64_t due_ns = client_->IsUnwanted(*read) ? -1 : read->retries.Next(now);
  if (due_ns < 0) {
    status = read->retries.GaveUp(status, now);
    return false;
  }
  const int64_t user = read->user.has_value() ? *read->user : LogLimiter::kNoSource;
  if (ClientLog().Admits("reads that are tried again", user)) {
    spdlog::warn("{}: tried again for at most {:.1f} s (storage.retry_for)",
                 std::string(status.message()), 1e-9 * static_cast<double>(retry_for_ns_));
  }
  read->op.file = nullptr;
  if (read->buffer.capacity() > 0) buffers_.Put(std::exchange(read->buffer, ReadBuffers::Buffer()));
  Postpone(read, due_ns);
  return true;
}

void StorageReads::Postpone(StorageRead* read, int64_t due_ns) {
  read->due_ns = due_ns;
  SetHeld(read, true);
  later_.push_back(read);
}

void StorageReads::SetHeld(StorageRead* read, bool held) {
  if (read->is_held == held) return;
  read->is_held = held;
  const int change = held ? 1 : -1;
  held_reads_ += change;
  held_bytes_ += change * read->length;
  client_->HeldUp(*read, change);
}

void StorageReads::SetAside(StorageRead* read, bool is_aside) {
  if (read->is_aside == is_aside) return;
  read->is_aside = is_aside;
  const int change = is_aside ? 1 : -1;
  held_reads_ += change;
  held_bytes_ += change * read->length;
}

}  // namespace feedwater::server
