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

// What an extent without bytes points to: readable like every other.
alignas(64) constexpr std::byte kNothing[kReadPadding] = {};

}  // namespace

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
};

RecordReader::RecordReader(std::unique_ptr<ReadEngine> engine, size_t engine_depth,
                           FileCache* files, std::shared_ptr<MemoryBudget> budget)
    : engine_(std::move(engine)),
      engine_depth_(engine_depth),
      files_(files),
      buffers_(std::move(budget)),
      depth_(kLeastDepth) {}

RecordReader::~RecordReader() = default;

void RecordReader::Start(const Dataset& dataset, int64_t record, RecordBytes* into, JobFiles* job,
                         const RecordCache* cache) {
  into->job_ = job;
  into->record_ = record;
  into->origin_ = RecordBytes::Origin::kDataset;
  into->stamp_ = 0;
  into->size_ = 0;
  into->missing_ = 0;
  into->failed_extent_ = -1;
  into->status_ = absl::OkStatus();
  into->extents_.clear();
  into->reads_.clear();
  ++started_;

  extents_.clear();
  dataset.Extents(record, &extents_);
  if (cache != nullptr) {
    const absl::StatusOr<uint64_t> stamp = job->StampOf(extents_);
    if (!stamp.ok()) return StartFailed(stamp.status(), into);
    into->stamp_ = *stamp;
    const RecordCache::Found found = cache->Find(record, *stamp);
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
  }
  StartExtents(dataset, into);
}

void RecordReader::StartAnew(const Dataset& dataset, RecordBytes* bytes) {
  const uint64_t stamp = bytes->stamp_;
  Release(bytes);
  Start(dataset, bytes->record_, bytes, bytes->job_);
  bytes->stamp_ = stamp;
}

void RecordReader::StartFailed(absl::Status status, RecordBytes* into) {
  into->status_ = std::move(status);
  ready_.push_back(into);
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
        last->parts[0].bytes->job_ == into->job_ && extent.offset - last->offset == last->length &&
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
  ++open_reads_;
  open_bytes_ += extent.length;
  bytes->reads_.push_back(read);
  return read;
}

absl::Status RecordReader::Open(Read* read) {
  ReadOp& op = read->op;
  op = ReadOp();
  const RecordBytes& first = *read->parts[0].bytes;
  if (first.job_ != nullptr && first.origin_ == RecordBytes::Origin::kDataset) {
    FW_ASSIGN_OR_RETURN(op.file, first.job_->Open(read->object));
  } else {
    FW_ASSIGN_OR_RETURN(op.file,
                        files_->Open(read->source->root(), read->source->ObjectPath(read->object)));
  }
  const size_t bytes = ReadBufferBytes(read->length, op.file->direct_io);
  FW_ASSIGN_OR_RETURN(read->buffer, buffers_.Get(bytes));
  op.offset = read->offset;
  op.length = read->length;
  op.buffer = absl::Span<std::byte>(read->buffer.data(), read->buffer.capacity());
  op.user = read;
  return absl::OkStatus();
}

void RecordReader::Submit() {
  while (!queue_.empty() && engine_->in_flight() < engine_depth_) {
    Read* read = queue_.front();
    queue_.pop_front();
    absl::Status opened = Open(read);
    if (opened.ok()) {
      engine_->Submit(&read->op);
      unstarted_ = true;
    } else {
      read->op.status = std::move(opened);
      Completed(read);
    }
  }
}

void RecordReader::Completed(Read* read) {
  const absl::Status status = read->op.status;
  // A joined read that failed says nothing about its parts: those before the damage are whole. So
  // each is read alone.
  for (const Read::Part& part : read->parts) {
    RecordBytes* bytes = part.bytes;
    if (status.ok()) {
      bytes->extents_[part.extent] = absl::MakeConstSpan(read->op.data + part.offset, part.length);
      Arrived(bytes);
    } else if (read->parts.size() == 1) {
      Refuse(bytes, part.extent, status);
      Arrived(bytes);
    } else {
      bytes->reads_.erase(std::find(bytes->reads_.begin(), bytes->reads_.end(), read));
      --read->users;
      const Extent extent{read->object, read->offset + part.offset, part.length};
      queue_.push_back(NewRead(*read->source, extent, bytes, part.extent));
    }
  }
  if (read->users == 0) FreeRead(read);
}

void RecordReader::Refuse(RecordBytes* bytes, int64_t extent, const absl::Status& status) {
  if (bytes->failed_extent_ >= 0 && bytes->failed_extent_ < extent) return;
  bytes->failed_extent_ = extent;
  bytes->status_ = status;
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

RecordBytes* RecordReader::Collect() {
  if (ready_.empty() || !queue_.empty() || unstarted_) WaitForRead();
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
void RecordReader::WaitForRead() {
  const int64_t start = MonotonicNs();
  const bool wanted_more = wants_more();
  Submit();
  if (std::exchange(unstarted_, false)) CollectOne(/*wait=*/false);
  while (ready_.empty() && engine_->in_flight() > 0) {
    CollectOne(/*wait=*/true);
    Submit();
  }
  const int64_t elapsed = MonotonicNs() - start;
  if (elapsed < kWaitNs) {
    read_ns_ += elapsed;
    return;
  }
  wait_ns_ += elapsed;
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
    if (file == nullptr || std::find(files->begin(), files->end(), file) != files->end()) continue;
    files->push_back(file);
  }
}

void RecordReader::FreeRead(Read* read) {
  read->op.file = nullptr;
  --open_reads_;
  open_bytes_ -= read->length;
  if (read->buffer.capacity() > 0) buffers_.Put(std::exchange(read->buffer, ReadBuffers::Buffer()));
  reads_.Put(read);
}

}  // namespace feedwater::server
