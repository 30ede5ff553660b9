#include "server/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>

#include "server/base/escape.h"

namespace feedwater::server {
namespace {

utf8proc_category_t CategoryOf(int32_t c) { return utf8proc_category(c); }

bool IsAsciiPunctuation(int32_t c) {
  return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
         (c >= 123 && c <= 126);
}

}  // namespace

size_t FirstBadUtf8(absl::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const size_t length = Utf8Length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return absl::string_view::npos;
}

int32_t NextCharacter(absl::string_view text, size_t* at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[*at + i]); };
  const int32_t first = byte(0);
  if (first < 0x80) {
    *at += 1;
    return first;
  }
  int32_t c = 0;
  size_t length = 0;
  if (first < 0xe0) {
    length = 2;
    c = (first & 0x1f) << 6 | (byte(1) & 0x3f);
  } else if (first < 0xf0) {
    length = 3;
    c = (first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
  } else {
    length = 4;
    c = (first & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
  }
  *at += length;
  return c;
}

size_t PutCharacter(int32_t c, char* out) {
  if (c < 0x80) {
    out[0] = static_cast<char>(c);
    return 1;
  }
  if (c < 0x800) {
    out[0] = static_cast<char>(0xc0 | c >> 6);
    out[1] = static_cast<char>(0x80 | (c & 0x3f));
    return 2;
  }
  if (c < 0x10000) {
    out[0] = static_cast<char>(0xe0 | c >> 12);
    out[1] = static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out[2] = static_cast<char>(0x80 | (c & 0x3f));
    return 3;
  }
  out[0] = static_cast<char>(0xf0 | c >> 18);
  out[1] = static_cast<char>(0x80 | (c >> 12 & 0x3f));
  out[2] = static_cast<char>(0x80 | (c >> 6 & 0x3f));
  out[3] = static_cast<char>(0x80 | (c & 0x3f));
  return 4;
}

bool IsWhiteSpace(int32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool IsControl(int32_t c) {
  if (c < 0x80) return c < 0x20 || c == 0x7f;
  const utf8proc_category_t category = CategoryOf(c);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_CS || category == UTF8PROC_CATEGORY_CO;
}

bool IsPunctuation(int32_t c) {
  if (c < 0x80) return IsAsciiPunctuation(c);
  const utf8proc_category_t category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool IsNumeric(int32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const utf8proc_category_t category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool IsMark(int32_t c) {
  if (c < 0x300) return false;
  const utf8proc_category_t category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool IsNonspacingMark(int32_t c) { return c >= 0x300 && CategoryOf(c) == UTF8PROC_CATEGORY_MN; }

bool IsIdeograph(int32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
         (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
         (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

size_t ToLower(int32_t c, int32_t out[2]) {
  if (c == 0x130) {  // the one character whose lower case is two
    out[0] = 'i';
    out[1] = 0x307;
    return 2;
  }
  out[0] = c < 0x80 ? (c >= 'A' && c <= 'Z' ? c + 32 : c) : utf8proc_tolower(c);
  return 1;
}

size_t Decompose(int32_t c, bool compatible, int32_t* out) {
  if (c < 0x80) {
    out[0] = c;
    return 1;
  }
  int boundary = 0;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                      (compatible ? UTF8PROC_COMPAT : 0));
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(c, out, kMostDecomposed, options, &boundary);
  if (count >= 1 && count <= static_cast<utf8proc_ssize_t>(kMostDecomposed))
    return static_cast<size_t>(count);
  out[0] = c;
  return 1;
}

int CombiningClass(int32_t c) {
  return c < 0x300 ? 0 : static_cast<int>(utf8proc_get_property(c)->combining_class);
}

void OrderMarks(int32_t* text, size_t length, int32_t* room) {
  for (size_t at = 0; at < length; ++at) {
    if (CombiningClass(text[at]) == 0) continue;
    size_t end = at + 1;
    bool is_ordered = true;
    for (int last = CombiningClass(text[at]); end < length; ++end) {
      const int next = CombiningClass(text[end]);
      if (next == 0) break;
      is_ordered = is_ordered && last <= next;
      last = next;
    }
    if (!is_ordered) {  // by counting: a text of nothing but marks takes no longer than any other
      size_t places[257] = {};
      for (size_t i = at; i < end; ++i) ++places[CombiningClass(text[i]) + 1];
      for (size_t i = 1; i < 257; ++i) places[i] += places[i - 1];
      for (size_t i = at; i < end; ++i) room[places[CombiningClass(text[i])]++] = text[i];
      std::copy(room, room + (end - at), text + at);
    }
    at = end;
  }
}

size_t Compose(int32_t* text, size_t length) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  const utf8proc_ssize_t left =
      utf8proc_normalize_utf32(text, static_cast<utf8proc_ssize_t>(length), options);
  return left < 0 ? length : static_cast<size_t>(left);
}

}  // namespace feedwater::server
