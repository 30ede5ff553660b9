// Turns an image by a random angle, as torchvision.transforms.RandomRotation does on PIL images:
// counter-clockwise, with Pillow's matrix and sizes.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/graph/warp_op.h"

namespace feedwater::server {
namespace {

struct Params : WarpParams {
  Params() { interpolation = "nearest"; }
  Degrees degrees;
  bool expand = false;
  std::vector<double> center;
};

class RandomRotation : public WarpOp {
 public:
  explicit RandomRotation(Params params) : WarpOp(params), params_(std::move(params)) {}

  static absl::Status Check(const Params& params) {
    if (params.center.empty() || params.center.size() == 2) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("'center' must be [x, y], not a list of ", params.center.size()));
  }

  int64_t MostPixels(const TensorSpec& picture, int64_t pixels,
                     const ImageLimits& limits) const override {
    if (!params_.expand) return pixels;
    if (!picture.IsStatic()) return limits.max_pixels;
    // The diagonal, and a pixel at both ends that corners reach into.
    const Size size = ImageSizeOf(picture);
    const auto side = static_cast<int64_t>(std::ceil(std::hypot(size.width, size.height))) + 2;
    return std::min(limits.max_pixels, side * side);
  }

 protected:
  PlannedSize PlanSize(PlannedSize input) const override {
    return params_.expand ? PlannedSize{} : input;
  }

  absl::Status Draw(Draws draws, std::byte*, WorkClock&, Warp* warp) const override {
    const double degrees = draws.Uniform(params_.degrees.low, params_.degrees.high);
    const double width = warp->from.width, height = warp->from.height;
    const double x = params_.center.empty() ? width / 2 : params_.center[0],
                 y = params_.center.empty() ? height / 2 : params_.center[1];
    Matrix3 m = InverseRotation(degrees, x, y);
    if (params_.expand) {
      double low_x = 0, high_x = 0, low_y = 0, high_y = 0;
      for (int corner = 0; corner < 4; ++corner) {
        const double from_x = corner & 1 ? width : 0, from_y = corner & 2 ? height : 0;
        const double to_x = m[0] * from_x + m[1] * from_y + m[2],
                     to_y = m[3] * from_x + m[4] * from_y + m[5];
        low_x = corner == 0 ? to_x : std::min(low_x, to_x);
        high_x = corner == 0 ? to_x : std::max(high_x, to_x);
        low_y = corner == 0 ? to_y : std::min(low_y, to_y);
        high_y = corner == 0 ? to_y : std::max(high_y, to_y);
      }
      warp->to = {static_cast<int>(std::ceil(high_x) - std::floor(low_x)),
                  static_cast<int>(std::ceil(high_y) - std::floor(low_y))};
      const double left = -(warp->to.width - width) / 2, top = -(warp->to.height - height) / 2;
      const double moved_x = m[0] * left + m[1] * top + m[2];
      m[5] = m[3] * left + m[4] * top + m[5];
      m[2] = moved_x;
    }
    warp->inverse = m;
    return absl::OkStatus();
  }

 private:
  const Params params_;
};

const OpRegistrar kRegistrar(
    WarpSchema(OpSchema<Params>("random_rotation").Summary("Turns an image by a random angle."))
        .Required("degrees", &Params::degrees,
                  "Angle drawn from this range, counter-clockwise; a number x means [-x, x].",
                  Range(-36000, 36000))
        .Param("expand", &Params::expand, "Makes the result as large as the turned image needs.")
        .Param("center", &Params::center,
               "Around which point to turn, [x, y] in pixels; the image's middle by default.",
               Range(-1e6, 1e6))
        .Cost("Grows with the result's pixels, about three times as much for bilinear as for a "
              "copy.")
        .Example("- random_rotation: {degrees: 15, interpolation: bilinear}")
        .AlsoKnownAs("torchvision", {"RandomRotation"})
        .AlsoKnownAs("Albumentations", {"Rotate"})
        .AlsoKnownAs("MindSpore", {"RandomRotation"})
        .NearestTo("MindSpore", {"Rotate"})
        .NearestTo("DALI", {"rotate"})
        .NearestTo("Albumentations", {"SafeRotate"})
        .Create<RandomRotation>());

}  // namespace
}  // namespace feedwater::server
