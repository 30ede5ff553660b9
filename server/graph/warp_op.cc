#include "server/graph/warp_op.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/graph/element.h"

namespace feedwater::server {
namespace {

Point Apply(const Matrix3& m, Point p) {
  // The horizon is far away, but a number. w may be negative for the whole image (warp_kernels.cc).
  double w = m[6] * p.x + m[7] * p.y + m[8];
  if (std::abs(w) < 1e-9) w = 1e-9;
  return {(m[0] * p.x + m[1] * p.y + m[2]) / w, (m[3] * p.x + m[4] * p.y + m[5]) / w};
}

Point Displacement(const Warp& warp, Point at) {
  const auto x = static_cast<size_t>(std::clamp<double>(at.x, 0, warp.to.width - 1)),
             y = static_cast<size_t>(std::clamp<double>(at.y, 0, warp.to.height - 1));
  const size_t i = y * static_cast<size_t>(warp.to.width) + x;
  return {warp.add_x[i], warp.add_y[i]};
}

constexpr int64_t kAlignment = 64;
int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

class WarpOp::Map : public PointMap {
 public:
  Map(const WarpOp& op, const Warp& warp, const std::byte* scratch)
      : op_(op), warp_(warp), scratch_(scratch) {
    Invert(warp.inverse, &forward_);
  }
  Point Move(Point point) const override { return op_.Move(warp_, forward_, scratch_, point); }
  bool keeps_lines() const override { return warp_.add_x == nullptr; }

 private:
  const WarpOp& op_;
  const Warp& warp_;
  const std::byte* const scratch_;
  Matrix3 forward_ = kIdentity3;
};

Point WarpOp::Move(const Warp& warp, const Matrix3& forward, const std::byte*, Point point) const {
  constexpr int kMostSteps = 24;
  constexpr double kNear = 0.25;  // pixels
  Point at = Apply(forward, point), best = at;
  if (warp.add_x == nullptr) return at;
  // Found step by step; smaller steps where the displacement changes so fast that they overshoot.
  double nearest = INFINITY, share = 1;
  for (int i = 0; i < kMostSteps; ++i) {
    const Point add = Displacement(warp, at);
    const Point next = Apply(forward, {point.x - add.x, point.y - add.y});
    const double off = std::max(std::abs(next.x - at.x), std::abs(next.y - at.y));
    if (off < nearest)
      nearest = off, best = at;
    else
      share /= 2;
    if (off < kNear) break;
    at = {at.x + share * (next.x - at.x), at.y + share * (next.y - at.y)};
  }
  return best;
}

absl::Status CheckWarpSides(Size size) {
  if (std::max(size.width, size.height) <= kMaxWarpSide) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the image of ", size.width, "x", size.height,
                                                 " pixels has a side over ", kMaxWarpSide,
                                                 "; resize it first"));
}

absl::StatusOr<Specs> WarpOp::Plan(absl::Span<const TensorSpec> inputs,
                                   const PlanEnvironment& environment) const {
  for (const TensorSpec& input : inputs) {
    if (input.layout != Layout::kHWC || input.dtype == DType::kUInt8 || ChannelsOf(input) == 1)
      continue;
    return absl::InvalidArgumentError(
        "takes images of uint8; put it before the op that changes their dtype");
  }
  FW_RETURN_IF_ERROR(CheckFill(inputs, environment, "fill", params_.fill));
  FW_RETURN_IF_ERROR(CheckMaskFill(inputs, environment, params_.mask_fill));
  return PlanJoint(inputs, environment,
                   [&](PlannedSize size) -> absl::StatusOr<PlannedSize> { return PlanSize(size); });
}

int64_t WarpOp::PlaneBytes(Size image) {
  return Aligned(int64_t{image.width} * image.height * int64_t{sizeof(float)});
}

OpMemory WarpOp::Memory(absl::Span<const TensorSpec> inputs,
                        const PlanEnvironment& environment) const {
  Size size = ImageSizeOf(inputs[0]);
  if (!inputs[0].IsStatic()) {  // as wide as it may be
    const int64_t pixels = LimitsOfInput(inputs, 0, environment).max_pixels;
    size.width = static_cast<int>(std::min<int64_t>(pixels, kMaxWarpSide));
    size.height = static_cast<int>((pixels + size.width - 1) / size.width);
  }
  OpMemory memory = JointMemory(inputs);
  memory.scratch = Aligned(memory.scratch) + ScratchBytes(size);
  return memory;
}

absl::Status WarpOp::Run(Sample& sample, Draws draws) const {
  FW_ASSIGN_OR_RETURN(const Size size, JointSize(sample));
  FW_RETURN_IF_ERROR(CheckWarpSides(size));
  const int64_t boxes = Aligned(JointScratchOf(sample));
  FW_ASSIGN_OR_RETURN(std::byte * scratch,
                      sample.Scratch(static_cast<size_t>(boxes + ScratchBytes(size))));
  Warp warp;
  warp.from = warp.to = size;
  FW_RETURN_IF_ERROR(Draw(draws, scratch + boxes, sample.clock(), &warp));
  FW_RETURN_IF_ERROR(CheckPixels(warp.to.height, warp.to.width, sample.limits()));
  if (std::max(warp.to.width, warp.to.height) > kMaxWarpSide)
    return absl::InvalidArgumentError("the result has a side that is too long; resize it first");
  return RunJoint(sample, params_, size, warp.to, Map(*this, warp, scratch + boxes), scratch,
                  [&](FieldRole role, const Tensor& in, Tensor out) -> absl::Status {
                    const auto channels = static_cast<size_t>(ChannelsOf(in.spec));
                    const size_t bytes = channels * DTypeSize(in.spec.dtype);
                    std::byte fill[4 * sizeof(double)];
                    for (size_t c = 0; c < channels; ++c) {
                      StoreDouble(
                          in.spec.dtype,
                          role == FieldRole::kMask ? params_.mask_fill : FillOf(params_.fill)[c],
                          fill + c * DTypeSize(in.spec.dtype));
                    }
                    if (role == FieldRole::kImage && params_.interpolation == "bilinear") {
                      return WarpBilinear(warp, in.as<const uint8_t>(), static_cast<int>(channels),
                                          reinterpret_cast<const uint8_t*>(fill), sample.clock(),
                                          out.as<uint8_t>());
                    }
                    return WarpNearest(warp, in.data, bytes, fill, sample.clock(), out.data);
                  });
}

}  // namespace feedwater::server
