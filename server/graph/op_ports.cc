#include "server/graph/op_ports.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/graph/element.h"
#include "server/graph/joint_fields.h"

namespace feedwater::server {
namespace {

// Whether a joint op can have it behind the image; what it is there is for the op to judge.
bool MovesWithImage(const TensorSpec& spec) {
  if (spec.layout == Layout::kHWC)
    return spec.shape.size() == 3 && spec.shape[2] == 1 && !IsFloating(spec.dtype);
  return spec.layout == Layout::kPlain;
}

bool TakesImages(const Port& port) {
  return port.layouts[0] == Layout::kHWC || port.layouts[0] == Layout::kCHW;
}

}  // namespace

absl::Status CheckPort(const OpEntry& entry, size_t i, absl::string_view name,
                       const TensorSpec& spec, bool is_of_dataset) {
  if (entry.is_joint && i > 0 && MovesWithImage(spec)) return absl::OkStatus();
  const Port& port = entry.inputs[entry.is_repeated || entry.is_free ? 0 : i];
  const bool layout_fits =
      port.layouts.empty() ||
      std::find(port.layouts.begin(), port.layouts.end(), spec.layout) != port.layouts.end();
  const bool dtype_fits = port.dtypes.empty() || std::find(port.dtypes.begin(), port.dtypes.end(),
                                                           spec.dtype) != port.dtypes.end();
  if (layout_fits && dtype_fits) {
    if (!IsImage(spec)) return absl::OkStatus();
    const int64_t channels =
        spec.shape.size() == 3 ? spec.shape[spec.layout == Layout::kCHW ? 0 : 2] : -1;
    const bool is_empty = std::find(spec.shape.begin(), spec.shape.end(), 0) != spec.shape.end();
    if ((channels == 1 || channels == 3) && !is_empty) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("takes images with 1 or 3 channels and at least one pixel, but '", name,
                     "' is ", spec.ToString()));
  }
  std::string cure;
  if (spec.layout == Layout::kEncoded && port.field == "audio") {
    cure = absl::StrCat("; decode it first: '- decode_audio: {in: ", name,
                        ", out: audio, sample_rate: 16000}'");
  } else if (spec.layout == Layout::kEncoded) {
    cure = absl::StrCat("; decode it first: '- decode: {in: ", name, ", out: image}'");
  } else if (IsImage(spec) && !layout_fits && !TakesImages(port)) {
    // No change of the image makes it fit.
  } else if (IsImage(spec) && is_of_dataset) {
    cure = layout_fits ? absl::StrCat("; put '- cast: {in: ", name,
                                      ", dtype: ", DTypeName(port.dtypes[0]), "}' before it")
                       : absl::StrCat("; put '- layout: {in: ", name,
                                      ", layout: ", LayoutName(port.layouts[0]), "}' before it");
  } else if (IsImage(spec) && layout_fits) {
    cure = "; put this op before the one that changes its dtype (normalize or cast)";
  } else if (IsImage(spec)) {
    cure = "; put this op before the one that changes its layout (normalize or layout)";
  }
  return absl::InvalidArgumentError(
      absl::StrCat("takes ", entry.InputText(i), ", but '", name, "' is ", spec.ToString(), cure));
}

absl::Status CheckSizes(const Specs& planned) {
  for (const TensorSpec& output : planned) {
    if (output.IsStatic()) FW_RETURN_IF_ERROR(output.ByteSize().status());
  }
  return absl::OkStatus();
}

absl::Status CheckNotEmpty(const TensorSpec& spec) {
  if (!IsImage(spec) || spec.ByteSize().value_or(1) > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("an image without pixels: ", spec.ToString()));
}

absl::Status CheckPlanned(const TensorSpec& spec, const TensorSpec& planned) {
  bool agrees = spec.dtype == planned.dtype && spec.layout == planned.layout &&
                spec.shape.size() == planned.shape.size() && spec.IsStatic();
  for (size_t d = 0; agrees && d < spec.shape.size(); ++d) {
    agrees = planned.shape[d] < 0 || planned.shape[d] == spec.shape[d];
  }
  if (agrees) return CheckNotEmpty(spec);
  return absl::InternalError(
      absl::StrCat("writes ", spec.ToString(), ", but had planned ", planned.ToString()));
}

ByteCounts MostBytesMade(const OpEntry& entry, const Op& op, const OpMemory& memory,
                         absl::Span<const TensorSpec> inputs, const PlanEnvironment& environment,
                         Specs* made, bool* is_bound) {
  const absl::Span<const int64_t> most_bytes = environment.most_bytes;
  ByteCounts bytes;
  for (size_t i = 0; i < made->size(); ++i) {
    TensorSpec& spec = (*made)[i];
    const bool has_open_rows = spec.HasVaryingRows() && !IsImage(spec);
    const bool is_told = i < memory.outputs.size();
    if (is_told && (entry.is_combinator() || (!spec.IsStatic() && !IsImage(spec)))) {
      bytes.push_back(memory.outputs[i]);
      const int64_t row = has_open_rows ? spec.WithRows(1).ByteSize().value_or(0) : 0;
      if (row > 0) spec = spec.WithRows(memory.outputs[i] / row);
    } else if (spec.IsStatic() || IsImage(spec) || (entry.is_joint && !has_open_rows)) {
      bytes.push_back(MostBytes(spec, LimitsOfOutput(op, inputs, i, environment), is_bound));
    } else if (entry.is_joint) {
      bytes.push_back(most_bytes[i]);
      spec = inputs[i];
    } else {
      int64_t numbers = 0;
      for (size_t k = 0; k < inputs.size(); ++k) {
        if (k != i && (entry.is_free || entry.is_repeated)) continue;  // each is made of its own
        const auto size = static_cast<int64_t>(DTypeSize(inputs[k].dtype));
        numbers = std::max(numbers, most_bytes[k] / size);
      }
      bytes.push_back(numbers * static_cast<int64_t>(DTypeSize(spec.dtype)));
    }
  }
  return bytes;
}

}  // namespace feedwater::server
