#include "server/graph/element.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void Store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof(T));
}

template <typename T>
void StoreRounded(double value, std::byte* to) {
  constexpr double kLow = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double kHigh = static_cast<double>(std::numeric_limits<T>::max());
  T stored = 0;
  if (value >= kHigh) {
    stored = std::numeric_limits<T>::max();
  } else if (value <= kLow) {
    stored = std::numeric_limits<T>::min();
  } else if (!std::isnan(value)) {
    stored = static_cast<T>(std::nearbyint(value));
  }
  Store(stored, to);
}

template <typename T>
void StoreClamped(int64_t value, std::byte* to) {
  if (value > static_cast<int64_t>(std::numeric_limits<T>::max()))
    value = std::numeric_limits<T>::max();
  if (value < static_cast<int64_t>(std::numeric_limits<T>::min()))
    value = std::numeric_limits<T>::min();
  Store(static_cast<T>(value), to);
}

// The last bit of what is cut off is kept in the last bit of what is left (rounding to odd): then
// rounding that once more, to a type with two bits less or fewer, gives what rounding once would.
// REQUIRES: `rounded` is `exact` rounded to nearest, and not NaN; `Bits` is the integer of its
// size.
template <typename Bits, typename F, typename Exact>
F ToOdd(F rounded, Exact exact, Exact back) {
  if (back == exact) return rounded;
  auto bits = std::bit_cast<Bits>(rounded);
  if (exact < 0 ? back < exact : back > exact) --bits;  // towards zero
  return std::bit_cast<F>(bits | 1);
}

float RoundedToOdd(double value) {
  const auto rounded = static_cast<float>(value);
  return std::isnan(value) ? rounded : ToOdd<uint32_t>(rounded, value, double{rounded});
}

double RoundedToOdd(int64_t value) {
  const auto rounded = static_cast<double>(value);
  return ToOdd<uint64_t, double, __int128>(rounded, value, static_cast<__int128>(rounded));
}

int64_t LoadInteger(DType dtype, const std::byte* from) {
  switch (dtype) {
    case DType::kUInt8:
      return Load<uint8_t>(from);
    case DType::kInt8:
      return Load<int8_t>(from);
    case DType::kBool:
      return Load<uint8_t>(from) != 0;
    case DType::kInt16:
      return Load<int16_t>(from);
    case DType::kUInt16:
      return Load<uint16_t>(from);
    case DType::kInt32:
      return Load<int32_t>(from);
    case DType::kInt64:
      return Load<int64_t>(from);
    default:
      return 0;
  }
}

void StoreInteger(DType dtype, int64_t value, std::byte* to) {
  switch (dtype) {
    case DType::kUInt8:
      return StoreClamped<uint8_t>(value, to);
    case DType::kInt8:
      return StoreClamped<int8_t>(value, to);
    case DType::kBool:
      return Store<uint8_t>(value != 0, to);
    case DType::kInt16:
      return StoreClamped<int16_t>(value, to);
    case DType::kUInt16:
      return StoreClamped<uint16_t>(value, to);
    case DType::kInt32:
      return StoreClamped<int32_t>(value, to);
    case DType::kInt64:
      return Store<int64_t>(value, to);
    case DType::kFloat32:
      return Store(static_cast<float>(value), to);
    case DType::kFloat64:
      return Store(static_cast<double>(value), to);
    default:
      return StoreDouble(dtype, RoundedToOdd(value), to);
  }
}

}  // namespace

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;   // NaN
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to 65536 or more: infinity
  if (magnitude < 0x38800000u) {  // below 2^-14: subnormal, multiples of 2^-24
    const float scaled = std::bit_cast<float>(magnitude) * 16777216.0f;
    return sign | static_cast<uint16_t>(std::nearbyint(scaled));
  }
  const uint32_t odd = (magnitude >> 13) & 1;
  return sign | static_cast<uint16_t>((magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1f, mantissa = half & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    const float tiny = static_cast<float>(mantissa) / 16777216.0f;
    return sign ? -tiny : tiny;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

float BFloat16ToFloat(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

bool IsFloating(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64;
}

double LoadDouble(DType dtype, const std::byte* from) {
  switch (dtype) {
    case DType::kFloat16:
      return HalfToFloat(Load<uint16_t>(from));
    case DType::kBFloat16:
      return BFloat16ToFloat(Load<uint16_t>(from));
    case DType::kFloat32:
      return Load<float>(from);
    case DType::kFloat64:
      return Load<double>(from);
    default:
      return static_cast<double>(LoadInteger(dtype, from));
  }
}

void StoreDouble(DType dtype, double value, std::byte* to) {
  switch (dtype) {
    case DType::kUInt8:
      return StoreRounded<uint8_t>(value, to);
    case DType::kInt8:
      return StoreRounded<int8_t>(value, to);
    case DType::kBool:
      return Store<uint8_t>(value != 0, to);
    case DType::kInt16:
      return StoreRounded<int16_t>(value, to);
    case DType::kUInt16:
      return StoreRounded<uint16_t>(value, to);
    case DType::kInt32:
      return StoreRounded<int32_t>(value, to);
    case DType::kInt64:
      return StoreRounded<int64_t>(value, to);
    case DType::kFloat16:
      return Store(FloatToHalf(RoundedToOdd(value)), to);
    case DType::kBFloat16:
      return Store(FloatToBFloat16(RoundedToOdd(value)), to);
    case DType::kFloat32:
      return Store(static_cast<float>(value), to);
    case DType::kFloat64:
      return Store(value, to);
  }
}

void ConvertElements(DType from_type, const std::byte* from, DType to_type, std::byte* to,
                     int64_t count) {
  const size_t from_step = DTypeSize(from_type), to_step = DTypeSize(to_type);
  if (from_type == to_type) {
    std::memcpy(to, from, static_cast<size_t>(count) * from_step);
  } else if (from_type == DType::kUInt8 && to_type == DType::kFloat32) {
    for (int64_t i = 0; i < count; ++i)
      Store(static_cast<float>(Load<uint8_t>(from + i)), to + 4 * i);
  } else if (IsFloating(from_type)) {
    for (int64_t i = 0; i < count; ++i)
      StoreDouble(to_type, LoadDouble(from_type, from + i * from_step), to + i * to_step);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      StoreInteger(to_type, LoadInteger(from_type, from + i * from_step), to + i * to_step);
    }
  }
}

absl::StatusOr<int64_t> LoadClass(DType dtype, const std::byte* from, int64_t classes) {
  int64_t label = 0;
  ConvertElements(dtype, from, DType::kInt64, reinterpret_cast<std::byte*>(&label), 1);
  if (label >= 0 && label < classes) return label;
  return absl::InvalidArgumentError(absl::StrCat("class ", label, " is outside 0..", classes - 1));
}

}  // namespace feedwater::server
