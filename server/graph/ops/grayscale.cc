// Makes an image grey, as torchvision's Grayscale does on PIL images (ITU-R 601, Pillow's "L").
#include "server/graph/op_schema.h"
#include "server/graph/point_op.h"

namespace feedwater::server {
namespace {

struct Params {
  int64_t num_output_channels = 1;
};

class Grayscale : public PointOp {
 public:
  explicit Grayscale(const Params& params)
      : channels_(static_cast<int>(params.num_output_channels)) {}

  static absl::Status Check(const Params& params) {
    if (params.num_output_channels != 2) return absl::OkStatus();
    return absl::InvalidArgumentError("'num_output_channels' must be 1 or 3, not 2");
  }

  int OutputChannels(int) const override { return channels_; }

  void Append(Draws, PointProgram* program) const override { program->Grey(channels_); }

 private:
  const int channels_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("grayscale")
        .Summary("Makes an image grey, with one channel or three equal ones.")
        .Input(kColourImage)
        .OutputLikeInput()
        .Param("num_output_channels", &Params::num_output_channels, "How many channels come out.",
               Range(1, 3).As("1 or 3", R"({"enum":[1,3]})"))
        .Cost("Little more than a copy.")
        .Example("- grayscale: {num_output_channels: 3}")
        .AlsoKnownAs("torchvision", {"Grayscale", "rgb_to_grayscale", "to_grayscale"})
        .AlsoKnownAs("Albumentations", {"ToGray"})
        .AlsoKnownAs("MindSpore", {"Grayscale"})
        .Create<Grayscale>());

}  // namespace
}  // namespace feedwater::server
