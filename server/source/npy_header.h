// The head of a NumPy array file (.npy), as numpy.lib.format describes it, versions 1.0 to 3.0.
// Read as text with a grammar of three keys: nothing of it is ever evaluated.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "server/base/status.h"
#include "server/base/tensor.h"

namespace feedwater::server {

inline constexpr absl::string_view kNpyMagic("\x93NUMPY", 6);
inline constexpr size_t kMaxNpyHeaderBytes = 64 << 10;  // of a version 1.0 file; more is refused

struct NpyHeader {
  DType dtype = DType::kUInt8;
  Shape shape;
  size_t bytes = 0;  // where the elements begin
};

// `head`: the file's first bytes, kMaxNpyHeaderBytes or all that it has. InvalidArgument, with the
// cure, for what cannot be read in any order or not at all: object and structured dtypes, Fortran
// order, big-endian numbers, dtypes without a counterpart.
absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view head);

// The head of a version 1.0 file of one array, its length a multiple of 64. Empty for bfloat16,
// which the format does not have.
std::string WriteNpyHeader(DType dtype, const Shape& shape);

}  // namespace feedwater::server
