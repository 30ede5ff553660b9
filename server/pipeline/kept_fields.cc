#include "server/pipeline/kept_fields.h"

#include <cstring>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "server/codec/image.h"
#include "server/pipeline/cache_choice.h"
#include "server/source/digest.h"

namespace feedwater::server {
namespace {

constexpr size_t kUnit = 64;
constexpr size_t kMaxFields = 1 << 12, kMaxAxes = 16;

size_t RoundUp(size_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

// Walks over the head of a payload, never beyond its end.
class HeadReader {
 public:
  explicit HeadReader(absl::Span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename T>
  bool Read(T* value) {
    if (bytes_.size() - at_ < sizeof(T)) return false;
    std::memcpy(value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }
  bool Matches(absl::string_view text) {
    if (bytes_.size() - at_ < text.size() ||
        std::memcmp(bytes_.data() + at_, text.data(), text.size()) != 0) {
      return false;
    }
    at_ += text.size();
    return true;
  }
  size_t at() const { return at_; }

 private:
  const absl::Span<const std::byte> bytes_;
  size_t at_ = 0;
};

template <typename T>
std::byte* Write(const T& value, std::byte* at) {
  std::memcpy(at, &value, sizeof(T));
  return at + sizeof(T);
}

// Reads the axes of one field into `shape`; false unless they are such as the plan has announced.
bool ReadShape(const TensorSpec& planned, HeadReader& head, Shape* shape) {
  uint32_t axes = 0;
  if (!head.Read(&axes) || axes != planned.shape.size()) return false;
  shape->clear();
  for (uint32_t i = 0; i < axes; ++i) {
    int64_t size = 0;
    if (!head.Read(&size) || size < 0) return false;
    if (planned.shape[i] >= 0 && planned.shape[i] != size) return false;
    shape->push_back(size);
  }
  return true;
}

// What a payload's fields are, in their order.
using Specs = absl::InlinedVector<const TensorSpec*, 8>;

// Bytes of the head of a payload, and of all of it. Nothing: it is too large to be kept.
struct PayloadSize {
  size_t head = 0, all = 0;
};
std::optional<PayloadSize> SizeOf(const KeptForm& form, const Specs& specs) {
  if (specs.size() != form.fields.size() || specs.size() > kMaxFields) return std::nullopt;
  size_t head = form.digest.size() + sizeof(uint32_t), fields = 0;
  for (const TensorSpec* spec : specs) {
    const absl::StatusOr<int64_t> size = spec->ByteSize();
    if (!size.ok() || *size > kMaxKeptFieldBytes || spec->shape.size() > kMaxAxes)
      return std::nullopt;
    head += sizeof(uint32_t) + spec->shape.size() * sizeof(int64_t);
    fields += RoundUp(static_cast<size_t>(*size));
  }
  head = RoundUp(head);
  if (BlockBytes(head + fields) > kMaxBlockBytes) return std::nullopt;
  return PayloadSize{head, head + fields};
}

void WriteHead(const KeptForm& form, const Specs& specs, absl::Span<std::byte> head) {
  std::memset(head.data(), 0, head.size());
  std::memcpy(head.data(), form.digest.data(), form.digest.size());
  std::byte* at = Write(static_cast<uint32_t>(specs.size()), head.data() + form.digest.size());
  for (const TensorSpec* spec : specs) {
    at = Write(static_cast<uint32_t>(spec->shape.size()), at);
    for (const int64_t size : spec->shape) at = Write(size, at);
  }
}

// Of names, types and shapes.
void AddSpecs(const std::vector<FieldSpec>& fields, Digest* digest) {
  digest->Add(static_cast<uint64_t>(fields.size()));
  for (const FieldSpec& field : fields) {
    digest->Add(field.name);
    digest->Add(field.spec.ToString());
  }
}

}  // namespace

KeptForm KeptFormOf(CacheKind kind, const Dataset& dataset, const Plan& plan) {
  constexpr int kVersion = 3;  // of what is kept: its layout, and what decoders make of a file
  KeptForm form;
  if (kind == CacheKind::kDecoded) {
    form.digest = plan.prefix().digest;
    form.fields = plan.prefix().fields;
  } else {
    form.fields = dataset.fields();
    Digest digest;
    AddSpecs(form.fields, &digest);
    if (kind == CacheKind::kCoefficients) {
      digest.Add(uint64_t{CoefficientsVersion()});
      // A document does not say how many scans its file had. Its pixels and its time are looked at
      // when it is decoded.
      digest.Add(static_cast<uint64_t>(plan.limits().max_scans));
      for (size_t i = 0; i < form.fields.size(); ++i) {
        const bool is_image = form.fields[i].spec.layout == Layout::kEncoded;
        form.as_coefficients.push_back(is_image && plan.OnlyDecoded(i));
        digest.Add(uint64_t{form.as_coefficients.back()});
      }
    }
    form.digest = digest.Hex();
  }
  form.name = absl::StrCat(CacheKindName(kind), "-", kVersion, "-", form.digest);
  return form;
}

std::optional<FixedPayload> FixedPayloadOf(const KeptForm& form) {
  Specs specs;
  for (const FieldSpec& field : form.fields) {
    if (!field.spec.IsStatic()) return std::nullopt;
    specs.push_back(&field.spec);
  }
  const std::optional<PayloadSize> size = SizeOf(form, specs);
  if (!size.has_value()) return std::nullopt;
  FixedPayload fixed;
  fixed.head.resize(size->head);
  WriteHead(form, specs, absl::MakeSpan(fixed.head));
  fixed.bytes = size->head;
  for (const TensorSpec* spec : specs) {
    fixed.at.push_back(fixed.bytes);
    fixed.bytes += RoundUp(static_cast<size_t>(*spec->ByteSize()));
  }
  return fixed;
}

bool PackFields(const KeptForm& form, const Record& record, std::vector<std::byte>* payload) {
  Specs specs;
  for (const Tensor& field : record.fields) specs.push_back(&field.spec);
  const std::optional<PayloadSize> size = SizeOf(form, specs);
  if (!size.has_value()) return false;
  payload->resize(size->all);
  WriteHead(form, specs, absl::MakeSpan(*payload).first(size->head));
  std::byte* at = payload->data() + size->head;
  for (const Tensor& field : record.fields) {
    const size_t size = field.bytes();
    if (size > 0) std::memcpy(at, field.data, size);
    std::memset(at + size, 0, RoundUp(size) - size);
    at += RoundUp(size);
  }
  return true;
}

absl::Status UnpackFields(const KeptForm& form, absl::Span<const std::byte> payload,
                          Record* record) {
  const auto wrong = [] {
    return absl::DataLossError("what was kept of the record is not of this form");
  };
  HeadReader head(payload);
  uint32_t count = 0;
  if (!head.Matches(form.digest) || !head.Read(&count) || count != form.fields.size())
    return wrong();
  record->fields.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    Tensor& field = record->fields[i];
    field.spec.dtype = form.fields[i].spec.dtype;
    field.spec.layout = form.fields[i].spec.layout;
    if (!ReadShape(form.fields[i].spec, head, &field.spec.shape)) return wrong();
  }
  size_t at = RoundUp(head.at());
  for (Tensor& field : record->fields) {
    const absl::StatusOr<int64_t> size = field.spec.ByteSize();
    if (!size.ok() || at > payload.size() || static_cast<uint64_t>(*size) > payload.size() - at)
      return wrong();
    field.data = const_cast<std::byte*>(payload.data() + at);
    at += RoundUp(static_cast<size_t>(*size));
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
