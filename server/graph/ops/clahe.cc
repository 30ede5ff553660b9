// Stretches the contrast of each part of an image by its own histogram (contrast limited adaptive
// histogram equalisation), as Albumentations' CLAHE: OpenCV's, on the lightness of Lab where the
// image is RGB. The bytes are OpenCV's.
#include "server/imaging/clahe.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/graph/filter_op.h"
#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

struct Params {
  OneOrTwo clip_limit = {1, 4};
  OneOrTwo tile_grid_size = {8, 8};
  double p = 0.5;
};

class ClaheOp : public FilterOp {
 public:
  explicit ClaheOp(const Params& params)
      : params_(params),
        tiles_{static_cast<int>(params.tile_grid_size.first),
               static_cast<int>(params.tile_grid_size.second)} {}

  static absl::Status Check(const Params& params) {
    for (const double tiles : {params.tile_grid_size.first, params.tile_grid_size.second}) {
      if (tiles == std::floor(tiles)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("'tile_grid_size' must be whole numbers, not ", tiles));
    }
    const OneOrTwo& clip = params.clip_limit;
    if (clip.first <= clip.second) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("'clip_limit' must be [low, high] with low <= high, not [", clip.first, ", ",
                     clip.second, "]"));
  }

 protected:
  size_t ScratchBytes(Size size, int) const override { return ClaheScratch(size, tiles_); }

  absl::Status Filter(const Image& image, Draws draws) const override {
    if (!draws.Bernoulli(params_.p)) return image.Copy();
    const double clip = draws.Uniform(params_.clip_limit.first, params_.clip_limit.second);
    return Clahe(image.pixels, image.size, image.channels, clip, tiles_, image.scratch, image.clock,
                 image.out);
  }

 private:
  const Params params_;
  const Size tiles_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("clahe")
        .Summary("Stretches the contrast of each part of an image by its own histogram.")
        .Input(kColourImage)
        .OutputLikeInput()
        .Randomness(Randomness::kPerSample)
        .Param("clip_limit", &Params::clip_limit,
               "How many times the mean of all bins a bin of a histogram keeps at most, drawn from "
               "[low, high]; a number is fixed. The rest is spread over all bins.",
               Range(1, 1000))
        .Param("tile_grid_size", &Params::tile_grid_size,
               "Parts along x and y: one number, or [x, y]. An image that does not divide into "
               "them is mirrored at its edges as far as needed.",
               Range(1, kMaxClaheTiles))
        .Param("p", &Params::p, "Probability of doing so.", Range(0, 1))
        .Cost("As a change of hue; RGB goes through Lab, grey takes a quarter of that.")
        .Example("- clahe: {clip_limit: [1, 4], tile_grid_size: 8, p: 0.5}")
        .AlsoKnownAs("Albumentations", {"CLAHE"})
        .Create<ClaheOp>());

}  // namespace
}  // namespace feedwater::server
