#include "server/graph/batch_mixing.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/work_clock.h"
#include "server/graph/element.h"
#include "server/graph/joint_fields.h"
#include "server/imaging/mix_kernels.h"

namespace feedwater::server {
namespace {

// Uniform in (0, 1), both ends excluded, for logarithms.
double OpenUniform(Draws& draws) { return (draws.Next() + 0.5) * 0x1p-32; }

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

int64_t ClassOf(const BatchField& labels, int64_t k) {
  int64_t label = 0;
  ConvertElements(labels.spec.dtype, labels.at(k), DType::kInt64,
                  reinterpret_cast<std::byte*>(&label), 1);
  return label;
}

// To what the k-th sample has of class `label`.
void AddWeight(const BatchField& labels, int64_t k, int64_t label, float weight) {
  std::byte* const at = labels.at(k) + label * static_cast<int64_t>(sizeof(float));
  const float sum = Load<float>(at) + weight;
  std::memcpy(at, &sum, sizeof(sum));
}

}  // namespace

absl::StatusOr<Specs> MixingOp::Plan(absl::Span<const TensorSpec> inputs,
                                     const PlanEnvironment& environment) const {
  const TensorSpec& label = inputs[1];
  if (!IsClassNumber(label)) {
    if (label.shape.size() == 1 && IsFloating(label.dtype)) {
      if (num_classes_ == 0 || num_classes_ == label.shape[0]) return Specs{inputs[0], label};
      return absl::InvalidArgumentError(absl::StrCat("num_classes is ", num_classes_,
                                                     ", but the label has ", label.shape[0],
                                                     " weights: leave it out"));
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "takes a class number or a vector of weights as label, not ", label.ToString()));
  }
  if (IsFloating(label.dtype) || label.dtype == DType::kBool) {
    return absl::InvalidArgumentError(
        absl::StrCat("takes a class number as label, not ", label.ToString()));
  }
  const int64_t classes = num_classes_ > 0 ? num_classes_ : environment.classes;
  if (classes <= 0) {
    return absl::InvalidArgumentError(
        "needs num_classes, because the dataset does not name its classes");
  }
  FW_RETURN_IF_ERROR(environment.CheckClasses(classes, 1));
  return Specs{inputs[0], {DType::kFloat32, Layout::kPlain, {classes}}};
}

absl::Status BoxMixingOp::Run(const OpBatch& batch, Draws draws) const {
  const BatchField& images = batch.inputs[0];
  const Size size = ImageSizeOf(images.spec);
  const Rect box = DrawBox(size, draws);
  const double area =
      static_cast<double>(box.width) * box.height / (static_cast<double>(size.width) * size.height);
  DrawPermutation(batch.permutation, draws);
  FW_RETURN_IF_ERROR(MixLabels(batch, static_cast<float>(1.0 - area)));
  return MixField(batch, 0, [&](std::byte* out, const std::byte* own, const std::byte* partner) {
    if (out != own) std::memcpy(out, own, static_cast<size_t>(images.sample_bytes));
    Paste(images.spec, box, partner, out);
  });
}

double DrawLogGamma(double alpha, Draws& draws) {
  const double boosted = alpha < 1 ? alpha + 1 : alpha;
  const double d = boosted - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
  for (;;) {
    const double x = draws.Normal();
    const double base = 1.0 + c * x;
    if (base <= 0) continue;
    const double v = base * base * base;
    if (std::log(OpenUniform(draws)) >= 0.5 * x * x + d - d * v + d * std::log(v)) continue;
    const double log_gamma = std::log(d * v);
    return alpha < 1 ? log_gamma + std::log(OpenUniform(draws)) / alpha : log_gamma;
  }
}

double DrawBeta(double alpha, Draws& draws) {
  const double first = DrawLogGamma(alpha, draws), second = DrawLogGamma(alpha, draws);
  return 1.0 / (1.0 + std::exp(second - first));
}

void DrawPermutation(absl::Span<int64_t> permutation, Draws& draws) {
  const int64_t n = static_cast<int64_t>(permutation.size());
  for (int64_t i = 0; i < n; ++i) permutation[i] = i;
  for (int64_t i = n - 1; i > 0; --i) std::swap(permutation[i], permutation[draws.Below(i + 1)]);
}

absl::Status MixField(
    const OpBatch& batch, size_t field,
    absl::FunctionRef<void(std::byte* out, const std::byte* own, const std::byte* partner)> mix) {
  const BatchField& in = batch.inputs[field];
  const BatchField& out = batch.outputs[field];
  absl::Span<int64_t> permutation = batch.permutation;
  // Along each cycle of the permutation a sample is overwritten only after the one that it is the
  // partner of; the first of the cycle, which is the last one's partner, is kept aside. Visited
  // places are marked by complement, and restored.
  for (int64_t start = 0; start < batch.samples; ++start) {
    if (permutation[start] < 0) continue;
    std::memcpy(batch.scratch, in.at(start), static_cast<size_t>(in.sample_bytes));
    for (int64_t k = start; permutation[k] >= 0;) {
      const int64_t partner = permutation[k];
      FW_RETURN_IF_ERROR(batch.clock->Check());
      mix(out.at(k), in.at(k), partner == start ? batch.scratch : in.at(partner));
      permutation[k] = ~partner;
      k = partner;
    }
  }
  for (int64_t k = 0; k < batch.samples; ++k) permutation[k] = ~permutation[k];
  return absl::OkStatus();
}

void MixElements(DType dtype, float weight, const std::byte* own, const std::byte* partner,
                 int64_t elements, std::byte* out) {
  const float rest = 1.0f - weight;
  const auto count = static_cast<size_t>(elements);
  if (dtype == DType::kFloat32) {
    kernels::Mixes().floats(reinterpret_cast<const float*>(own),
                            reinterpret_cast<const float*>(partner), weight, rest, count,
                            reinterpret_cast<float*>(out));
    return;
  }
  if (dtype == DType::kUInt8) {
    kernels::Mixes().bytes(reinterpret_cast<const uint8_t*>(own),
                           reinterpret_cast<const uint8_t*>(partner), weight, rest, count,
                           reinterpret_cast<uint8_t*>(out));
    return;
  }
  const size_t step = DTypeSize(dtype);
  for (int64_t i = 0; i < elements; ++i) {
    const float a = static_cast<float>(LoadDouble(dtype, own + i * step));
    const float b = static_cast<float>(LoadDouble(dtype, partner + i * step));
    StoreDouble(dtype, weight * a + rest * b, out + i * step);
  }
}

absl::Status MixLabels(const OpBatch& batch, float weight) {
  const BatchField& in = batch.inputs[1];
  if (!IsClassNumber(in.spec)) {
    const int64_t classes = in.spec.shape[0];
    return MixField(batch, 1, [&](std::byte* to, const std::byte* own, const std::byte* partner) {
      MixElements(in.spec.dtype, weight, own, partner, classes, to);
    });
  }
  FW_RETURN_IF_ERROR(StartLabels(batch, weight));
  AddLabels(batch, 1.0f - weight);
  return absl::OkStatus();
}

absl::Status StartLabels(const OpBatch& batch, float weight) {
  const BatchField& out = batch.outputs[1];
  const int64_t classes = out.spec.shape[0];
  for (int64_t k = 0; k < batch.samples; ++k) {
    const BatchField& labels = batch.inputs[1];
    const absl::Status known = LoadClass(labels.spec.dtype, labels.at(k), classes).status();
    if (!known.ok()) return Annotate(known, absl::StrCat("sample ", k, " of the batch"));
  }
  for (int64_t k = 0; k < batch.samples; ++k) {
    FW_RETURN_IF_ERROR(batch.clock->Check());
    std::memset(out.at(k), 0, static_cast<size_t>(out.sample_bytes));
    AddWeight(out, k, ClassOf(batch.inputs[1], k), weight);
  }
  return absl::OkStatus();
}

void AddLabels(const OpBatch& batch, float weight) {
  for (int64_t k = 0; k < batch.samples; ++k) {
    AddWeight(batch.outputs[1], k, ClassOf(batch.inputs[1], batch.permutation[k]), weight);
  }
}

void CopyBox(const TensorSpec& spec, Rect box, const std::byte* from, std::byte* to) {
  const Size size = ImageSizeOf(spec);
  const int64_t channels = ChannelsOf(spec), element = static_cast<int64_t>(DTypeSize(spec.dtype));
  const bool planar = spec.layout == Layout::kCHW;
  const int64_t planes = planar ? channels : 1, pixel = planar ? element : element * channels;
  for (int64_t plane = 0; plane < planes; ++plane) {
    for (int64_t y = box.y; y < box.y + box.height; ++y) {
      const int64_t at = ((plane * size.height + y) * size.width + box.x) * pixel;
      std::memcpy(to + at, from + at, static_cast<size_t>(box.width * pixel));
    }
  }
}

}  // namespace feedwater::server
