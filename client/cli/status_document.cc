#include "client/cli/status_document.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;

json RankJson(const v1::Rank& rank) {
  return {{"rank", rank.rank()},
          {"pid", rank.pid()},
          {"epoch", rank.epoch()},
          {"step", rank.step()},
          {"slots", rank.slots()},
          {"slots_ready", rank.slots_ready()},
          {"slots_lent", rank.slots_lent()}};
}

json JobJson(const v1::Job& job) {
  json ranks = json::array();
  for (const v1::Rank& rank : job.ranks()) ranks.push_back(RankJson(rank));
  return {{"job", job.job()},
          {"pipeline", job.pipeline()},
          {"owner_uid", job.owner_uid()},
          {"epoch", job.epoch()},
          {"step", job.step()},
          {"world_size", job.world_size()},
          {"samples", job.samples()},
          {"bad_samples", job.bad_samples()},
          {"substituted", job.substituted()},
          {"skipped", job.skipped()},
          {"batches", job.batches()},
          {"bytes_read", job.bytes_read()},
          {"cpu_s", job.cpu_s()},
          {"read_wait_s", job.read_wait_s()},
          {"reads_held_up", job.reads_held_up()},
          {"read_s", job.read_s()},
          {"parse_s", job.parse_s()},
          {"graph_s", job.run_s()},
          {"batch_s", job.batch_s()},
          {"decoded", std::map<std::string, uint64_t>(job.decoded().begin(), job.decoded().end())},
          {"cache", CacheJson(job.cache())},
          {"ranks", ranks}};
}

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

json CacheJson(const v1::JobCache& cache) {
  return {{"kind", cache.kind()},
          {"reason", cache.reason()},
          {"records", cache.records()},
          {"memory_records", cache.memory_records()},
          {"disk_records", cache.disk_records()},
          {"memory_bytes", cache.memory_bytes()},
          {"disk_bytes", cache.disk_bytes()},
          {"memory_hits", cache.memory_hits()},
          {"disk_hits", cache.disk_hits()},
          {"misses", cache.misses()},
          {"damaged", cache.damaged()},
          {"out_of_date", cache.out_of_date()},
          {"seek_indexes", cache.seek_indexes()},
          {"seek_index_bytes", cache.seek_index_bytes()}};
}

absl::StatusOr<v1::GetStatusResponse> GetStatus(v1::Control::Stub& control,
                                                std::chrono::seconds patience) {
  grpc::ClientContext call;
  call.set_deadline(std::chrono::system_clock::now() + patience);
  v1::GetStatusResponse status;
  const grpc::Status got = control.GetStatus(&call, {}, &status);
  if (!got.ok()) return FromGrpc(got);
  return status;
}

json StatusJson(const v1::GetStatusResponse& status) {
  json jobs = json::array();
  for (const v1::Job& job : status.jobs()) jobs.push_back(JobJson(job));
  json counters = json::object();
  for (const auto& [name, count] : status.counters()) counters[name] = count;
  return {{"version", status.version()},
          {"pid", status.pid()},
          {"uptime_s", status.uptime_s()},
          {"runtime_dir", status.runtime_dir()},
          {"engine", {{"name", status.engine_name()}, {"reason", status.engine_reason()}}},
          {"cpus", std::vector<int>(status.cpus().begin(), status.cpus().end())},
          {"workers_active", status.workers_active()},
          {"numa_node", status.numa_node()},
          {"simd", status.simd()},
          {"isolation", {{"mode", status.isolation()}, {"decoders", status.decoders()}}},
          {"memory",
           {{"limit_bytes", status.memory_limit_bytes()},
            {"planned_bytes", status.memory_planned_bytes()},
            {"resident_bytes", status.memory_resident_bytes()},
            {"sum", status.memory_sum()}}},
          {"counters", counters},
          {"jobs", jobs}};
}

StageTimes StagesBetween(const v1::Job& before, const v1::Job& after) {
  const auto grown = [](double from, double to) { return std::max(0.0, to - from); };
  StageTimes times;
  times.read_wait = grown(before.read_wait_s(), after.read_wait_s());
  times.read = grown(before.read_s(), after.read_s());
  times.parse = grown(before.parse_s(), after.parse_s());
  times.graph = grown(before.run_s(), after.run_s());
  times.batch = grown(before.batch_s(), after.batch_s());
  return times;
}

json StageShares(const StageTimes& times) {
  const double total = times.total();
  return {{"read_wait", Share(times.read_wait, total)},
          {"read", Share(times.read, total)},
          {"parse", Share(times.parse, total)},
          {"graph", Share(times.graph, total)},
          {"batch", Share(times.batch, total)}};
}

std::string Bottleneck(const StageTimes& times, double cpu_s, double wall_s, int workers,
                       double trainer_waits, const v1::JobCache& cache) {
  if (wall_s <= 0 || workers <= 0) return "Nothing was measured.";
  const double capacity = wall_s * workers;
  const double busy = Share(cpu_s, capacity), waiting = Share(times.read_wait, capacity);
  if (trainer_waits < 0.1) {
    return absl::StrFormat(
        "It waits for the trainer, which has a batch ready %.0f %% of the time: nothing to change "
        "here.",
        100 * (1 - trainer_waits));
  }
  if (waiting > 0.3 && waiting > busy) {
    return absl::StrFormat(
        "It waits for the storage %.0f %% of the workers' time: faster storage, larger shards "
        "instead of single "
        "files, or a cache on a local disk (cache.disk) will help.",
        100 * waiting);
  }
  if (busy > 0.7) {
    const bool decodes = times.graph > 0.5 * times.total();
    const bool can_keep = cache.kind() == "none" && decodes;
    return absl::StrFormat(
        "It waits for the CPU: %d workers are busy %.0f %% of the time, %.0f %% of it in the "
        "graph; %s.",
        workers, 100 * busy, 100 * Share(times.graph, times.total()),
        can_keep ? "more CPUs (cpus) or memory for a cache (cache.ram) will help"
                 : "more CPUs (cpus) will help");
  }
  return absl::StrFormat(
      "It waits for the hand-over: workers are busy %.0f %% of the time and wait for storage %.0f "
      "%%; whoever takes the "
      "batches shares these CPUs or takes them one by one: larger batches or more slots will help.",
      100 * busy, 100 * waiting);
}

}  // namespace feedwater::cli
