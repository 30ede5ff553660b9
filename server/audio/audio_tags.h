// Tags that stand around the sound of a file, whatever its container: ID3 in front, ID3v1 (with its
// enhanced form TAG+), APE and Lyrics3 behind. Nothing of them is kept. Zeros, which fill up room
// for tags, are taken for one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/types/span.h"

namespace feedwater::server {

// Where something else than tags and zeros begins, from `at` on; the end, if nothing does. Nothing:
// a tag says that it is longer than the file. REQUIRES: at <= bytes.size().
std::optional<size_t> BehindTags(absl::Span<const uint8_t> bytes, size_t at);

// Where the tags at the end of a file begin, as their last bytes say: ID3v1 and APE.
size_t TagsAtEnd(absl::Span<const uint8_t> bytes);

// There is nothing but tags and zeros, read from both ends: old APE tags have only a footer.
bool AreTags(absl::Span<const uint8_t> bytes);

}  // namespace feedwater::server
