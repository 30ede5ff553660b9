#include "server/pipeline/kept_record.h"

#include <cstring>

#include "server/cache/block.h"

namespace feedwater::server {
namespace {

constexpr size_t kUnit = 64;
constexpr size_t kMaxExtents = 1 << 16;

size_t RoundUp(size_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }
size_t HeaderBytes(size_t extents) { return RoundUp((extents + 1) * sizeof(uint32_t)); }

}  // namespace

bool PackExtents(const ByteSpans& extents, std::vector<std::byte>* payload) {
  size_t bytes = HeaderBytes(extents.size());
  for (const absl::Span<const std::byte>& extent : extents) {
    if (extent.size() > kMaxBlockBytes) return false;
    bytes += RoundUp(extent.size());
  }
  if (extents.size() > kMaxExtents || BlockBytes(bytes) > kMaxBlockBytes) return false;
  payload->resize(bytes);
  const auto put_number = [payload](size_t at, size_t number) {
    const auto value = static_cast<uint32_t>(number);
    std::memcpy(payload->data() + at * sizeof(value), &value, sizeof(value));
  };
  size_t at = HeaderBytes(extents.size());
  std::memset(payload->data(), 0, at);
  put_number(0, extents.size());
  for (size_t i = 0; i < extents.size(); ++i) {
    const size_t length = extents[i].size();
    put_number(i + 1, length);
    if (length > 0) std::memcpy(payload->data() + at, extents[i].data(), length);
    std::memset(payload->data() + at + length, 0, RoundUp(length) - length);
    at += RoundUp(length);
  }
  return true;
}

absl::Status UnpackExtents(absl::Span<const std::byte> payload, ByteSpans* extents) {
  const absl::Status wrong =
      absl::DataLossError("what was kept of the record is no list of extents");
  const auto number = [payload](size_t at) {
    uint32_t value;
    std::memcpy(&value, payload.data() + at * sizeof(value), sizeof(value));
    return value;
  };
  extents->clear();
  if (payload.size() < kUnit) return wrong;
  const uint32_t count = number(0);
  if (count > kMaxExtents || HeaderBytes(count) > payload.size()) return wrong;
  size_t at = HeaderBytes(count);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t length = number(i + 1);
    if (at > payload.size() || length > payload.size() - at) return wrong;
    extents->push_back(payload.subspan(at, length));
    at += RoundUp(length);
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
