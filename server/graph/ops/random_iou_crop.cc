// Crops an image to a random part that overlaps a box by a drawn minimum, as
// torchvision.transforms.v2.RandomIoUCrop does for SSD: boxes whose middle is outside are dropped.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/codec/decode_need.h"
#include "server/graph/geometry_op.h"
#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"
#include "server/graph/render.h"

namespace feedwater::server {
namespace {

struct Params : BoxRules {
  double min_scale = 0.3, max_scale = 1.0;
  double min_aspect_ratio = 0.5, max_aspect_ratio = 2.0;
  std::vector<double> sampler_options = {0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0};
  int64_t trials = 40;
};

// Options drawn before the image is left as it is. torchvision draws until one fits, which an image
// without boxes may never see.
constexpr int kMostOptions = 50;
constexpr int64_t kBoxesBetweenLooks = 4096;

bool IsMiddleIn(const float* box, Rect part) {
  const float x = 0.5f * (box[0] + box[2]), y = 0.5f * (box[1] + box[3]);
  return x > static_cast<float>(part.x) && x < static_cast<float>(part.x + part.width) &&
         y > static_cast<float>(part.y) && y < static_cast<float>(part.y + part.height);
}

double OverlapOf(const float* box, Rect part) {
  const double width =
                   std::min<double>(box[2], part.x + part.width) - std::max<double>(box[0], part.x),
               height = std::min<double>(box[3], part.y + part.height) -
                        std::max<double>(box[1], part.y);
  const double both = std::max(0.0, width) * std::max(0.0, height);
  const double either =
      (static_cast<double>(box[2]) - box[0]) * (static_cast<double>(box[3]) - box[1]) +
      static_cast<double>(part.width) * part.height - both;
  return either > 0 ? both / either : 0;
}

class PartMap : public TransformMap {
 public:
  PartMap(const ImageTransform& transform, Rect part, bool is_whole)
      : TransformMap(transform), part_(part), is_whole_(is_whole) {}
  bool Keeps(const float* box) const override { return is_whole_ || IsMiddleIn(box, part_); }

 private:
  const Rect part_;
  const bool is_whole_;
};

class RandomIouCrop : public Op {
 public:
  explicit RandomIouCrop(Params params) : params_(std::move(params)) {}

  static absl::Status Check(const Params& params) {
    if (params.sampler_options.empty())
      return absl::InvalidArgumentError("'sampler_options' must be a list of at least one number");
    if (params.min_scale > params.max_scale)
      return absl::InvalidArgumentError("'min_scale' must not be over 'max_scale'");
    if (params.min_aspect_ratio > params.max_aspect_ratio)
      return absl::InvalidArgumentError("'min_aspect_ratio' must not be over 'max_aspect_ratio'");
    return absl::OkStatus();
  }

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment& environment) const override {
    return PlanJoint(inputs, environment,
                     [](PlannedSize) -> absl::StatusOr<PlannedSize> { return PlannedSize{}; });
  }

  OpMemory Memory(absl::Span<const TensorSpec> inputs,
                  const PlanEnvironment& environment) const override {
    OpMemory memory = JointMemory(inputs);
    memory.codec_rows =
        CopiedRowBytes(MostSizeOf(inputs[0], LimitsOfInput(inputs, 0, environment)));
    return memory;
  }

  int64_t MostPixels(const TensorSpec&, int64_t pixels, const ImageLimits&) const override {
    return pixels;
  }

  absl::Status Run(Sample& sample, Draws draws) const override {
    FW_ASSIGN_OR_RETURN(const Size size, JointSize(sample));
    Rect part = {0, 0, size.width, size.height};
    FW_ASSIGN_OR_RETURN(const bool is_part,
                        Choose(FindBoxes(sample), size, draws, sample.clock(), &part));
    const bool is_whole = !is_part;
    ImageTransform transform(size);
    if (!is_whole) transform.Crop(part);
    return RunJoint(sample, params_, size, transform.size(), PartMap(transform, part, is_whole),
                    nullptr, [&](FieldRole, const Tensor& in, Tensor out) -> absl::Status {
                      return RenderTensor(in, transform, out, sample);
                    });
  }

 private:
  // False: the image stays as it is.
  absl::StatusOr<bool> Choose(const Tensor* boxes, Size size, Draws& draws, WorkClock& clock,
                              Rect* part) const {
    if (boxes == nullptr || boxes->spec.shape[0] == 0) return false;
    for (int i = 0; i < kMostOptions; ++i) {
      const double least = params_.sampler_options[static_cast<size_t>(
          draws.Below(static_cast<int64_t>(params_.sampler_options.size())))];
      if (least >= 1) return false;
      for (int64_t trial = 0; trial < params_.trials; ++trial) {
        const int width = static_cast<int>(size.width *
                                           draws.Uniform(params_.min_scale, params_.max_scale)),
                  height = static_cast<int>(size.height *
                                            draws.Uniform(params_.min_scale, params_.max_scale));
        if (width == 0 || height == 0) continue;
        const double ratio = static_cast<double>(width) / height;
        if (ratio < params_.min_aspect_ratio || ratio > params_.max_aspect_ratio) continue;
        part->x = static_cast<int>((size.width - width) * draws.Uniform());
        part->y = static_cast<int>((size.height - height) * draws.Uniform());
        part->width = width;
        part->height = height;
        FW_ASSIGN_OR_RETURN(const bool fits, Fits(*boxes, *part, least, clock));
        if (fits) return true;
      }
    }
    return false;
  }

  static absl::StatusOr<bool> Fits(const Tensor& boxes, Rect part, double least, WorkClock& clock) {
    bool any = false;
    double most = 0;
    for (int64_t row = 0; row < boxes.spec.shape[0]; ++row) {
      if (row % kBoxesBetweenLooks == 0) FW_RETURN_IF_ERROR(clock.Check());
      float box[4];
      std::memcpy(box, boxes.data + row * static_cast<int64_t>(sizeof(box)), sizeof(box));
      if (!IsMiddleIn(box, part)) continue;
      any = true;
      most = std::max(most, OverlapOf(box, part));
    }
    return any && most >= least;
  }

  const Params params_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("random_iou_crop")
        .Summary(
            "Crops an image to a random part that overlaps a box by a drawn minimum; boxes whose "
            "middle is not inside of the part are dropped, the others are cut at it.")
        .Input({.field = "image",
                .layouts = kImageLayouts,
                .dtypes = {},
                .doc = "The image, and what moves with it; without boxes nothing is done."})
        .OutputLikeInput()
        .Joint()
        .Randomness(Randomness::kPerSample)
        .Param("min_scale", &Params::min_scale, "The least share of a side that is kept.",
               Range(0.001, 1))
        .Param("max_scale", &Params::max_scale, "The largest share.", Range(0.001, 1))
        .Param("min_aspect_ratio", &Params::min_aspect_ratio, "The least width divided by height.",
               Range(1e-3, 1e3))
        .Param("max_aspect_ratio", &Params::max_aspect_ratio, "The largest.", Range(1e-3, 1e3))
        .Param(
            "sampler_options", &Params::sampler_options,
            "Least overlap (intersection over union) of some box with the part, one of these, all "
            "alike likely; 1 leaves the image as it is.",
            Range(0, 1))
        .Param("trials", &Params::trials, "Parts tried for one overlap, before another is drawn.",
               Range(1, 1000))
        .Cost("A copy, and up to `trials` looks at every box.")
        .Example("- random_iou_crop: {in: [image, boxes, labels]}")
        .AlsoKnownAs("torchvision", {"RandomIoUCrop"})
        .NearestTo("DALI", {"random_bbox_crop"})
        .NearestTo("Albumentations",
                   {"RandomSizedBBoxSafeCrop", "BBoxSafeRandomCrop", "AtLeastOneBBoxRandomCrop"})
        .NearestTo("MindSpore", {"RandomCropWithBBox"})
        .Create<RandomIouCrop>());

}  // namespace
}  // namespace feedwater::server
