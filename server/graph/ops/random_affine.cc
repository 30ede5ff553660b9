// Turns, shifts, scales and shears an image by random amounts, as
// torchvision.transforms.RandomAffine does on PIL images.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/graph/warp_op.h"

namespace feedwater::server {
namespace {

struct Params : WarpParams {
  Params() { interpolation = "nearest"; }
  Degrees degrees;
  std::vector<double> translate = {0, 0};
  Interval scale = {1, 1};
  Shear shear;
  std::vector<double> center;
};

class RandomAffine : public WarpOp {
 public:
  explicit RandomAffine(Params params) : WarpOp(params), params_(std::move(params)) {}

  static absl::Status Check(const Params& params) {
    if (params.translate.size() != 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("'translate' must be [x, y], as shares of width and height, not a list of ",
                       params.translate.size()));
    }
    if (params.center.empty() || params.center.size() == 2) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("'center' must be [x, y], not a list of ", params.center.size()));
  }

 protected:
  absl::Status Draw(Draws draws, std::byte*, WorkClock&, Warp* warp) const override {
    const double width = warp->from.width, height = warp->from.height;
    const double radians = std::acos(-1.0) / 180.0;
    const auto shift = [&](double share, double side) {
      return std::nearbyint(draws.Uniform(-share * side, share * side));
    };
    Affine affine;
    affine.turn = draws.Uniform(params_.degrees.low, params_.degrees.high) * radians;
    affine.shift_x = shift(params_.translate[0], width);
    affine.shift_y = shift(params_.translate[1], height);
    affine.scale = draws.Uniform(params_.scale.low, params_.scale.high);
    affine.shear_x = draws.Uniform(params_.shear.x.low, params_.shear.x.high) * radians;
    affine.shear_y = draws.Uniform(params_.shear.y.low, params_.shear.y.high) * radians;
    affine.x = params_.center.empty() ? width / 2 : params_.center[0];
    affine.y = params_.center.empty() ? height / 2 : params_.center[1];
    warp->inverse = InverseOf(affine);
    return absl::OkStatus();
  }

 private:
  const Params params_;
};

const OpRegistrar kRegistrar(
    WarpSchema(OpSchema<Params>("random_affine")
                   .Summary("Turns, shifts, scales and shears an image by random amounts."))
        .Required("degrees", &Params::degrees,
                  "Angle drawn from this range, clockwise as torchvision's; a number x means [-x, "
                  "x].",
                  Range(-36000, 36000))
        .Param("translate", &Params::translate,
               "[x, y]: the most to shift either way, as shares of width and height.", Range(0, 1))
        .Param("scale", &Params::scale, "Factor drawn from this range.", Range(0.001, 1000))
        .Param("shear", &Params::shear,
               "Degrees drawn from this range: a number x means [-x, x] along x, four numbers are "
               "ranges along x and y.",
               Range(-89, 89))
        .Param("center", &Params::center,
               "Around which point, [x, y] in pixels; the image's middle by default.",
               Range(-1e6, 1e6))
        .Cost("As random_rotation.")
        .Example("- random_affine: {degrees: 30, translate: [0.1, 0.1], scale: [0.8, 1.2], shear: "
                 "10, interpolation: bilinear}")
        .AlsoKnownAs("torchvision", {"RandomAffine"})
        .AlsoKnownAs("Albumentations", {"Affine"})
        .AlsoKnownAs("MindSpore", {"RandomAffine"})
        .NearestTo("MindSpore", {"Affine"})
        .NearestTo("DALI", {"warp_affine"})
        .NearestTo("Albumentations", {"ShiftScaleRotate"})
        .Create<RandomAffine>());

}  // namespace
}  // namespace feedwater::server
