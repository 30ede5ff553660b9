#include "client/cli/read_estimate.h"

#include <algorithm>
#include <vector>

#include "server/base/cpus.h"
#include "server/pipeline/read_ahead.h"

namespace feedwater::cli {
namespace {

constexpr int64_t kMostForPattern = 1000;
constexpr int64_t kNear = 1 << 20;

// Calls `use` with so many records at most, spread evenly.
template <typename Use>
void ForSome(int64_t records, int64_t most, const Use& use) {
  const int64_t count = std::min(records, most);
  for (int64_t i = 0; i < count; ++i)
    use(static_cast<int64_t>(static_cast<__int128>(i) * records / count));
}

bool FollowsNearby(const server::Extent& last, const server::Extent& next, int64_t gap) {
  const int64_t end = last.offset + last.length;
  return next.object == last.object && next.offset >= end && next.offset - end <= gap;
}

}  // namespace

RecordSizes SizesOf(const server::Dataset& dataset) {
  RecordSizes sizes;
  std::vector<int64_t> bytes;
  std::vector<server::Extent> extents, next;
  int64_t lone = 0, pairs = 0;
  ForSome(dataset.size(), RecordSizes::kMostLookedAt, [&](int64_t record) {
    extents.clear();
    dataset.Extents(record, &extents);
    int64_t sum = 0;
    for (const server::Extent& extent : extents) sum += extent.length;
    bytes.push_back(sum);
    sizes.bytes_mean += static_cast<double>(sum);
    if (sum > sizes.bytes_max || bytes.size() == 1) {
      sizes.bytes_max = sum;
      sizes.record_max = record;
    }
    if (record + 1 >= dataset.size() || extents.empty()) return;
    next.clear();
    dataset.Extents(record + 1, &next);
    ++pairs;
    lone += next.empty() || !FollowsNearby(extents.back(), next.front(), kNear);
  });
  sizes.looked_at = static_cast<int64_t>(bytes.size());
  if (bytes.empty()) return sizes;
  sizes.bytes_mean /= static_cast<double>(bytes.size());
  const auto middle = bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2);
  std::nth_element(bytes.begin(), middle, bytes.end());
  sizes.bytes_median = *middle;
  if (pairs > 0) sizes.lone_share = static_cast<double>(lone) / static_cast<double>(pairs);
  return sizes;
}

int64_t MostBlockRecords(const RecordSizes& sizes) {
  const int64_t most = std::min(server::ReadAhead::kMostBytes, server::MemoryLimitBytes() / 8) / 2;
  return std::max<int64_t>(
      1, static_cast<int64_t>(static_cast<double>(most) / std::max(sizes.bytes_mean, 1.0)));
}

ReadPattern EstimateReads(const server::Dataset& dataset, const RecordSizes& sizes,
                          server::Shuffle shuffle, int64_t block_records,
                          server::StorageKind kind) {
  const server::ReadHabits habits = server::HabitsOf(kind);
  ReadPattern pattern;
  std::vector<server::Extent> extents;
  int64_t looked_at = 0;
  ForSome(dataset.size(), kMostForPattern, [&](int64_t record) {
    ++looked_at;
    extents.clear();
    dataset.Extents(record, &extents);
    const server::Extent* last = nullptr;
    for (const server::Extent& extent : extents) {
      if (extent.length <= 0) continue;
      const bool joins = last != nullptr && FollowsNearby(*last, extent, habits.join_gap_bytes);
      if (joins) pattern.bytes += static_cast<double>(extent.offset - last->offset - last->length);
      pattern.reads += joins ? 0 : 1;
      pattern.bytes += static_cast<double>(extent.length);
      last = &extent;
    }
  });
  if (looked_at == 0) return pattern;
  const double scale = 1000 / static_cast<double>(looked_at);
  pattern.reads *= scale;
  pattern.bytes *= scale;
  pattern.seeks =
      shuffle == server::Shuffle::kNone ? pattern.reads * sizes.lone_share : pattern.reads;
  if (shuffle != server::Shuffle::kBlock) return pattern;
  pattern.is_ahead = habits.reads_ahead && sizes.lone_share < 0.5 && dataset.mix() == nullptr &&
                     block_records <= MostBlockRecords(sizes);
  if (!pattern.is_ahead) return pattern;
  // A window goes on in the shards that it touches: one more than it holds.
  const auto shards = static_cast<double>(dataset.shard_starts().size());
  const double window = static_cast<double>(std::min(block_records, dataset.size()));
  const double in_shard = shards <= 0 ? window : static_cast<double>(dataset.size()) / shards;
  const double runs = std::min(shards <= 0 ? 1 : shards, window / in_shard + (shards > 1 ? 1 : 0));
  pattern.seeks = runs * 1000 / window;
  pattern.reads =
      pattern.bytes / static_cast<double>(server::ReadAhead::kPieceBytes) + pattern.seeks;
  return pattern;
}

}  // namespace feedwater::cli
