// Whether a rank that attaches agrees with the job that runs.
#pragma once

#include "absl/status/status.h"
#include "server/batch/slot_layout.h"
#include "server/pipeline/job.h"

namespace feedwater::server {

// FailedPrecondition, naming what differs: world size, batch size, seed, pipeline, dataset, source
// or ops of a user's own, outputs. Takes a while where there are a million classes.
absl::Status CheckSameJob(const Job& job, const JobConfig& other, const SlotLayout& layout);

}  // namespace feedwater::server
