#include "server/source/caffe_datum.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/source/wire_reader.h"

namespace feedwater::server {
namespace {

constexpr int64_t kMaxAxis = 1 << 20;
constexpr size_t kMaxFloats = 16 << 20;

enum Field : uint32_t {
  kChannels = 1,
  kHeight = 2,
  kWidth = 3,
  kData = 4,
  kLabel = 5,
  kFloats = 6,
  kEncoded = 7,
};

}  // namespace

absl::StatusOr<CaffeDatum> CaffeDatum::Read(absl::string_view message) {
  CaffeDatum datum;
  bool any = false;
  WireReader reader(message);
  while (reader.Next()) {
    const bool is_number = reader.type() == WireType::kVarint;
    const bool is_bytes = reader.type() == WireType::kBytes;
    // An int32 that is negative takes ten bytes.
    const auto number = static_cast<int64_t>(static_cast<int32_t>(reader.value()));
    switch (reader.number()) {
      case kChannels:
        if (is_number) datum.channels = number;
        any = any || is_number;
        break;
      case kHeight:
        if (is_number) datum.height = number;
        break;
      case kWidth:
        if (is_number) datum.width = number;
        break;
      case kData:
        if (is_bytes) datum.data = reader.bytes();
        any = any || is_bytes;
        break;
      case kLabel:
        if (is_number) datum.label = number;
        break;
      case kFloats: {
        if (is_number) break;
        const absl::string_view bytes = reader.bytes();
        const size_t before = datum.floats.size();
        if (bytes.size() % sizeof(float) != 0 || bytes.size() / sizeof(float) > kMaxFloats - before)
          return absl::DataLossError("a Caffe Datum with float_data that is none");
        datum.floats.resize(before + bytes.size() / sizeof(float));
        if (!bytes.empty()) std::memcpy(datum.floats.data() + before, bytes.data(), bytes.size());
        break;
      }
      case kEncoded:
        if (is_number) datum.is_encoded = reader.value() != 0;
        break;
      default:
        break;  // of a later version
    }
  }
  if (reader.damaged() || !any) return absl::DataLossError("is no Caffe Datum");
  datum.has_floats = datum.data.empty() && !datum.floats.empty();
  if (datum.is_encoded) return datum;
  const Shape shape = datum.shape();
  int64_t count = 1;
  for (const int64_t axis : shape) {
    if (axis < 0 || axis > kMaxAxis || __builtin_mul_overflow(count, axis, &count))
      return absl::DataLossError("is no Caffe Datum: its channels, height or width is impossible");
  }
  const size_t elements = datum.has_floats ? datum.floats.size() : datum.data.size();
  if (static_cast<uint64_t>(count) == elements) return datum;
  return absl::DataLossError(absl::StrCat("is a Caffe Datum of ", shape[0], " x ", shape[1], " x ",
                                          shape[2], " with ", elements, " elements"));
}

}  // namespace feedwater::server
