// Characters and their classes. The tables are utf8proc's (Unicode 15), so they are the same on
// every machine and in every process; what needs a buffer is given one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace feedwater::server {

// The first byte of `text` that is not part of a character; npos: all are. A byte order mark is a
// character like any other.
size_t FirstBadUtf8(absl::string_view text);

// The character at `at`, which moves behind it. REQUIRES: *at < text.size(), FirstBadUtf8 is npos.
int32_t NextCharacter(absl::string_view text, size_t* at);
// Bytes written to `out`, at most 4.
size_t PutCharacter(int32_t character, char* out);

bool IsWhiteSpace(int32_t c);   // the property White_Space
bool IsControl(int32_t c);      // Cc, Cf, Cs, Co
bool IsPunctuation(int32_t c);  // P*, and what ASCII has beside letters, digits and controls
bool IsNumeric(int32_t c);      // N*
bool IsMark(int32_t c);         // M*
bool IsNonspacingMark(int32_t c);
bool IsIdeograph(int32_t c);  // that words of Chinese are written with, as BERT has them

// The character's lower case, at most two characters. As Rust's char::to_lowercase.
size_t ToLower(int32_t c, int32_t out[2]);

// The character's full decomposition, not yet ordered: at most kMostDecomposed characters.
inline constexpr size_t kMostDecomposed = 18;
size_t Decompose(int32_t c, bool compatible, int32_t* out);
int CombiningClass(int32_t c);
// Puts combining characters into their canonical order. `room` is for as many characters.
void OrderMarks(int32_t* text, size_t length, int32_t* room);
// Puts together what has a composed form; returns how many are left. REQUIRES: ordered.
size_t Compose(int32_t* text, size_t length);

}  // namespace feedwater::server
