#include "server/pipeline/record_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/log_limiter.h"
#include "spdlog/spdlog.h"

namespace feedwater::server {
namespace {

constexpr int kLeastDepth = 2, kMostDepth = 32;
constexpr int64_t kWaitNs = 50'000;  // less is not the storage's latency but the work of reading
constexpr int kShrinkAfter = 256;    // records without a wait
constexpr int64_t kMaxJoinedBytes = 1 << 20;
constexpr int64_t kLeastRetryNs = 10'000'000'000;  // of what waits for memory
constexpr int64_t kHeldUpNs = 250'000'000;         // a read that takes longer is held up
constexpr int64_t kLookEveryNs = 10'000'000;  // whether reads that are held up are still wanted

// What an extent without bytes points to: readable like every other.
alignas(64) constexpr std::byte kNothing[kReadPadding] = {};

}  // namespace

bool TellsOfTheMachine(const absl::Status& status, const RecordBytes& bytes) {
  return !status.ok() && (bytes.not_read() || TellsOfTheMachine(status));
}

// One read of the engine, for one extent or for several that follow each other in a file.
struct RecordBytes::Read {
  struct Part {
    RecordBytes* bytes;
    int64_t extent;  // which of its extents
    int64_t offset;  // within the read
    int64_t length;
  };
  ReadOp op;
  ReadBuffers::Buffer buffer;
  const ObjectSource* source = nullptr;
  uint32_t object = 0;
  int64_t offset = 0, length = 0;
  absl::InlinedVector<Part, 1> parts;
  int users = 0;  // parts whose owner has not released them
  Retries retries;
  int64_t due_ns = 0;  // when it is tried again
  bool is_held = false;
  bool is_look = false;    // of no bytes: the record's files are to be looked at
  bool is_settled = true;  // what it gives is what its file's stamp stands for
  std::shared_ptr<AwayRead> away;
};

RecordReader::RecordReader(std::unique_ptr<ReadEngine> engine, size_t engine_depth,
                           std::shared_ptr<FileCache> files, std::shared_ptr<MemoryBudget> budget,
                           int64_t retry_for_ns, std::shared_ptr<StorageCalls> calls)
    : engine_(std::move(engine)),
      engine_depth_(engine_depth),
      files_(std::move(files)),
      calls_(std::move(calls)),
      buffers_(std::move(budget)),
      retry_for_ns_(retry_for_ns),
      depth_(kLeastDepth) {}

RecordReader::~RecordReader() { mailbox_->Close(); }

void RecordReader::Start(const Dataset& dataset, int64_t record, RecordBytes* into, JobFiles* job,
                         const RecordCache* cache) {
  into->dataset_ = &dataset;
  into->job_ = job;
  into->cache_ = cache;
  into->record_ = record;
  into->origin_ = RecordBytes::Origin::kDataset;
  into->stamp_ = 0;
  into->size_ = 0;
  into->missing_ = 0;
  into->failed_extent_ = -1;
  into->status_ = absl::OkStatus();
  into->not_read_ = false;
  into->retries_ = Retries();
  into->due_ns_ = 0;
  into->extents_.clear();
  into->reads_.clear();
  ++started_;
  StartLooked(into);
}

// What is not read is looked at: the files of a record that may be kept, and of an extent without
// bytes, which may have some by now.
void RecordReader::StartLooked(RecordBytes* into) {
  extents_.clear();
  into->dataset_->Extents(into->record_, &extents_);
  const RecordCache* const cache = into->cache_;
  const bool has_empty = std::any_of(extents_.begin(), extents_.end(),
                                     [](const Extent& extent) { return extent.length == 0; });
  if (into->job_ == nullptr || (cache == nullptr && !has_empty))
    return StartExtents(*into->dataset_, into);
  const Reach reach = MayGo(*into) != nullptr ? Reach::kLocal : Reach::kAnywhere;
  const absl::StatusOr<uint64_t> stamp = into->job_->StampOf(extents_, reach);
  // Also what can pass: a read that failed is tried again, and so is this.
  if (reach == Reach::kLocal && (IsElsewhere(stamp.status()) || IsTransient(stamp.status())))
    return LookFirst(into);
  if (!stamp.ok()) return NotStarted(stamp.status(), into);
  if (cache == nullptr) return StartExtents(*into->dataset_, into);
  into->stamp_ = *stamp;
  const RecordCache::Found found = cache->Find(into->record_, *stamp);
  if (found.where == RecordCache::Where::kMemory) {
    into->origin_ = RecordBytes::Origin::kMemory;
    into->extents_.assign(1, found.block.payload);
    ready_.push_back(into);
    return;
  }
  if (found.where == RecordCache::Where::kDisk) {
    into->origin_ = RecordBytes::Origin::kDisk;
    into->kept_at_ = found.extent;
    extents_.assign(1, found.extent);
    return StartExtents(*cache->disk(), into);
  }
  StartExtents(*into->dataset_, into);
}

void RecordReader::StartAnew(RecordBytes* bytes) {
  const uint64_t stamp = bytes->stamp_;
  Release(bytes);
  Start(*bytes->dataset_, bytes->record_, bytes, bytes->job_);
  bytes->stamp_ = stamp;
}

bool RecordReader::TryAnew(RecordBytes* bytes, absl::Status* why) {
  const int64_t now = MonotonicNs();
  Retries retries = bytes->retries_;
  if (!retries.started()) retries.Start(now, std::max(retry_for_ns_, kLeastRetryNs));
  const int64_t due_ns = retries.Next(now);
  if (due_ns < 0) {
    *why = retries.GaveUp(*why, now);
    return false;
  }
  StartAnew(bytes);
  bytes->retries_ = retries;
  bytes->due_ns_ = due_ns;
  return true;
}

void RecordReader::NotStarted(const absl::Status& status, RecordBytes* into) {
  into->status_ = status;
  into->not_read_ = true;
  ready_.push_back(into);
}

void RecordReader::LookFirst(RecordBytes* into) {
  Read* const look = NewRead(*into->dataset_, {extents_[0].object, 0, 0}, into, -1);
  look->is_look = true;
  queue_.push_back(look);
}

std::shared_ptr<const Root> RecordReader::MayGo(const RecordBytes& bytes) const {
  if (calls_ == nullptr || owner_ == nullptr || bytes.origin_ != RecordBytes::Origin::kDataset)
    return nullptr;
  return bytes.dataset_->root().weak_from_this().lock();
}

MemoryBudget* RecordReader::ShareOf(const RecordBytes& bytes) {
  return bytes.job_ == nullptr ? nullptr : bytes.job_->share();
}

void RecordReader::StartExtents(const ObjectSource& source, RecordBytes* into) {
  for (const Extent& extent : extents_) {
    if (extent.offset < 0 || extent.length < 0 || extent.length > kMaxRecordBytes - into->size_) {
      into->status_ = absl::InvalidArgumentError(absl::StrCat(
          "larger than ", kMaxRecordBytes >> 20, " MiB, the most that one record may have"));
      into->size_ = 0;
      ready_.push_back(into);
      return;
    }
    into->size_ += extent.length;
  }
  into->extents_.assign(extents_.size(), absl::Span<const std::byte>(kNothing, 0));
  for (size_t i = 0; i < extents_.size(); ++i) {
    const Extent& extent = extents_[i];
    if (extent.length == 0) continue;
    ++into->missing_;
    Read* last = queue_.empty() ? nullptr : queue_.back();
    if (last != nullptr && last->source == &source && last->object == extent.object &&
        !last->is_look && !last->is_held && last->parts[0].bytes->job_ == into->job_ &&
        !last->retries.started() && SameUser(*last->parts[0].bytes, *into) &&
        extent.offset - last->offset == last->length &&
        last->length + extent.length <= kMaxJoinedBytes) {
      last->parts.push_back({into, static_cast<int64_t>(i), last->length, extent.length});
      last->length += extent.length;
      ++last->users;
      open_bytes_ += extent.length;
      into->reads_.push_back(last);
    } else {
      queue_.push_back(NewRead(source, extent, into, static_cast<int64_t>(i)));
    }
  }
  if (into->missing_ == 0) ready_.push_back(into);
}

RecordReader::Read* RecordReader::NewRead(const ObjectSource& source, const Extent& extent,
                                          RecordBytes* bytes, int64_t index) {
  Read* read = reads_.Get();
  read->source = &source;
  read->object = extent.object;
  read->offset = extent.offset;
  read->length = extent.length;
  read->parts.clear();
  read->parts.push_back({bytes, index, 0, extent.length});
  read->users = 1;
  read->retries = Retries();
  read->is_held = false;
  read->is_look = false;
  read->is_settled = true;
  ++open_reads_;
  open_bytes_ += extent.length;
  bytes->reads_.push_back(read);
  return read;
}

absl::Status RecordReader::Begin(Read* read) {
  ReadOp& op = read->op;
  op = ReadOp();
  const RecordBytes& bytes = *read->parts[0].bytes;
  std::shared_ptr<const Root> root = MayGo(bytes);
  const bool may_go = root != nullptr;
  const Reach reach = may_go ? Reach::kLocal : Reach::kAnywhere;
  const uint32_t user = may_go ? owner_->UserOf(bytes) : 0;
  if (read->is_look) {
    std::vector<Extent> extents;
    bytes.dataset_->Extents(bytes.record_, &extents);
    SendAway(read,
             [job = bytes.job_->shared_from_this(),
              extents = std::move(extents)]() -> absl::StatusOr<std::shared_ptr<const OpenedFile>> {
               FW_RETURN_IF_ERROR(job->StampOf(extents, Reach::kAnywhere).status());
               return std::shared_ptr<const OpenedFile>();
             });
    return absl::OkStatus();
  }
  const bool is_of_job = bytes.job_ != nullptr && bytes.origin_ == RecordBytes::Origin::kDataset;
  absl::StatusOr<std::shared_ptr<const OpenedFile>> file =
      is_of_job
          ? bytes.job_->Open(read->object, reach, user)
          : files_->Open(read->source->root(), read->source->ObjectPath(read->object), reach, user);
  const bool is_elsewhere = IsElsewhere(file.status());
  if (!file.ok() && !is_elsewhere) return file.status();
  const bool goes_away = may_go && (is_elsewhere || !(*file)->is_local);
  const bool direct_io = is_elsewhere ? files_->direct_io() : (*file)->direct_io;
  const size_t capacity = ReadBufferBytes(read->length, direct_io);
  absl::StatusOr<ReadBuffers::Buffer> buffer = goes_away
                                                   ? buffers_.GetForAway(capacity, ShareOf(bytes))
                                                   : buffers_.Get(capacity, ShareOf(bytes));
  // Others have the memory at the moment: a running job tries again before it ends for that.
  if (!buffer.ok()) {
    const MemoryBudget* const share = ShareOf(bytes);
    const bool fits = share == nullptr || static_cast<int64_t>(capacity) <= share->limit_bytes();
    return fits ? StorageStatus(ENOMEM, buffer.status().message()) : buffer.status();
  }
  read->buffer = *std::move(buffer);
  if (file.ok()) op.file = *std::move(file);
  op.offset = read->offset;
  op.length = read->length;
  op.buffer = absl::Span<std::byte>(read->buffer.data(), read->buffer.capacity());
  op.user = read;
  if (goes_away) {
    if (is_of_job) {
      SendAway(read, [job = bytes.job_->shared_from_this(), object = read->object, user] {
        return job->Open(object, Reach::kAnywhere, user);
      });
    } else {
      SendAway(read, [files = files_, root = std::move(root),
                      path = read->source->ObjectPath(read->object),
                      user] { return files->Open(*root, path, Reach::kAnywhere, user); });
    }
  } else {
    if (is_of_job) read->is_settled = WouldShowChanges(*op.file);
    engine_->Submit(&op);
    unstarted_ = true;
  }
  return absl::OkStatus();
}

void RecordReader::SendAway(Read* read, OpenFile open) {
  const RecordBytes& bytes = *read->parts[0].bytes;
  auto away = std::make_shared<AwayRead>();
  away->op = std::exchange(read->op, ReadOp());
  away->buffer = std::exchange(read->buffer, ReadBuffers::Buffer());
  away->user = owner_->UserOf(bytes);
  away->open = std::move(open);
  away->home = mailbox_;
  away->read = read;
  away->sent_ns = MonotonicNs();
  read->away = away;
  away_.push_back(read);
  const uint32_t user = away->user;
  calls_->Start(user, std::move(away));
}

void RecordReader::TakeReturned() {
  mailbox_->Take(&returned_);
  for (std::shared_ptr<AwayRead>& away : returned_) {
    Read* const read = static_cast<Read*>(away->read);
    if (read == nullptr) continue;
    read->op = std::move(away->op);
    read->buffer = std::move(away->buffer);
    read->is_settled = away->is_settled;
    read->away = nullptr;
    away_.erase(std::find(away_.begin(), away_.end(), read));
    Completed(read);
  }
  returned_.clear();
}

void RecordReader::LookAfterAway() {
  if (away_.empty()) return;
  const int64_t now = MonotonicNs();
  for (size_t i = 0; i < away_.size();) {
    Read* const read = away_[i];
    if (IsUnwanted(*read)) {
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
void RecordReader::LeaveBehind(Read* read) {
  const std::shared_ptr<AwayRead> away = std::move(read->away);
  read->away = nullptr;
  away->read = nullptr;
  calls_->Cancel(away->user, away.get());
  read->op.status = absl::CancelledError("nobody waits for this read");
  Completed(read);
}

void RecordReader::Submit() {
  while (!queue_.empty() && engine_->in_flight() < engine_depth_) {
    Read* read = queue_.front();
    queue_.pop_front();
    const int64_t due_ns = read->parts[0].bytes->due_ns_;
    if (due_ns > MonotonicNs() && !IsUnwanted(*read)) {
      read->op.status = absl::CancelledError("nobody waits for this read");  // if that is so then
      Postpone(read, due_ns);
      continue;
    }
    absl::Status begun =
        IsUnwanted(*read) ? absl::CancelledError("nobody waits for this read") : Begin(read);
    if (begun.ok()) continue;
    read->op.status = std::move(begun);
    Completed(read);
  }
}

// What the cache has on its disk is not worth a wait: the record is then read from its dataset.
bool RecordReader::TryLater(Read* read) {
  absl::Status& status = read->op.status;
  if (!IsTransient(status)) return false;
  if (read->parts[0].bytes->origin_ != RecordBytes::Origin::kDataset) return false;
  files_->Forget(read->source->root(), read->source->ObjectPath(read->object));
  const int64_t now = MonotonicNs();
  if (!read->retries.started()) read->retries.Start(now, retry_for_ns_);
  read->due_ns = IsUnwanted(*read) ? -1 : read->retries.Next(now);
  if (read->due_ns < 0) {
    status = read->retries.GaveUp(status, now);
    return false;
  }
  const int64_t user =
      owner_ == nullptr ? LogLimiter::kNoSource : owner_->UserOf(*read->parts[0].bytes);
  if (ClientLog().Admits("reads that are tried again", user)) {
    spdlog::warn("{}: tried again for at most {:.1f} s (storage.retry_for)",
                 std::string(status.message()), 1e-9 * static_cast<double>(retry_for_ns_));
  }
  read->op.file = nullptr;
  if (read->buffer.capacity() > 0) buffers_.Put(std::exchange(read->buffer, ReadBuffers::Buffer()));
  Postpone(read, read->due_ns);
  return true;
}

void RecordReader::Postpone(Read* read, int64_t due_ns) {
  read->due_ns = due_ns;
  SetHeld(read, true);
  later_.push_back(read);
}

bool RecordReader::IsUnwanted(const Read& read) const {
  return owner_ != nullptr &&
         std::all_of(read.parts.begin(), read.parts.end(),
                     [this](const Read::Part& part) { return owner_->IsUnwanted(*part.bytes); });
}

// Each user pays for its own reads.
bool RecordReader::SameUser(const RecordBytes& a, const RecordBytes& b) const {
  return owner_ == nullptr || owner_->UserOf(a) == owner_->UserOf(b);
}

void RecordReader::SetHeld(Read* read, bool held) {
  if (read->is_held == held) return;
  read->is_held = held;
  const int change = held ? 1 : -1;
  held_reads_ += change;
  held_bytes_ += change * read->length;
  if (owner_ == nullptr) return;
  for (const Read::Part& part : read->parts) {
    const int before = part.bytes->held_reads_;
    part.bytes->held_reads_ += change;
    if (before == 0 || part.bytes->held_reads_ == 0) owner_->HeldUp(*part.bytes, change);
  }
}

void RecordReader::TakeDue() {
  if (later_.empty()) return;
  const int64_t now = MonotonicNs();
  for (size_t i = 0; i < later_.size();) {
    Read* const read = later_[i];
    const bool is_unwanted = IsUnwanted(*read);
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

// For a read that comes back or whose time comes again, and at most so long. Returns how long.
int64_t RecordReader::AwaitStorage(int64_t at_most_ns) {
  const int64_t start = MonotonicNs();
  int64_t until = start + std::min(at_most_ns, kLookEveryNs);
  for (const Read* read : later_) until = std::min(until, read->due_ns);
  if (until > start) mailbox_->Wait(until - start);
  return MonotonicNs() - start;
}

void RecordReader::Completed(Read* read) {
  if (!read->op.status.ok() && TryLater(read)) return;
  SetHeld(read, false);
  const absl::Status status = read->op.status;
  if (read->is_look) {
    RecordBytes* const bytes = read->parts[0].bytes;
    bytes->reads_.clear();
    FreeRead(read);
    return status.ok() ? StartLooked(bytes) : NotStarted(status, bytes);
  }
  // A joined read that failed says nothing about its parts: those before the damage are whole. So
  // each is read alone, unless it is the file that was refused.
  const bool is_refused = read->op.file == nullptr && absl::IsFailedPrecondition(status);
  for (const Read::Part& part : read->parts) {
    RecordBytes* bytes = part.bytes;
    if (status.ok()) {
      bytes->extents_[part.extent] = absl::MakeConstSpan(read->op.data + part.offset, part.length);
      Arrived(bytes);
    } else if (read->parts.size() == 1 || is_refused) {
      Refuse(bytes, part.extent, status);
      Arrived(bytes);
    } else {
      bytes->reads_.erase(std::find(bytes->reads_.begin(), bytes->reads_.end(), read));
      --read->users;
      const Extent extent{read->object, read->offset + part.offset, part.length};
      queue_.push_back(NewRead(*read->source, extent, bytes, part.extent));
      queue_.back()->retries = read->retries;
    }
  }
  if (read->users == 0) FreeRead(read);
}

void RecordReader::Refuse(RecordBytes* bytes, int64_t extent, const absl::Status& status) {
  if (bytes->failed_extent_ >= 0 && bytes->failed_extent_ < extent) return;
  bytes->failed_extent_ = extent;
  bytes->status_ = status;
  bytes->not_read_ = true;
}

void RecordReader::Arrived(RecordBytes* bytes) {
  if (--bytes->missing_ == 0) ready_.push_back(bytes);
}

bool RecordReader::CollectOne(bool wait) {
  ReadOp* op = engine_->Collect(wait);
  if (op == nullptr) return false;
  Completed(static_cast<Read*>(op->user));
  return true;
}

RecordBytes* RecordReader::Collect(int64_t held_up_ns) {
  TakeReturned();
  LookAfterAway();
  TakeDue();
  if (ready_.empty() || !queue_.empty() || unstarted_) WaitForRead(held_up_ns);
  return PopReady();
}

RecordBytes* RecordReader::CollectReady() {
  const int64_t start = MonotonicNs();
  const bool wanted_more = wants_more();
  TakeReturned();
  LookAfterAway();
  TakeDue();
  Submit();
  unstarted_ = false;
  while (ready_.empty() && CollectOne(/*wait=*/false)) {
  }
  CountRead(MonotonicNs() - start, wanted_more);
  return PopReady();
}

RecordBytes* RecordReader::PopReady() {
  if (ready_.empty()) return nullptr;
  RecordBytes* bytes = ready_.front();
  ready_.pop_front();
  --started_;
  if (++records_since_wait_ >= kShrinkAfter) {
    records_since_wait_ = 0;
    depth_ = std::max(depth_ - 1, kLeastDepth);
  }
  return bytes;
}

// Starts what is to be read, and waits only if no record is ready. While one is, completed reads
// may stay where they are: with an engine that reads in Collect, the others proceed in the
// background meanwhile.
void RecordReader::WaitForRead(int64_t held_up_ns) {
  const int64_t start = MonotonicNs();
  const bool wanted_more = wants_more();
  Submit();
  if (std::exchange(unstarted_, false)) CollectOne(/*wait=*/false);
  for (int64_t slept_ns = 0; ready_.empty();) {
    if (engine_->in_flight() > 0) {
      CollectOne(/*wait=*/true);
    } else if (!(later_.empty() && away_.empty()) && slept_ns < held_up_ns) {
      slept_ns += AwaitStorage(held_up_ns - slept_ns);
    } else {
      break;
    }
    TakeReturned();
    LookAfterAway();
    TakeDue();
    Submit();
  }
  CountRead(MonotonicNs() - start, wanted_more);
}

void RecordReader::CountRead(int64_t elapsed_ns, bool wanted_more) {
  if (elapsed_ns < kWaitNs) {
    read_ns_ += elapsed_ns;
    return;
  }
  wait_ns_ += elapsed_ns;
  records_since_wait_ = 0;
  if (!wanted_more) depth_ = std::min(2 * depth_, kMostDepth);
}

void RecordReader::Release(RecordBytes* bytes) {
  for (Read* read : bytes->reads_) {
    if (--read->users == 0) FreeRead(read);
  }
  bytes->reads_.clear();
  bytes->extents_.clear();
}

void RecordReader::AddFiles(const RecordBytes& bytes, OpenedFiles* files) {
  if (bytes.origin_ != RecordBytes::Origin::kDataset) return;
  for (const Read* read : bytes.reads_) {
    const std::shared_ptr<const OpenedFile>& file = read->op.file;
    if (file == nullptr || !file->is_local) continue;
    if (std::find(files->begin(), files->end(), file) != files->end()) continue;
    files->push_back(file);
  }
}

bool RecordReader::IsSettled(const RecordBytes& bytes) {
  return std::all_of(bytes.reads_.begin(), bytes.reads_.end(),
                     [](const Read* read) { return read->is_settled; });
}

void RecordReader::FreeRead(Read* read) {
  read->op.file = nullptr;
  --open_reads_;
  open_bytes_ -= read->length;
  if (read->buffer.capacity() > 0) buffers_.Put(std::exchange(read->buffer, ReadBuffers::Buffer()));
  reads_.Put(read);
}

}  // namespace feedwater::server
