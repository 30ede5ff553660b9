// feedwater status: the daemon and its jobs at this moment.
#include "server/base/status.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <iostream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/bad_samples.h"
#include "client/cli/command.h"
#include "client/cli/json_text.h"
#include "client/cli/status_all.h"
#include "client/cli/status_document.h"
#include "client/cli/status_watch.h"
#include "client/cpp/address.h"
#include "server/base/cpus.h"
#include "server/base/escape.h"
#include "server/base/units.h"

namespace feedwater::cli {
namespace {

// The last step that was published; none was before the first one.
std::string StepText(int64_t step) { return step < 0 ? "-" : absl::StrCat(step); }

void PrintCounters(const v1::GetStatusResponse& status) {
  bool first = true;
  for (const auto& [name, count] :
       std::map<std::string, uint64_t>(status.counters().begin(), status.counters().end())) {
    if (count == 0) continue;
    const auto text = status.counter_texts().find(name);
    std::cout << (first ? "counts   " : "         ")
              << (text == status.counter_texts().end()
                      ? absl::StrCat(name, ": ", count)
                      : absl::StrCat(text->second, ": ", count, " (", name, ")"))
              << "\n";
    first = false;
  }
}

void PrintText(const v1::GetStatusResponse& status) {
  const std::vector<int> cpus(status.cpus().begin(), status.cpus().end());
  std::cout << Bold("feedwaterd " + status.version()) << "  pid " << status.pid() << ", up "
            << server::FormatSeconds(status.uptime_s()) << ", "
            << server::Escaped(status.runtime_dir()) << "\n"
            << "engine   " << status.engine_name() << " ("
            << server::Escaped(status.engine_reason()) << ")\n"
            << "cpus     " << server::FormatCpuList(cpus) << " (" << status.workers_active()
            << " of " << cpus.size() << " workers busy), " << status.simd()
            << (status.numa_node() >= 0 ? absl::StrCat(", NUMA node ", status.numa_node()) : "")
            << "\n"
            << (status.isolation() == "process" || status.decoders() > 0
                    ? absl::StrCat("isolation  ", status.isolation(), ", ",
                                   server::FormatCount(status.decoders(), "decoder"), "\n")
                    : "")
            << "memory   " << status.memory_sum() << ", resident "
            << server::FormatBytes(status.memory_resident_bytes()) << "\n";
  for (const std::string& root : status.silent_roots())
    std::cout << "storage  no answer from " << server::Escaped(root) << "\n";
  std::cout << ProvidersText(status);
  PrintCounters(status);
  if (status.jobs().empty()) std::cout << "jobs     none\n";
  for (const v1::Job& job : status.jobs()) {
    std::cout << absl::StrFormat(
        "\n%s  pipeline %s, world size %d, epoch %d, step %s, %s, %d bad%s, %.1f CPU s\n",
        Bold(server::Escaped(job.job())), server::Escaped(job.pipeline()), job.world_size(),
        job.epoch(), StepText(job.step()), server::FormatCount(job.samples(), "sample"),
        job.bad_samples(), job.bad_samples() > 0 ? " (feedwater status --bad)" : "", job.cpu_s());
    if (job.reads_held_up() > 0) {
      std::cout << "  waits for storage, which has not answered "
                << server::FormatCount(job.reads_held_up(), "read") << "\n";
    }
    const v1::JobCache& cache = job.cache();
    std::cout << "  cache " << cache.kind();
    if (cache.kind() != "none") {
      std::cout << absl::StrFormat(
          ": %d of %s in memory (%s), %d on disk (%s)", cache.memory_records(),
          server::FormatCount(cache.records(), "record"), server::FormatBytes(cache.memory_bytes()),
          cache.disk_records(), server::FormatBytes(cache.disk_bytes()));
    }
    std::cout << "; " << server::Escaped(cache.reason()) << "\n";
    if (cache.seek_indexes() > 0) {
      std::cout << absl::StrFormat("  seek indexes of %s (%s)\n",
                                   server::FormatCount(cache.seek_indexes(), "JPEG"),
                                   server::FormatBytes(cache.seek_index_bytes()));
    }
    // Every slot is in one of these columns: ready for the trainer, in its hands, or to be filled.
    std::cout << "  rank      pid    epoch     step  ready   held  empty\n";
    for (const v1::Rank& rank : job.ranks()) {
      const uint32_t lent = std::min(rank.slots_lent(), rank.slots());
      const uint32_t ready = std::min(rank.slots_ready(), lent);
      std::cout << absl::StrFormat("  %4d %8d %8d %8s %6d %6d %6d\n", rank.rank(), rank.pid(),
                                   rank.epoch(), StepText(rank.step()), ready, lent - ready,
                                   rank.slots() - lent);
    }
  }
  std::cout << NotListedText(status);
}

absl::Status ShowBad(const Context& context) {
  const absl::Status shown = ShowBadSamples(context);
  if (context.json) return shown;
  const absl::StatusOr<std::string> address = FindAddress(context.address);
  (shown.ok() ? std::cout : std::cerr) << PrivateDaemonsText(context, address.value_or(""));
  return shown;
}

void AddStatus(CLI::App& app, Context& context) {
  static bool watch = false;
  static bool bad = false;
  static bool all = false;
  static std::string interval = "1s";
  CLI::App* command = AddCommand(
      app, context, "status", "show the daemon, its memory and its jobs with their ranks",
      "  feedwater status\n"
      "  feedwater status --watch               # rates, slots and what each rank waits for, until "
      "Ctrl-C\n"
      "  feedwater status --all                 # every daemon that this user can see\n"
      "  feedwater status --bad                 # the records that could not be made into samples\n"
      "  feedwater status --watch --json        # a line of JSON every second\n"
      "  feedwater status --json | jq '.jobs[].ranks[] | select(.slots_ready == 0)'   # "
      "ranks that wait for data",
      [&context]() -> absl::Status {
        if (all) return ShowAllDaemons(context);
        FW_RETURN_IF_ERROR(
            UseOwnDaemon(context, bad ? "status --bad" : (watch ? "status --watch" : "status")));
        if (bad) return ShowBad(context);
        if (watch) {
          FW_ASSIGN_OR_RETURN(const double seconds, server::ParseSeconds(interval));
          return WatchStatus(context, seconds);
        }
        const auto control = context.Control();
        if (!control.ok()) {
          if (!context.json) std::cerr << PrivateDaemonsText(context, "");
          return control.status();
        }
        FW_ASSIGN_OR_RETURN(const v1::GetStatusResponse status, GetStatus(**control));
        if (context.json) {
          PrintJson(StatusJson(status));
        } else {
          PrintText(status);
          std::cout << PrivateDaemonsText(context, status.runtime_dir());
        }
        return absl::OkStatus();
      });
  CLI::Option* watched = command->add_flag("--watch", watch, "show rates, repeatedly");
  CLI::Option* listed =
      command
          ->add_flag("--bad", bad,
                     "list the bad records: their files, the reasons, and what replaced them")
          ->excludes(watched);
  command
      ->add_flag("--all", all,
                 "list every daemon that this user can see: of the host, of the user, and those "
                 "that loaders started for themselves")
      ->excludes(watched)
      ->excludes(listed);
  command->add_option("--interval", interval, "time between two looks of --watch")
      ->type_name("TIME")
      ->capture_default_str();
}

const server::Registrar<CommandEntry> kRegistrar("status", {CommandEntry::kDaemons, AddStatus});

}  // namespace

}  // namespace feedwater::cli
