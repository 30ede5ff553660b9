// The base of ops that change an image of bytes as a whole and leave its size as it was: blurs,
// contrast by parts, artefacts of compression. Such an op says how much memory its filter takes and
// runs it; checking the sides, memory and plan are done here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "server/graph/op.h"

namespace feedwater::server {

class FilterOp : public Op {
 public:
  // InvalidArgument for images with sides over most().
  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment& environment) const final;
  absl::Status Run(Sample& sample, Draws draws) const final;
  OpMemory Memory(absl::Span<const TensorSpec> inputs,
                  const PlanEnvironment& environment) const final;
  int64_t MostPixels(const TensorSpec&, int64_t pixels, const ImageLimits&) const final {
    return pixels;
  }

 protected:
  // An image and where it goes to, valid during Filter only.
  struct Image {
    const uint8_t* pixels;  // HWC
    Size size;
    int channels;
    std::byte* scratch;  // ScratchBytes(size, channels)
    WorkClock& clock;
    ImageWorkspace& workspace;
    uint8_t* out;

    absl::Status Copy() const;  // what is not to be filtered
  };
  // The sides of the largest image. Rows are what memory is for, so that only the width is bounded.
  virtual Size most() const { return {65535, std::numeric_limits<int>::max()}; }
  // Both grow with the width alone. CodecBytes: what Filter leaves in the workspace's codec.
  virtual size_t ScratchBytes(Size size, int channels) const = 0;
  virtual int64_t CodecBytes(Size /*size*/, int /*channels*/) const { return 0; }
  virtual absl::Status Filter(const Image& image, Draws draws) const = 0;

 private:
  absl::Status CheckSize(const TensorSpec& image) const;
};

}  // namespace feedwater::server
