// Turns a class number into a vector that is 1 at its place and 0 elsewhere.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/graph/element.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

struct Params {
  std::optional<int64_t> num_classes;
  std::string dtype = "float32";
};

class OneHot : public Op {
 public:
  explicit OneHot(const Params& params)
      : num_classes_(params.num_classes), dtype_(*DTypeFromName(params.dtype)) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment& environment) const override {
    if (!inputs[0].shape.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("takes one class number, but the field is ", inputs[0].ToString()));
    }
    const int64_t classes = num_classes_.value_or(environment.classes);
    if (classes <= 0) {
      return absl::InvalidArgumentError(
          "the dataset does not name its classes; say how many with num_classes");
    }
    FW_RETURN_IF_ERROR(environment.CheckClasses(classes, 0));
    return Specs{{dtype_, Layout::kPlain, {classes}}};
  }

  bool only_stores() const override { return true; }

  absl::Status Run(Sample& sample, Draws) const override {
    const Tensor& input = sample.inputs()[0];
    FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, sample.planned(0)));
    FW_ASSIGN_OR_RETURN(const int64_t label,
                        LoadClass(input.spec.dtype, input.data, output.spec.shape[0]));
    std::memset(output.data, 0, output.bytes());  // zero bits are 0 in every dtype
    StoreDouble(dtype_, 1, output.data + label * static_cast<int64_t>(DTypeSize(dtype_)));
    return absl::OkStatus();
  }

 private:
  const std::optional<int64_t> num_classes_;
  const DType dtype_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("one_hot")
        .Summary("Turns a class number into a vector that is 1 at its place and 0 elsewhere.")
        .Input({.field = "label",
                .layouts = {Layout::kPlain},
                .dtypes = {DType::kInt64, DType::kInt32, DType::kInt16, DType::kUInt16,
                           DType::kUInt8, DType::kInt8},
                .doc = "The class number."})
        .Output({.field = "", .layouts = {Layout::kPlain}, .dtypes = {}, .doc = "The vector."})
        .Param("num_classes", &Params::num_classes,
               "Length of the vector; by default the dataset's number of classes.",
               Range(1, 1 << 24))
        .Param("dtype", &Params::dtype, "Type of the vector.",
               OneOf({"float32", "float16", "bfloat16", "float64", "uint8", "int8", "int16",
                      "uint16", "int32", "int64", "bool"}))
        .Cost("Next to nothing.")
        .Example("- one_hot: {in: label, num_classes: 10}")
        .AlsoKnownAs("MindSpore", {"OneHot"})
        .AlsoKnownAs("DALI", {"one_hot"})
        .Create<OneHot>());

}  // namespace
}  // namespace feedwater::server
