#include "server/source/value_conversion.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/base/escape.h"
#include "server/base/yaml.h"  // Printable

namespace feedwater::server {
namespace {

template <typename T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// Calls `use` with a value of the C++ type of a dtype; false for those that have none here.
template <typename Use>
bool WithType(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::kUInt8:
      use(uint8_t{});
      return true;
    case DType::kInt8:
      use(int8_t{});
      return true;
    case DType::kBool:
      use(bool{});
      return true;
    case DType::kInt16:
      use(int16_t{});
      return true;
    case DType::kUInt16:
      use(uint16_t{});
      return true;
    case DType::kInt32:
      use(int32_t{});
      return true;
    case DType::kInt64:
      use(int64_t{});
      return true;
    case DType::kFloat32:
      use(float{});
      return true;
    case DType::kFloat64:
      use(double{});
      return true;
    default:
      return false;
  }
}

// Whether `from` has an exact counterpart in the whole numbers of To, or one near it in its floats.
template <typename To, typename From>
bool Fits(From from) {
  if constexpr (std::is_same_v<To, float> && std::is_same_v<From, double>) {
    return FitsFloat32(from);
  } else if constexpr (std::is_floating_point_v<To>) {
    return true;
  } else if constexpr (std::is_floating_point_v<From>) {
    // 2^63 as a double is one more than the largest int64.
    const double value = from;
    return value == std::trunc(value) &&
           value >= static_cast<double>(std::numeric_limits<To>::min()) &&
           value < static_cast<double>(std::numeric_limits<To>::max()) + 1.0;
  } else {
    const auto value = static_cast<int64_t>(from);
    return value >= static_cast<int64_t>(std::numeric_limits<To>::min()) &&
           value <= static_cast<int64_t>(std::numeric_limits<To>::max());
  }
}

template <typename From, typename To>
absl::Status ConvertAll(const std::byte* from, std::byte* to, int64_t count, DType to_dtype) {
  for (int64_t i = 0; i < count; ++i) {
    // A bool may be any byte in a file.
    From value;
    if constexpr (std::is_same_v<From, bool>) {
      value = Load<uint8_t>(from + i) != 0;
    } else {
      value = Load<From>(from + i * static_cast<int64_t>(sizeof(From)));
    }
    if (!Fits<To>(value)) {
      return absl::InvalidArgumentError(absl::StrCat("has ", static_cast<double>(value), ", which ",
                                                     DTypeName(to_dtype), " cannot hold"));
    }
    const auto converted = static_cast<To>(value);
    std::memcpy(to + i * static_cast<int64_t>(sizeof(To)), &converted, sizeof(To));
  }
  return absl::OkStatus();
}

// What a text that SimpleAtod reads is as an integer, exactly: "1.5e3" is 1500. Nothing: it is none
// that int64 holds.
std::optional<int64_t> WholeNumber(absl::string_view text) {
  constexpr int64_t kMaxExponent = 1'000'000, kMaxDigits = 19;
  const bool is_negative = absl::ConsumePrefix(&text, "-");
  if (!is_negative) absl::ConsumePrefix(&text, "+");
  const size_t e = text.find_first_of("eE");
  const absl::string_view mantissa = text.substr(0, e);
  const size_t point = mantissa.find('.');
  std::string digits = absl::StrCat(mantissa.substr(0, point), point == absl::string_view::npos
                                                                   ? absl::string_view()
                                                                   : mantissa.substr(point + 1));
  if (!std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit)) return std::nullopt;
  while (!digits.empty() && digits.back() == '0') digits.pop_back();
  const size_t zeros = std::min(digits.find_first_not_of('0'), digits.size());
  digits.erase(0, zeros);
  if (digits.empty()) return 0;
  int64_t exponent = 0;
  if (e != absl::string_view::npos && (!absl::SimpleAtoi(text.substr(e + 1), &exponent) ||
                                       exponent < -kMaxExponent || exponent > kMaxExponent)) {
    return std::nullopt;
  }
  const auto before_point = static_cast<int64_t>(std::min(point, mantissa.size()));
  const int64_t whole = before_point - static_cast<int64_t>(zeros) + exponent;  // digits of it
  if (whole < static_cast<int64_t>(digits.size()) || whole > kMaxDigits) return std::nullopt;
  digits.resize(static_cast<size_t>(whole), '0');
  int64_t integer = 0;
  if (!absl::SimpleAtoi(absl::StrCat(is_negative ? "-" : "", digits), &integer))
    return std::nullopt;
  return integer;
}

}  // namespace

bool FitsFloat32(double value) {
  constexpr double kEnd = 0x1.ffffffp127;  // is rounded to infinity, and what is below it is not
  return !std::isfinite(value) || std::abs(value) < kEnd;
}

bool ReadDouble(absl::string_view text, double* number) {
  if (!absl::SimpleAtod(text, number)) return false;
  // "inf" is one; 1e999 is another number than that.
  return !std::isinf(*number) || std::none_of(text.begin(), text.end(), absl::ascii_isdigit);
}

bool IsInteger(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kUInt16:
    case DType::kInt32:
    case DType::kInt64:
      return true;
    default:
      return false;
  }
}

bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

absl::Status Convert(const std::byte* from, DType stored, std::byte* to, DType wanted,
                     int64_t count) {
  absl::Status status = absl::InternalError("no such conversion");
  WithType(stored, [&](auto from_type) {
    WithType(wanted, [&](auto to_type) {
      status = ConvertAll<decltype(from_type), decltype(to_type)>(from, to, count, wanted);
    });
  });
  return status;
}

absl::Status ParseNumber(absl::string_view text, std::byte* to, DType wanted) {
  text = absl::StripAsciiWhitespace(text);
  int64_t integer = 0;
  if (absl::SimpleAtoi(text, &integer))
    return Convert(reinterpret_cast<const std::byte*>(&integer), DType::kInt64, to, wanted, 1);
  double number = 0;
  if (!absl::SimpleAtod(text, &number))
    return absl::InvalidArgumentError(absl::StrCat("is no number: '", Printable(text), "'"));
  const auto does_not_fit = [&] {
    return absl::InvalidArgumentError(absl::StrCat("has ", Printable(text.substr(0, 100)),
                                                   ", which ", DTypeName(wanted), " cannot hold"));
  };
  if (IsInteger(wanted) || wanted == DType::kBool) {
    const std::optional<int64_t> whole = WholeNumber(text);
    if (!whole.has_value()) return does_not_fit();
    return Convert(reinterpret_cast<const std::byte*>(&*whole), DType::kInt64, to, wanted, 1);
  }
  if (!ReadDouble(text, &number)) return does_not_fit();
  return Convert(reinterpret_cast<const std::byte*>(&number), DType::kFloat64, to, wanted, 1);
}

}  // namespace feedwater::server
