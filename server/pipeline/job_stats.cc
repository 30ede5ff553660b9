#include "server/pipeline/job_stats.h"

#include <string>
#include <tuple>
#include <utility>

#include "server/pipeline/cache_choice.h"
#include "server/pipeline/stream.h"

namespace feedwater::server {

JobStats Describe(const Job& job) {
  const auto& state = job.guarded_;
  JobStats stats;
  stats.job = job.config().name;
  stats.pipeline = job.config().pipeline->spec.name;
  stats.owner_uid = job.config().owner_uid;
  stats.world_size = job.config().world_size;
  stats.held_up = job.held_up_.load(std::memory_order_relaxed);
  static_cast<PublishedCounts&>(stats) = state.published;
  stats.bytes_read = static_cast<uint64_t>(state.usage.bytes_read);
  stats.cpu_seconds = 1e-9 * static_cast<double>(state.usage.cpu_ns);
  stats.read_wait_seconds = 1e-9 * static_cast<double>(state.usage.wait_ns);
  stats.read_seconds = 1e-9 * static_cast<double>(state.usage.read_ns);
  stats.parse_seconds = 1e-9 * static_cast<double>(state.usage.parse_ns);
  stats.run_seconds = 1e-9 * static_cast<double>(state.usage.run_ns);
  stats.batch_seconds = 1e-9 * static_cast<double>(state.usage.batch_ns);
  stats.decoded = state.usage.decoded;
  stats.workers = job.workers();
  stats.loaded = job.config().pipeline;
  stats.order = job.order_config();
  const LoadedPipeline& pipeline = *stats.loaded;
  stats.cache_kind = std::string(CacheKindName(pipeline.cache_kind));
  stats.cache_reason = pipeline.cache_reason;
  stats.records = pipeline.dataset->size();
  if (pipeline.cache != nullptr) stats.cache = pipeline.cache->counts();
  if (pipeline.seek_indexes != nullptr) stats.seek_indexes = pipeline.seek_indexes->counts();
  for (const std::shared_ptr<Stream>& stream : state.streams) {
    const auto& at = stream->guarded_;
    RankStats rank;
    rank.rank = stream->rank();
    rank.pid = stream->pid();
    rank.epoch = at.published_epoch;
    rank.step = at.published_step;
    rank.began_epoch = at.began_epoch;
    rank.began_step = at.began_step;
    if (stats.ranks.empty() ||
        std::tie(rank.epoch, rank.step) < std::tie(stats.epoch, stats.step)) {
      stats.epoch = rank.epoch;
      stats.step = rank.step;
      stats.start_epoch = at.began_epoch;
      stats.start = at.began_at;
    }
    stats.ranks.push_back(rank);
  }
  return stats;
}

}  // namespace feedwater::server
