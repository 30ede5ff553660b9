#include "server/pipeline/away_read.h"

#include <algorithm>
#include <utility>

#include "server/base/no_throw.h"

namespace feedwater::server {

void Mailbox::Put(std::shared_ptr<AwayRead> read) {
  MutexLock lock(&mu_);
  if (closed_ || read->is_left_) return;
  back_.push_back(std::move(read));
  any_.store(true, std::memory_order_release);
  came_.Signal();
}

void Mailbox::Leave(AwayRead* read) {
  std::shared_ptr<AwayRead> dropped;  // without the lock
  MutexLock lock(&mu_);
  read->is_left_ = true;
  const auto back = std::find_if(back_.begin(), back_.end(),
                                 [&](const auto& other) { return other.get() == read; });
  if (back == back_.end()) return;
  dropped = std::move(*back);
  back_.erase(back);
}

void Mailbox::Take(std::vector<std::shared_ptr<AwayRead>>* reads) {
  if (!any_.load(std::memory_order_acquire)) return;
  MutexLock lock(&mu_);
  for (std::shared_ptr<AwayRead>& read : back_) reads->push_back(std::move(read));
  back_.clear();
  any_.store(false, std::memory_order_relaxed);
}

void Mailbox::Wait(int64_t at_most_ns) {
  MutexLock lock(&mu_);
  if (back_.empty()) came_.WaitWithTimeout(&mu_, absl::Nanoseconds(at_most_ns));
}

void Mailbox::Close() {
  std::vector<std::shared_ptr<AwayRead>> dropped;  // without the lock
  MutexLock lock(&mu_);
  closed_ = true;
  dropped.swap(back_);
}

void AwayRead::Run() {
  op.status = NoThrow([this] {
    if (op.file == nullptr) {
      FW_ASSIGN_OR_RETURN(op.file, open());
    }
    if (op.file == nullptr) return absl::OkStatus();
    is_settled = IsSettled(*op.file);
    ReadEngine::ReadHere(&op);
    FW_RETURN_IF_ERROR(op.status);
    return ProveUnchanged(*op.file);
  });
  open = nullptr;
  home->Put(shared_from_this());
}

void AwayRead::Given(const absl::Status& status, absl::Span<const std::byte> bytes,
                     std::shared_ptr<const void> memory) {
  op.status = status;
  given = bytes;
  holds = std::move(memory);
  home->Put(shared_from_this());
}

}  // namespace feedwater::server
