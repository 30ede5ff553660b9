// What a worker thread keeps from sample to sample: buffers that grow to the largest use and stay,
// and the codec's state.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

#include "server/base/status.h"
#include "server/base/tensor.h"
#include "server/base/work_clock.h"
#include "server/codec/image.h"
#include "server/graph/op.h"
#include "server/graph/plan.h"
#include "server/graph/shared_decode.h"
#include "server/imaging/point_program.h"

namespace feedwater::server {

// Memory aligned to 64 bytes. Its content does not survive growing.
class GrowingBuffer {
 public:
  // At least `bytes` bytes and some readable ones behind them, for kernels that load whole vectors.
  absl::StatusOr<std::byte*> Get(size_t bytes);
  // What it is for a field of so many bytes.
  static int64_t Capacity(int64_t bytes);
  int64_t capacity() const { return memory_ == nullptr ? 0 : static_cast<int64_t>(capacity_); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t capacity_ = 0;
};

struct SampleWorkspace::Impl {
  WorkClock own_clock;
  WorkClock* clock = &own_clock;
  OpCaller* caller = nullptr;
  const std::atomic<bool>* gone = nullptr;
  ImageWorkspace images;
  PointProgram points;
  std::vector<GrowingBuffer> buffers;  // fields between ops, by the plan's buffer numbers
  GrowingBuffer scratch;               // of the op that runs,
  std::vector<GrowingBuffer> spares;   // and what it asks for by number
  std::vector<Tensor> values;          // of the sample under way, by the plan's value numbers
  std::vector<Tensor> inputs;          // of the op that runs
  std::vector<SharedImage> shared;     // of the sample under way, by the plan's value numbers
  std::vector<Rect> parts;             // of the image that is to be shared
  int64_t sample_id = 0, position = 0;
  bool is_real = true;
  std::vector<BatchField> batch_inputs, batch_outputs;
  std::vector<int64_t> permutation;
  std::vector<SizedValue> sizes;  // of the sample of the last NeedOf, by value
  BufferNeeds needs;              // of that sample
};

}  // namespace feedwater::server
