// Moves the corners of an image inwards by random amounts, as
// torchvision.transforms.RandomPerspective does on PIL images.
#include <algorithm>
#include <array>
#include <cmath>

#include "server/graph/warp_op.h"

namespace feedwater::server {
namespace {

struct Params : WarpParams {
  double distortion_scale = 0.5;
  double p = 0.5;
};

using Corners = std::array<std::array<double, 2>, 4>;

// The matrix that takes each of `from` to the same one of `to`. False when there is none, because
// three of `from` stand in a line.
bool Homography(const Corners& from, const Corners& to, Matrix3* matrix) {
  double rows[8][9];
  for (int i = 0; i < 4; ++i) {
    const double x = from[i][0], y = from[i][1];
    for (int axis = 0; axis < 2; ++axis) {
      double* const row = rows[2 * i + axis];
      std::fill_n(row, 9, 0.0);
      double* const own = row + 3 * axis;
      own[0] = x, own[1] = y, own[2] = 1;
      row[6] = -to[i][axis] * x, row[7] = -to[i][axis] * y, row[8] = to[i][axis];
    }
  }
  for (int k = 0; k < 8; ++k) {
    int pivot = k;
    for (int i = k + 1; i < 8; ++i) {
      if (std::abs(rows[i][k]) > std::abs(rows[pivot][k])) pivot = i;
    }
    if (std::abs(rows[pivot][k]) < 1e-9) return false;
    std::swap(rows[k], rows[pivot]);
    for (int i = 0; i < 8; ++i) {
      if (i == k) continue;
      const double factor = rows[i][k] / rows[k][k];
      for (int j = k; j < 9; ++j) rows[i][j] -= factor * rows[k][j];
    }
  }
  for (int k = 0; k < 8; ++k) (*matrix)[k] = rows[k][8] / rows[k][k];
  (*matrix)[8] = 1;
  return true;
}

class RandomPerspective : public WarpOp {
 public:
  explicit RandomPerspective(Params params) : WarpOp(params), params_(std::move(params)) {}

 protected:
  absl::Status Draw(Draws draws, std::byte*, WorkClock&, Warp* warp) const override {
    if (!draws.Bernoulli(params_.p)) return absl::OkStatus();
    const int width = warp->from.width, height = warp->from.height;
    const int half_width = width / 2, half_height = height / 2;  // rounded down, as torchvision
    const auto most_x = static_cast<int64_t>(params_.distortion_scale * half_width),
               most_y = static_cast<int64_t>(params_.distortion_scale * half_height);
    const auto inwards = [&](int64_t most) { return static_cast<double>(draws.Below(most + 1)); };
    const double right = width - 1, bottom = height - 1;
    Corners end;
    end[0] = {inwards(most_x), inwards(most_y)};
    end[1] = {right - inwards(most_x), inwards(most_y)};
    end[2] = {right - inwards(most_x), bottom - inwards(most_y)};
    end[3] = {inwards(most_x), bottom - inwards(most_y)};
    const Corners start = {{{0, 0}, {right, 0}, {right, bottom}, {0, bottom}}};
    // Corners that fall together, as of an image of one pixel, leave it as it is.
    Matrix3 unused;
    if (!Homography(end, start, &warp->inverse) || !Invert(warp->inverse, &unused))
      warp->inverse = kIdentity3;
    return absl::OkStatus();
  }

 private:
  const Params params_;
};

const OpRegistrar kRegistrar(
    WarpSchema(OpSchema<Params>("random_perspective")
                   .Summary("Moves the corners of an image inwards by random amounts, with a given "
                            "probability."))
        .Param("distortion_scale", &Params::distortion_scale,
               "How far a corner may come, as a share of half the image.", Range(0, 1))
        .Param("p", &Params::p, "Probability of doing so.", Range(0, 1))
        .Cost("A little more than random_rotation.")
        .Example("- random_perspective: {distortion_scale: 0.5, p: 0.8}")
        .AlsoKnownAs("torchvision", {"RandomPerspective"})
        .AlsoKnownAs("Albumentations", {"Perspective"})
        .AlsoKnownAs("MindSpore", {"RandomPerspective"})
        .NearestTo("MindSpore", {"Perspective"})
        .NearestTo("DALI", {"warp_perspective"})
        .Create<RandomPerspective>());

}  // namespace
}  // namespace feedwater::server
