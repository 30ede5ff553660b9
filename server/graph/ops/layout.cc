// Changes the order of an image's axes: CHW (planes, as PyTorch wants them) or HWC (as images are
// stored).
#include <cstring>

#include "server/graph/geometry_op.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

struct Params {
  std::string layout = "CHW";
};

// Copies the n elements of each of the m groups so that element i of group g comes to place i * m +
// g.
template <size_t kBytes>
void Interleave(const std::byte* from, int64_t groups, int64_t n, std::byte* to) {
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t i = 0; i < n; ++i)
      std::memcpy(to + (i * groups + g) * kBytes, from + (g * n + i) * kBytes, kBytes);
  }
}

class ChangeLayout : public PixelOp {
 public:
  explicit ChangeLayout(const Params& params)
      : layout_(params.layout == "CHW" ? Layout::kCHW : Layout::kHWC) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    const TensorSpec& input = inputs[0];
    const size_t first = input.layout == Layout::kCHW ? 1 : 0;
    return Specs{ImageSpec(input.dtype, layout_, input.shape[first], input.shape[first + 1],
                           ChannelsOf(input))};
  }

  bool Compose(int, PixelFormat* format) const override {
    format->planar = layout_ == Layout::kCHW;
    return true;
  }

  absl::Status Run(Sample& sample, Draws) const override {
    const Tensor& input = sample.inputs()[0];
    const Size size = ImageSizeOf(input.spec);
    const int64_t channels = ChannelsOf(input.spec),
                  area = static_cast<int64_t>(size.height) * size.width;
    FW_ASSIGN_OR_RETURN(
        Tensor output,
        sample.Output(0, ImageSpec(input.spec.dtype, layout_, size.height, size.width, channels)));
    if (input.spec.layout == layout_) {
      std::memcpy(output.data, input.data, input.bytes());
      return absl::OkStatus();
    }
    const int64_t groups = layout_ == Layout::kCHW ? area : channels,
                  n = layout_ == Layout::kCHW ? channels : area;
    switch (DTypeSize(input.spec.dtype)) {
      case 1:
        Interleave<1>(input.data, groups, n, output.data);
        break;
      case 2:
        Interleave<2>(input.data, groups, n, output.data);
        break;
      case 4:
        Interleave<4>(input.data, groups, n, output.data);
        break;
      default:
        Interleave<8>(input.data, groups, n, output.data);
        break;
    }
    return absl::OkStatus();
  }

 private:
  const Layout layout_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("layout")
        .Summary("Changes the order of an image's axes.")
        .Input({.field = "image", .layouts = kImageLayouts, .dtypes = {}, .doc = "The image."})
        .OutputLikeInput()
        .Param("layout", &Params::layout, "Order of the result's axes.", OneOf({"CHW", "HWC"}))
        .Cost("One pass when it runs alone, nothing when it is fused.")
        .Example("- layout: {layout: CHW}")
        .AlsoKnownAs("MindSpore", {"HWC2CHW"})
        .AlsoKnownAs("Albumentations", {"ToTensorV2"})
        .AlsoKnownAs("torchvision", {"PILToTensor"})
        .NearestTo("DALI", {"transpose"})
        .NearestTo("torchvision", {"ToImage"})
        .Create<ChangeLayout>());

}  // namespace
}  // namespace feedwater::server
