// A Plan is a pipeline's graph made ready to run: every field's type and shape is settled, decode +
// crop + resize + flip + normalise are fused where they follow each other, and every output has its
// place. Immutable and thread-safe; what changes while samples run lives in a SampleWorkspace, one
// per worker thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/base/philox.h"
#include "server/base/status.h"
#include "server/base/tensor.h"
#include "server/codec/image.h"
#include "server/graph/pipeline_spec.h"
#include "server/graph/sample_memory.h"
#include "server/source/dataset.h"

namespace feedwater::server {

struct PlanGraph;
class OpCaller;
class WorkClock;

class SampleWorkspace {  // buffers and decoder state of one worker thread, reused for every sample
                         // and every plan
 public:
  SampleWorkspace();
  ~SampleWorkspace();
  struct Impl;
  Impl* impl() { return impl_.get(); }
  ImageWorkspace& images();  // of the same thread; for work on images outside a plan
  // Frees what earlier samples have left where that and what the sample of the last NeedOf takes
  // would be more than `bytes` together.
  void Fit(int64_t bytes);
  void GiveBack();  // frees everything
  // What is looked at while a sample is made: the workspace's own, unless it is given another one.
  WorkClock& clock();
  void UseClock(WorkClock* clock);
  // Who runs ops that a user's program serves, until `gone`; both may be null.
  void UseCaller(OpCaller* caller, const std::atomic<bool>* gone);

 private:
  std::unique_ptr<Impl> impl_;
};

// One sample on its way in.
struct SampleInput {
  const Record* record = nullptr;
  int64_t sample_id = 0;  // the record's number; all draws use it
  int64_t position = 0;
  bool is_real = true;
  int64_t stands_for =
      -1;           // the record whose place this one takes; `sample_id` tells that one then
  PhiloxKey key{};  // EpochKey(seed, epoch)
};

// Where one batch is put: output i of sample k goes to outputs[i] + k * bytes per sample, and the
// number of its rows, where the output is ragged, to offsets[i][k + 1]. FinishBatch moves the rows
// together and makes offsets of their numbers: those of sample k are then the rows offsets[i][k] to
// offsets[i][k + 1]. `staging`
// is daemon-private memory of staging_bytes_per_sample() * B bytes for fields that only batch ops
// read; null when that is 0.
struct BatchMemory {
  std::vector<std::byte*> outputs;
  std::vector<int64_t*> offsets;  // by output, of B + 1 numbers; null where it is not ragged
  std::byte* staging = nullptr;
  int64_t batch_size = 0;  // B, the room
};

// What a cache may keep of a record in place of its bytes: what the longest prefix of the graph
// without randomness makes of it. Ops at its end that only store the same pixels in more bytes
// (normalize to float32, one_hot, ...) are left out of it and carried out for each sample.
struct PlanPrefix {
  std::vector<std::string> ops;   // by name, in their order; may be empty
  std::vector<FieldSpec> fields;  // what is kept; sizes that only the sample knows are -1
  // Of everything but the dataset that can change what is kept: 32 hex digits.
  std::string digest;
};

struct PlanOptions {
  bool fuse = true;  // false runs every op by itself, to check that fusion does not change a byte
  // Whether finished pixels may be written past the caches: false where this thread or another one
  // of this machine reads them at once. Changes no byte.
  bool stream = true;
  bool classes_are_known = true;  // false: the dataset was not opened, and a number is assumed
};

class Plan {
 public:
  // `fields`: the dataset's own; sample_id, position and is_real are added here. `classes`: how
  // many, 0 if unknown.
  static absl::StatusOr<std::shared_ptr<const Plan>> Create(const PipelineSpec& spec,
                                                            const std::vector<FieldSpec>& fields,
                                                            int64_t classes,
                                                            const PlanOptions& options = {});
  // All that can be checked of a pipeline without touching its data: little where only the data
  // tells which fields there are. InvalidArgument with the place.
  static absl::Status Validate(const PipelineSpec& spec);
  ~Plan();

  // Differs for every plan ever made in this process; the address of one that is gone may be
  // another one's.
  uint64_t id() const { return id_; }

  // What the client receives for each sample: name and spec without the batch axis, in the order of
  // `outputs`. Specs are static, but for the rows of ragged outputs.
  const std::vector<FieldSpec>& outputs() const;
  int64_t staging_bytes_per_sample() const;
  // InvalidArgument, with the op, where an op on batches could never take so many samples.
  absl::Status CheckBatchSize(int64_t batch_size) const;
  const ImageLimits& limits() const;
  int64_t table_bytes() const;  // that its ops keep as long as the plan lives: Op::TableBytes

  // Runs one sample to completion and writes its outputs at place k. An error is this sample's
  // alone: InvalidArgument or DataLoss with the op's name and the reason.
  absl::Status Run(const SampleInput& input, int64_t k, const BatchMemory& memory,
                   SampleWorkspace& workspace) const;

  // The same, for tools that ask where the time goes: adds to `pass_ns` what each pass of Graph()
  // took of the calling thread's CPU time, and behind the last one what was done after it (fields
  // that no op writes are copied). REQUIRES: passes() + 1 places.
  absl::Status RunTimed(const SampleInput& input, int64_t k, const BatchMemory& memory,
                        SampleWorkspace& workspace, absl::Span<int64_t> pass_ns) const;
  size_t passes() const;

  // The same in two halves. RunPrefix leaves what prefix().fields says in `kept`, as views that
  // live until the workspace runs another record's prefix and as long as the input's; a field
  // larger than `max_field_bytes` is ResourceExhausted before anything is decoded.
  // RunFromPrefix continues from there: its input's record is what RunPrefix made, in this epoch or
  // in another one. Both together write the bytes that Run writes.
  const PlanPrefix& prefix() const;
  absl::Status RunPrefix(const SampleInput& input, int64_t max_field_bytes,
                         SampleWorkspace& workspace, Record* kept) const;
  absl::Status RunFromPrefix(const SampleInput& input, int64_t k, const BatchMemory& memory,
                             SampleWorkspace& workspace) const;

  // What a sample takes while it is made, and the sum of it for people; of one sample, from its
  // record as it is given to the function of that name.
  const SampleMemory& memory(SampleWay way) const;
  SampleNeed NeedOf(const SampleInput& input, SampleWay way, SampleWorkspace& workspace) const;

  // For samples that were made elsewhere (decoder/): copies all that Run writes for a sample from
  // place `from_k` of one batch's memory to place `k` of another one's, but for the fields that the
  // sampler gives, which are written anew. DataLoss: what stands there is no sample.
  absl::Status CopySample(const SampleInput& input, const BatchMemory& from, int64_t from_k,
                          const BatchMemory& memory, int64_t k) const;

  // An output that is a field of the record as it is, or one that the sampler gives.
  struct Copy {
    size_t output = 0;
    int64_t sample_bytes = 0;
    size_t field = 0;  // of the dataset's, and then of OwnField (dataflow.h)
  };
  // All outputs, where each one is such a copy and nothing else is to do for a batch; else nothing.
  std::optional<std::vector<Copy>> OnlyCopies() const;

  // Zeros at place k, and no rows in ragged outputs and padded ones, but for the fields that the
  // sampler gives: what stands where no sample can.
  void RunBlank(const SampleInput& input, int64_t k, const BatchMemory& memory) const;

  // What is done once all `samples` places are written: batch ops, and ragged outputs are packed.
  // `global_batch` numbers the batches of all ranks. `ops_done` (may be null): how many batch ops
  // have been run, which work in place and are not run again where one before had to be left.
  bool has_batch_ops() const;
  bool finishes_batches() const;  // whether there is anything to do
  absl::Status FinishBatch(int64_t samples, uint64_t global_batch, PhiloxKey key,
                           const BatchMemory& memory, SampleWorkspace& workspace,
                           size_t* ops_done = nullptr) const;

  bool decodes() const;  // whether it has an op that decodes files: OpEntry::DecodesFiles

  // Whether every reader of the dataset's field is a decoder, which takes coefficients in place of
  // the file.
  bool OnlyDecoded(size_t field) const;

  // For people: one line per step, "decode+random_resized_crop+random_horizontal_flip+normalize ->
  // image float32[3,224,224]".
  std::vector<std::string> Describe() const;
  // The same as nodes and edges, for drawing: plan_graph.h.
  PlanGraph Graph() const;

  struct Impl;  // plan_impl.h

 private:
  Plan();
  const uint64_t id_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace feedwater::server
