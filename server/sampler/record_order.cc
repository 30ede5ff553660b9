#include "server/sampler/record_order.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <optional>

#include "absl/base/call_once.h"
#include "server/sampler/permutation.h"

namespace feedwater::server {

// The concatenation of the permuted shards, and the windows on it.
struct RecordOrder::Blocks {
  struct Shard {
    int64_t end;    // the first place after it, in the concatenation
    int64_t first;  // its first record
  };

  Blocks(int64_t records_of_all, int64_t block_records, const std::vector<int64_t>& starts,
         PhiloxKey key)
      : records(records_of_all),
        window_records(block_records),
        shard_starts(starts),
        shard_order(starts.empty() ? (records - 1) / window_records + 1
                                   : static_cast<int64_t>(starts.size()),
                    key, ShuffleUse::kShards) {
    if (starts.empty()) {
      if (shard_order.size() <= kMaxRunTable) {
        for (int64_t i = 0; i < shard_order.size(); ++i) run_table.push_back(shard_order.At(i));
      }
      short_shard_at = shard_order.IndexOf(shard_order.size() - 1);
      return;
    }
    shards.reserve(starts.size());
    int64_t end = 0;
    for (int64_t i = 0; i < shard_order.size(); ++i) {
      const auto shard = static_cast<size_t>(shard_order.At(i));
      end += (shard + 1 < starts.size() ? starts[shard + 1] : records) - starts[shard];
      shards.push_back({end, starts[shard]});
    }
  }

  // The record at a place of the concatenation.
  int64_t RecordAtPlace(int64_t place) const {
    if (shards.empty()) {
      // Shards are runs of window_records; only the last run may be shorter, and stands at
      // short_shard_at.
      const int64_t short_records = records - (shard_order.size() - 1) * window_records;
      const int64_t short_end = short_shard_at * window_records + short_records;
      const int64_t shifted = place < short_end ? place : place + (window_records - short_records);
      const int64_t at = shifted / window_records;
      const int64_t run =
          run_table.empty() ? shard_order.At(at) : run_table[static_cast<size_t>(at)];
      return run * window_records + shifted % window_records;
    }
    const auto shard =
        std::upper_bound(shards.begin(), shards.end(), place,
                         [](int64_t wanted, const Shard& entry) { return wanted < entry.end; });
    const int64_t begin = shard == shards.begin() ? 0 : std::prev(shard)->end;
    return shard->first + (place - begin);
  }

  // Its inverse.
  int64_t PlaceOf(int64_t record) const {
    if (shards.empty()) {
      const int64_t at = shard_order.IndexOf(record / window_records);
      const int64_t shifted = at * window_records + record % window_records;
      const int64_t short_records = records - (shard_order.size() - 1) * window_records;
      return at <= short_shard_at ? shifted : shifted - (window_records - short_records);
    }
    // The last shard that begins at or before the record; empty ones begin where the next one does.
    const auto after = std::upper_bound(shard_starts.begin(), shard_starts.end(), record);
    const auto at = static_cast<size_t>(shard_order.IndexOf(after - shard_starts.begin() - 1));
    const int64_t begin = at == 0 ? 0 : shards[at - 1].end;
    return begin + (record - shards[at].first);
  }

  int64_t PositionOf(int64_t record, PhiloxKey key) const {
    const int64_t place = PlaceOf(record);
    const int64_t window = place / window_records;
    const int64_t start = window * window_records;
    return start + Window(window, key).IndexOf(place - start);
  }

  int64_t RecordAt(int64_t position, PhiloxKey key) const {
    const int64_t window = position / window_records;
    const int64_t start = window * window_records;
    return RecordAtPlace(start + Window(window, key).At(position - start));
  }

  // The order within a window.
  Permutation Window(int64_t window, PhiloxKey key) const {
    const PhiloxCounter words =
        Philox4x32({static_cast<uint32_t>(window), static_cast<uint32_t>(window >> 32),
                    kShuffleInstance + static_cast<uint32_t>(ShuffleUse::kWindowKey), 0},
                   key);
    return Permutation(std::min(window_records, records - window * window_records),
                       {words[0], words[1]}, ShuffleUse::kWindow);
  }

  // Permutations of few values walk long cycles, so those of few runs are kept; of many, computed.
  static constexpr int64_t kMaxRunTable = 4096;

  const int64_t records, window_records;
  const std::vector<int64_t>& shard_starts;  // the configuration's, which the order keeps
  const Permutation shard_order;
  std::vector<int64_t> run_table;  // only without shard starts
  int64_t short_shard_at = 0;      // only without shard starts
  std::vector<Shard> shards;       // in permuted order; empty without shard starts
};

// Made once, by the first who asks.
class RecordOrder::LazyBlocks {
 public:
  LazyBlocks(int64_t records, int64_t window_records, const std::vector<int64_t>& shard_starts,
             PhiloxKey key)
      : records_(records),
        window_records_(window_records),
        shard_starts_(shard_starts),
        key_(key) {}

  const Blocks& Get() {
    absl::call_once(once_, [this] {
      blocks_.emplace(records_, window_records_, shard_starts_, key_);
      is_made_.store(true, std::memory_order_release);
    });
    return *blocks_;
  }
  bool is_made() const { return is_made_.load(std::memory_order_acquire); }
  int64_t window_records() const { return window_records_; }

 private:
  const int64_t records_, window_records_;
  const std::vector<int64_t>& shard_starts_;
  const PhiloxKey key_;
  absl::once_flag once_;
  std::atomic<bool> is_made_{false};
  std::optional<Blocks> blocks_;
};

RecordOrder::RecordOrder(int64_t records, Shuffle shuffle, int64_t block_records,
                         const std::vector<int64_t>& shard_starts, PhiloxKey key)
    : records_(records), shuffle_(shuffle), key_(key) {
  if (shuffle == Shuffle::kBlock)
    blocks_ = std::make_shared<LazyBlocks>(records, block_records, shard_starts, key);
}

void RecordOrder::Prepare() const {
  if (blocks_ != nullptr) blocks_->Get();
}

bool RecordOrder::is_prepared() const { return blocks_ == nullptr || blocks_->is_made(); }

int64_t RecordOrder::window_records() const {
  return blocks_ == nullptr ? 0 : blocks_->window_records();
}

int64_t RecordOrder::RecordAtPlace(int64_t place) const {
  return blocks_->Get().RecordAtPlace(place);
}

int64_t RecordOrder::Bytes(int64_t records, Shuffle shuffle, int64_t block_records, size_t shards) {
  if (shuffle != Shuffle::kBlock) return 0;
  if (shards > 0) return static_cast<int64_t>(shards * sizeof(Blocks::Shard));
  const int64_t runs = (records - 1) / block_records + 1;
  return runs > Blocks::kMaxRunTable ? 0 : runs * static_cast<int64_t>(sizeof(int64_t));
}

int64_t RecordOrder::RecordAt(int64_t position) const {
  switch (shuffle_) {
    case Shuffle::kNone:
      return position;
    case Shuffle::kFull:
      return Permutation(records_, key_, ShuffleUse::kRecords).At(position);
    case Shuffle::kBlock:
      return blocks_->Get().RecordAt(position, key_);
  }
  return position;
}

void RecordOrder::RecordsAt(absl::Span<int64_t> positions) const {
  if (shuffle_ == Shuffle::kFull)
    return Permutation(records_, key_, ShuffleUse::kRecords).AtAll(positions);
  for (int64_t& position : positions) position = RecordAt(position);
}

int64_t RecordOrder::PositionOf(int64_t record) const {
  switch (shuffle_) {
    case Shuffle::kNone:
      return record;
    case Shuffle::kFull:
      return Permutation(records_, key_, ShuffleUse::kRecords).IndexOf(record);
    case Shuffle::kBlock:
      return blocks_->Get().PositionOf(record, key_);
  }
  return record;
}

}  // namespace feedwater::server
