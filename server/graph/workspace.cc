#include "server/graph/workspace.h"

#include "absl/strings/str_cat.h"
#include "server/base/units.h"

namespace feedwater::server {

absl::StatusOr<std::byte*> GrowingBuffer::Get(size_t bytes) {
  constexpr size_t kAlignment = 64, kSlack = 64, kStep = 64 * 1024;
  if (bytes + kSlack <= capacity_ && memory_ != nullptr) return memory_.get();
  size_t wanted = 0;
  if (__builtin_add_overflow(bytes, kSlack + kStep, &wanted))
    return absl::InvalidArgumentError("a buffer's size overflows");
  wanted = wanted / kStep * kStep;
  memory_.reset();
  capacity_ = 0;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, wanted)));
  if (memory_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a buffer of ", FormatBytes(static_cast<int64_t>(wanted))));
  }
  capacity_ = wanted;
  return memory_.get();
}

SampleWorkspace::SampleWorkspace() : impl_(std::make_unique<Impl>()) {}
SampleWorkspace::~SampleWorkspace() = default;
ImageWorkspace& SampleWorkspace::images() { return impl_->images; }

}  // namespace feedwater::server
