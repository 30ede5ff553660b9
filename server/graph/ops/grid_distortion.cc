// Stretches and squeezes the columns and the rows of an image by random amounts, as Albumentations'
// GridDistortion does: the image is divided into num_steps steps each way, and the places that they
// come from are as long as the factors say that are drawn for them. torchvision has no counterpart.
#include <algorithm>

#include "server/graph/warp_op.h"

namespace feedwater::server {
namespace {

struct Params : WarpParams {
  int64_t num_steps = 5;
  Degrees distort_limit = {-0.3, 0.3};
  double p = 0.5;
};

constexpr int64_t kMostSteps = 64;

class GridDistortion : public WarpOp {
 public:
  explicit GridDistortion(Params params) : WarpOp(params), params_(std::move(params)) {}

 protected:
  int64_t ScratchBytes(Size image) const override {
    return 2 * PlaneBytes(image) + int64_t{sizeof(Edges)};
  }

  absl::Status Draw(Draws draws, std::byte* scratch, WorkClock& clock, Warp* warp) const override {
    if (!draws.Bernoulli(params_.p)) return absl::OkStatus();
    const Size size = warp->from;
    auto* const x = reinterpret_cast<float*>(scratch);
    auto* const y = reinterpret_cast<float*>(scratch + PlaneBytes(size));
    auto& [across, down] = *reinterpret_cast<Edges*>(scratch + 2 * PlaneBytes(size));
    DrawSteps(draws, across);
    DrawSteps(draws, down);
    for (int column = 0; column < size.width; ++column)
      x[column] = Displacement(across, column + 0.5, size.width);
    for (int row = 0; row < size.height; ++row) {
      FW_RETURN_IF_ERROR(clock.Check());
      float* const to = x + static_cast<size_t>(row) * size.width;
      if (row > 0) std::copy_n(x, size.width, to);
      std::fill_n(y + static_cast<size_t>(row) * size.width, size.width,
                  Displacement(down, row + 0.5, size.height));
    }
    warp->add_x = x;
    warp->add_y = y;
    return absl::OkStatus();
  }

  Point Move(const Warp& warp, const Matrix3&, const std::byte* scratch,
             Point point) const override {
    if (warp.add_x == nullptr) return point;
    const auto& [across, down] =
        *reinterpret_cast<const Edges*>(scratch + 2 * PlaneBytes(warp.from));
    return {PlaceOf(across, point.x, warp.from.width), PlaceOf(down, point.y, warp.from.height)};
  }

 private:
  struct Edges {
    double across[kMostSteps + 1], down[kMostSteps + 1];
  };

  // Where the steps of the source begin and end, as shares of it.
  void DrawSteps(Draws& draws, double* edges) const {
    edges[0] = 0;
    for (int64_t i = 0; i < params_.num_steps; ++i) {
      edges[i + 1] =
          edges[i] + 1 + draws.Uniform(params_.distort_limit.low, params_.distort_limit.high);
    }
    for (int64_t i = 0; i <= params_.num_steps; ++i) edges[i] /= edges[params_.num_steps];
  }

  float Displacement(const double* edges, double at, int side) const {
    const double place = at / side * static_cast<double>(params_.num_steps);
    const auto step = std::min(static_cast<int64_t>(place), params_.num_steps - 1);
    const double share = place - static_cast<double>(step);
    return static_cast<float>((edges[step] + (edges[step + 1] - edges[step]) * share) * side - at);
  }

  // The place of the result that looks at `place`. Beside the image the last step goes on.
  double PlaceOf(const double* edges, double place, int side) const {
    const double share = place / side;
    int64_t step = 0;
    while (step + 1 < params_.num_steps && edges[step + 1] <= share) ++step;
    const double within = (share - edges[step]) / (edges[step + 1] - edges[step]);
    return (static_cast<double>(step) + within) * side / static_cast<double>(params_.num_steps);
  }

  const Params params_;
};

const OpRegistrar kRegistrar(
    WarpSchema(OpSchema<Params>("grid_distortion")
                   .Summary("Stretches and squeezes the columns and rows of an image by random "
                            "amounts."))
        .Param("num_steps", &Params::num_steps, "Steps along each axis.", Range(1, kMostSteps))
        .Param("distort_limit", &Params::distort_limit,
               "How much longer a step gets, drawn from this range; a number x means [-x, x].",
               Range(-0.99, 10))
        .Param("p", &Params::p, "Probability of doing so.", Range(0, 1))
        .Cost("A little more than random_rotation.")
        .Example("- grid_distortion: {num_steps: 5, distort_limit: 0.3}")
        .AlsoKnownAs("Albumentations", {"GridDistortion"})
        .NearestTo("Albumentations", {"OpticalDistortion"})
        .NearestTo("DALI", {"water"})
        .Create<GridDistortion>());

}  // namespace
}  // namespace feedwater::server
