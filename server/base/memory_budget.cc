#include "server/base/memory_budget.h"

#include "absl/strings/str_cat.h"
#include "server/base/units.h"

namespace feedwater::server {

MemoryReservation& MemoryReservation::operator=(MemoryReservation&& other) noexcept {
  if (this != &other) {
    Release();
    budget_ = std::move(other.budget_);
    term_ = std::move(other.term_);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void MemoryReservation::Release() {
  ShrinkTo(0);
  budget_.reset();
}

void MemoryReservation::ShrinkTo(int64_t bytes) {
  if (budget_ == nullptr || bytes >= bytes_) return;
  MutexLock lock(&budget_->mu_);
  auto it = budget_->terms_.find(term_);
  if (it != budget_->terms_.end() && (it->second -= bytes_ - bytes) <= 0) budget_->terms_.erase(it);
  bytes_ = bytes;
}

absl::StatusOr<MemoryReservation> MemoryBudget::Reserve(std::string term, int64_t bytes) {
  if (bytes < 0)
    return absl::InvalidArgumentError(absl::StrCat("memory for ", term, " is negative: ", bytes));
  MemoryReservation reservation;
  if (bytes == 0) return reservation;
  {
    MutexLock lock(&mu_);
    int64_t planned = 0;
    for (const auto& [name, size] : terms_)
      planned += size;  // cannot overflow: never above the limit
    if (bytes > limit_bytes_ - planned) {
      int64_t total;
      const bool overflow = __builtin_add_overflow(planned, bytes, &total);
      return absl::ResourceExhaustedError(absl::StrCat(
          SumLocked(), terms_.empty() ? "" : " + ", "this request (", term, ") ",
          FormatBytes(bytes), " = ", overflow ? "more than 8 EiB" : FormatBytes(total),
          ", over the limit of ", FormatBytes(limit_bytes_),
          "; cure: smaller batches or fewer slots, close other sessions, or a larger `", key_,
          "` in feedwater.yaml"));
    }
    terms_[term] += bytes;
  }
  reservation.budget_ = shared_from_this();
  reservation.term_ = std::move(term);
  reservation.bytes_ = bytes;
  return reservation;
}

int64_t MemoryBudget::planned_bytes() const {
  MutexLock lock(&mu_);
  int64_t planned = 0;
  for (const auto& [name, size] : terms_) planned += size;
  return planned;
}

std::string MemoryBudget::Sum() const {
  MutexLock lock(&mu_);
  int64_t planned = 0;
  for (const auto& [name, size] : terms_) planned += size;
  return absl::StrCat(SumLocked(), terms_.empty() ? "nothing" : "", " = ", FormatBytes(planned),
                      " of ", FormatBytes(limit_bytes_));
}

std::string MemoryBudget::SumLocked() const {
  std::string sum;
  for (const auto& [name, size] : terms_)
    absl::StrAppend(&sum, sum.empty() ? "" : " + ", name, " ", FormatBytes(size));
  return sum;
}

}  // namespace feedwater::server
