#include "server/pipeline/kept_fields.h"

#include <cstring>

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
  constexpr int kVersion = 2;  // of this file's layout
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

bool PackFields(const KeptForm& form, const Record& record, std::vector<std::byte>* payload) {
  if (record.fields.size() != form.fields.size() || record.fields.size() > kMaxFields) return false;
  size_t head = form.digest.size() + sizeof(uint32_t), bytes = 0;
  for (const Tensor& field : record.fields) {
    const absl::StatusOr<int64_t> size = field.spec.ByteSize();
    if (!size.ok() || *size > kMaxKeptFieldBytes || field.spec.shape.size() > kMaxAxes)
      return false;
    head += sizeof(uint32_t) + field.spec.shape.size() * sizeof(int64_t);
    bytes += RoundUp(static_cast<size_t>(*size));
  }
  head = RoundUp(head);
  if (BlockBytes(head + bytes) > kMaxBlockBytes) return false;
  payload->resize(head + bytes);

  std::byte* at = payload->data();
  std::memset(at, 0, head);
  std::memcpy(at, form.digest.data(), form.digest.size());
  at = Write(static_cast<uint32_t>(record.fields.size()), at + form.digest.size());
  for (const Tensor& field : record.fields) {
    at = Write(static_cast<uint32_t>(field.spec.shape.size()), at);
    for (int64_t size : field.spec.shape) at = Write(size, at);
  }
  at = payload->data() + head;
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
