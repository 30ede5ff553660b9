#include "server/pipeline/same_job.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/escape.h"
#include "server/source/given_records.h"

namespace feedwater::server {
namespace {

absl::Status Differs(const Job& job, absl::string_view field, absl::string_view has,
                     absl::string_view says) {
  return absl::FailedPreconditionError(absl::StrCat(
      "job '", job.config().name, "' runs with ", field, " ", has, ", this rank says ", says,
      ": all ranks of a job must agree; give this rank the same ", field, ", or another job name"));
}

// Two pipelines can have one digest and yet not be the same: their datasets may have other classes,
// or the program another version of an op. Batches are written by the plan of the first rank.
absl::Status SamePlan(const Job& job, const LoadedPipeline& other) {
  const LoadedPipeline& pipeline = *job.config().pipeline;
  if (&pipeline == &other) return absl::OkStatus();
  const auto number = [](auto value) { return absl::StrCat(value); };
  if (pipeline.dataset->size() != other.dataset->size()) {
    return Differs(job, "number of records", number(pipeline.dataset->size()),
                   number(other.dataset->size()));
  }
  const std::vector<std::string>&ours = pipeline.dataset->classes(),
        &its = other.dataset->classes();
  if (ours.size() != its.size())
    return Differs(job, "number of classes", number(ours.size()), number(its.size()));
  const auto [our, it] = std::mismatch(ours.begin(), ours.end(), its.begin());
  if (our != ours.end()) return Differs(job, "class", Printable(*our), Printable(*it));
  if (pipeline.plan->staging_bytes_per_sample() != other.plan->staging_bytes_per_sample()) {
    return Differs(job, "staging bytes a sample", number(pipeline.plan->staging_bytes_per_sample()),
                   number(other.plan->staging_bytes_per_sample()));
  }
  const std::string plan = absl::StrJoin(pipeline.plan->Describe(), "; ");
  const std::string its_plan = absl::StrJoin(other.plan->Describe(), "; ");
  if (plan != its_plan) return Differs(job, "plan", plan, its_plan);
  return absl::OkStatus();
}

// Records that a user's program gives are in no digest: their job reads those of one giver.
absl::Status SameGiver(const Job& job, const Dataset& other) {
  const Dataset& dataset = job.dataset();
  if (dataset.giver() == other.giver()) return absl::OkStatus();
  const auto describe = [](const Dataset& one) {
    if (one.giver() == nullptr) return std::string("of files");
    return absl::StrCat("'", Printable(one.ObjectPath(0)), "' (",
                        Printable(one.giver()->identity()), ")");
  };
  return Differs(job, "source", describe(dataset), describe(other));
}

}  // namespace

absl::Status CheckSameJob(const Job& job, const JobConfig& other, const SlotLayout& layout) {
  const JobConfig& config = job.config();
  if (config.world_size != other.world_size) {
    return Differs(job, "world_size", absl::StrCat(config.world_size),
                   absl::StrCat(other.world_size));
  }
  if (config.batch_size != other.batch_size) {
    return Differs(job, "batch_size", absl::StrCat(config.batch_size),
                   absl::StrCat(other.batch_size));
  }
  if (config.seed != other.seed) {
    return Differs(job, "seed", absl::StrCat(config.seed), absl::StrCat(other.seed));
  }
  if (config.pipeline->spec.digest != other.pipeline->spec.digest) {
    return Differs(job, "pipeline digest", config.pipeline->spec.digest,
                   other.pipeline->spec.digest);
  }
  if (job.dataset().digest() != other.pipeline->dataset->digest()) {
    return Differs(job, "dataset digest", job.dataset().digest(),
                   other.pipeline->dataset->digest());
  }
  if (absl::Status same = SameGiver(job, *other.pipeline->dataset); !same.ok()) return same;
  // What an op of the user's own does is in no digest, either.
  if (config.pipeline->own_identity != other.pipeline->own_identity) {
    return Differs(job, "own code", config.pipeline->own_identity, other.pipeline->own_identity);
  }
  const std::string difference = job.layout().DifferenceFrom(layout);
  if (!difference.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job '", config.name, "' runs with other outputs than this rank's: ", difference,
        "; all ranks of a job must agree; start it with another job name"));
  }
  return SamePlan(job, *other.pipeline);
}

}  // namespace feedwater::server
