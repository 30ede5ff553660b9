#include "server/graph/augmentations.h"

#include <array>
#include <cmath>
#include <cstring>

#include "server/graph/element.h"
#include "server/graph/warp_op.h"
#include "server/imaging/filter.h"
#include "server/imaging/point_program.h"

namespace feedwater::server {
namespace {

// torch.linspace of float32: counted from the nearer end.
double Linspace(double first, double last, int64_t steps, int64_t i) {
  const auto start = static_cast<float>(first), end = static_cast<float>(last);
  const float step = (end - start) / static_cast<float>(steps - 1);
  return i < steps / 2 ? start + step * static_cast<float>(i)
                       : end - step * static_cast<float>(steps - 1 - i);
}

// torchvision goes from the tangent to degrees and back.
double ShearAngle(double tangent) {
  const double pi = std::acos(-1.0);
  return std::atan(tangent) * (180 / pi) * (pi / 180);
}

Matrix3 InverseFor(const DrawnAugmentation& drawn, Size size) {
  Affine affine;
  switch (drawn.kind) {
    case Augmentation::kShearX:  // around the corner
      affine.shear_x = ShearAngle(drawn.magnitude);
      return InverseOf(affine);
    case Augmentation::kShearY:
      affine.shear_y = ShearAngle(drawn.magnitude);
      return InverseOf(affine);
    case Augmentation::kTranslateX:
      affine.shift_x = std::trunc(drawn.magnitude);
      return InverseOf(affine);
    case Augmentation::kTranslateY:
      affine.shift_y = std::trunc(drawn.magnitude);
      return InverseOf(affine);
    default:
      return InverseRotation(drawn.magnitude, size.width / 2.0, size.height / 2.0);
  }
}

void Append(const DrawnAugmentation& drawn, PointProgram* program) {
  const auto factor = static_cast<float>(1 + drawn.magnitude);
  switch (drawn.kind) {
    case Augmentation::kBrightness:
      return program->Blend(0, factor);
    case Augmentation::kColor:
      return program->Saturate(factor);
    case Augmentation::kContrast:
      return program->Contrast(factor);
    case Augmentation::kPosterize:
      return program->Change(
          {.keep = static_cast<uint8_t>(0xFF << (8 - static_cast<int>(drawn.magnitude)))});
    case Augmentation::kSolarize:
      return program->Change(
          {.threshold = static_cast<uint8_t>(std::ceil(255.0 * drawn.magnitude)), .flip = 255});
    case Augmentation::kAutoContrast:
      return program->AutoContrast();
    case Augmentation::kEqualize:
      return program->Equalize();
    case Augmentation::kInvert:
      return program->Change({.flip = 255});
    default:
      return;  // changes nothing
  }
}

// An image on its way from one operation to the next: of two buffers, one is free at any time.
class Chain {
 public:
  Chain(const uint8_t* image, Size size, int channels, uint8_t* out, uint8_t* spare,
        PointProgram* program, WorkClock* clock)
      : image_(image),
        at_(image),
        size_(size),
        channels_(channels),
        out_(out),
        spare_(spare),
        program_(program),
        clock_(clock) {
    program_->Begin(channels);
  }

  absl::Status Move(const Matrix3& inverse, bool is_bilinear, const uint8_t* fill) {
    FW_RETURN_IF_ERROR(FinishPoints(spare_));
    uint8_t* const to = Free();
    Warp warp;
    warp.from = warp.to = size_;
    warp.inverse = inverse;
    if (is_bilinear) {
      FW_RETURN_IF_ERROR(WarpBilinear(warp, at_, channels_, fill, *clock_, to));
    } else {
      FW_RETURN_IF_ERROR(WarpNearest(
          warp, reinterpret_cast<const std::byte*>(at_), static_cast<size_t>(channels_),
          reinterpret_cast<const std::byte*>(fill), *clock_, reinterpret_cast<std::byte*>(to)));
    }
    at_ = to;
    return absl::OkStatus();
  }

  absl::Status Sharpen(float factor) {
    FW_RETURN_IF_ERROR(FinishPoints(spare_));
    uint8_t* const to = Free();
    FW_RETURN_IF_ERROR(AdjustSharpness(at_, size_, channels_, factor, *clock_, to));
    at_ = to;
    return absl::OkStatus();
  }

  absl::Status Finish() {
    FW_RETURN_IF_ERROR(FinishPoints(out_));
    if (at_ != out_) std::memcpy(out_, at_, static_cast<size_t>(pixels() * channels_));
    return absl::OkStatus();
  }

 private:
  int64_t pixels() const { return int64_t{size_.width} * size_.height; }
  uint8_t* Free() const { return at_ == out_ ? spare_ : out_; }

  // The image itself is not ours to change; whatever else there is changes where it lies.
  absl::Status FinishPoints(uint8_t* of_image) {
    if (program_->is_empty()) return absl::OkStatus();
    uint8_t* const to = at_ == image_ ? of_image : at_ == out_ ? out_ : spare_;
    FW_RETURN_IF_ERROR(program_->Run(at_, pixels(), to, *clock_));
    program_->Begin(channels_);
    at_ = to;
    return absl::OkStatus();
  }

  const uint8_t* const image_;
  const uint8_t* at_;
  const Size size_;
  const int channels_;
  uint8_t* const out_;
  uint8_t* const spare_;
  PointProgram* const program_;
  WorkClock* const clock_;
};

}  // namespace

double MagnitudeOf(const Magnitudes& most, Augmentation kind, Size image, int64_t bins,
                   int64_t bin) {
  const auto shift = [&](int side) { return most.translate + most.translate_share * side; };
  switch (kind) {
    case Augmentation::kShearX:
    case Augmentation::kShearY:
      return Linspace(0, most.shear, bins, bin);
    case Augmentation::kTranslateX:
      return Linspace(0, shift(image.width), bins, bin);
    case Augmentation::kTranslateY:
      return Linspace(0, shift(image.height), bins, bin);
    case Augmentation::kRotate:
      return Linspace(0, most.rotate, bins, bin);
    case Augmentation::kBrightness:
    case Augmentation::kColor:
    case Augmentation::kContrast:
    case Augmentation::kSharpness:
      return Linspace(0, most.enhance, bins, bin);
    case Augmentation::kPosterize: {
      const auto bins_of_a_bit = static_cast<float>(static_cast<double>(bins - 1) / most.bits_off);
      return std::nearbyint(static_cast<float>(most.bits) -
                            static_cast<float>(bin) / bins_of_a_bit);
    }
    case Augmentation::kSolarize:
      return Linspace(1, 0, bins, bin);
    case Augmentation::kIdentity:
    case Augmentation::kAutoContrast:
    case Augmentation::kEqualize:
    case Augmentation::kInvert:
      break;
  }
  return 0;
}

absl::StatusOr<Specs> AugmentOp::Plan(absl::Span<const TensorSpec> inputs,
                                      const PlanEnvironment& environment) const {
  FW_RETURN_IF_ERROR(CheckFill(inputs, environment, "fill", params_.fill));
  return Specs{inputs[0]};
}

OpMemory AugmentOp::Memory(absl::Span<const TensorSpec> inputs,
                           const PlanEnvironment& environment) const {
  if (most() < 2) return {};
  bool is_bound = false;  // Plan's spec tells that, too
  return {MostBytes(inputs[0], LimitsOfInput(inputs, 0, environment), &is_bound), {}};
}

absl::Status AugmentOp::Run(Sample& sample, Draws draws) const {
  const Tensor& input = sample.inputs()[0];
  FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, input.spec));
  std::byte* spare = nullptr;  // one operation goes from the input to the output
  if (most() > 1) {
    FW_ASSIGN_OR_RETURN(spare, sample.Scratch(input.bytes()));
  }
  DrawnAugmentations drawn;
  Draw(draws, ImageSizeOf(input.spec), &drawn);
  return Augment(sample, params_, drawn, reinterpret_cast<uint8_t*>(spare), output.as<uint8_t>());
}

absl::Status Augment(Sample& sample, const AugmentParams& params, const DrawnAugmentations& drawn,
                     uint8_t* spare, uint8_t* out) {
  const Tensor& input = sample.inputs()[0];
  const Size size = ImageSizeOf(input.spec);
  FW_RETURN_IF_ERROR(CheckWarpSides(size));
  std::array<uint8_t, 4> fill;
  for (size_t c = 0; c < fill.size(); ++c)
    StoreDouble(DType::kUInt8, FillOf(params.fill)[c], reinterpret_cast<std::byte*>(&fill[c]));
  PointProgram& program = sample.points();
  Chain chain(input.as<const uint8_t>(), size, static_cast<int>(ChannelsOf(input.spec)), out, spare,
              &program, &sample.clock());
  for (const DrawnAugmentation& one : drawn) {
    if (one.kind >= Augmentation::kShearX && one.kind <= Augmentation::kRotate) {
      FW_RETURN_IF_ERROR(
          chain.Move(InverseFor(one, size), params.interpolation == "bilinear", fill.data()));
    } else if (one.kind == Augmentation::kSharpness) {
      FW_RETURN_IF_ERROR(chain.Sharpen(static_cast<float>(1 + one.magnitude)));
    } else {
      Append(one, &program);
    }
  }
  return chain.Finish();
}

}  // namespace feedwater::server
