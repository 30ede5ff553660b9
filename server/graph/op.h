// What an op is. An op turns fields of one sample into fields: it says before the first sample what
// it will write (Plan), and writes it for each sample (Run). A batch op does the same for a whole
// batch whose samples are already in place.
//
// Ops are immutable after construction and pure: Run depends on its inputs, the parameters and the
// draws alone, so the same sample gives the same bytes on every thread. An op never allocates for
// itself; memory comes from the Sample.
//
// An op that can be fused says so through one of four capabilities, which the planner finds by
// asking and never by name: DecodeOp (compressed bytes to pixels), GeometryOp (moves pixels:
// geometry_op.h), PointOp (changes colours: point_op.h) and PixelOp (changes how a pixel is
// stored). What an op is called, which parameters it has and what its fields are is declared once,
// in its file: op_schema.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/base/philox.h"
#include "server/base/status.h"
#include "server/base/tensor.h"
#include "server/base/work_clock.h"
#include "server/codec/image.h"

namespace feedwater::server {

class DecodeOp;
class GeometryOp;
class OpCaller;
class PixelOp;
class PointOp;
class PointProgram;

using Specs = absl::InlinedVector<TensorSpec, 2>;
using ByteCounts = absl::InlinedVector<int64_t, 4>;

// What Plan may know beside the inputs. An op keeps none of it: what Run needs is in the specs that
// Plan returns (Sample::planned).
struct PlanEnvironment {
  int64_t classes = 0;  // of the dataset; 0 when it has none
  ImageLimits limits;
  bool classes_are_known = true;  // false: the dataset was not opened, and a number is assumed
  int label = -1;                 // the input that is the dataset's own label; -1: none is
  absl::Span<const std::string> fields = {};  // names of the inputs, for messages; or nothing
  absl::Span<const int64_t> most_bytes = {};  // of the inputs; for Memory alone
  // The inputs are one sample's, and what it will draw is not known: an op in a combinator that
  // they do not fit may not be chosen.
  bool is_for_sample = false;
  // By input: no op has made it, so that the pipeline's file may have to.
  absl::Span<const bool> are_of_dataset = {};

  // Of an op's num_classes for an input: with fewer than the dataset has, every sample of the
  // others is bad.
  absl::Status CheckClasses(int64_t num_classes, int input) const {
    if (input != label || num_classes >= classes || !classes_are_known) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("num_classes is ", num_classes,
                                                   ", but the dataset has ", classes, " classes"));
  }
};

inline constexpr size_t kMaxSpares = 256;

// What an op's Run takes beside its inputs and those outputs whose sizes are known from them.
struct OpMemory {
  int64_t scratch = 0;
  // By output, or nothing: the most bytes of one that is no image. Used where Plan leaves its size
  // open.
  std::vector<int64_t> outputs;
  std::vector<int64_t> spares = {};  // by number
  int64_t codec_copies = 0;          // of images that the codec resamples by copying them
  int64_t codec_rows = 0;            // that the codec resamples or copies
  int64_t codec_jpeg = 0;            // of those that it makes a JPEG of
  // Of what a program of the user's takes and makes (op_caller.h). Open: the record tells.
  int64_t call_inputs = 0, call_outputs = 0;
  bool calls_are_open = false;
  // Spares and copies are of images whose size is open, and so of max_pixels.
  bool is_bound = false;
  // `scratch` is for an input whose size is open: the most that any sample takes, or what nobody
  // knows before its record is there.
  bool scratch_is_bound = false;
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
  // More memory of this op until it returns, or until it asks for the same number again. Numbers
  // are below kMaxSpares.
  virtual absl::StatusOr<std::byte*> Spare(size_t number, size_t bytes) = 0;
  virtual ImageWorkspace& images() = 0;
  virtual PointProgram& points() = 0;  // to be used until Run returns
  virtual const ImageLimits& limits() const = 0;
  virtual int64_t classes() const { return 0; }  // as PlanEnvironment's
  virtual WorkClock& clock() = 0;                // to be looked at by what takes long
  virtual absl::string_view field(size_t /*input*/) const { return ""; }  // its name, for messages
  // Number of the record, or of the one whose place is filled.
  virtual int64_t record() const { return 0; }
  // Runs what a program of the user's serves; null: there is none to run it.
  virtual OpCaller* caller() { return nullptr; }
  // Nobody waits for the sample any more; may be null.
  virtual const std::atomic<bool>* gone() const { return nullptr; }
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
  // Of ops that no capability below tells of. The inputs as for Plan.
  virtual OpMemory Memory(absl::Span<const TensorSpec> /*inputs*/,
                          const PlanEnvironment& /*environment*/) const {
    return {};
  }
  // Of an image or mask that the op makes of `picture`, which has `pixels` at most, where Plan
  // leaves its size open: the most pixels of any draw. Of a picture of open size nothing else is
  // known: it may be one row or one column.
  virtual int64_t MostPixels(const TensorSpec& /*picture*/, int64_t /*pixels*/,
                             const ImageLimits& limits) const {
    return limits.max_pixels;
  }
  // Whether it only stores the same numbers in another way, which costs next to nothing (cast,
  // one_hot): a cache rather keeps what goes in, where that is smaller.
  virtual bool only_stores() const { return false; }
  // That the op keeps beside its parameters, such as weights of a filter. What is small beside a
  // pipeline's text need not count.
  virtual int64_t TableBytes() const { return 0; }

  virtual const DecodeOp* AsDecode() const { return nullptr; }
  virtual const GeometryOp* AsGeometry() const { return nullptr; }
  virtual const PointOp* AsPoint() const { return nullptr; }
  virtual const PixelOp* AsPixel() const { return nullptr; }
};

// Compressed bytes to pixels: RGB, or what is stored for each.
class DecodeOp : public Op {
 public:
  virtual PixelValues values() const { return PixelValues::kRgb; }
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
  int64_t MostPixels(const TensorSpec&, int64_t pixels, const ImageLimits&) const override {
    return pixels;
  }
  bool only_stores() const final { return true; }
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
  int64_t number = 0;               // of the global batch
  OpCaller* caller = nullptr;       // as Sample's, and so is `gone`
  const std::atomic<bool>* gone = nullptr;
};

class BatchOp {
 public:
  virtual ~BatchOp() = default;
  // As Op::Plan; every spec is of one sample and static.
  virtual absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                                     const PlanEnvironment& environment) const = 0;
  // InvalidArgument where Run could never take a batch of so many samples.
  virtual absl::Status CheckBatchSize(absl::Span<const TensorSpec> /*inputs*/,
                                      absl::Span<const TensorSpec> /*outputs*/,
                                      int64_t /*batch_size*/) const {
    return absl::OkStatus();
  }
  virtual absl::Status Run(const OpBatch& batch, Draws draws) const = 0;
  // An input that may be class numbers, which the output of its place then has a weight of each
  // for. Every other number is found, and said, where its own sample is made.
  virtual std::optional<size_t> class_input() const { return std::nullopt; }
};

}  // namespace feedwater::server
