#include "server/graph/geometry_op.h"

#include "absl/strings/str_cat.h"
#include "server/graph/render.h"

namespace feedwater::server {

Size ImageSizeOf(const TensorSpec& spec) {
  const size_t first = spec.layout == Layout::kCHW ? 1 : 0;
  return {static_cast<int>(spec.shape[first + 1]), static_cast<int>(spec.shape[first])};
}

int64_t ChannelsOf(const TensorSpec& spec) {
  return spec.layout == Layout::kCHW ? spec.shape[0] : spec.shape[2];
}

TensorSpec ImageSpec(DType dtype, Layout layout, int64_t height, int64_t width, int64_t channels) {
  if (layout == Layout::kCHW) return {dtype, layout, {channels, height, width}};
  return {dtype, layout, {height, width, channels}};
}

absl::Status CheckPixels(int64_t height, int64_t width, const ImageLimits& limits) {
  int64_t pixels = 0;
  if (!__builtin_mul_overflow(height, width, &pixels) && pixels <= limits.max_pixels)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a result of ", width, "x", height, " pixels is over max_pixels (", limits.max_pixels, ")"));
}

absl::StatusOr<Specs> GeometryOp::Plan(absl::Span<const TensorSpec> inputs,
                                       const PlanEnvironment& environment) const {
  if (choices() != 1 && choices() != inputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat("'interpolation' has ", choices(), " words for ",
                                                   inputs.size(),
                                                   " fields in 'in'; give one, or one for each"));
  }
  Specs outputs;
  for (const TensorSpec& input : inputs) {
    const size_t first = input.layout == Layout::kCHW ? 1 : 0;
    FW_ASSIGN_OR_RETURN(const PlannedSize size,
                        PlanSize({input.shape[first], input.shape[first + 1]}));
    if (size.height >= 0 && size.width >= 0) {
      FW_RETURN_IF_ERROR(CheckPixels(size.height, size.width, environment.limits));
    }
    outputs.push_back(
        ImageSpec(input.dtype, input.layout, size.height, size.width, ChannelsOf(input)));
  }
  return outputs;
}

absl::Status GeometryOp::Run(Sample& sample, Draws draws) const {
  const Size size = ImageSizeOf(sample.inputs()[0].spec);
  for (size_t i = 0; i < sample.inputs().size(); ++i) {
    const Tensor& input = sample.inputs()[i];
    if (!(ImageSizeOf(input.spec) == size)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "its inputs move together and must have one size, but input ", i, " is ",
          input.spec.ToString(), " and the first is ", sample.inputs()[0].spec.ToString()));
    }
    ImageTransform transform(size);
    FW_RETURN_IF_ERROR(Compose(i, draws, sample.limits(), &transform));
    const int64_t channels = ChannelsOf(input.spec);
    FW_ASSIGN_OR_RETURN(
        Tensor output,
        sample.Output(i, ImageSpec(input.spec.dtype, input.spec.layout, transform.size().height,
                                   transform.size().width, channels)));
    if (input.spec.dtype == DType::kUInt8 && input.spec.layout == Layout::kHWC) {
      RenderSource source;
      source.pixels = input.as<const uint8_t>();
      source.size = size;
      source.channels = static_cast<int>(channels);
      FW_RETURN_IF_ERROR(Render(source, transform, PlainPixels(), output.data, sample));
    } else {
      RenderCopy(input, transform, output.data);
    }
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
