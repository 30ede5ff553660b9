// A pipeline without its prefix: what is left to be done with records of which the prefix's fields
// were stored (`feedwater materialize`). Every random op keeps its number (`draws_as`), so that the
// rest gives the same samples for the same seed, epoch and record.
#pragma once

#include <string>
#include <vector>

#include "server/base/status.h"
#include "server/graph/pipeline_spec.h"
#include "server/source/dataset.h"

namespace feedwater::server {

struct Continuation {
  // What is stored, in the order of PlanPrefix::fields. Two values of the graph may have one name
  // there; here they do not.
  std::vector<FieldSpec> fields;
  std::vector<int> sources;      // by field: the dataset's field that it is; -1: an op has made it
  std::vector<std::string> ops;  // of the prefix, by name
  // Every key of the pipeline file behind `dataset:`, for records of these fields.
  std::string rest;
};

// REQUIRES: `fields` and `classes` are those of the spec's dataset. InvalidArgument where the
// prefix has no op: the message names the first op that draws, or says why else nothing can be
// done once. Pure.
absl::StatusOr<Continuation> ContinuationOf(const PipelineSpec& spec,
                                            const std::vector<FieldSpec>& fields, int64_t classes);

// Whether `rest`, which was read from a continuation of `source`, has what stands around the ops on
// samples as it was there: the order, ops on batches with what their draws are keyed by, outputs,
// limits. InvalidArgument that names the first thing that differs.
absl::Status CheckContinues(const PipelineSpec& source, const PipelineSpec& rest);

}  // namespace feedwater::server
