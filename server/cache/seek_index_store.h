// The seek indexes of one dataset's JPEGs, in memory and in a file beside the dataset's index.
//
//   <file>   "FWSEEK\n", version; then for each image: XXH3-64 of the rest, hash, bytes, document
//
// The saver reads the file when the store is made, and writes it anew, whole, when the store has
// grown by a quarter since and when it ends: losing it costs speed alone. When somebody
// else has written it since, it is read again first. An image in it that is cut or damaged ends the
// reading; what was read before it is good.
//
// Indexes are found by their image's content: one that no file has any more is never asked for.
// Within its quota everything is kept; then nothing more. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "server/base/memory_budget.h"
#include "server/base/mutex.h"
#include "server/cache/byte_quota.h"
#include "server/cache/saver.h"
#include "server/codec/seek_indexes.h"

namespace feedwater::server {

// Where the store of a dataset is saved. "" without a state folder.
std::string SeekIndexFile(const std::string& state_dir, const std::string& dataset);

// Whether a file holds seek indexes, of whatever version.
bool IsSeekIndexFile(const std::string& path);

class SeekIndexStore final : public SeekIndexes {
 public:
  struct Options {
    std::string file;                      // "" saves nothing
    std::shared_ptr<ByteQuota> quota;      // of memory
    std::shared_ptr<MemoryBudget> budget;  // may be null
    std::shared_ptr<Saver> saver;          // null: one of its own
    double save_seconds = 60;              // between looks whether to save
  };
  explicit SeekIndexStore(Options options);
  ~SeekIndexStore() override;  // saves

  bool Find(const ContentHash& image, std::vector<std::byte>* document) const override;
  void Put(const ContentHash& image, absl::Span<const std::byte> document) override;

  void WaitUntilRead() ABSL_LOCKS_EXCLUDED(mu_);
  // Writes the file now, unless nothing is new.
  absl::Status Save() ABSL_LOCKS_EXCLUDED(save_mu_);

  struct Counts {
    int64_t images = 0;
    int64_t bytes = 0;     // of memory, as they are counted
    int64_t damaged = 0;   // 1: the file was, somewhere
    uint64_t refused = 0;  // there was no room
  };
  Counts counts() const;

 private:
  using Document = std::shared_ptr<const std::vector<std::byte>>;
  struct Hash {
    size_t operator()(const ContentHash& image) const { return static_cast<size_t>(image.low); }
  };
  struct Shard {
    mutable Mutex mu;
    absl::flat_hash_map<ContentHash, Document, Hash> documents ABSL_GUARDED_BY(mu);
  };
  static constexpr size_t kShards = 16;

  Shard& ShardOf(const ContentHash& image) { return shards_[image.high % kShards]; }
  const Shard& ShardOf(const ContentHash& image) const { return shards_[image.high % kShards]; }
  void PutCopy(const ContentHash& image, absl::Span<const std::byte> document);
  bool TakeRoom(int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  bool ReadFirst() ABSL_LOCKS_EXCLUDED(mu_);
  bool KeepFile() ABSL_LOCKS_EXCLUDED(mu_);  // the saver's step
  absl::Status Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(save_mu_);
  absl::Status ReadIfNew() ABSL_EXCLUSIVE_LOCKS_REQUIRED(save_mu_);
  absl::Status Write(int fd) const;

  const Options options_;
  Shard shards_[kShards];
  std::atomic<int64_t> images_{0}, bytes_{0}, damaged_{0};
  std::atomic<uint64_t> refused_{0};
  std::atomic<uint64_t> changes_{0};

  Mutex save_mu_;
  uint64_t file_stamp_ ABSL_GUARDED_BY(save_mu_) = 0;  // of the file that was read or written last
  uint64_t saved_changes_ ABSL_GUARDED_BY(save_mu_) = 0;
  int64_t saved_bytes_ ABSL_GUARDED_BY(save_mu_) = 0;

  Mutex mu_;
  CondVar changed_;
  bool is_read_ ABSL_GUARDED_BY(mu_) = false;
  int64_t room_ ABSL_GUARDED_BY(mu_) = 0;  // taken and not used yet
  std::vector<MemoryReservation> reservations_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Saver::Task> keeper_;
};

}  // namespace feedwater::server
