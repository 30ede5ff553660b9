// Adds the colours in which photos differ most, by random amounts: AlexNet's PCA noise (Krizhevsky,
// Sutskever, Hinton, 2012) with its eigenvectors and eigenvalues for ImageNet. Each channel gets
// one number added, in float64, and is rounded to the nearest value.
#include <algorithm>
#include <cmath>

#include "server/graph/op_schema.h"
#include "server/graph/point_op.h"

namespace feedwater::server {
namespace {

struct Params {
  double alpha_std = 0.1;
};

// Of the RGB values of ImageNet's training set, in 0..1: channel c of vector k is kVectors[c][k].
constexpr double kValues[3] = {0.2175, 0.0188, 0.0045};
constexpr double kVectors[3][3] = {
    {-0.5675, 0.7192, 0.4009}, {-0.5808, -0.0045, -0.8140}, {-0.5836, -0.6948, 0.4203}};

class Lighting : public PointOp {
 public:
  explicit Lighting(const Params& params) : alpha_std_(params.alpha_std) {}

  void Append(Draws draws, PointProgram* program) const override {
    double alphas[3];
    for (double& alpha : alphas) alpha = alpha_std_ * draws.Normal();
    if (program->channels() != 3) return;
    ByteTables tables;
    for (int c = 0; c < 3; ++c) {
      double added = 0;
      for (int k = 0; k < 3; ++k) added += 255 * kVectors[c][k] * kValues[k] * alphas[k];
      for (int v = 0; v < 256; ++v) {
        tables[c][v] = static_cast<uint8_t>(
            std::lround(std::clamp(static_cast<double>(v) + added, 0.0, 255.0)));
      }
    }
    program->LookUp(tables);
  }

 private:
  const double alpha_std_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("lighting")
        .Summary(
            "Adds AlexNet's PCA noise: random amounts of the colours in which photos differ most.")
        .Input(kColourImage)
        .OutputLikeInput()
        .Randomness(Randomness::kPerSample)
        .Param("alpha_std", &Params::alpha_std, "Standard deviation of the amounts.", Range(0, 10))
        .Cost("A table look-up or less for each value.")
        .Example("- lighting: {alpha_std: 0.1}")
        .AlsoKnownAs("MindSpore", {"RandomLighting"})
        .AlsoKnownAs("Albumentations", {"FancyPCA"})
        .Create<Lighting>());

}  // namespace
}  // namespace feedwater::server
