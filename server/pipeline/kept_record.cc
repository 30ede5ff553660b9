#include "server/pipeline/kept_record.h"

#include <cstring>
#include <limits>

#include "server/base/status.h"
#include "server/cache/block.h"

namespace feedwater::server {
namespace {

constexpr size_t kUnit = 64;
constexpr size_t kMaxExtents = 1 << 16;

struct ExtentHeader {
  uint32_t form, length;
};

size_t RoundUp(size_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }
size_t HeaderBytes(size_t extents) {
  return RoundUp(sizeof(uint32_t) + extents * sizeof(ExtentHeader));
}

}  // namespace

bool PackExtents(const KeptExtents& extents, std::vector<std::byte>* payload) {
  size_t bytes = HeaderBytes(extents.size());
  for (const KeptExtent& extent : extents) {
    if (extent.bytes.size() > kMaxBlockBytes) return false;
    bytes += RoundUp(extent.bytes.size());
  }
  if (extents.size() > kMaxExtents || BlockBytes(bytes) > kMaxBlockBytes) return false;
  payload->assign(bytes, std::byte{0});
  std::byte* header = payload->data();
  const uint32_t count = static_cast<uint32_t>(extents.size());
  std::memcpy(header, &count, sizeof(count));
  size_t at = HeaderBytes(extents.size());
  for (size_t i = 0; i < extents.size(); ++i) {
    const ExtentHeader entry = {extents[i].coefficients,
                                static_cast<uint32_t>(extents[i].bytes.size())};
    std::memcpy(header + sizeof(count) + i * sizeof(entry), &entry, sizeof(entry));
    if (entry.length > 0) std::memcpy(payload->data() + at, extents[i].bytes.data(), entry.length);
    at += RoundUp(entry.length);
  }
  return true;
}

absl::Status UnpackExtents(absl::Span<const std::byte> payload, KeptExtents* extents) {
  const absl::Status wrong =
      absl::DataLossError("what was kept of the record is no list of extents");
  extents->clear();
  uint32_t count;
  if (payload.size() < sizeof(count)) return wrong;
  std::memcpy(&count, payload.data(), sizeof(count));
  if (count > kMaxExtents || HeaderBytes(count) > payload.size()) return wrong;
  size_t at = HeaderBytes(count);
  for (uint32_t i = 0; i < count; ++i) {
    ExtentHeader entry;
    std::memcpy(&entry, payload.data() + sizeof(count) + i * sizeof(entry), sizeof(entry));
    if (entry.form > 1 || at > payload.size() || entry.length > payload.size() - at) return wrong;
    extents->push_back({payload.subspan(at, entry.length), entry.form == 1});
    at += RoundUp(entry.length);
  }
  return absl::OkStatus();
}

absl::Status ParseKept(const Dataset& dataset, int64_t record, const KeptExtents& extents,
                       Record* out) {
  absl::InlinedVector<absl::Span<const std::byte>, 4> bytes;
  for (const KeptExtent& extent : extents) bytes.push_back(extent.bytes);
  FW_RETURN_IF_ERROR(dataset.Parse(record, bytes, out));
  for (const KeptExtent& extent : extents) {
    if (!extent.coefficients) continue;
    for (Tensor& field : out->fields) {
      if (field.data == extent.bytes.data()) field.spec.layout = Layout::kCoefficients;
    }
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
