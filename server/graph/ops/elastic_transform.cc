// Moves every pixel by a smooth random displacement, as torchvision.transforms.v2.ElasticTransform
// does: noise of [-1, 1), blurred by a Gaussian of `sigma`, times `alpha`. Pixels are looked up as
// Pillow does it (warp.h), which differs from torch's grid_sample at the edges.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/graph/warp_op.h"
#include "server/imaging/filter.h"

namespace feedwater::server {
namespace {

struct Params : WarpParams {
  OneOrTwo alpha = {50, 50};
  OneOrTwo sigma = {5, 5};
};

constexpr size_t kDrawsBetweenLooks = 1 << 16;

int KernelOf(double sigma) { return static_cast<int>(8 * sigma + 1) | 1; }

// Of one of the two displacements: both sigmas, with as many weights as its own one asks for.
struct Smoothing {
  Smoothing(double own, OneOrTwo sigma)
      : along_x(MakeGaussian(KernelOf(own), sigma.first)),
        along_y(MakeGaussian(KernelOf(own), sigma.second)) {}
  size_t Scratch(Size image) const {
    return BlurFloatScratch(image, along_x.radius, along_y.radius);
  }
  Gaussian along_x, along_y;
};

class ElasticTransform : public WarpOp {
 public:
  explicit ElasticTransform(Params params)
      : WarpOp(params),
        params_(std::move(params)),
        of_x_(params_.sigma.first, params_.sigma),
        of_y_(params_.sigma.second, params_.sigma) {}

 protected:
  int64_t ScratchBytes(Size image) const override {
    return 2 * PlaneBytes(image) +
           static_cast<int64_t>(std::max(of_x_.Scratch(image), of_y_.Scratch(image)));
  }

  absl::Status Draw(Draws draws, std::byte* scratch, WorkClock& clock, Warp* warp) const override {
    const Size size = warp->from;
    const size_t count = static_cast<size_t>(size.width) * static_cast<size_t>(size.height);
    auto* const x = reinterpret_cast<float*>(scratch);
    auto* const y = reinterpret_cast<float*>(scratch + PlaneBytes(size));
    std::byte* const rest = scratch + 2 * PlaneBytes(size);
    // torchvision counts in shares of the image's half, and divides x by the height.
    const double per_x = params_.alpha.first * size.width / (2.0 * size.height),
                 per_y = params_.alpha.second * size.height / (2.0 * size.width);
    const auto scale_x = static_cast<float>(per_x / 32768),
               scale_y = static_cast<float>(per_y / 32768);
    for (size_t i = 0; i < count; ++i) {
      if (i % kDrawsBetweenLooks == 0) FW_RETURN_IF_ERROR(clock.Check());
      const uint32_t word = draws.Next();
      x[i] = static_cast<float>(static_cast<int>(word >> 16) - 32768) * scale_x;
      y[i] = static_cast<float>(static_cast<int>(word & 0xFFFF) - 32768) * scale_y;
    }
    FW_RETURN_IF_ERROR(GaussianBlur(x, size, of_x_.along_x, of_x_.along_y, rest, clock, x));
    FW_RETURN_IF_ERROR(GaussianBlur(y, size, of_y_.along_x, of_y_.along_y, rest, clock, y));
    warp->add_x = x;
    warp->add_y = y;
    return absl::OkStatus();
  }

 private:
  const Params params_;
  const Smoothing of_x_, of_y_;
};

const OpRegistrar kRegistrar(
    WarpSchema(OpSchema<Params>("elastic_transform")
                   .Summary("Moves every pixel by a smooth random displacement."))
        .Param("alpha", &Params::alpha, "How far: one number, or one each for x and y.",
               Range(0, 1e5))
        .Param("sigma", &Params::sigma,
               "How smooth, in pixels: one number, or one each for x and y.", Range(0.01, 31))
        .Cost("As random_rotation, and ten times as much to draw and smooth the displacement.")
        .Example("- elastic_transform: {alpha: 50, sigma: 5}")
        .AlsoKnownAs("torchvision", {"ElasticTransform"})
        .NearestTo("torchvision", {"elastic"})
        .AlsoKnownAs("Albumentations", {"ElasticTransform"})
        .Create<ElasticTransform>());

}  // namespace
}  // namespace feedwater::server
