// feedwater status: the daemon and its jobs at this moment.
#include <cinttypes>
#include <cstdio>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/command.h"
#include "server/base/cpus.h"
#include "server/base/units.h"

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
          {"batches", job.batches()},
          {"bytes_read", job.bytes_read()},
          {"cpu_s", job.cpu_s()},
          {"read_wait_s", job.read_wait_s()},
          {"ranks", ranks}};
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
          {"memory",
           {{"limit_bytes", status.memory_limit_bytes()},
            {"planned_bytes", status.memory_planned_bytes()},
            {"resident_bytes", status.memory_resident_bytes()},
            {"sum", status.memory_sum()}}},
          {"counters", counters},
          {"jobs", jobs}};
}

void PrintText(const v1::GetStatusResponse& status) {
  const std::vector<int> cpus(status.cpus().begin(), status.cpus().end());
  std::cout << Bold("feedwaterd " + status.version()) << "  pid " << status.pid() << ", up "
            << server::FormatSeconds(status.uptime_s()) << ", " << status.runtime_dir() << "\n"
            << "engine   " << status.engine_name() << " (" << status.engine_reason() << ")\n"
            << "cpus     " << server::FormatCpuList(cpus) << " (" << status.workers_active()
            << " of " << cpus.size() << " workers busy), " << status.simd()
            << (status.numa_node() >= 0 ? absl::StrCat(", NUMA node ", status.numa_node()) : "")
            << "\n"
            << "memory   " << status.memory_sum() << ", resident "
            << server::FormatBytes(status.memory_resident_bytes()) << "\n";
  for (const auto& [name, count] : status.counters()) {
    if (count > 0) std::cout << "count    " << name << " " << count << "\n";
  }
  if (status.jobs().empty()) std::cout << "jobs     none\n";
  for (const v1::Job& job : status.jobs()) {
    std::cout << absl::StrFormat(
        "\n%s  pipeline %s, world size %d, epoch %d, step %d, %d samples, %d bad, %.1f CPU s\n",
        Bold(job.job()), job.pipeline(), job.world_size(), job.epoch(), job.step(), job.samples(),
        job.bad_samples(), job.cpu_s());
    std::cout << "  rank      pid    epoch     step  ready  lent  slots\n";
    for (const v1::Rank& rank : job.ranks()) {
      std::cout << absl::StrFormat("  %4d %8d %8d %8d %6d %5d %6d\n", rank.rank(), rank.pid(),
                                   rank.epoch(), rank.step(), rank.slots_ready(), rank.slots_lent(),
                                   rank.slots());
    }
  }
}

}  // namespace

void AddStatus(CLI::App& app, Context& context) {
  AddCommand(app, context, "status", "show the daemon, its memory and its jobs with their ranks",
             "  feedwater status\n"
             "  feedwater status --json | jq '.jobs[].ranks[] | select(.slots_ready == 0)'   # "
             "ranks that wait for data",
             [&context]() -> absl::Status {
               auto control = context.Control();
               if (!control.ok()) return control.status();
               grpc::ClientContext call;
               v1::GetStatusResponse status;
               const grpc::Status got = (*control)->GetStatus(&call, {}, &status);
               if (!got.ok()) return FromGrpc(got);
               if (context.json) {
                 std::cout << StatusJson(status).dump(2) << "\n";
               } else {
                 PrintText(status);
               }
               return absl::OkStatus();
             });
}

}  // namespace feedwater::cli
