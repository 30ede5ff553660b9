#include "server/graph/joint_fields.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/graph/element.h"

namespace feedwater::server {
namespace {

// Points along each edge of a box where lines bend.
constexpr int kEdgePoints = 12;

// Pixels by which a keypoint on the image's border may be moved off it: float32 has no finer
// numbers for large images, and sines are rounded.
constexpr double kRounding = 1.0 / 256;

constexpr int64_t kMostPixels = int64_t{1} << 30;  // that `limits: {max_pixels: ...}` may say

struct MovedBox {
  float left, top, right, bottom;
  int32_t row;
};

std::string Named(absl::Span<const std::string> fields, size_t i) {
  return i < fields.size() ? absl::StrCat("field '", fields[i], "'") : absl::StrCat("input ", i);
}
std::string Named(const Sample& sample, size_t i) {
  return absl::StrCat("field '", sample.field(i), "'");
}

std::string FillText(const FillColor& fill) {
  const std::string numbers = absl::StrJoin(fill.values, ", ");
  return fill.values.size() == 1 ? numbers : absl::StrCat("[", numbers, "]");
}

bool IsIntegers(DType dtype) { return !IsFloating(dtype); }

// A mask [H,W] as [H,W,1]; other pictures as they are.
TensorSpec AsPicture(const TensorSpec& spec) {
  if (IsImage(spec)) return spec;
  return ImageSpec(spec.dtype, Layout::kHWC, spec.shape[0], spec.shape[1], 1);
}

// What an input is, once CheckRole has found it good.
FieldRole RoleOf(const TensorSpec& spec, bool is_first) {
  if (is_first) return FieldRole::kImage;
  if (IsImage(spec))
    return ChannelsOf(spec) == 1 && IsIntegers(spec.dtype) ? FieldRole::kMask : FieldRole::kImage;
  if (spec.shape.size() == 1) return FieldRole::kLabels;
  if (IsIntegers(spec.dtype)) return FieldRole::kMask;
  return spec.shape[1] == 4 ? FieldRole::kBoxes : FieldRole::kKeypoints;
}

absl::Status CheckRole(const TensorSpec& spec, bool follows_boxes, absl::string_view name) {
  if (IsImage(spec)) return absl::OkStatus();
  if (spec.shape.size() == 1) {
    if (follows_boxes) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "has one axis, as labels of boxes have, and stands behind no boxes; name it directly "
        "behind them in 'in'");
  }
  if (spec.shape.size() == 2) {
    const int64_t columns = spec.shape[1];
    const bool has_points = columns >= 2 && columns <= 4;
    if (spec.dtype == DType::kFloat32 && has_points) return absl::OkStatus();
    if (IsIntegers(spec.dtype) && !(has_points && spec.shape[0] < 0)) return absl::OkStatus();
    if (has_points) {
      return absl::InvalidArgumentError(absl::StrCat(
          "has ", columns, " columns, as ", columns == 4 ? "boxes" : "keypoints",
          " have, which are float32; use '- cast: {in: ", name, ", dtype: float32}' first"));
    }
  }
  return absl::InvalidArgumentError(
      "is no image, no mask (integers [H,W]), no boxes (float32 [?,4]), no keypoints (float32 "
      "[?,2] or [?,3]) and no labels ([?] behind boxes)");
}

// The smallest box around a moved one. Where lines bend, along its edges too.
void Hull(const PointMap& map, double left, double top, double right, double bottom, double* hull) {
  hull[0] = hull[1] = INFINITY;
  hull[2] = hull[3] = -INFINITY;
  const auto take = [&](double x, double y) {
    const Point at = map.Move({x, y});
    hull[0] = std::min(hull[0], at.x), hull[2] = std::max(hull[2], at.x);
    hull[1] = std::min(hull[1], at.y), hull[3] = std::max(hull[3], at.y);
  };
  const int steps = map.keeps_lines() ? 1 : kEdgePoints;
  for (int i = 0; i <= steps; ++i) {
    const double x = left + (right - left) * i / steps, y = top + (bottom - top) * i / steps;
    take(x, top), take(x, bottom);
    take(left, y), take(right, y);
  }
}

double AreaOf(const double* box) {
  return std::max(0.0, box[2] - box[0]) * std::max(0.0, box[3] - box[1]);
}

// Of one input, which may be no boxes.
int64_t BoxesScratch(const TensorSpec& spec) {
  const bool is_boxes = RoleOf(spec, false) == FieldRole::kBoxes;
  return is_boxes ? std::max<int64_t>(0, spec.shape[0]) * int64_t{sizeof(MovedBox)} : 0;
}

// Of an image or mask; 0 of what is neither.
int64_t PixelBytes(const TensorSpec& spec) {
  const auto bytes = static_cast<int64_t>(DTypeSize(spec.dtype));
  if (IsImage(spec)) return ChannelsOf(spec) * bytes;
  return spec.shape.size() == 2 && IsIntegers(spec.dtype) ? bytes : 0;
}

constexpr int64_t kRowsBetweenLooks = 256;

// Moves the boxes of input i into scratch and leaves out those that are dropped.
absl::StatusOr<absl::Span<const MovedBox>> MoveBoxes(Sample& sample, size_t i,
                                                     const BoxRules& rules, Size source,
                                                     Size canvas, const PointMap& map,
                                                     std::byte* scratch) {
  const Tensor& boxes = sample.inputs()[i];
  const int64_t rows = boxes.spec.shape[0];
  auto* const kept = reinterpret_cast<MovedBox*>(scratch);
  size_t count = 0;
  for (int64_t row = 0; row < rows; ++row) {
    if (row % kRowsBetweenLooks == 0) FW_RETURN_IF_ERROR(sample.clock().Check());
    float box[4];
    std::memcpy(box, boxes.data + row * static_cast<int64_t>(sizeof(box)), sizeof(box));
    const bool is_finite = std::all_of(box, box + 4, [](float v) { return std::isfinite(v); });
    if (!is_finite || box[2] < box[0] || box[3] < box[1]) {
      return absl::InvalidArgumentError(absl::StrCat(
          Named(sample, i), " has the box [", box[0], ", ", box[1], ", ", box[2], ", ", box[3],
          "] in row ", row,
          ", which is no [left, top, right, bottom] of finite numbers with left "
          "<= right and top <= bottom; mend the record, or let the format drop such boxes "
          "(invalid_boxes: drop)"));
    }
    if (!map.Keeps(box)) continue;
    const double right = source.width, bottom = source.height;
    double hull[4];
    Hull(map, std::clamp<double>(box[0], 0, right), std::clamp<double>(box[1], 0, bottom),
         std::clamp<double>(box[2], 0, right), std::clamp<double>(box[3], 0, bottom), hull);
    const double seen[4] = {std::clamp<double>(hull[0], 0, canvas.width),
                            std::clamp<double>(hull[1], 0, canvas.height),
                            std::clamp<double>(hull[2], 0, canvas.width),
                            std::clamp<double>(hull[3], 0, canvas.height)};
    const double area = AreaOf(seen);
    if (area <= 0 || area < rules.min_area || area < rules.min_visibility * AreaOf(hull)) continue;
    kept[count++] = {static_cast<float>(seen[0]), static_cast<float>(seen[1]),
                     static_cast<float>(seen[2]), static_cast<float>(seen[3]),
                     static_cast<int32_t>(row)};
  }
  return absl::MakeConstSpan(kept, count);
}

absl::Status WriteBoxes(Sample& sample, size_t i, absl::Span<const MovedBox> kept) {
  FW_ASSIGN_OR_RETURN(
      const Tensor out,
      sample.Output(i, sample.inputs()[i].spec.WithRows(static_cast<int64_t>(kept.size()))));
  for (size_t row = 0; row < kept.size(); ++row)
    std::memcpy(out.data + row * 4 * sizeof(float), &kept[row], 4 * sizeof(float));
  return absl::OkStatus();
}

absl::Status WriteLabels(Sample& sample, size_t i, size_t boxes, absl::Span<const MovedBox> kept) {
  const Tensor& labels = sample.inputs()[i];
  const int64_t rows = sample.inputs()[boxes].spec.shape[0];
  if (labels.spec.shape[0] != rows) {
    return absl::InvalidArgumentError(absl::StrCat(
        Named(sample, i), " has ", labels.spec.shape[0], " rows, but ", Named(sample, boxes),
        ", whose labels they are, has ", rows, "; there must be one for each box"));
  }
  FW_ASSIGN_OR_RETURN(const Tensor out,
                      sample.Output(i, labels.spec.WithRows(static_cast<int64_t>(kept.size()))));
  const auto bytes = DTypeSize(labels.spec.dtype);
  for (size_t row = 0; row < kept.size(); ++row) {
    std::memcpy(out.data + row * bytes, labels.data + static_cast<size_t>(kept[row].row) * bytes,
                bytes);
  }
  return absl::OkStatus();
}

absl::Status WriteKeypoints(Sample& sample, size_t i, Size canvas, const PointMap& map) {
  const Tensor& points = sample.inputs()[i];
  const auto columns = static_cast<size_t>(points.spec.shape[1]);
  FW_ASSIGN_OR_RETURN(const Tensor out, sample.Output(i, points.spec));
  for (int64_t row = 0; row < points.spec.shape[0]; ++row) {
    if (row % kRowsBetweenLooks == 0) FW_RETURN_IF_ERROR(sample.clock().Check());
    float point[3];
    const size_t at = static_cast<size_t>(row) * columns * sizeof(float);
    std::memcpy(point, points.data + at, columns * sizeof(float));
    if (!std::isfinite(point[0]) || !std::isfinite(point[1])) {
      return absl::InvalidArgumentError(absl::StrCat(Named(sample, i), " has the point [", point[0],
                                                     ", ", point[1], "] in row ", row,
                                                     ", which is not finite; mend the record"));
    }
    const Point moved = map.Move({point[0], point[1]});
    point[0] = static_cast<float>(moved.x);
    point[1] = static_cast<float>(moved.y);
    // With the border on all sides: a flip moves one of them to the other.
    const bool is_seen = moved.x >= -kRounding && moved.x <= canvas.width + kRounding &&
                         moved.y >= -kRounding && moved.y <= canvas.height + kRounding;
    if (columns == 3 && !is_seen) point[2] = 0;
    std::memcpy(out.data + at, point, columns * sizeof(float));
  }
  return absl::OkStatus();
}

}  // namespace

Size ImageSizeOf(const TensorSpec& spec) {
  const size_t first = spec.layout == Layout::kCHW ? 1 : 0;
  return {static_cast<int>(spec.shape[first + 1]), static_cast<int>(spec.shape[first])};
}

Size MostSizeOf(const TensorSpec& spec, const ImageLimits& limits) {
  if (spec.IsStatic()) return ImageSizeOf(spec);
  const int64_t width = std::clamp<int64_t>(limits.max_pixels, 1, kMaxImageSide);
  return {static_cast<int>(width), static_cast<int>((limits.max_pixels + width - 1) / width)};
}

int64_t ChannelsOf(const TensorSpec& spec) {
  return spec.layout == Layout::kCHW ? spec.shape[0] : spec.shape[2];
}

// Sums of what hostile files and parameters promise stay far from overflowing: every term is below
// 2^50 (max_pixels <= 2^30), and there are some thousands.
int64_t MostBytes(const TensorSpec& spec, const ImageLimits& limits, bool* is_bound) {
  if (spec.IsStatic()) return spec.ByteSize().value_or(0);
  const bool is_mask = spec.shape.size() == 2 && spec.shape[1] < 0 && IsIntegers(spec.dtype);
  if (!IsImage(spec) && !is_mask) return 0;
  *is_bound = true;
  if (is_mask) return limits.max_pixels * static_cast<int64_t>(DTypeSize(spec.dtype));
  return limits.max_pixels * ChannelsOf(spec) * static_cast<int64_t>(DTypeSize(spec.dtype));
}

ImageLimits LimitsOfInput(absl::Span<const TensorSpec> inputs, size_t i,
                          const PlanEnvironment& environment) {
  ImageLimits limits = environment.limits;
  if (i >= inputs.size() || i >= environment.most_bytes.size()) return limits;
  const int64_t pixel = PixelBytes(inputs[i]);
  if (pixel > 0 && (inputs[i].IsStatic() || environment.most_bytes[i] >= pixel))
    limits.max_pixels = environment.most_bytes[i] / pixel;
  return limits;
}

ImageLimits LimitsOfOutput(const Op& op, absl::Span<const TensorSpec> inputs, size_t i,
                           const PlanEnvironment& environment) {
  ImageLimits limits = environment.limits;
  if (i >= inputs.size() || PixelBytes(inputs[i]) == 0) return limits;
  const int64_t pixels = LimitsOfInput(inputs, i, environment).max_pixels;
  limits.max_pixels = op.MostPixels(inputs[i], pixels, limits);
  return limits;
}

TensorSpec ImageSpec(DType dtype, Layout layout, int64_t height, int64_t width, int64_t channels) {
  if (layout == Layout::kCHW) return {dtype, layout, {channels, height, width}};
  return {dtype, layout, {height, width, channels}};
}

absl::Status CheckPixels(int64_t height, int64_t width, const ImageLimits& limits) {
  int64_t pixels = 0;
  const bool is_huge = __builtin_mul_overflow(height, width, &pixels) || pixels > kMostPixels;
  if (!is_huge && pixels <= limits.max_pixels) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a result of ", width, "x", height, " pixels is over max_pixels (", limits.max_pixels,
      "); cure: parameters that make less of it, or a smaller image before (resize)",
      is_huge ? "" : absl::StrCat(", or limits: {max_pixels: ", pixels, "} in the pipeline")));
}

absl::StatusOr<FieldRoles> RolesOf(absl::Span<const TensorSpec> inputs,
                                   absl::Span<const std::string> fields) {
  FieldRoles roles;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool follows_boxes =
        i > 0 && (roles.back() == FieldRole::kBoxes || roles.back() == FieldRole::kLabels);
    const absl::Status good =
        CheckRole(inputs[i], follows_boxes, i < fields.size() ? fields[i] : "FIELD");
    if (!good.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("moves ", Named(fields, i),
                                                     " with the image, but it (",
                                                     inputs[i].ToString(), ") ", good.message()));
    }
    roles.push_back(RoleOf(inputs[i], i == 0));
  }
  return roles;
}

absl::Status CheckFill(absl::Span<const TensorSpec> inputs, const PlanEnvironment& environment,
                       absl::string_view name, const FillColor& fill) {
  FW_ASSIGN_OR_RETURN(const FieldRoles roles, RolesOf(inputs, environment.fields));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (roles[i] != FieldRole::kImage) continue;
    const TensorSpec& image = inputs[i];
    const auto numbers = static_cast<int64_t>(fill.values.size());
    if (numbers != 1 && numbers != ChannelsOf(image)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", name, "' has ", numbers, " numbers, but ", Named(environment.fields, i), " (",
          image.ToString(), ") has ", ChannelsOf(image),
          ChannelsOf(image) == 1 ? " channel; give one number" : " channels; give one for each"));
    }
    if (IsFloating(image.dtype)) continue;
    const auto held = [&](double value) {
      std::byte stored[sizeof(double)];
      StoreDouble(image.dtype, value, stored);
      return LoadDouble(image.dtype, stored);
    };
    const auto is_held = [&](double value) { return held(value) == value; };
    if (absl::c_all_of(fill.values, is_held)) continue;
    FillColor bytes = fill;  // of an image of floats
    for (double& value : bytes.values) value = held(255 * value);
    const bool are_floats = image.dtype == DType::kUInt8 &&
                            absl::c_all_of(fill.values, [](double v) { return v >= 0 && v <= 1; });
    return absl::InvalidArgumentError(
        absl::StrCat("'", name, "' is ", FillText(fill), ", which ", Named(environment.fields, i),
                     " (", image.ToString(), ") cannot hold; give whole numbers in its units, ",
                     held(-INFINITY), " to ", held(INFINITY),
                     are_floats ? absl::StrCat(": ", FillText(fill), " of an image of floats is ",
                                               FillText(bytes), " here")
                                : ""));
  }
  return absl::OkStatus();
}

absl::Status CheckMaskFill(absl::Span<const TensorSpec> inputs, const PlanEnvironment& environment,
                           double fill) {
  FW_ASSIGN_OR_RETURN(const FieldRoles roles, RolesOf(inputs, environment.fields));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (roles[i] != FieldRole::kMask) continue;
    std::byte stored[sizeof(double)];
    StoreDouble(inputs[i].dtype, fill, stored);
    if (LoadDouble(inputs[i].dtype, stored) == fill) continue;
    const auto end = [&](double value) {  // of what the parameter and the mask can be
      StoreDouble(inputs[i].dtype, value, stored);
      return LoadDouble(inputs[i].dtype, stored);
    };
    return absl::InvalidArgumentError(
        absl::StrCat("'mask_fill' is ", fill, ", which ", Named(environment.fields, i), " (",
                     inputs[i].ToString(), ") cannot hold; give a whole number from ", end(-1e9),
                     " to ", end(1e9)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Specs> PlanJoint(absl::Span<const TensorSpec> inputs,
                                const PlanEnvironment& environment,
                                absl::FunctionRef<absl::StatusOr<PlannedSize>(PlannedSize)> size) {
  FW_ASSIGN_OR_RETURN(const FieldRoles roles, RolesOf(inputs, environment.fields));
  const TensorSpec first = AsPicture(inputs[0]);
  Specs outputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!IsPicture(roles[i])) {
      outputs.push_back(roles[i] == FieldRole::kKeypoints ? inputs[i] : inputs[i].WithRows(-1));
      continue;
    }
    const TensorSpec picture = AsPicture(inputs[i]);
    const size_t axis = picture.layout == Layout::kCHW ? 1 : 0,
                 first_axis = first.layout == Layout::kCHW ? 1 : 0;
    for (size_t d = 0; d < 2; ++d) {
      const int64_t own = picture.shape[axis + d], other = first.shape[first_axis + d];
      if (own < 0 || other < 0 || own == other) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("moves ", Named(environment.fields, i), " (", inputs[i].ToString(),
                       ") with ", Named(environment.fields, 0), " (", inputs[0].ToString(),
                       "): they must have one size; resize one of them alone first"));
    }
    FW_ASSIGN_OR_RETURN(const PlannedSize made,
                        size({picture.shape[axis], picture.shape[axis + 1]}));
    if (made.height >= 0 && made.width >= 0)
      FW_RETURN_IF_ERROR(CheckPixels(made.height, made.width, environment.limits));
    outputs.push_back(
        IsImage(inputs[i])
            ? ImageSpec(picture.dtype, picture.layout, made.height, made.width, ChannelsOf(picture))
            : TensorSpec{picture.dtype, Layout::kPlain, {made.height, made.width}});
  }
  return outputs;
}

OpMemory JointMemory(absl::Span<const TensorSpec> inputs) {
  OpMemory memory;
  for (size_t i = 1; i < inputs.size(); ++i) {
    memory.scratch = std::max(memory.scratch, BoxesScratch(inputs[i]));
    memory.scratch_is_bound |=
        RoleOf(inputs[i], false) == FieldRole::kBoxes && !inputs[i].IsStatic();
  }
  return memory;
}

const Tensor* FindBoxes(const Sample& sample) {
  const auto inputs = sample.inputs();
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (RoleOf(inputs[i].spec, false) == FieldRole::kBoxes) return &inputs[i];
  }
  return nullptr;
}

int64_t JointScratchOf(const Sample& sample) {
  int64_t most = 0;
  for (size_t i = 1; i < sample.inputs().size(); ++i)
    most = std::max(most, BoxesScratch(sample.inputs()[i].spec));
  return most;
}

absl::StatusOr<Size> JointSize(const Sample& sample) {
  const Size size = ImageSizeOf(sample.inputs()[0].spec);
  for (size_t i = 1; i < sample.inputs().size(); ++i) {
    const TensorSpec& spec = sample.inputs()[i].spec;
    if (!IsPicture(RoleOf(spec, false)) || ImageSizeOf(AsPicture(spec)) == size) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "its inputs move together and must have one size, but ", Named(sample, i), " is ",
        spec.ToString(), " and ", Named(sample, 0), " is ", sample.inputs()[0].spec.ToString()));
  }
  return size;
}

absl::Status RunJoint(
    Sample& sample, const BoxRules& rules, Size source, Size canvas, const PointMap& map,
    std::byte* scratch,
    absl::FunctionRef<absl::Status(FieldRole role, const Tensor& in, Tensor out)> draw) {
  const auto role = [&](size_t i) { return RoleOf(sample.inputs()[i].spec, i == 0); };
  for (size_t i = 0; i < sample.inputs().size(); ++i) {
    if (!IsPicture(role(i))) continue;
    Tensor in = sample.inputs()[i];
    TensorSpec made = in.spec;
    const size_t axis = made.layout == Layout::kCHW ? 1 : 0;
    made.shape[axis] = canvas.height;
    made.shape[axis + 1] = canvas.width;
    FW_ASSIGN_OR_RETURN(Tensor out, sample.Output(i, made));
    in.spec = AsPicture(in.spec);
    out.spec = AsPicture(out.spec);
    FW_RETURN_IF_ERROR(draw(role(i), in, out));
  }
  // The boxes stay there while their labels are written.
  if (scratch == nullptr) {
    FW_ASSIGN_OR_RETURN(scratch, sample.Scratch(static_cast<size_t>(JointScratchOf(sample))));
  }
  size_t boxes = 0;
  absl::Span<const MovedBox> kept;
  for (size_t i = 0; i < sample.inputs().size(); ++i) {
    if (role(i) == FieldRole::kBoxes) {
      boxes = i;
      FW_ASSIGN_OR_RETURN(kept, MoveBoxes(sample, i, rules, source, canvas, map, scratch));
      FW_RETURN_IF_ERROR(WriteBoxes(sample, i, kept));
    }
    if (role(i) == FieldRole::kLabels) FW_RETURN_IF_ERROR(WriteLabels(sample, i, boxes, kept));
    if (role(i) == FieldRole::kKeypoints)
      FW_RETURN_IF_ERROR(WriteKeypoints(sample, i, canvas, map));
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
