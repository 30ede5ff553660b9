#include "server/provider/entries.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/escape.h"
#include "server/base/units.h"

namespace feedwater::server {
namespace {

constexpr int64_t kTextBytes = 16 << 10;  // what is kept of a text

}  // namespace

std::string TextOf(absl::Span<const std::byte> bytes) {
  const size_t size = std::min<size_t>(bytes.size(), kTextBytes);
  return ToUtf8(std::string(reinterpret_cast<const char*>(bytes.data()), size));
}

int64_t RoomAfter(int64_t had_bytes, int64_t wants_bytes, bool* is_doubted) {
  if (wants_bytes > had_bytes) return wants_bytes;
  return std::exchange(*is_doubted, true) ? 0 : had_bytes + 1;
}

absl::Status NeverFits(int64_t had_bytes, int64_t wants_bytes) {
  return absl::InvalidArgumentError(
      absl::StrCat("its process says that it is too large for a window of ", FormatBytes(had_bytes),
                   ", and that it takes ", FormatBytes(wants_bytes)));
}

absl::Status TooLarge(uint64_t bytes) {
  return absl::InvalidArgumentError(absl::StrCat(
      "takes ", FormatBytes(static_cast<int64_t>(std::min<uint64_t>(bytes, INT64_MAX))),
      ", more than ", FormatBytes(kMostEntryBytes), ", the most that one may have"));
}

}  // namespace feedwater::server
