// The base of ops that change colours: each pixel by itself, or by what is known of the whole
// image. Such an op only appends its steps to a PointProgram; running it, alone or fused with its
// neighbours, is done here and in the planner. Grey images have no colours: what is about colours
// changes nothing in them.
#pragma once

#include "server/graph/op.h"
#include "server/imaging/point_program.h"

namespace feedwater::server {

class PointOp : public Op {
 public:
  // Whether a step needs to know the whole image (PointProgram::is_one_pass).
  virtual bool needs_image() const { return false; }
  virtual int OutputChannels(int channels) const { return channels; }
  // InvalidArgument: not for images of so many channels (1 or 3).
  virtual absl::Status CheckChannels(int /*channels*/) const { return absl::OkStatus(); }
  // Adds this op, with what these draws say, to a program of program->channels() channels.
  virtual void Append(Draws draws, PointProgram* program) const = 0;

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment& environment) const final;
  absl::Status Run(Sample& sample, Draws draws) const final;
  int64_t MostPixels(const TensorSpec&, int64_t pixels, const ImageLimits&) const final {
    return pixels;
  }
  const PointOp* AsPoint() const final { return this; }
};

// One that does what it does with probability p.
class RandomPointOp : public PointOp {
 public:
  explicit RandomPointOp(double p) : p_(p) {}
  void Append(Draws draws, PointProgram* program) const final {
    if (draws.Bernoulli(p_)) Change(program);
  }

 private:
  virtual void Change(PointProgram* program) const = 0;

  const double p_;
};

// Three channels in random order: for i = 2, 1 places i and Below(i + 1) change.
std::array<uint8_t, 3> ChannelOrder(Draws* draws);

}  // namespace feedwater::server
