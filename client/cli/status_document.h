// What `feedwater status` says, as a JSON document. Also the figures of `bench` and `status
// --watch`.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>

#include "client/cli/command.h"

namespace feedwater::cli {

// DeadlineExceeded where the daemon does not answer for so long.
absl::StatusOr<v1::GetStatusResponse> GetStatus(
    v1::Control::Stub& control, std::chrono::seconds patience = std::chrono::seconds(30));
nlohmann::json StatusJson(const v1::GetStatusResponse& status);
nlohmann::json CacheJson(const v1::JobCache& cache);
// A line on the jobs that the answer has no room for; "" where it has them all.
std::string NotListedText(const v1::GetStatusResponse& status);

// What the workers of a job did between two looks at it, in seconds of their elapsed time.
struct StageTimes {
  double read_wait = 0, read = 0, parse = 0, graph = 0, batch = 0;
  double total() const { return read_wait + read + parse + graph + batch; }
};
StageTimes StagesBetween(const v1::Job& before, const v1::Job& after);
// {name: share of the total}; they add up to 1, or are all 0 when nothing was done.
nlohmann::json StageShares(const StageTimes& times);

// Where the time of `workers` workers went in `wall_s` seconds, in one sentence, with what to
// change. `trainer_waits`: the share of that time in which whoever takes the batches had none (1
// for a program that only takes). `own_code`: what `BusyProvider` says.
std::string Bottleneck(const StageTimes& times, double cpu_s, double wall_s, int workers,
                       double trainer_waits, const v1::JobCache& cache,
                       const std::string& own_code);

// The source or op of a job's own whose processes were hardly ever idle between two looks, in one
// sentence, with what to change. "": there is none.
std::string BusyProvider(const v1::GetStatusResponse& before, const v1::GetStatusResponse& after,
                         const v1::Job& job, double wall_s);
// A line for each source and op of users' own.
std::string ProvidersText(const v1::GetStatusResponse& status);

}  // namespace feedwater::cli
