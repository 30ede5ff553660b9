#include "server/graph/point_op.h"

#include "server/graph/geometry_op.h"

namespace feedwater::server {

absl::StatusOr<Specs> PointOp::Plan(absl::Span<const TensorSpec> inputs,
                                    const PlanEnvironment&) const {
  TensorSpec output = inputs[0];
  const int channels = static_cast<int>(ChannelsOf(output));
  FW_RETURN_IF_ERROR(CheckChannels(channels));
  output.shape[2] = OutputChannels(channels);
  return Specs{output};
}

absl::Status PointOp::Run(Sample& sample, Draws draws) const {
  const Tensor& input = sample.inputs()[0];
  const int channels = static_cast<int>(ChannelsOf(input.spec));
  TensorSpec spec = input.spec;
  spec.shape[2] = OutputChannels(channels);
  FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, spec));
  PointProgram& program = sample.points();
  program.Begin(channels);
  Append(draws, &program);
  return program.Run(input.as<const uint8_t>(), input.spec.shape[0] * input.spec.shape[1],
                     output.as<uint8_t>(), sample.clock());
}

std::array<uint8_t, 3> ChannelOrder(Draws* draws) {
  std::array<uint8_t, 3> order = {0, 1, 2};
  for (int i = 2; i > 0; --i) std::swap(order[i], order[draws->Below(i + 1)]);
  return order;
}

}  // namespace feedwater::server
