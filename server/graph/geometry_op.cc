#include "server/graph/geometry_op.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/codec/decode_need.h"
#include "server/graph/render.h"

namespace feedwater::server {
absl::StatusOr<Specs> GeometryOp::Plan(absl::Span<const TensorSpec> inputs,
                                       const PlanEnvironment& environment) const {
  FW_ASSIGN_OR_RETURN(const FieldRoles roles, RolesOf(inputs, environment.fields));
  const auto pictures = static_cast<size_t>(std::count_if(roles.begin(), roles.end(), IsPicture));
  if (choices() != 1 && choices() != pictures) {
    return absl::InvalidArgumentError(
        absl::StrCat("'interpolation' has ", choices(), " words for ", pictures,
                     " fields in 'in' that are images or masks; give one, or one for each"));
  }
  size_t picture = 0;
  for (size_t i = 0; i < inputs.size() && choices() > 1; ++i) {
    if (!IsPicture(roles[i])) continue;
    if (IsNearest(picture++) || inputs[i].dtype == DType::kUInt8) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "'interpolation' must have 'nearest' for ",
        i < environment.fields.size() ? absl::StrCat("'", environment.fields[i], "', which is ")
                                      : "what is ",
        inputs[i].ToString(), ": it mixes values of uint8 alone"));
  }
  if (fill() != nullptr) FW_RETURN_IF_ERROR(CheckFill(inputs, environment, "fill", *fill()));
  if (mask_fill() != nullptr)
    FW_RETURN_IF_ERROR(CheckMaskFill(inputs, environment, (*mask_fill())[0]));
  return PlanJoint(inputs, environment, [&](PlannedSize size) { return PlanSize(size); });
}

OpMemory GeometryOp::Memory(absl::Span<const TensorSpec> inputs,
                            const PlanEnvironment& environment) const {
  OpMemory memory = JointMemory(inputs);
  const auto roles = RolesOf(inputs, {});
  const auto made = Plan(inputs, environment);
  if (!roles.ok() || !made.ok()) return memory;
  size_t picture = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!IsPicture((*roles)[i])) continue;
    const size_t place = picture++;  // among pictures, as Run counts them
    const TensorSpec &from = inputs[i], &to = (*made)[i];
    const ImageLimits source = LimitsOfInput(inputs, i, environment);
    const ImageLimits result = LimitsOfOutput(*this, inputs, i, environment);
    if (IsImage(from)) {
      memory.codec_rows =
          std::max(memory.codec_rows, MostRowBytes(from, source, to, environment.limits));
    }
    if (pads()) memory.scratch = std::max(memory.scratch, MostBytes(to, result, &memory.is_bound));
    if (!ResamplesByCopy(place)) continue;
    memory.codec_copies +=
        MostBytes(from, source, &memory.is_bound) + MostBytes(to, result, &memory.is_bound);
  }
  return memory;
}

int64_t GeometryOp::MostPixels(const TensorSpec& picture, int64_t pixels,
                               const ImageLimits& limits) const {
  if (!resamples() && !pads()) return pixels;  // what is left of the picture
  const Size size = ImageSizeOf(picture);
  const PlannedSize most = MostSize({size.height, size.width}, limits);
  int64_t product = 0;
  if (most.height < 0 || most.width < 0 ||
      __builtin_mul_overflow(most.height, most.width, &product))
    return limits.max_pixels;
  return std::min(limits.max_pixels, product);
}

// Of the codec, which takes uint8 images alone.
int64_t GeometryOp::MostRowBytes(const TensorSpec& from, const ImageLimits& source_limits,
                                 const TensorSpec& to, const ImageLimits& limits) const {
  const Size source = MostSizeOf(from, source_limits);
  if (!resamples()) return CopiedRowBytes(source);
  if (to.IsStatic()) return RowBytes(source, ImageSizeOf(to));
  const Size open = ImageSizeOf(from);
  const PlannedSize most = MostSize({open.height, open.width}, limits);
  const auto side = [&](int64_t known) {
    const int64_t longest = std::min(limits.max_pixels, kMaxImageSide);
    return static_cast<int>(known < 0 ? longest : std::min(known, longest));
  };
  return RowBytes(source, {side(most.width), side(most.height)});
}

absl::Status GeometryOp::Run(Sample& sample, Draws draws) const {
  FW_ASSIGN_OR_RETURN(const Size size, JointSize(sample));
  ImageTransform whole(size);
  FW_RETURN_IF_ERROR(Compose(0, draws, sample.limits(), &whole));
  size_t pictures = 0;
  return RunJoint(sample, rules_, size, whole.size(), TransformMap(whole), nullptr,
                  [&](FieldRole role, const Tensor& in, Tensor out) -> absl::Status {
                    ImageTransform transform(size);
                    FW_RETURN_IF_ERROR(Compose(pictures++, draws, sample.limits(), &transform));
                    if (role == FieldRole::kMask && choices() == 1) transform.UseNearest();
                    if (role == FieldRole::kMask && mask_fill() != nullptr)
                      transform.UseFill(*mask_fill());
                    return RenderTensor(in, transform, out, sample);
                  });
}

}  // namespace feedwater::server
