// The inside of a Plan: steps in order, and where every value lies while a sample runs. Built once
// (plan.cc), then constant.
#pragma once

#include <string>
#include <vector>

#include "server/graph/dataflow.h"
#include "server/graph/geometry_op.h"
#include "server/graph/plan.h"
#include "server/graph/sample_memory.h"
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
  bool is_kept = false;  // the buffer is the value's own until the next sample
  int batch_value = -1;  // in its place in the batch
};

// One op, or a run of ops in one call of the codec.
struct Step {
  struct Part {
    const OpEntry* entry = nullptr;
    const Op* op = nullptr;
    uint32_t instance = 0, draws_as = 0;  // as Node's
  };
  std::vector<Part> parts;
  std::vector<int> in, out;  // values
  // Of a run of several parts, as FusedRun's.
  PixelFormat format;
  bool has_points = false;
  bool needs_image = false;
  bool image_is_output = false;  // the image that point ops look at is changed where it comes out
  // shared_decode.h. Of a decode: the steps that take parts of its image. Of one of these: the
  // decode. Places in the program; empty and -1 otherwise.
  std::vector<int> views;
  int shared_decode = -1;
};

// A way through the graph, or through a part of it: from the values that a record's fields give to
// those that its steps write.
struct Program {
  std::vector<int> sources;  // values that the record's fields are, in their order
  std::vector<Step> steps;
  std::vector<ValuePlace> places;  // by value
  std::vector<int> copied;         // values that the batch needs and no step writes
  std::vector<int> varying;        // values of whose rows the batch needs the number
  size_t buffers = 0;              // of the workspace, those before first_buffer included
  size_t first_buffer = 0;         // the ones before hold what another program has left
};

// A value of the sample that a batch op takes for a class number.
struct ClassCheck {
  int value = 0;
  int64_t classes = 0;
  const OpEntry* entry = nullptr;  // the batch op
};

struct Plan::Impl {
  Dataflow flow;
  ImageLimits limits;
  size_t dataset_fields = 0;
  int64_t classes = 0;
  Program whole;
  Program before, after;  // up to what a cache may keep, and from there on (prefix.h)
  PlanPrefix prefix;
  std::vector<bool> is_in_prefix;        // by node
  std::vector<BatchPlace> batch_places;  // by batch value
  std::vector<FieldSpec> outputs;
  std::vector<ClassCheck> class_checks;
  int64_t staging_bytes = 0;        // per sample
  int64_t batch_scratch_bytes = 0;  // one sample of the largest batch op's input
  SampleMemory memory[3];           // by SampleWay
};

// One sample under way.
struct SampleRun {
  const Plan::Impl& plan;
  const Program& program;
  const SampleInput& input;
  int64_t k;
  const BatchMemory& memory;
  SampleWorkspace::Impl& workspace;
  int64_t max_kept_bytes;            // of one value that is kept
  absl::Span<int64_t> pass_ns = {};  // as Plan::RunTimed's, or nothing
};

absl::Status RunStep(const Step& step, const SampleRun& run);

// What samples take that go this way, and what this one does. Read everything but memory.
SampleMemory MemoryOf(const Plan::Impl& plan, SampleWay way);
SampleNeed NeedsOfSample(const Plan::Impl& plan, const Record& fields, SampleWay way,
                         std::vector<SizedValue>* sizes, BufferNeeds* needs);

// Fills batch_places, staging_bytes and batch_scratch_bytes. Reads flow.
absl::Status PlaceBatchValues(Plan::Impl* plan);
// Fills places, copied and buffers of a program that has its sources and steps. `kept`: values that
// it leaves in buffers 0, 1, ...; nothing of such a program goes into the batch. Null: everything
// that the batch needs does.
void PlaceValues(const Dataflow& flow, const std::vector<int>* kept, Program* program);

}  // namespace feedwater::server
