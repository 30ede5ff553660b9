// Any bytes as what a cache of kind `decoded` has kept of a record: refused, or fields that lie
// within them and have the shapes that the graph takes. Without a right digest nothing is looked
// at, so inputs begin behind it.
// LIBS: feedwater_pipeline
#include "server/pipeline/kept_fields.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/start_inputs.h"

namespace feedwater::fuzz {
namespace {

using namespace server;  // NOLINT: the pipeline floor

KeptForm TestPrefix() {
  KeptForm prefix;
  prefix.digest = "0123456789abcdef0123456789abcdef";
  prefix.fields = {{"label", {DType::kInt64, Layout::kPlain, {}}, ""},
                   {"image", {DType::kUInt8, Layout::kHWC, {-1, -1, 3}}, ""},
                   {"weights", {DType::kFloat32, Layout::kPlain, {-1}}, ""}};
  return prefix;
}

bool Fits(const TensorSpec& spec, const TensorSpec& planned) {
  bool fits = spec.dtype == planned.dtype && spec.layout == planned.layout && spec.IsStatic() &&
              spec.shape.size() == planned.shape.size();
  for (size_t i = 0; fits && i < spec.shape.size(); ++i)
    fits = planned.shape[i] < 0 || planned.shape[i] == spec.shape[i];
  return fits;
}

void Run(Input input) {
  static const KeptForm prefix = TestPrefix();
  std::vector<std::byte> payload(prefix.digest.size() + input.size());
  std::memcpy(payload.data(), prefix.digest.data(), prefix.digest.size());
  if (!input.empty())
    std::memcpy(payload.data() + prefix.digest.size(), input.data(), input.size());
  Record record;
  if (!UnpackFields(prefix, payload, &record).ok()) return;
  Require(record.fields.size() == prefix.fields.size(), "all fields are there");
  for (size_t i = 0; i < record.fields.size(); ++i) {
    const Tensor& field = record.fields[i];
    Require(Fits(field.spec, prefix.fields[i].spec), "a field is such as the graph takes");
    Require(field.data >= payload.data() &&
                field.data + field.bytes() <= payload.data() + payload.size(),
            "a field lies within the payload");
  }
  std::vector<std::byte> again;
  Require(PackFields(prefix, record, &again), "what was kept can be kept");
}

std::vector<std::string> Seeds() {
  const KeptForm prefix = TestPrefix();
  std::vector<std::byte> memory(1 << 12);
  std::vector<std::string> seeds;
  for (const int64_t side : {0, 1, 7, 20}) {
    Record record;
    record.fields = {{prefix.fields[0].spec, memory.data()},
                     {{DType::kUInt8, Layout::kHWC, {side, side + 1, 3}}, memory.data()},
                     {{DType::kFloat32, Layout::kPlain, {side}}, memory.data()}};
    std::vector<std::byte> payload;
    Require(PackFields(prefix, record, &payload), "a seed is packed");
    seeds.emplace_back(reinterpret_cast<const char*>(payload.data()) + prefix.digest.size(),
                       payload.size() - prefix.digest.size());
  }
  return seeds;
}

}  // namespace

const FuzzTarget& Target() {
  static const FuzzTarget target = {Run, Seeds, {}, nullptr, 4096};
  return target;
}

}  // namespace feedwater::fuzz
