#include "client/cpp/batch.h"

#include "absl/strings/str_cat.h"
#include "client/cpp/errors.h"
#include "proto/shm/crc32c.h"

namespace feedwater {

absl::Status Batch::Impl::CheckSum() const {
  if ((ready.flags & wire::kReadyHasCrc) == 0)
    return absl::InternalError("StreamOptions::verify, but the daemon sent no checksum");
  uint32_t crc = 0;
  for (const Tensor& tensor : tensors) {
    crc = wire::Crc32c(crc, tensor.bytes.data(), tensor.bytes.size());
    crc = wire::Crc32c(crc, tensor.offsets.data(), tensor.offsets.size() * sizeof(int64_t));
  }
  if (crc == ready.crc32c) return absl::OkStatus();
  return ChecksumError(absl::StrCat("the batch of epoch ", ready.epoch, ", step ", ready.step,
                                    " does not fit its checksum: CRC32C is ", crc,
                                    ", the daemon computed ", ready.crc32c));
}

Tensor Tensor::Rows(size_t i) const {
  Tensor rows{dtype, shape, {}, {}};
  rows.shape[0] = offsets[i + 1] - offsets[i];
  if (shape[0] == 0) return rows;
  const size_t row_bytes = bytes.size() / static_cast<size_t>(shape[0]);
  rows.bytes = bytes.subspan(static_cast<size_t>(offsets[i]) * row_bytes,
                             static_cast<size_t>(rows.shape[0]) * row_bytes);
  return rows;
}

Batch::Batch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Batch::Batch(Batch&&) noexcept = default;
Batch& Batch::operator=(Batch&&) noexcept = default;
Batch::~Batch() = default;

int64_t Batch::samples() const { return impl_->ready.samples; }
int64_t Batch::real_samples() const { return impl_->ready.real_samples; }
int64_t Batch::substituted() const { return impl_->ready.substituted; }
int64_t Batch::skipped() const {
  return (impl_->ready.flags & wire::kReadySkipped) != 0 ? impl_->ready.substituted : 0;
}
uint64_t Batch::epoch() const { return impl_->ready.epoch; }
int64_t Batch::step() const { return impl_->ready.step; }
bool Batch::last_in_epoch() const { return (impl_->ready.flags & wire::kReadyLastInEpoch) != 0; }
int64_t Batch::published_ns() const { return impl_->ready.published_ns; }
int64_t Batch::received_ns() const { return impl_->received_ns; }
size_t Batch::size() const { return impl_->tensors.size(); }
const Tensor& Batch::operator[](size_t i) const { return impl_->tensors[i]; }
const Tensor* Batch::Find(absl::string_view name) const {
  for (size_t i = 0; i < impl_->names.size(); ++i) {
    if (impl_->names[i] == name) return &impl_->tensors[i];
  }
  return nullptr;
}
const Tensor& Batch::operator[](absl::string_view name) const { return *Find(name); }
const std::string& Batch::name(size_t i) const { return impl_->names[i]; }

}  // namespace feedwater
