#include "server/base/payload.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/shm/wire.h"

namespace feedwater::server {
namespace {

constexpr uint64_t kUnit = wire::kPayloadUnit;

// False: it overflows.
bool RoundUp(uint64_t* bytes) {
  if (*bytes > INT64_MAX - kUnit) return false;
  *bytes = (*bytes + kUnit - 1) / kUnit * kUnit;
  return true;
}

wire::TensorHead HeadOf(const TensorSpec& spec, uint64_t offset) {
  wire::TensorHead head{};
  head.dtype = static_cast<uint8_t>(spec.dtype);
  head.axes = static_cast<uint8_t>(spec.shape.size());
  head.offset = offset;
  for (size_t i = 0; i < spec.shape.size(); ++i) head.shape[i] = spec.shape[i];
  return head;
}

// A copy that the other side cannot change any more.
wire::TensorHead CopyHead(const std::byte* from) {
  wire::TensorHead head;
  std::memcpy(&head, from, sizeof(head));
  asm volatile("" : : "r"(&head) : "memory");
  return head;
}

bool Agrees(const wire::TensorHead& head, const TensorSpec& declared) {
  if (head.dtype != static_cast<uint8_t>(declared.dtype) || head.axes != declared.shape.size())
    return false;
  for (size_t i = 0; i < declared.shape.size(); ++i) {
    const bool fits =
        declared.shape[i] < 0 ? head.shape[i] >= 0 : head.shape[i] == declared.shape[i];
    if (!fits) return false;
  }
  return true;
}

std::string ShapeText(const wire::TensorHead& head) {
  TensorSpec spec;
  if (head.dtype < static_cast<uint8_t>(DType::kUInt8) ||
      head.dtype > static_cast<uint8_t>(DType::kFloat64) || head.axes > wire::kMaxAxes) {
    return "something that is no tensor";
  }
  spec.dtype = static_cast<DType>(head.dtype);
  spec.shape.assign(head.shape, head.shape + head.axes);
  return spec.ToString();
}

}  // namespace

absl::StatusOr<int64_t> PayloadBytes(absl::Span<const TensorSpec> specs) {
  uint64_t bytes = specs.size() * sizeof(wire::TensorHead);
  for (const TensorSpec& spec : specs) {
    FW_ASSIGN_OR_RETURN(const int64_t size, spec.ByteSize());
    if (!RoundUp(&bytes) || __builtin_add_overflow(bytes, static_cast<uint64_t>(size), &bytes) ||
        bytes > INT64_MAX) {
      return absl::InvalidArgumentError("the size of a payload overflows");
    }
  }
  return static_cast<int64_t>(bytes);
}

void WritePayload(absl::Span<const Tensor> tensors, std::byte* to) {
  uint64_t at = tensors.size() * sizeof(wire::TensorHead);
  for (size_t i = 0; i < tensors.size(); ++i) {
    RoundUp(&at);
    const wire::TensorHead head = HeadOf(tensors[i].spec, at);
    std::memcpy(to + i * sizeof(head), &head, sizeof(head));
    std::memcpy(to + at, tensors[i].data, tensors[i].bytes());
    at += tensors[i].bytes();
  }
}

absl::Status ReadPayload(absl::Span<const std::byte> payload, absl::Span<const TensorSpec> declared,
                         absl::FunctionRef<std::string(size_t)> name,
                         std::vector<Tensor>* tensors) {
  tensors->clear();
  uint64_t at = declared.size() * sizeof(wire::TensorHead);
  if (payload.size() < sizeof(wire::TensorHead))
    return absl::InvalidArgumentError("a payload that is too short for its tensors");
  if (const uint64_t first = CopyHead(payload.data()).offset; first != at || at > payload.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(first / sizeof(wire::TensorHead), " values came, and ", declared.size(),
                     declared.size() == 1 ? " is" : " are", " expected"));
  }
  for (size_t i = 0; i < declared.size(); ++i) {
    const wire::TensorHead head = CopyHead(payload.data() + i * sizeof(wire::TensorHead));
    if (!Agrees(head, declared[i])) {
      return absl::InvalidArgumentError(absl::StrCat(name(i), " is ", declared[i].ToString(),
                                                     ", and ", ShapeText(head), " came"));
    }
    TensorSpec spec = declared[i];
    spec.shape.assign(head.shape, head.shape + head.axes);
    const absl::StatusOr<int64_t> bytes = spec.ByteSize();
    if (!bytes.ok() || !RoundUp(&at) || head.offset != at || at > payload.size() ||
        static_cast<uint64_t>(*bytes) > payload.size() - at) {
      return absl::InvalidArgumentError(
          absl::StrCat(name(i), " lies where its payload has no room for it"));
    }
    // Views are never written through.
    tensors->push_back({std::move(spec), const_cast<std::byte*>(payload.data() + at)});
    at += static_cast<uint64_t>(*bytes);
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
