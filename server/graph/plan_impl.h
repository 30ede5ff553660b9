// The inside of a Plan: steps in order, and where every value lies while a sample runs. Built once
// (plan.cc), then constant.
#pragma once

#include <string>
#include <vector>

#include "server/graph/dataflow.h"
#include "server/graph/geometry_op.h"
#include "server/graph/plan.h"
#include "server/graph/workspace.h"

namespace feedwater::server {

// Where a batch value lies: an output, or daemon-private staging memory.
struct BatchPlace {
  int output = -1;             // place in BatchMemory::outputs; -1: in staging
  int64_t staging_offset = 0;  // bytes per sample of all staged values before it
  int64_t sample_bytes = 0;

  std::byte* Base(const BatchMemory& memory) const {
    return output >= 0 ? memory.outputs[output]
                       : memory.staging + staging_offset * memory.batch_size;
  }
  std::byte* At(const BatchMemory& memory, int64_t k) const {
    return Base(memory) + k * sample_bytes;
  }
};

// Where a value of the sample under way lies.
struct ValuePlace {
  int buffer = -1;       // of the workspace
  int batch_value = -1;  // in its place in the batch
};

// One op, or a run of ops in one call of the codec.
struct Step {
  struct Part {
    const OpEntry* entry = nullptr;
    const Op* op = nullptr;
    uint32_t instance = 0;
  };
  std::vector<Part> parts;
  std::vector<int> in, out;  // values
  PixelFormat format;        // of a run of several parts
};

struct Plan::Impl {
  Dataflow flow;
  ImageLimits limits;
  size_t dataset_fields = 0;
  std::vector<Step> steps;
  std::vector<ValuePlace> places;        // by value
  std::vector<BatchPlace> batch_places;  // by batch value
  std::vector<int> copied;               // source values that the batch needs
  std::vector<FieldSpec> outputs;
  size_t buffers = 0;
  int64_t staging_bytes = 0;        // per sample
  int64_t batch_scratch_bytes = 0;  // one sample of the largest batch op's input
};

// One sample under way.
struct SampleRun {
  const Plan::Impl& plan;
  const SampleInput& input;
  int64_t k;
  const BatchMemory& memory;
  SampleWorkspace::Impl& workspace;
};

absl::Status RunStep(const Step& step, const SampleRun& run);

// Fills batch_places, staging_bytes and batch_scratch_bytes. Reads flow.
absl::Status PlaceBatchValues(Plan::Impl* plan);
// Fills places, copied and buffers. Reads flow and steps.
void PlaceValues(Plan::Impl* plan);

}  // namespace feedwater::server
