// Members of tar archives as POSIX.1 writes them (ustar), for `feedwater convert`. The same input
// gives the same bytes: every member belongs to nobody and is of the year 1970. Reading is tar.h's.
// Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "server/source/tar.h"

namespace feedwater::server {

inline constexpr size_t kMaxTarName = 100;                // of a ustar header without a prefix
inline constexpr int64_t kMaxTarBytes = (1LL << 33) - 1;  // eleven octal digits
inline constexpr int64_t kTarAlignment = 4096;            // where records begin, if that is cheap

// Appends the header of a regular file of so many bytes. The caller appends these and then
// FinishTarMember. REQUIRES: a name of 1 to kMaxTarName bytes, 0 <= bytes <= kMaxTarBytes.
void AppendTarHeader(absl::string_view name, int64_t bytes, std::string* archive);
// Appends zeros up to the next block.
void FinishTarMember(std::string* archive);

// How many bytes of padding let a record of `record_bytes` begin at a multiple of kTarAlignment,
// when the archive ends at `offset`, a multiple of kTarBlock; 0 when that is more than 5 % of the
// record, or none is needed.
int64_t TarPadding(int64_t offset, int64_t record_bytes);
// Appends padding: a global pax header that holds a comment alone, as `git archive` writes one. tar
// and the webdataset library show no member there. REQUIRES: a multiple of kTarBlock, at least 2,
// at most 2 * kTarAlignment; a member follows.
void AppendTarPadding(int64_t bytes, std::string* archive);

// Appends the two blocks of zeros that end an archive.
inline constexpr int64_t kTarEndBytes = 2 * kTarBlock;
void AppendTarEnd(std::string* archive);

}  // namespace feedwater::server
