#include "server/graph/workspace.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/heap.h"
#include "server/base/units.h"

namespace feedwater::server {

namespace {
constexpr size_t kAlignment = 64, kSlack = 64, kStep = 64 * 1024;
}  // namespace

int64_t GrowingBuffer::Capacity(int64_t bytes) {
  constexpr auto kMore = static_cast<int64_t>(kSlack + kStep);
  return (bytes + kMore) / static_cast<int64_t>(kStep) * static_cast<int64_t>(kStep);
}

absl::StatusOr<std::byte*> GrowingBuffer::Get(size_t bytes) {
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

SampleWorkspace::SampleWorkspace() : impl_(std::make_unique<Impl>()) {
  impl_->images.UseClock(impl_->clock);
}
WorkClock& SampleWorkspace::clock() { return *impl_->clock; }
void SampleWorkspace::UseClock(WorkClock* clock) {
  impl_->clock = clock;
  impl_->images.UseClock(clock);
}
void SampleWorkspace::UseCaller(OpCaller* caller, const std::atomic<bool>* gone) {
  impl_->caller = caller;
  impl_->gone = gone;
}
SampleWorkspace::~SampleWorkspace() = default;
ImageWorkspace& SampleWorkspace::images() { return impl_->images; }

namespace {

// What buffers hold after they have grown to what is needed of each.
int64_t GrownBytes(const std::vector<GrowingBuffer>& buffers, const std::vector<int64_t>& needs) {
  int64_t total = 0;
  for (size_t i = 0; i < std::max(buffers.size(), needs.size()); ++i) {
    total +=
        std::max(i < buffers.size() ? buffers[i].capacity() : 0, i < needs.size() ? needs[i] : 0);
  }
  return total;
}

}  // namespace

void SampleWorkspace::Fit(int64_t bytes) {
  const Impl& impl = *impl_;
  const int64_t total = impl.needs.codec() + impl.needs.copies +
                        std::max(impl.needs.scratch, impl.scratch.capacity()) +
                        GrownBytes(impl.buffers, impl.needs.buffers) +
                        GrownBytes(impl.spares, impl.needs.spares);
  if (total > bytes) GiveBack();
}

void SampleWorkspace::GiveBack() {
  impl_->buffers.clear();
  impl_->scratch = GrowingBuffer();
  impl_->spares.clear();
  impl_->images.GiveBack();
  ReturnFreeMemory();
}

}  // namespace feedwater::server
