// Changes RGB to another order or space, 8 bits a channel: HSV and YCbCr are Pillow's, Lab is
// OpenCV's (COLOR_RGB2Lab), BGR the other way round.
#include <string>

#include "server/graph/op_schema.h"
#include "server/graph/point_op.h"

namespace feedwater::server {
namespace {

struct Params {
  std::string space;
};

class ToColorSpace : public PointOp {
 public:
  explicit ToColorSpace(const Params& params) : space_(params.space) {}

  absl::Status CheckChannels(int channels) const override {
    if (channels == 3) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "takes images with 3 channels, but this one has 1; grayscale: {num_output_channels: 3} "
        "gives it three");
  }

  void Append(Draws, PointProgram* program) const override {
    if (space_ == "bgr") return program->Permute({2, 1, 0});
    program->Convert(space_ == "hsv"     ? PointProgram::ColorSpace::kHsv
                     : space_ == "ycbcr" ? PointProgram::ColorSpace::kYcbcr
                                         : PointProgram::ColorSpace::kLab);
  }

 private:
  const std::string space_;
};

const OpRegistrar kRegistrar(OpSchema<Params>("to_color_space")
                                 .Summary("Changes RGB to HSV, YCbCr, Lab or BGR.")
                                 .Input(kColourImage)
                                 .OutputLikeInput()
                                 .Required("space", &Params::space,
                                           "Pillow's hsv or ycbcr, OpenCV's lab, or bgr.",
                                           OneOf({"hsv", "ycbcr", "lab", "bgr"}))
                                 .Cost("bgr little more than a copy, hsv half of a change of hue; "
                                       "ycbcr and lab some look-ups a pixel.")
                                 .Example("- to_color_space: {space: hsv}")
                                 .AlsoKnownAs("MindSpore", {"ConvertColor"})
                                 .AlsoKnownAs("DALI", {"color_space_conversion"})
                                 .NearestTo("MindSpore", {"RgbToHsv"})
                                 .NearestTo("Albumentations", {"ToSepia"})
                                 .Create<ToColorSpace>());

}  // namespace
}  // namespace feedwater::server
