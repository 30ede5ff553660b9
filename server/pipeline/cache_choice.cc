#include "server/pipeline/cache_choice.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/units.h"
#include "server/codec/image.h"

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

// Bytes of what the graph's prefix makes of a record; -1 when that differs from record to record.
int64_t PrefixBytes(const Plan& plan) {
  int64_t sum = 0;
  for (const FieldSpec& field : plan.prefix().fields) {
    const absl::StatusOr<int64_t> bytes = field.spec.ByteSize();
    if (!bytes.ok() || __builtin_add_overflow(sum, *bytes, &sum)) return -1;
  }
  return sum;
}

// "decode + resize", what the prefix does. Of a long one, the beginning: the reason goes into every
// answer about the job.
std::string PrefixText(const Plan& plan) {
  constexpr size_t kShown = 8;
  const auto& ops = plan.prefix().ops;
  if (ops.empty()) return "the dataset";
  if (ops.size() <= kShown) return absl::StrJoin(ops, " + ");
  return absl::StrCat(absl::StrJoin(ops.begin(), ops.begin() + kShown, " + "), " + ",
                      ops.size() - kShown, " more ops");
}

// Whether the records are files that are named as images other than JPEG.
bool AreOtherImages(const Dataset& dataset) {
  constexpr int64_t kLooks = 64;
  const int64_t records = dataset.size(), looks = std::min(records, kLooks);
  std::vector<Extent> extents;
  for (int64_t i = 0; i < looks; ++i) {
    extents.clear();
    dataset.Extents(i * (records / looks), &extents);
    if (extents.size() != 1) return false;
    const std::string path = absl::AsciiStrToLower(dataset.ObjectPath(extents[0].object));
    constexpr absl::string_view kOthers[] = {".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm"};
    if (std::none_of(std::begin(kOthers), std::end(kOthers),
                     [&](absl::string_view other) { return absl::EndsWith(path, other); })) {
      return false;
    }
  }
  return looks > 0;
}

// Whether pixels are clearly the better thing to keep of images, and why; "" when they are not.
std::string WhyDecoded(const Dataset& dataset, const Plan& plan, int64_t file_bytes,
                       int64_t room_bytes) {
  const int64_t bytes = PrefixBytes(plan);
  int64_t all = 0;
  if (bytes < 0 || plan.prefix().ops.empty() ||
      __builtin_mul_overflow(bytes, dataset.size(), &all)) {
    return "";
  }
  const std::string what = absl::StrCat("what ", PrefixText(plan), " makes of the records, ",
                                        FormatBytes(all), " in all, ");
  if (all <= file_bytes)
    return absl::StrCat(what, "is no more than their files and needs no decoding");
  if (all <= room_bytes && AreOtherImages(dataset))
    return absl::StrCat(what, "fits, and only JPEGs have coefficients");
  return "";
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
    case CacheKind::kDecoded:
      return "decoded";
  }
  return "unknown";
}

bool HasImages(const Dataset& dataset) {
  return std::any_of(dataset.fields().begin(), dataset.fields().end(),
                     [](const FieldSpec& field) { return field.spec.layout == Layout::kEncoded; });
}

CacheChoice ChooseCache(const PipelineSpec& spec, const Dataset& dataset, const Plan& plan,
                        int64_t memory_bytes, int64_t disk_bytes) {
  memory_bytes = std::min(memory_bytes, spec.cache.memory_bytes);
  disk_bytes = std::min(disk_bytes, spec.cache.disk_bytes);
  const bool is_image = DecodedField(dataset, plan) >= 0;
  if (spec.cache.kind == CacheKind::kNone) return {CacheKind::kNone, "the pipeline asks for none"};
  if (dataset.giver() != nullptr) {
    return {CacheKind::kNone, "a program gives the records, and may give others in the next epoch"};
  }
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
  if (spec.cache.kind == CacheKind::kDecoded) {
    const int64_t one = PrefixBytes(plan);
    return {
        CacheKind::kDecoded,
        absl::StrCat("the pipeline asks for it; what ", PrefixText(plan), " makes of a record, ",
                     one < 0 ? "as large as that is" : FormatBytes(one), ", within ", room)};
  }
  if (spec.cache.kind != CacheKind::kAuto)
    return {spec.cache.kind, absl::StrCat("the pipeline asks for it; within ", room)};
  const int64_t bytes = EstimateBytes(dataset);
  if (is_image) {
    const std::string why = WhyDecoded(dataset, plan, bytes, std::max(memory_bytes, disk_bytes));
    if (!why.empty()) return {CacheKind::kDecoded, absl::StrCat(why, "; within ", room)};
  }
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
