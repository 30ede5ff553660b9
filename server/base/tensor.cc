#include "server/base/tensor.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/yaml.h"

namespace feedwater::server {
namespace {

struct DTypeEntry {
  DType dtype;
  absl::string_view name;
};
constexpr DTypeEntry kDTypes[] = {
    {DType::kUInt8, "uint8"},     {DType::kInt8, "int8"},       {DType::kBool, "bool"},
    {DType::kInt16, "int16"},     {DType::kUInt16, "uint16"},   {DType::kInt32, "int32"},
    {DType::kInt64, "int64"},     {DType::kFloat16, "float16"}, {DType::kBFloat16, "bfloat16"},
    {DType::kFloat32, "float32"}, {DType::kFloat64, "float64"},
};

const DTypeEntry* FindDType(DType dtype) {
  for (const DTypeEntry& entry : kDTypes) {
    if (entry.dtype == dtype) return &entry;
  }
  return nullptr;
}

}  // namespace

absl::string_view DTypeName(DType dtype) {
  const DTypeEntry* entry = FindDType(dtype);
  return entry == nullptr ? "unknown" : entry->name;
}

absl::StatusOr<DType> DTypeFromName(absl::string_view name) {
  std::vector<std::string> known;
  for (const DTypeEntry& entry : kDTypes) {
    if (entry.name == name) return entry.dtype;
    known.emplace_back(entry.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown dtype '", Printable(name), "'", Suggest(name, known)));
}

absl::string_view LayoutName(Layout layout) {
  switch (layout) {
    case Layout::kPlain:
      return "plain";
    case Layout::kHWC:
      return "HWC";
    case Layout::kCHW:
      return "CHW";
    case Layout::kEncoded:
      return "encoded";
  }
  return "unknown";
}

bool TensorSpec::IsStatic() const {
  for (int64_t size : shape) {
    if (size < 0) return false;
  }
  return true;
}

bool TensorSpec::HasVaryingRows() const {
  return !shape.empty() && shape[0] < 0 &&
         std::all_of(shape.begin() + 1, shape.end(), [](int64_t size) { return size >= 0; });
}

TensorSpec TensorSpec::WithRows(int64_t rows) const {
  TensorSpec spec = *this;
  spec.shape[0] = rows;
  return spec;
}

absl::StatusOr<int64_t> TensorSpec::ByteSize() const {
  if (!IsStatic())
    return absl::FailedPreconditionError(absl::StrCat(ToString(), " has no fixed size"));
  int64_t bytes = static_cast<int64_t>(DTypeSize(dtype));
  for (int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the size of ", ToString(), " overflows 64 bits"));
    }
  }
  return bytes;
}

std::string TensorSpec::ToString() const {
  std::string text = absl::StrCat(DTypeName(dtype), "[");
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ',';
    if (shape[i] < 0) {
      text += '?';
    } else {
      absl::StrAppend(&text, shape[i]);
    }
  }
  text += ']';
  if (layout != Layout::kPlain) absl::StrAppend(&text, " ", LayoutName(layout));
  return text;
}

int64_t Tensor::elements() const {
  int64_t count = 1;
  for (int64_t size : spec.shape) count *= size;
  return count;
}

}  // namespace feedwater::server
