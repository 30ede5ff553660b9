// How MosaicML Streaming stores a value in an .mds shard, as streaming/base/format/mds/encodings.py
// writes it: the names of encodings, and the values behind them. Pure functions; any bytes are
// safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/base/status.h"
#include "server/source/columns.h"

namespace feedwater::server {

// A number as it is stored. Those that have no counterpart (uint32, uint64) become int64.
struct MdsNumber {
  absl::string_view name;
  uint8_t code;  // in arrays that carry their type
  uint8_t bytes;
  DType dtype;  // as what it is delivered
  bool is_unsigned_wide() const { return dtype == DType::kInt64 && name[0] == 'u'; }
};

struct MdsEncoding {
  enum class Kind : uint8_t {
    kBytes,    // bytes, jpeg, png: as they are
    kText,     // str, json, str_int, str_float, str_decimal
    kNumber,   // int, uint8, ..., float64
    kArray,    // ndarray[:dtype[:shape]]
    kPicture,  // pil: the pixels of an image
    kRefused,  // pkl, and what is not known
  };
  Kind kind = Kind::kRefused;
  const MdsNumber* number = nullptr;  // kNumber, and kArray where it is fixed
  std::optional<Shape> shape;         // kArray where it is fixed
  uint64_t bytes = 0;                 // of every value; 0: they differ, and each says how many
};
MdsEncoding ParseMdsEncoding(absl::string_view text);

// A value of kArray or kPicture: what is stored with it, and where its elements are.
struct MdsArray {
  const MdsNumber* number = nullptr;
  Shape shape;  // kPicture: [height, width, channels]
  absl::string_view elements;
};
// DataLoss or InvalidArgument that begin with a verb: "is cut off".
absl::StatusOr<MdsArray> ReadMdsArray(const MdsEncoding& encoding, absl::string_view value);

// Copies numbers that are stored as uint32 or uint64. InvalidArgument when one does not fit.
absl::Status CopyMdsUnsigned(const MdsNumber& number, absl::string_view from, std::byte* to);

}  // namespace feedwater::server
