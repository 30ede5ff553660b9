#include "server/base/units.h"

#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/yaml.h"

namespace feedwater::server {
namespace {

struct Unit {
  absl::string_view name;
  double factor;
};
constexpr Unit kByteUnits[] = {
    {"", 1},         {"B", 1},        {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
    {"TiB", 0x1p40}, {"PiB", 0x1p50}, {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},
    {"GB", 1e9},     {"TB", 1e12},    {"PB", 1e15},
};
constexpr Unit kTimeUnits[] = {
    {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400},
};

// Splits "1.5 GiB" into the digits (with at most one point) and the unit. No sign, exponent, hex or
// inf gets through.
bool SplitNumber(absl::string_view text, absl::string_view* number, absl::string_view* unit) {
  size_t end = 0;
  size_t points = 0;
  while (end < text.size() && (absl::ascii_isdigit(text[end]) || text[end] == '.')) {
    points += text[end] == '.';
    ++end;
  }
  *number = text.substr(0, end);
  *unit = absl::StripLeadingAsciiWhitespace(text.substr(end));
  return end > 0 && end <= 32 && points <= 1 && absl::ascii_isdigit(text[0]) &&
         text[end - 1] != '.';
}

template <size_t N>
const Unit* FindUnit(const Unit (&units)[N], absl::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  const auto error = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(
        "must be a size such as 512MiB, 8GiB or 4096, not '", Printable(text), "'", why));
  };
  absl::string_view number, unit_name;
  if (!SplitNumber(text, &number, &unit_name)) return error("");
  const Unit* unit = FindUnit(kByteUnits, unit_name);
  if (unit == nullptr)
    return error(": unknown unit (B, KiB, MiB, GiB, TiB, PiB, kB, MB, GB, TB, PB)");

  int64_t whole;
  if (absl::SimpleAtoi(number, &whole)) {  // exact for whole numbers
    int64_t bytes;
    if (__builtin_mul_overflow(whole, static_cast<int64_t>(unit->factor), &bytes))
      return error(": too large");
    return bytes;
  }
  double value;
  if (!absl::SimpleAtod(number, &value)) return error("");
  if (unit->factor == 1 && value != std::floor(value)) return error(": a byte cannot be split");
  value = std::floor(value * unit->factor);
  if (!(value < 0x1p63)) return error(": too large");
  return static_cast<int64_t>(value);
}

std::string FormatBytes(int64_t bytes) {
  if (bytes < 0) {
    return bytes == std::numeric_limits<int64_t>::min() ? "-8.0 EiB"
                                                        : absl::StrCat("-", FormatBytes(-bytes));
  }
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  static constexpr absl::string_view kNames[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < std::size(kNames)) {  // 1023.95 would be printed as 1024.0
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kNames[unit]);
}

absl::StatusOr<double> ParseSeconds(absl::string_view text) {
  const auto error = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(
        "must be a time such as 500ms, 60s or 2min, not '", Printable(text), "'", why));
  };
  absl::string_view number, unit_name;
  if (!SplitNumber(text, &number, &unit_name)) return error("");
  double value;
  if (!absl::SimpleAtod(number, &value)) return error("");
  const Unit* unit = FindUnit(kTimeUnits, unit_name);
  if (unit == nullptr && value == 0 && unit_name.empty()) return 0.0;  // nothing needs no unit
  if (unit == nullptr) return error(": the unit must be ns, us, ms, s, min, h or d");
  value *= unit->factor;
  // Longer times would overflow nanoseconds in 64 bits.
  if (!(value <= 9.2e9)) return error(": too long");
  return value;
}

std::string FormatSeconds(double seconds) {
  if (!std::isfinite(seconds)) return "unknown";
  if (seconds < 0) return absl::StrCat("-", FormatSeconds(-seconds));
  if (seconds == 0) return "0 s";
  if (seconds < 1e-6) return absl::StrFormat("%.3g ns", seconds * 1e9);
  if (seconds < 1e-3) return absl::StrFormat("%.3g us", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.3g ms", seconds * 1e3);
  if (seconds < 120) return absl::StrFormat("%.3g s", seconds);
  if (seconds < 7200) return absl::StrFormat("%.3g min", seconds / 60);
  return absl::StrFormat("%.1f h", seconds / 3600);
}

std::string FormatCount(int64_t count, absl::string_view what) {
  const char* many =
      count == 1                                                                             ? ""
      : absl::EndsWith(what, "s") || absl::EndsWith(what, "ch") || absl::EndsWith(what, "x") ? "es"
                                                                                             : "s";
  return absl::StrCat(count, " ", what, many);
}

}  // namespace feedwater::server
