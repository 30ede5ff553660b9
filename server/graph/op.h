// What an op is. An op turns fields of one sample into fields: it says before the first sample what
// it will write (Plan), and writes it for each sample (Run). A batch op does the same for a whole
// batch whose samples are already in place.
//
// Ops are immutable after construction and pure: Run depends on its inputs, the parameters and the
// draws alone, so the same sample gives the same bytes on every thread. An op never allocates for
// itself; memory comes from the Sample.
//
// An op that can be fused says so through one of three capabilities, which the planner finds by
// asking and never by name: DecodeOp (compressed bytes to pixels), GeometryOp (moves pixels:
// geometry_op.h) and PixelOp (changes how a pixel is stored). What an op is called, which
// parameters it has and what its fields are is declared once, in its file: op_schema.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "server/base/philox.h"
#include "server/base/status.h"
#include "server/base/tensor.h"
#include "server/base/work_clock.h"
#include "server/codec/image.h"

namespace feedwater::server {

class DecodeOp;
class GeometryOp;
class PixelOp;

using Specs = absl::InlinedVector<TensorSpec, 2>;

// What Plan may know beside the inputs.
struct PlanEnvironment {
  int64_t classes = 0;  // of the dataset; 0 when it has none
  ImageLimits limits;
  bool classes_are_known = true;  // false: the dataset was not opened, and a number is assumed
  int label = -1;                 // the input that is the dataset's own label; -1: none is

  // Of an op's num_classes for an input: with fewer than the dataset has, every sample of the
  // others is bad.
  absl::Status CheckClasses(int64_t num_classes, int input) const {
    if (input != label || num_classes >= classes || !classes_are_known) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("num_classes is ", num_classes,
                                                   ", but the dataset has ", classes, " classes"));
  }
};

// One sample as an op sees it. Valid during Run only.
class Sample {
 public:
  virtual ~Sample() = default;
  virtual absl::Span<const Tensor> inputs() const = 0;
  // What Plan promised for output i; -1 in a shape is for Run to settle.
  virtual const TensorSpec& planned(size_t i) const = 0;
  // Memory for output i, which will look like `spec`; spec agrees with planned(i) or the answer is
  // an error. Once per output.
  virtual absl::StatusOr<Tensor> Output(size_t i, const TensorSpec& spec) = 0;
  // Memory of this op until it returns, or until it asks for scratch again.
  virtual absl::StatusOr<std::byte*> Scratch(size_t bytes) = 0;
  virtual ImageWorkspace& images() = 0;
  virtual const ImageLimits& limits() const = 0;
};

class Op {
 public:
  virtual ~Op() = default;
  // What comes out when this goes in. The inputs have the dtypes, layouts and number that the op's
  // schema declares; unknown sizes are -1. InvalidArgument says what does not fit and which op
  // would cure it.
  virtual absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                                     const PlanEnvironment& environment) const = 0;
  // Writes every output. An error is this sample's alone.
  virtual absl::Status Run(Sample& sample, Draws draws) const = 0;

  virtual const DecodeOp* AsDecode() const { return nullptr; }
  virtual const GeometryOp* AsGeometry() const { return nullptr; }
  virtual const PixelOp* AsPixel() const { return nullptr; }
};

// Compressed bytes to RGB pixels.
class DecodeOp : public Op {
 public:
  virtual bool apply_orientation() const = 0;
  // Lets the image be decoded smaller where a resize is fused with the op (Geometry::fast_scale).
  // What comes out then depends on what follows, so that no cut may fall between the two
  // (prefix.h), and running the ops one by one gives other bytes.
  virtual bool fast_scale() const = 0;
  const DecodeOp* AsDecode() const final { return this; }
};

// Changes how pixels are stored, not where they stand.
class PixelOp : public Op {
 public:
  // Adds this op to what `format` already does to uint8 HWC pixels of `channels` channels. False,
  // with `format` untouched, when a single conversion could not give exactly the bytes of the two
  // in sequence.
  virtual bool Compose(int channels, PixelFormat* format) const = 0;
  const PixelOp* AsPixel() const final { return this; }
};

// A field of all samples of a batch: sample k lies at data + k * sample_bytes.
struct BatchField {
  TensorSpec spec;  // of one sample; static
  std::byte* data = nullptr;
  int64_t sample_bytes = 0;
  std::byte* at(int64_t k) const { return data + k * sample_bytes; }
};

// One batch as a batch op sees it. outputs[i].data may be inputs[i].data, where their specs are
// equal.
struct OpBatch {
  absl::Span<const BatchField> inputs, outputs;
  int64_t samples = 0;
  std::byte* scratch = nullptr;     // room for one sample of the largest input, aligned to 64
  absl::Span<int64_t> permutation;  // room for `samples` numbers
  WorkClock* clock = nullptr;       // to be looked at for each sample
};

class BatchOp {
 public:
  virtual ~BatchOp() = default;
  // As Op::Plan; every spec is of one sample and static.
  virtual absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                                     const PlanEnvironment& environment) const = 0;
  virtual absl::Status Run(const OpBatch& batch, Draws draws) const = 0;
};

}  // namespace feedwater::server
