// Changes the type of a field's numbers: 200 stays 200, in any dtype that holds it.
// Integers are rounded to nearest even and saturated; NaN becomes 0.
#include "server/graph/element.h"
#include "server/graph/op_schema.h"
#include "server/graph/render.h"

namespace feedwater::server {
namespace {

struct Params {
  std::string dtype = "float32";
};

class Cast : public PixelOp {
 public:
  explicit Cast(const Params& params) : dtype_(*DTypeFromName(params.dtype)) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    TensorSpec output = inputs[0];
    output.dtype = dtype_;
    return Specs{output};
  }

  bool Compose(int, PixelFormat* format) const override {
    PixelType type;
    if (!PixelTypeOf(dtype_, &type)) return false;
    if (type == format->type) return true;
    // A pixel is exact in every type. A normalized value is rounded once when it goes from float32
    // to a shorter float, as it is when the codec writes that float at once; every other pair of
    // types would be rounded twice.
    if (format->affine && (format->type != PixelType::kFloat32 || type == PixelType::kUInt8))
      return false;
    format->type = type;
    return true;
  }

  absl::Status Run(Sample& sample, Draws) const override {
    const Tensor& input = sample.inputs()[0];
    TensorSpec spec = input.spec;
    spec.dtype = dtype_;
    FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, spec));
    ConvertElements(input.spec.dtype, input.data, dtype_, output.data, input.elements());
    return absl::OkStatus();
  }

 private:
  const DType dtype_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("cast")
        .Summary(
            "Changes the type of a field's numbers. Whole types round to the nearest, and take "
            "what they cannot hold as their least or most (NaN as 0). `bool`: whether it is not 0 "
            "(of NaN, too).")
        .Input({.field = "image",
                .layouts = {Layout::kHWC, Layout::kCHW, Layout::kPlain},
                .dtypes = {},
                .doc = "Any field."})
        .OutputLikeInput()
        .Param("dtype", &Params::dtype, "Type of the result.",
               OneOf({"uint8", "int8", "bool", "int16", "uint16", "int32", "int64", "float16",
                      "bfloat16", "float32", "float64"}))
        .Cost("One pass when it runs alone, nothing when it is fused.")
        .Example("- cast: {in: image, dtype: float32}")
        .AlsoKnownAs("MindSpore", {"TypeCast"})
        .AlsoKnownAs("DALI", {"cast"})
        .NearestTo("torchvision", {"ToDtype", "ConvertImageDtype"})
        .NearestTo("Albumentations", {"ToFloat"})
        .Create<Cast>());

}  // namespace
}  // namespace feedwater::server
