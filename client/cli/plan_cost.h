// Where the CPU time of a pipeline's samples goes, measured in this process on one thread: reading
// and parsing, each pass of the plan, the batch graph; and what would change if an op, one of its
// parameters or a cache were otherwise. Everything that is compared runs by turns, on the same
// records with the same draws, and figures are medians over several rounds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/local_pipeline.h"

namespace feedwater::cli {

// One row of the sum.
struct StepCost {
  enum class Kind { kRead, kPass, kCopy, kBatch };
  Kind kind = Kind::kPass;
  std::vector<std::string> ops;  // by name, those of one pass together
  std::vector<int> places;       // of those of a pass, in `graph`
  int pass = -1;                 // PlanGraph::Node::pass
  std::string fields;            // what a pass writes: "image float32[3,224,224] CHW"
  int64_t bytes = -1;            // of that for a sample; -1: it differs from sample to sample
  double us = 0, share = 0;      // of a sample
};

// What a sample costs when one thing is otherwise, everything else as it is.
struct CostChange {
  enum class Kind { kWithoutOp, kWithoutParameter, kFastScale, kDecodedCache, kCoefficientCache };
  Kind kind = Kind::kWithoutOp;
  std::string op;         // not of a cache
  int place = -1;         // in `graph`, or in `batch: graph`
  bool is_batch = false;  // in the latter
  std::string parameter =
      {};         // kWithoutParameter: "hue: 0.1"; kDecodedCache: the ops before the cut
  int count = 1;  // ops of that name that change together
  double us = 0, saved_us = 0;
  // Whether the time was saved in nearly every round, and is more than what rounds differ by.
  bool is_clear = false;
  int64_t kept_bytes = 0;    // of a cache, for a record
  bool is_in_force = false;  // of a cache: a daemon of this configuration has it already
  int64_t records = 0;       // with which it was measured
  double TimesAsFast() const { return us > 0 ? (us + saved_us) / us : 1; }
};

struct PlanCost {
  int64_t records = 0, bad = 0;
  int rounds = 0;
  double us = 0;      // of a sample: the sum of the steps
  double spread = 0;  // between the quartiles of the rounds, as a share of the median
  std::vector<StepCost> steps;
  std::vector<CostChange> changes;   // what was tried, that which saves most first
  std::vector<std::string> settled;  // ops without which the graph does not fit together
};

struct CostOptions {
  int64_t records = 32;  // at most
  bool tries_changes = false;
  std::function<void(int64_t done, int64_t total)> progress = {};  // may be null
};

// FailedPrecondition where the configuration has images decoded in processes of their own, which
// this one cannot look into.
absl::StatusOr<PlanCost> MeasureCost(const LocalPipeline& pipeline, const CostOptions& options);

// Opens a pipeline and its data, and measures it under a progress bar.
struct MeasuredPipeline {
  PlannedPipeline pipeline;
  PlanCost cost;
};
absl::StatusOr<MeasuredPipeline> MeasurePipeline(const std::string& pipeline,
                                                 const ConfigChoice& config, CostOptions options);

}  // namespace feedwater::cli
