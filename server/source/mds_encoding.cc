#include "server/source/mds_encoding.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/base/yaml.h"

namespace feedwater::server {
namespace {

using Kind = MdsEncoding::Kind;

constexpr MdsNumber kNumbers[] = {
    {"uint8", 8, 1, DType::kUInt8},      {"int8", 9, 1, DType::kInt8},
    {"uint16", 16, 2, DType::kUInt16},   {"int16", 17, 2, DType::kInt16},
    {"float16", 18, 2, DType::kFloat16}, {"uint32", 32, 4, DType::kInt64},
    {"int32", 33, 4, DType::kInt32},     {"float32", 34, 4, DType::kFloat32},
    {"uint64", 64, 8, DType::kInt64},    {"int64", 65, 8, DType::kInt64},
    {"float64", 66, 8, DType::kFloat64}};
constexpr size_t kMaxAxes = 8;
constexpr uint64_t kMaxFixedBytes = 256 << 20;

template <typename Fits>
const MdsNumber* FindNumber(const Fits& fits) {
  const MdsNumber* found = std::find_if(std::begin(kNumbers), std::end(kNumbers), fits);
  return found == std::end(kNumbers) ? nullptr : found;
}
const MdsNumber* NumberNamed(absl::string_view name) {
  return FindNumber([&](const MdsNumber& number) { return number.name == name; });
}

template <typename T>
T Load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// Bytes of so many elements; false when they are too many to be there.
bool BytesOf(const Shape& shape, uint64_t element, uint64_t* bytes) {
  *bytes = element;
  for (const int64_t axis : shape) {
    if (axis < 0 || __builtin_mul_overflow(*bytes, static_cast<uint64_t>(axis), bytes))
      return false;
  }
  return true;
}

MdsEncoding ParseArray(absl::string_view text) {
  MdsEncoding encoding;
  encoding.kind = Kind::kArray;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  const MdsEncoding refused;
  if (parts.size() > 3) return refused;
  if (parts.size() > 1) {
    encoding.number = NumberNamed(parts[1]);
    if (encoding.number == nullptr) return refused;
  }
  if (parts.size() < 3) return encoding;
  encoding.shape.emplace();
  for (const absl::string_view axis : absl::StrSplit(parts[2], ',')) {
    int64_t length = 0;
    if (!absl::SimpleAtoi(axis, &length) || length < 1 || encoding.shape->size() == kMaxAxes)
      return refused;
    encoding.shape->push_back(length);
  }
  if (!BytesOf(*encoding.shape, encoding.number->bytes, &encoding.bytes) ||
      encoding.bytes > kMaxFixedBytes) {
    return refused;
  }
  return encoding;
}

absl::Status CutOff() { return absl::DataLossError("is an array that is cut off"); }

absl::StatusOr<MdsArray> ReadPicture(absl::string_view value) {
  constexpr size_t kHead = 12;
  if (value.size() < kHead) return absl::DataLossError("is a picture that is cut off");
  const int64_t width = Load<uint32_t>(value.data()), height = Load<uint32_t>(value.data() + 4);
  const size_t mode_bytes = Load<uint32_t>(value.data() + 8);
  value.remove_prefix(kHead);
  if (mode_bytes > value.size()) return absl::DataLossError("is a picture that is cut off");
  const absl::string_view mode = value.substr(0, mode_bytes);
  value.remove_prefix(mode_bytes);
  if (mode != "RGB" && mode != "L") {
    return absl::InvalidArgumentError(
        absl::StrCat("is a picture of PIL's mode '", Printable(mode.substr(0, 20)),
                     "', not RGB or L; cure: image.convert('RGB') and write again"));
  }
  MdsArray picture{NumberNamed("uint8"), {height, width, mode == "L" ? 1 : 3}, value};
  uint64_t bytes = 0;
  if (!BytesOf(picture.shape, 1, &bytes) || bytes != value.size())
    return absl::DataLossError(absl::StrCat("is a picture of ", width, "x", height, " pixels with ",
                                            value.size(), " bytes"));
  return picture;
}

}  // namespace

MdsEncoding ParseMdsEncoding(absl::string_view text) {
  MdsEncoding encoding;
  if (text == "ndarray" || absl::StartsWith(text, "ndarray:")) return ParseArray(text);
  if (text == "int") text = "int64";
  encoding.number = NumberNamed(text);
  if (encoding.number != nullptr) {
    encoding.kind = Kind::kNumber;
    encoding.bytes = encoding.number->bytes;
  } else if (text == "bytes" || text == "jpeg" || text == "png" || text == "jpegarray" ||
             text == "jpeg_array") {
    encoding.kind = Kind::kBytes;
  } else if (text == "str" || text == "json" || text == "str_int" || text == "str_float" ||
             text == "str_decimal") {
    encoding.kind = Kind::kText;
  } else if (text == "pil") {
    encoding.kind = Kind::kPicture;
  }
  return encoding;
}

absl::StatusOr<MdsArray> ReadMdsArray(const MdsEncoding& encoding, absl::string_view value) {
  if (encoding.kind == Kind::kPicture) return ReadPicture(value);
  MdsArray array;
  array.number = encoding.number;
  if (array.number == nullptr) {
    if (value.empty()) return CutOff();
    const auto code = static_cast<uint8_t>(value[0]);
    array.number = FindNumber([&](const MdsNumber& number) { return number.code == code; });
    if (array.number == nullptr)
      return absl::DataLossError(absl::StrCat("is an array of the unknown type ", code));
    value.remove_prefix(1);
  }
  if (encoding.shape) {
    array.shape = *encoding.shape;
  } else {
    if (value.empty()) return CutOff();
    const auto head = static_cast<uint8_t>(value[0]);
    const size_t axes = head >> 2, width = size_t{1} << (head & 3);
    value.remove_prefix(1);
    if (axes > kMaxAxes)
      return absl::InvalidArgumentError(
          absl::StrCat("is an array of ", axes, " axes, more than ", kMaxAxes));
    if (value.size() < axes * width) return CutOff();
    for (size_t axis = 0; axis < axes; ++axis) {
      uint64_t length = 0;
      std::memcpy(&length, value.data() + axis * width, width);
      if (length > static_cast<uint64_t>(INT64_MAX)) return CutOff();
      array.shape.push_back(static_cast<int64_t>(length));
    }
    value.remove_prefix(axes * width);
  }
  uint64_t bytes = 0;
  if (!BytesOf(array.shape, array.number->bytes, &bytes) || bytes != value.size()) {
    return absl::DataLossError(
        absl::StrCat("has ", value.size(), " bytes for ",
                     TensorSpec{array.number->dtype, Layout::kPlain, array.shape}.ToString()));
  }
  array.elements = value;
  return array;
}

absl::Status CopyMdsUnsigned(const MdsNumber& number, absl::string_view from, std::byte* to) {
  for (size_t at = 0; at + number.bytes <= from.size(); at += number.bytes, to += sizeof(int64_t)) {
    uint64_t value = 0;
    std::memcpy(&value, from.data() + at, number.bytes);
    if (value > static_cast<uint64_t>(INT64_MAX)) {
      return absl::InvalidArgumentError(
          absl::StrCat("has the ", number.name, " ", value, ", which int64 cannot hold"));
    }
    std::memcpy(to, &value, sizeof(value));
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
