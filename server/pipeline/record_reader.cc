#include "server/pipeline/record_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"

namespace feedwater::server {
namespace {

constexpr int kLeastDepth = 2, kMostDepth = 32;
constexpr int64_t kWaitNs = 50'000;  // less is not the storage's latency but the work of reading
constexpr int kShrinkAfter = 256;    // records without a wait
constexpr int64_t kMaxJoinedBytes = 1 << 20;
constexpr int64_t kMostGaps = 4;  // times the bytes that are wanted: gaps are copied, too
constexpr size_t kPrefetchAhead = 4, kPrefetchBytes = 4096;  // of records that are ready
constexpr size_t kCacheLine = 64;
constexpr int64_t kLeastRetryNs = 10'000'000'000;  // of what waits for memory

// What an extent without bytes points to: readable like every other.
alignas(64) constexpr std::byte kNothing[kReadPadding] = {};

}  // namespace

bool TellsOfTheMachine(const absl::Status& status, const RecordBytes& bytes) {
  return !status.ok() && (bytes.not_read() || TellsOfTheMachine(status));
}

// One read, for one extent or for several that follow each other in a file, perhaps with gaps.
struct RecordBytes::Read final : StorageRead {
  struct Part {
    RecordBytes* bytes;
    int64_t extent;  // which of its extents
    int64_t offset;  // within the read
    int64_t length;
  };
  absl::InlinedVector<Part, 1> parts;
  int users = 0;       // parts whose owner has not released them
  int64_t wanted = 0;  // bytes of all parts
  int aside = 0;       // of `users`, those that wait for something else
};

RecordReader::RecordReader(std::unique_ptr<ReadEngine> engine, size_t engine_depth,
                           std::shared_ptr<FileCache> files, std::shared_ptr<MemoryBudget> budget,
                           int64_t retry_for_ns, std::shared_ptr<StorageCalls> calls,
                           std::optional<StorageKind> kind, std::shared_ptr<ReadCounts> counts,
                           RoomMaker make_room)
    : counts_(std::move(counts)),
      kind_(kind),
      storage_(std::move(engine), engine_depth, std::move(files), std::move(budget), retry_for_ns,
               std::move(calls), counts_, std::move(make_room), this),
      depth_(kLeastDepth) {}

RecordReader::~RecordReader() = default;

void RecordReader::Start(const Dataset& dataset, int64_t record, RecordBytes* into, JobFiles* job,
                         const RecordCache* cache) {
  StartAt(0, dataset, record, into, job, cache);
}

void RecordReader::StartAt(int64_t due_ns, const Dataset& dataset, int64_t record,
                           RecordBytes* into, JobFiles* job, const RecordCache* cache) {
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
  into->due_ns_ = due_ns;
  into->extents_.clear();
  into->reads_.clear();
  ++started_;
  StartLooked(into);
}

// What is not read is looked at: the files of a record that may be kept, and of an extent without
// bytes, which may have some by now.
void RecordReader::StartLooked(RecordBytes* into) {
  if (RecordGiver* const giver = into->dataset_->giver(); giver != nullptr)
    return StartGiven(giver, into);
  extents_.clear();
  into->dataset_->Extents(into->record_, &extents_);
  const RecordCache* const cache = into->cache_;
  const bool has_empty = std::any_of(extents_.begin(), extents_.end(),
                                     [](const Extent& extent) { return extent.length == 0; });
  if (into->job_ == nullptr || (cache == nullptr && !has_empty))
    return StartExtents(*into->dataset_, into);
  const bool may_be_left =
      owner_ != nullptr &&
      storage_.MayBeLeft(*into->dataset_, extents_.empty() ? 0 : extents_[0].object) != nullptr;
  const Reach reach = may_be_left ? Reach::kLocal : Reach::kAnywhere;
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

void RecordReader::CountDirect(uint64_t reads, int64_t bytes) {
  if (counts_ == nullptr || reads == 0) return;
  Add(&counts_->reads, reads);
  Add(&counts_->seeks, reads);  // neighbours came with one read
  Add(&counts_->bytes, static_cast<uint64_t>(bytes));
}

void RecordReader::StartAnew(RecordBytes* bytes) { StartAnewAt(0, bytes); }

void RecordReader::StartAnewAt(int64_t due_ns, RecordBytes* bytes) {
  const uint64_t stamp = bytes->stamp_;
  Release(bytes);
  StartAt(due_ns, *bytes->dataset_, bytes->record_, bytes, bytes->job_, nullptr);
  bytes->stamp_ = stamp;
}

bool RecordReader::TryAnew(RecordBytes* bytes, absl::Status* why) {
  const int64_t now = MonotonicNs();
  Retries retries = bytes->retries_;
  if (!retries.started()) retries.Start(now, std::max(storage_.retry_for_ns(), kLeastRetryNs));
  const int64_t due_ns = retries.Next(now);
  if (due_ns < 0) {
    *why = retries.GaveUp(*why, now);
    return false;
  }
  StartAnewAt(due_ns, bytes);
  bytes->retries_ = retries;
  return true;
}

void RecordReader::StartGiven(RecordGiver* giver, RecordBytes* into) {
  into->extents_.assign(1, absl::Span<const std::byte>(kNothing, 0));
  into->missing_ = 1;
  Read* const read = NewRead(*into->dataset_, {0, 0, 0}, into, 0);
  read->giver = giver;
  read->record = into->record_;
  read->seed = into->seed;
  read->in_place = into->in_place;
  storage_.Add(read);
}

void RecordReader::NotStarted(const absl::Status& status, RecordBytes* into) {
  into->status_ = status;
  into->not_read_ = true;
  ready_.push_back(into);
}

void RecordReader::LookFirst(RecordBytes* into) {
  Read* const look = NewRead(*into->dataset_, {extents_[0].object, 0, 0}, into, -1);
  look->looks_at = extents_;
  storage_.Add(look);
}

std::optional<uint32_t> RecordReader::UserOf(const RecordBytes& bytes) const {
  if (owner_ == nullptr) return std::nullopt;
  return owner_->UserOf(bytes);
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
    const auto index = static_cast<int64_t>(i);
    if (Read* const last = Neighbour(source, extent, *into); last != nullptr) {
      const int64_t offset = extent.offset - last->offset;
      last->parts.push_back({into, index, offset, extent.length});
      storage_.Lengthen(last, offset + extent.length - last->length);
      ++last->users;
      last->wanted += extent.length;
      into->reads_.push_back(last);
      if (counts_ != nullptr && last->is_of_dataset) Add(&counts_->joined);
    } else {
      storage_.Add(NewRead(source, extent, into, index));
    }
  }
  if (into->missing_ == 0) ready_.push_back(into);
}

// Each user pays for its own reads.
RecordBytes::Read* RecordReader::Neighbour(const ObjectSource& source, const Extent& extent,
                                           const RecordBytes& into) const {
  auto* const last = static_cast<Read*>(storage_.last_added());
  if (last == nullptr || last->source != &source || last->object != extent.object ||
      !last->looks_at.empty() || last->is_held || last->job != into.job_ ||
      last->due_ns != into.due_ns_ || last->retries.started() || last->user != UserOf(into) ||
      last->is_ahead != into.is_ahead) {
    return nullptr;
  }
  const int64_t gap = extent.offset - last->offset - last->length;
  if (gap < 0 || gap > kMaxJoinedBytes) return nullptr;
  const int64_t length = last->length + gap + extent.length;
  if (length > kMaxJoinedBytes) return nullptr;
  if (gap == 0) return last;
  // What was read ahead is in memory.
  const StorageKind kind = into.is_ahead
                               ? StorageKind::kMemory
                               : kind_.value_or(source.RootOf(extent.object).storage().kind);
  const int64_t wanted = last->wanted + extent.length;
  const int64_t least = HabitsOf(StorageKind::kMemory).join_gap_bytes;
  const bool is_near = gap <= HabitsOf(kind).join_gap_bytes &&
                       length - wanted <= std::max(least, kMostGaps * wanted);
  return is_near ? last : nullptr;
}

RecordReader::Read* RecordReader::NewRead(const ObjectSource& source, const Extent& extent,
                                          RecordBytes* bytes, int64_t index) {
  Read* read = reads_.Get();
  read->source = &source;
  read->object = extent.object;
  read->offset = extent.offset;
  read->length = extent.length;
  read->job = bytes->job_;
  read->is_of_dataset = bytes->origin_ == RecordBytes::Origin::kDataset;
  read->is_ahead = bytes->is_ahead;
  read->wanted = extent.length;
  read->user = UserOf(*bytes);
  read->due_ns = bytes->due_ns_;
  read->looks_at.clear();
  read->giver = nullptr;
  read->retries = Retries();
  read->parts.clear();
  read->parts.push_back({bytes, index, 0, extent.length});
  read->users = 1;
  read->aside = 0;
  bytes->reads_.push_back(read);
  return read;
}

bool RecordReader::IsUnwanted(const StorageRead& read) {
  const auto& parts = static_cast<const Read&>(read).parts;
  return owner_ != nullptr &&
         std::all_of(parts.begin(), parts.end(),
                     [this](const Read::Part& part) { return owner_->IsUnwanted(*part.bytes); });
}

void RecordReader::HeldUp(const StorageRead& read, int change) {
  if (owner_ == nullptr) return;
  for (const Read::Part& part : static_cast<const Read&>(read).parts) {
    const int before = part.bytes->held_reads_;
    part.bytes->held_reads_ += change;
    if (before == 0 || part.bytes->held_reads_ == 0) owner_->HeldUp(*part.bytes, change);
  }
}

void RecordReader::Finished(StorageRead* finished) {
  Read* const read = static_cast<Read*>(finished);
  const absl::Status status = read->op.status;
  if (!read->looks_at.empty()) {
    RecordBytes* const bytes = read->parts[0].bytes;
    bytes->reads_.clear();
    FreeRead(read);
    return status.ok() ? StartLooked(bytes) : NotStarted(status, bytes);
  }
  if (read->giver != nullptr) return FinishedGiven(read, status);
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
      Read* const alone = NewRead(*read->source, extent, bytes, part.extent);
      alone->retries = read->retries;
      storage_.Add(alone);
    }
  }
  if (read->users == 0) FreeRead(read);
}

// What the program says of a record is said of the record.
void RecordReader::FinishedGiven(Read* read, const absl::Status& status) {
  RecordBytes* const bytes = read->parts[0].bytes;
  if (status.ok()) {
    bytes->size_ = read->length;
    bytes->extents_[0] = absl::MakeConstSpan(read->op.data, static_cast<size_t>(read->length));
  } else {
    Refuse(bytes, 0, status);
    bytes->not_read_ = false;
  }
  Arrived(bytes);
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

RecordBytes* RecordReader::Collect(int64_t held_up_ns) {
  storage_.LookAround();
  if (ready_.empty() || storage_.has_added() || storage_.unstarted()) WaitForRead(held_up_ns);
  return PopReady();
}

RecordBytes* RecordReader::CollectReady() {
  const int64_t start = MonotonicNs();
  const bool wanted_more = wants_more();
  storage_.LookAround();
  storage_.Submit();
  if (storage_.TakeUnstarted()) storage_.CollectOne(/*wait=*/false);  // which starts them
  while (ready_.empty() && storage_.CollectOne(/*wait=*/false)) {
  }
  CountRead(MonotonicNs() - start, wanted_more);
  return PopReady();
}

// A kept record's bytes are in memory, and not in the CPU's caches: small ones are loaded while the
// records before them are worked on, and of large ones the beginning.
void RecordReader::PrefetchReady() const {
  if (ready_.size() <= kPrefetchAhead) return;
  const RecordBytes& next = *ready_[kPrefetchAhead];
  if (next.origin_ != RecordBytes::Origin::kMemory) return;
  const absl::Span<const std::byte> bytes =
      next.extents_[0].first(std::min<size_t>(next.extents_[0].size(), kPrefetchBytes));
  for (size_t at = 0; at < bytes.size(); at += kCacheLine) __builtin_prefetch(&bytes[at]);
}

RecordBytes* RecordReader::PopReady() {
  if (ready_.empty()) return nullptr;
  PrefetchReady();
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
  storage_.Submit();
  if (storage_.TakeUnstarted()) storage_.CollectOne(/*wait=*/false);
  for (int64_t slept_ns = 0; ready_.empty() && storage_.Await(held_up_ns, &slept_ns);) {
    storage_.LookAround();
    storage_.Submit();
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
  SetAside(bytes, false);
  for (Read* read : bytes->reads_) {
    --read->users;
    CountAside(read);
    if (read->users == 0) FreeRead(read);
  }
  bytes->reads_.clear();
  bytes->extents_.clear();
}

void RecordReader::SetAside(RecordBytes* bytes, bool is_aside) {
  if (bytes->is_aside_ == is_aside) return;
  bytes->is_aside_ = is_aside;
  for (Read* read : bytes->reads_) {
    read->aside += is_aside ? 1 : -1;
    CountAside(read);
  }
}

void RecordReader::CountAside(Read* read) {
  storage_.SetAside(read, read->users > 0 && read->aside == read->users);
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
  storage_.Free(read);
  reads_.Put(read);
}

}  // namespace feedwater::server
