// Multiplies an image, as one vector, by a matrix, after a mean was taken away:
// torchvision.transforms.v2.LinearTransformation, by which images are whitened. A matrix of as many
// rows as the image has channels does so with each pixel; one of as many rows as the image has
// values does so with the whole image, planes one after the other as in torchvision. Values are
// what they are at this place: 0..255, or normalized ones.
//
// The matrix stands in the pipeline file, so it has at most 64 rows: whitening of CIFAR's images
// (3,072 rows) is for an op of one's own (op python, or a plug-in).
#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "server/graph/element.h"
#include "server/graph/joint_fields.h"
#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

struct Params {
  SquareMatrix transformation_matrix;
  std::vector<double> mean_vector;
};

class LinearTransformation : public Op {
 public:
  explicit LinearTransformation(Params params)
      : matrix_(std::move(params.transformation_matrix.rows)),
        mean_(std::move(params.mean_vector)) {}

  static absl::Status Check(const Params& params) {
    const size_t rows = params.transformation_matrix.rows.size();
    if (params.mean_vector.size() == rows) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "'mean_vector' must have as many numbers as 'transformation_matrix' has rows, ", rows,
        ", not ", params.mean_vector.size()));
  }

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    FW_RETURN_IF_ERROR(CheckSize(inputs[0]));
    TensorSpec output = inputs[0];
    output.dtype = DType::kFloat32;
    return Specs{output};
  }

  int64_t MostPixels(const TensorSpec&, int64_t pixels, const ImageLimits&) const override {
    return pixels;
  }

  absl::Status Run(Sample& sample, Draws) const override {
    const Tensor& input = sample.inputs()[0];
    FW_RETURN_IF_ERROR(CheckSize(input.spec));
    TensorSpec spec = input.spec;
    spec.dtype = DType::kFloat32;
    FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, spec));
    const size_t from_bytes = DTypeSize(input.spec.dtype), to_bytes = sizeof(float);
    for (int64_t at = 0; at < input.elements(); at += kValuesBetweenLooks) {
      FW_RETURN_IF_ERROR(sample.clock().Check());
      const auto i = static_cast<size_t>(at);
      ConvertElements(input.spec.dtype, input.data + i * from_bytes, DType::kFloat32,
                      output.data + i * to_bytes,
                      std::min(kValuesBetweenLooks, input.elements() - at));
    }
    const Size size = ImageSizeOf(spec);
    const int64_t channels = ChannelsOf(spec), area = int64_t{size.width} * size.height;
    const bool planar = spec.layout == Layout::kCHW;
    const int64_t to_channel = planar ? area : 1, to_pixel = planar ? 1 : channels;
    // Vectors begin at each pixel, and go on over channels first where they are the whole image.
    const bool whole = static_cast<int64_t>(matrix_.size()) != channels;
    const int64_t vectors = whole ? 1 : area, pixels = whole ? area : 1;
    auto* const values = output.as<float>();
    for (int64_t i = 0; i < vectors; ++i) {
      if (i % kValuesBetweenLooks == 0) FW_RETURN_IF_ERROR(sample.clock().Check());
      const auto place = [&](size_t k) {
        const auto at = static_cast<int64_t>(k);
        return (i + at % pixels) * to_pixel + at / pixels * to_channel;
      };
      std::array<double, kMaxMatrixRows> centred;
      for (size_t k = 0; k < matrix_.size(); ++k) centred[k] = double{values[place(k)]} - mean_[k];
      for (size_t k = 0; k < matrix_.size(); ++k) {
        double sum = 0;
        for (size_t row = 0; row < matrix_.size(); ++row) sum += centred[row] * matrix_[row][k];
        values[place(k)] = static_cast<float>(sum);
      }
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kValuesBetweenLooks = 1 << 14;

  absl::Status CheckSize(const TensorSpec& spec) const {
    const auto rows = static_cast<int64_t>(matrix_.size());
    const int64_t channels = ChannelsOf(spec);
    if (rows == channels) return absl::OkStatus();
    const Size size = ImageSizeOf(spec);
    if (size.width < 0 || size.height < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "has a matrix of ", rows, " rows for images of any size with ", channels,
          " channels: it takes as many rows as there are channels, or images of a fixed size"));
    }
    const int64_t values = int64_t{size.width} * size.height * channels;
    if (rows == values) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("has a matrix of ", rows, " rows, but the image has ", channels,
                     " channels and ", values, " values; it takes as many rows as one of these"));
  }

  const std::vector<std::vector<double>> matrix_;
  const std::vector<double> mean_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("linear_transformation")
        .Summary("Takes a mean away and multiplies by a matrix: each pixel, or a small image.")
        .Input({.field = "image", .layouts = kImageLayouts, .dtypes = {}, .doc = "The image."})
        .Output({.field = "",
                 .layouts = kImageLayouts,
                 .dtypes = {DType::kFloat32},
                 .doc = "The products."})
        .Required("transformation_matrix", &Params::transformation_matrix,
                  "Rows of the matrix: as many as the image has channels, for each pixel, or as it "
                  "has values, for all of them (planes one after the other). A row times (values - "
                  "mean) is added up over rows, as torchvision does.",
                  Range(-1e9, 1e9))
        .Required("mean_vector", &Params::mean_vector,
                  "What is taken away first: a number for each row.", Range(-1e9, 1e9))
        .Cost("A pass over the image, with as many multiplications for a value as there are rows.")
        .Example("- linear_transformation: {transformation_matrix: [[0.4, 0.3, 0.3], [0.3, 0.4, "
                 "0.3], [0.3, 0.3, 0.4]], mean_vector: [124, 116, 104]}")
        .AlsoKnownAs("torchvision", {"LinearTransformation"})
        .AlsoKnownAs("MindSpore", {"LinearTransformation"})
        .Create<LinearTransformation>());

}  // namespace
}  // namespace feedwater::server
