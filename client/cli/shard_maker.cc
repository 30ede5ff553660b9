#include "client/cli/shard_maker.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/cli/progress.h"
#include "client/cli/source_files.h"
#include "server/base/atomic_file.h"
#include "server/base/mutex.h"
#include "server/base/no_throw.h"
#include "server/base/status.h"
#include "server/base/thread.h"
#include "server/base/units.h"
#include "server/graph/verified_record.h"
#include "server/source/tar_index.h"
#include "server/source/tar_writer.h"

namespace feedwater::cli {
namespace {

// A thread takes so many records at a time, neighbours where they are not shuffled.
constexpr int64_t kChunkBytes = 4 << 20;
constexpr int64_t kMostWaitingBytes = 16 << 20;
constexpr size_t kMostSpare = 8;  // buffers of chunks that were written
constexpr size_t kMostChunksPerThread = 64;
constexpr size_t kBufferBytes = 1 << 20;        // collected for one write
constexpr size_t kFewBytes = 32 << 10;          // of a record that is collected
constexpr int64_t kFlushEveryBytes = 16 << 20;  // sent to the disk while the shard grows

// A record on its way into a shard.
struct Item {
  int64_t record = 0;
  size_t begin = 0, bytes = 0;    // of its members in the chunk's
  std::vector<ImageKinds> kinds;  // by field
  std::optional<BadRecord> bad;   // then there is no more
  uint64_t source = 0;            // SourceFiles::StateOf
};

struct Chunk {
  absl::string_view MembersOf(const Item& item) const {
    return absl::string_view(members).substr(item.begin, item.bytes);
  }

  std::vector<Item> items;
  std::string members;       // parts of an archive, in the order in which they were made
  int64_t bytes = 0;         // of members
  int64_t source_bytes = 0;  // of its records
  bool is_done = false;
};

// The threads, and the chunks in the order of their positions.
class Chunks {
 public:
  Chunks(const ShardMaker& maker, int64_t first_position)
      : maker_(maker),
        dataset_(maker.local->dataset()),
        key_digits_(KeyDigits(dataset_.size())),
        order_(dataset_.size(), maker.shuffle),
        next_position_(first_position) {}
  // Fewer threads than asked for do as well; an error where there is none to be had. Once.
  absl::Status Start() {
    while (threads_.size() < maker_.jobs) {
      absl::StatusOr<std::thread> thread = server::StartThread(maker_.what, [this] { Work(); });
      if (!thread.ok()) return threads_.empty() ? thread.status() : absl::OkStatus();
      threads_.push_back(*std::move(thread));
    }
    return absl::OkStatus();
  }
  ~Chunks() {
    {
      server::MutexLock lock(&mu_);
      stop_ = true;
      changed_.SignalAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  // The next records in order; null after the last one. Waits, and calls `tick` meanwhile, whose
  // error ends the waiting, as a thread's own does. `used`, or null: the chunk before; its memory
  // is used again, since new pages cost as much as copying into them.
  absl::StatusOr<std::unique_ptr<Chunk>> Next(std::unique_ptr<Chunk> used,
                                              const std::function<absl::Status()>& tick) {
    server::MutexLock lock(&mu_);
    if (used != nullptr && used->members.capacity() <= 2 * kChunkBytes &&
        spare_.size() < kMostSpare)
      spare_.push_back(std::move(used->members));
    while (failure_.ok()) {
      if (chunks_.empty() && next_position_ >= dataset_.size()) return nullptr;
      if (!chunks_.empty() && chunks_.front()->is_done) {
        std::unique_ptr<Chunk> chunk = std::move(chunks_.front());
        chunks_.pop_front();
        waiting_bytes_ -= chunk->bytes;
        changed_.SignalAll();
        return chunk;
      }
      changed_.WaitWithTimeout(&mu_, absl::Milliseconds(100));
      FW_RETURN_IF_ERROR(tick());
    }
    return failure_;
  }

 private:
  // A thread's own.
  struct Room {
    std::unique_ptr<ValueMaker> values;
    SourceFiles files;
    server::Record parsed;
  };

  void Work() {
    const absl::Status status = server::NoThrow([this] { return WorkUntilDone(); });
    server::MutexLock lock(&mu_);
    if (!status.ok() && failure_.ok()) failure_ = status;
    if (!status.ok()) stop_ = true;
    changed_.SignalAll();
  }

  absl::Status WorkUntilDone() {
    FW_ASSIGN_OR_RETURN(const std::unique_ptr<server::RecordReader> reader,
                        maker_.local->NewReader());
    FW_ASSIGN_OR_RETURN(std::unique_ptr<ValueMaker> values, maker_.new_values());
    Room room{std::move(values), SourceFiles(*maker_.local), {}};
    std::array<server::RecordBytes, ShardMaker::kMostChunkRecords> bytes;
    while (Chunk* chunk = Take()) {
      // Most often what is written is as long, and each of its members has a header.
      chunk->members.reserve(static_cast<size_t>(std::min(chunk->source_bytes, kChunkBytes)) +
                             chunk->items.size() * 4 * server::kTarBlock);
      size_t started = 0;
      absl::Status failure;
      while (true) {
        while (failure.ok() && started < chunk->items.size() && reader->wants_more()) {
          bytes[started].user = &chunk->items[started];
          reader->Start(dataset_, chunk->items[started].record, &bytes[started],
                        maker_.local->job.get());
          ++started;
        }
        server::RecordBytes* read = reader->Collect();
        if (read == nullptr) break;
        WaitForRoom(chunk);
        auto* const item = static_cast<Item*>(read->user);
        item->begin = chunk->members.size();
        if (failure.ok()) failure = Make(*read, room, item, &chunk->members);
        item->bytes = chunk->members.size() - item->begin;
        reader->Release(read);
        TakeRoom(static_cast<int64_t>(item->bytes), chunk);
      }
      FW_RETURN_IF_ERROR(failure);
      Done(chunk);
    }
    return absl::OkStatus();
  }

  // An error is one of the machine; of a bad record the reason is noted.
  absl::Status Make(const server::RecordBytes& bytes, Room& room, Item* item,
                    std::string* members) {
    absl::Status status = bytes.status();
    if (status.ok()) {
      status = server::NoThrow([&]() -> absl::Status {
        FW_RETURN_IF_ERROR(
            server::ParseVerified(dataset_, bytes.record(), bytes.extents(), &room.parsed));
        FW_ASSIGN_OR_RETURN(const server::Record* values,
                            room.values->Make(bytes.record(), room.parsed));
        FW_RETURN_IF_ERROR(CheckCanBeRead(*values));
        item->kinds.assign(maker_.members->fields(), 0);
        maker_.members->Append(item->record, key_digits_, *values, members, &item->kinds);
        return absl::OkStatus();
      });
    }
    if (server::TellsOfTheMachine(status, bytes))
      return server::Annotate(status, absl::StrCat("record ", bytes.record()));
    FW_ASSIGN_OR_RETURN(item->source, room.files.StateOf(bytes.record(), SourceFiles::Of::kJob));
    if (status.ok()) return status;
    const server::RecordPlace place = PlaceOf(dataset_, bytes.record());
    members->resize(item->begin);
    item->kinds.assign(maker_.members->fields(), 0);
    item->bad = BadRecord{bytes.record(), place.path, place.offset, std::string(status.message())};
    if (maker_.keeps_bad_places)
      AppendBadPlace(item->record, key_digits_, item->bad->reason, members);
    return absl::OkStatus();
  }

  // What the shards hold has to be a record for whoever reads them, with the padding behind it.
  absl::Status CheckCanBeRead(const server::Record& values) const {
    constexpr int64_t kMost = server::RecordReader::kMaxRecordBytes;
    const auto bytes = static_cast<int64_t>(maker_.members->MostBytes(values));
    if (bytes <= kMost - 2 * server::kTarAlignment) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "takes ", bytes, " bytes in a shard, and a record has ", kMost >> 20, " MiB at most"));
  }

  // The records of the next chunk; null when there are none. The lowest chunk was always taken
  // before, and whoever took it does not wait here before it is done.
  Chunk* Take() {
    server::MutexLock lock(&mu_);
    while (!stop_ && next_position_ < dataset_.size() && !chunks_.empty() &&
           (waiting_bytes_ >= kMostWaitingBytes ||
            chunks_.size() >= kMostChunksPerThread * maker_.jobs)) {
      changed_.Wait(&mu_);
    }
    if (stop_ || next_position_ >= dataset_.size()) return nullptr;
    auto chunk = std::make_unique<Chunk>();
    int64_t bytes = 0;
    while (next_position_ < dataset_.size() && chunk->items.size() < maker_.chunk_records &&
           bytes < kChunkBytes) {
      Item item;
      item.record = order_.At(next_position_);
      ++next_position_;
      extents_.clear();
      dataset_.Extents(item.record, &extents_);
      for (const server::Extent& extent : extents_) bytes += extent.length;
      chunk->items.push_back(std::move(item));
    }
    if (!spare_.empty()) {
      chunk->members = std::move(spare_.back());
      chunk->members.clear();
      spare_.pop_back();
    }
    chunk->source_bytes = bytes;
    chunks_.push_back(std::move(chunk));
    return chunks_.back().get();
  }

  // Until less waits for its turn. The lowest chunk, which all others wait for, does not wait.
  void WaitForRoom(const Chunk* chunk) {
    server::MutexLock lock(&mu_);
    while (!stop_ && waiting_bytes_ >= kMostWaitingBytes && chunks_.front().get() != chunk)
      changed_.Wait(&mu_);
  }
  void TakeRoom(int64_t bytes, Chunk* chunk) {
    server::MutexLock lock(&mu_);
    chunk->bytes += bytes;
    waiting_bytes_ += bytes;
  }

  void Done(Chunk* chunk) {
    server::MutexLock lock(&mu_);
    chunk->is_done = true;
    changed_.SignalAll();
  }

  const ShardMaker& maker_;
  const server::Dataset& dataset_;
  const int key_digits_;
  const WritingOrder order_;
  std::vector<std::thread> threads_;

  server::Mutex mu_;
  server::CondVar changed_;
  std::deque<std::unique_ptr<Chunk>> chunks_ ABSL_GUARDED_BY(mu_);
  std::vector<server::Extent> extents_ ABSL_GUARDED_BY(mu_);  // scratch
  std::vector<std::string> spare_ ABSL_GUARDED_BY(mu_);       // members of chunks that were written
  int64_t next_position_ ABSL_GUARDED_BY(mu_);
  int64_t waiting_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
};

// The bytes of one shard on their way to its file.
class ShardFile {
 public:
  explicit ShardFile(int fd) : fd_(fd) {}
  int64_t bytes() const { return bytes_; }
  std::string* buffer() { return &buffer_; }

  // What stands in the buffer, once it is much.
  absl::Status Wrote(size_t bytes) {
    bytes_ += static_cast<int64_t>(bytes);
    return buffer_.size() >= kBufferBytes ? Flush() : absl::OkStatus();
  }
  absl::Status Append(absl::string_view bytes) {
    if (bytes.size() < kFewBytes) {
      buffer_.append(bytes.data(), bytes.size());
      return Wrote(bytes.size());
    }
    FW_RETURN_IF_ERROR(Flush());
    bytes_ += static_cast<int64_t>(bytes.size());
    return server::WriteAll(fd_, bytes);
  }
  absl::Status Flush() {
    FW_RETURN_IF_ERROR(server::WriteAll(fd_, buffer_));
    buffer_.clear();
    // So that the disk works while the shard grows, and fsync finds little left.
    if (bytes_ - sent_ >= kFlushEveryBytes) {
      sync_file_range(fd_, sent_, bytes_ - sent_, SYNC_FILE_RANGE_WRITE);
      sent_ = bytes_;
    }
    return absl::OkStatus();
  }

 private:
  const int fd_;
  std::string buffer_;
  int64_t bytes_ = 0, sent_ = 0;
};

class Writer {
 public:
  Writer(const ShardMaker& maker, ShardJournal* journal)
      : maker_(maker),
        journal_(journal),
        records_(maker.local->dataset().size()),
        before_(journal->next_position()),
        position_(before_),
        progress_(maker.what, "records", Progress::Elsewhere::kLines),
        chunks_(maker, position_) {}

  absl::Status Run() {
    FW_RETURN_IF_ERROR(chunks_.Start());
    while (true) {
      FW_RETURN_IF_ERROR(SkipBad());
      if (item_ == nullptr) break;
      FW_RETURN_IF_ERROR(WriteShard());
    }
    return journal_->AddBad(bad_);  // of a dataset that has no good record
  }

 private:
  absl::Status Tick() {
    std::string note = absl::StrCat(server::FormatBytes(written_), " written");
    const int64_t bad = journal_->bad() + static_cast<int64_t>(bad_.size());
    if (bad > 0) absl::StrAppend(&note, ", ", bad, " bad");
    progress_.Update(position_, records_, note, before_);
    if (maker_.is_interrupted()) return absl::CancelledError("interrupted");
    return absl::OkStatus();
  }

  // Sets item_ to the next record that is written, or to null behind the last one.
  absl::Status SkipBad() {
    while (true) {
      if (chunk_ == nullptr || next_item_ == chunk_->items.size()) {
        FW_RETURN_IF_ERROR(Tick());
        item_ = nullptr;
        FW_ASSIGN_OR_RETURN(chunk_, chunks_.Next(std::move(chunk_), [this] { return Tick(); }));
        next_item_ = 0;
        if (chunk_ == nullptr) return absl::OkStatus();
      }
      item_ = &chunk_->items[next_item_];
      if (!item_->bad || item_->bytes > 0) return absl::OkStatus();
      bad_.push_back(*std::move(item_->bad));
      Pass();
    }
  }

  // The record at hand has been dealt with.
  void Pass() {
    source_.Add(item_->source);
    ++next_item_;
    ++position_;
  }

  absl::Status WriteShard() {
    Shard shard;
    shard.first = journal_->next_position();
    shard.kinds.assign(maker_.members->fields(), 0);
    const std::string path =
        absl::StrCat(journal_->folder(), "/", journal_->FileOf(journal_->shards().size()));
    index_ = server::TarIndex();
    FW_RETURN_IF_ERROR(server::WriteFileAtomically(
        path, [&](int fd) { return Fill(fd, &shard); }, 0666));
    index_.tar_bytes = shard.bytes;
    FW_RETURN_IF_ERROR(server::WriteFileAtomically(absl::StrCat(path, server::TarIndex::kSuffix),
                                                   {index_.Text()}, 0666));
    shard.positions = position_ - shard.first;
    shard.files = std::exchange(source_, {}).Text();
    return journal_->Add(std::move(shard), std::exchange(bad_, {}));
  }

  // Until the shard is full, or nothing is left. Bad records behind its last one belong to it.
  absl::Status Fill(int fd, Shard* shard) {
    ShardFile file(fd);
    while (item_ != nullptr) {
      const absl::string_view members = chunk_->MembersOf(*item_);
      const auto bytes = static_cast<int64_t>(members.size());
      const int64_t padding = server::TarPadding(file.bytes(), bytes);
      if (shard->records > 0 && IsFull(file.bytes() + padding + bytes)) break;
      if (padding > 0) {
        server::AppendTarPadding(padding, file.buffer());
        FW_RETURN_IF_ERROR(file.Wrote(static_cast<size_t>(padding)));
      }
      FW_RETURN_IF_ERROR(index_.Add(file.bytes(), members));
      FW_RETURN_IF_ERROR(file.Append(members));
      for (size_t i = 0; i < shard->kinds.size(); ++i)
        shard->kinds[i] = static_cast<ImageKinds>(shard->kinds[i] | item_->kinds[i]);
      written_ += padding + bytes;
      ++shard->records;
      if (item_->bad) bad_.push_back(*std::move(item_->bad));
      Pass();
      FW_RETURN_IF_ERROR(SkipBad());
    }
    server::AppendTarEnd(file.buffer());
    FW_RETURN_IF_ERROR(file.Wrote(server::kTarEndBytes));
    FW_RETURN_IF_ERROR(file.Flush());
    shard->bytes = file.bytes();
    return absl::OkStatus();
  }

  // Whether the record at hand, with which the shard would have so many bytes, begins another one.
  bool IsFull(int64_t bytes) const {
    const std::vector<int64_t>& starts = maker_.shard_starts;
    if (!starts.empty()) return std::binary_search(starts.begin(), starts.end(), position_);
    return bytes + server::kTarEndBytes > maker_.shard_bytes;
  }

  const ShardMaker& maker_;
  ShardJournal* const journal_;
  const int64_t records_, before_;
  int64_t position_, written_ = 0;
  std::vector<BadRecord> bad_;  // since the last whole shard
  ShardState source_;           // the same
  server::TarIndex index_;      // of the shard that is being written
  std::unique_ptr<Chunk> chunk_;
  size_t next_item_ = 0;
  Item* item_ = nullptr;  // of chunk_
  Progress progress_;
  Chunks chunks_;
};

}  // namespace

absl::Status ShardMaker::Run(ShardJournal* journal) const {
  if (journal->next_position() >= local->dataset().size()) return absl::OkStatus();
  return Writer(*this, journal).Run();
}

}  // namespace feedwater::cli
