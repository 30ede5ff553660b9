#include "server/graph/filter_op.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/graph/joint_fields.h"

namespace feedwater::server {

absl::Status FilterOp::CheckSize(const TensorSpec& image) const {
  const int64_t height = image.shape[0], width = image.shape[1];  // open ones are -1
  if (width > most().width) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the image is ", width, " pixels wide, more than ", most().width, "; resize it first"));
  }
  if (height > most().height) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the image is ", height, " pixels high, more than ", most().height, "; resize it first"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Specs> FilterOp::Plan(absl::Span<const TensorSpec> inputs,
                                     const PlanEnvironment&) const {
  FW_RETURN_IF_ERROR(CheckSize(inputs[0]));
  return Specs{inputs[0]};
}

OpMemory FilterOp::Memory(absl::Span<const TensorSpec> inputs,
                          const PlanEnvironment& environment) const {
  const int64_t known = inputs[0].shape[1];
  const int64_t width = std::min<int64_t>(
      most().width, known >= 0 ? known : LimitsOfInput(inputs, 0, environment).max_pixels);
  const Size row{static_cast<int>(width), 1};
  const int channels = static_cast<int>(ChannelsOf(inputs[0]));
  OpMemory memory;
  memory.scratch = static_cast<int64_t>(ScratchBytes(row, channels));
  memory.codec_jpeg = CodecBytes(row, channels);
  memory.is_bound = known < 0;
  return memory;
}

absl::Status FilterOp::Run(Sample& sample, Draws draws) const {
  const Tensor& input = sample.inputs()[0];
  FW_RETURN_IF_ERROR(CheckSize(input.spec));
  const Size size = ImageSizeOf(input.spec);
  const int channels = static_cast<int>(ChannelsOf(input.spec));
  FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, input.spec));
  FW_ASSIGN_OR_RETURN(std::byte * scratch, sample.Scratch(ScratchBytes(size, channels)));
  return Filter({input.as<const uint8_t>(), size, channels, scratch, sample.clock(),
                 sample.images(), output.as<uint8_t>()},
                draws);
}

absl::Status FilterOp::Image::Copy() const {
  std::memcpy(out, pixels, static_cast<size_t>(size.width) * size.height * channels);
  return absl::OkStatus();
}

}  // namespace feedwater::server
