#include "server/pipeline/cache_choice.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/units.h"

namespace feedwater::server {
namespace {

// The first field that is an image file and is only ever decoded; -1 when there is none.
int DecodedField(const Dataset& dataset, const Plan& plan) {
  const std::vector<FieldSpec>& fields = dataset.fields();
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].spec.layout == Layout::kEncoded && plan.OnlyDecoded(i))
      return static_cast<int>(i);
  }
  return -1;
}

// Bytes of all records, from a sample of them.
int64_t EstimateBytes(const Dataset& dataset) {
  constexpr int64_t kLooks = 256;
  const int64_t records = dataset.size(), looks = std::min(records, kLooks);
  std::vector<Extent> extents;
  double bytes = 0;
  for (int64_t i = 0; i < looks; ++i) {
    extents.clear();
    dataset.Extents(i * (records / looks), &extents);
    for (const Extent& extent : extents) bytes += static_cast<double>(extent.length);
  }
  return static_cast<int64_t>(bytes / static_cast<double>(looks) * static_cast<double>(records));
}

std::string Room(int64_t memory_bytes, int64_t disk_bytes) {
  return absl::StrCat(FormatBytes(memory_bytes), " of memory and ", FormatBytes(disk_bytes),
                      " of disk");
}

}  // namespace

absl::string_view CacheKindName(CacheKind kind) {
  switch (kind) {
    case CacheKind::kAuto:
      return "auto";
    case CacheKind::kNone:
      return "none";
    case CacheKind::kBytes:
      return "bytes";
    case CacheKind::kCoefficients:
      return "coefficients";
  }
  return "unknown";
}

std::string CacheForm(CacheKind kind) { return absl::StrCat(CacheKindName(kind), "-1"); }

CacheChoice ChooseCache(const PipelineSpec& spec, const Dataset& dataset, const Plan& plan,
                        int64_t memory_bytes, int64_t disk_bytes) {
  memory_bytes = std::min(memory_bytes, spec.cache.memory_bytes);
  disk_bytes = std::min(disk_bytes, spec.cache.disk_bytes);
  const bool is_image = DecodedField(dataset, plan) >= 0;
  if (spec.cache.kind == CacheKind::kNone) return {CacheKind::kNone, "the pipeline asks for none"};
  if (memory_bytes <= 0 && disk_bytes <= 0) {
    return {CacheKind::kNone,
            "there is no room: cache.ram and cache.disk of the daemon, or of the pipeline, are 0"};
  }
  const std::string room = Room(memory_bytes, disk_bytes);
  if (spec.cache.kind == CacheKind::kCoefficients && !is_image) {
    return {CacheKind::kBytes, absl::StrCat("the pipeline asks for coefficients, but no field is "
                                            "an image that is only decoded; bytes, within ",
                                            room)};
  }
  if (spec.cache.kind != CacheKind::kAuto)
    return {spec.cache.kind, absl::StrCat("the pipeline asks for it; within ", room)};
  const int64_t bytes = EstimateBytes(dataset);
  if (is_image) {
    return {
        CacheKind::kCoefficients,
        absl::StrCat("decoding JPEGs is most of the work and coefficients spare most of it; about ",
                     FormatBytes(bytes / 3 * 4), " for all records, within ", room)};
  }
  if (bytes <= memory_bytes) {
    return {CacheKind::kBytes, absl::StrCat("all ", FormatBytes(bytes),
                                            " of the records fit into memory; within ", room)};
  }
  return {CacheKind::kNone,
          absl::StrCat(
              "the records, ", FormatBytes(bytes),
              ", do not fit into memory, and reading them is no more work than reading a cache")};
}

}  // namespace feedwater::server
