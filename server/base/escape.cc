#include "server/base/escape.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace feedwater::server {
namespace {

// The code point of a whole, valid character.
uint32_t CodePoint(absl::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0);
  uint32_t code = byte(0) & (0x7fu >> character.size());
  for (size_t i = 1; i < character.size(); ++i) code = code << 6 | (byte(i) & 0x3f);
  return code;
}

bool IsControl(uint32_t code) {
  return (code >= 0x7f && code <= 0x9f) || code == 0x61c || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

// RFC 3629: shortest form, no surrogates.
size_t Utf8Length(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  size_t length;
  unsigned char second_low = 0x80, second_high = 0xbf;
  if (first >= 0xc2 && first <= 0xdf) {
    length = 2;
  } else if ((first & 0xf0) == 0xe0) {
    length = 3;
    if (first == 0xe0) second_low = 0xa0;
    if (first == 0xed) second_high = 0x9f;
  } else if (first >= 0xf0 && first <= 0xf4) {
    length = 4;
    if (first == 0xf0) second_low = 0x90;
    if (first == 0xf4) second_high = 0x8f;
  } else {
    return 0;
  }
  if (text.size() < length || byte(1) < second_low || byte(1) > second_high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return length;
}

std::string Escaped(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    const size_t length = Utf8Length(text);
    const absl::string_view character = text.substr(0, length);
    if (length == 0 || first < 0x20) {
      absl::StrAppend(&out, "\\x", absl::Hex(first, absl::kZeroPad2));
    } else if (const uint32_t code = CodePoint(character); IsControl(code)) {
      absl::StrAppend(&out, "\\u", absl::Hex(code, absl::kZeroPad4));
    } else {
      absl::StrAppend(&out, character);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string EscapedLines(absl::string_view text) {
  std::string out;
  const char* before = "";
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::StrAppend(&out, before, Escaped(line));
    before = "\n    ";
  }
  return out;
}

std::string ToUtf8(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    absl::StrAppend(&out, length > 0 ? text.substr(0, length) : "\xef\xbf\xbd");  // U+FFFD
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

}  // namespace feedwater::server
