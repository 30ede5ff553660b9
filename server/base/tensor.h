// What a field of a sample looks like in memory. A Tensor is a view and owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "server/base/status.h"

namespace feedwater::server {

// The numbers are those of feedwater.v1.DType and never change.
enum class DType : uint8_t {
  kUInt8 = 1,
  kInt8 = 2,
  kBool = 3,
  kInt16 = 4,
  kUInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kFloat16 = 8,
  kBFloat16 = 9,
  kFloat32 = 10,
  kFloat64 = 11,
};

// How the axes are to be read. kEncoded: the bytes of a compressed image file (dtype uint8, shape
// {-1}).
enum class Layout : uint8_t { kPlain, kHWC, kCHW, kEncoded };

using Shape = absl::InlinedVector<int64_t, 4>;  // -1: settled per sample, not by the plan

size_t DTypeSize(DType dtype);             // bytes of one element
absl::string_view DTypeName(DType dtype);  // numpy's name: "uint8", "float32", ...; "bfloat16"
absl::StatusOr<DType> DTypeFromName(absl::string_view name);
absl::string_view LayoutName(Layout layout);  // "plain", "HWC", "CHW", "encoded"

struct TensorSpec {
  DType dtype = DType::kUInt8;
  Layout layout = Layout::kPlain;
  Shape shape;

  bool IsStatic() const;  // no -1 in the shape
  // Whether the number of rows, and nothing else, differs from sample to sample: [?], [?,4].
  bool HasVaryingRows() const;
  TensorSpec WithRows(int64_t rows) const;  // REQUIRES: at least one axis
  // Bytes of a static spec; error when the product overflows int64 or the spec is not static.
  absl::StatusOr<int64_t> ByteSize() const;
  std::string ToString() const;  // "uint8[224,224,3] HWC", unknown sizes as '?'
  friend bool operator==(const TensorSpec& a, const TensorSpec& b) {
    return a.dtype == b.dtype && a.layout == b.layout && a.shape == b.shape;
  }
};

struct Tensor {
  TensorSpec spec;  // static
  std::byte* data = nullptr;

  int64_t elements() const;
  size_t bytes() const { return static_cast<size_t>(elements()) * DTypeSize(spec.dtype); }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

}  // namespace feedwater::server
