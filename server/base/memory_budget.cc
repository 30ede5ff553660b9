#include "server/base/memory_budget.h"

#include <algorithm>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "server/base/status.h"
#include "server/base/units.h"

namespace feedwater::server {
namespace {

constexpr char kRefusedUrl[] = "feedwater/refused-memory";
constexpr char kByShare[] = " by share";

}  // namespace

std::optional<RefusedMemory> RefusedMemoryOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kRefusedUrl);
  if (!payload) return std::nullopt;
  const std::string text(*payload);
  absl::string_view bytes = text;
  RefusedMemory refused;
  refused.by_share = absl::ConsumeSuffix(&bytes, kByShare);
  if (!absl::SimpleAtoi(bytes, &refused.bytes)) return std::nullopt;
  return refused;
}

MemoryReservation& MemoryReservation::operator=(MemoryReservation&& other) noexcept {
  if (this != &other) {
    Release();
    budget_ = std::move(other.budget_);
    whole_ = std::move(other.whole_);
    term_ = std::move(other.term_);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void MemoryReservation::Release() {
  ShrinkTo(0);
  budget_.reset();
  whole_.reset();
}

void MemoryReservation::ShrinkTo(int64_t bytes) {
  if (budget_ == nullptr || bytes >= bytes_) return;
  budget_->GiveBack(term_, bytes_ - bytes);
  if (whole_ != nullptr) whole_->GiveBack(term_, bytes_ - bytes);
  bytes_ = bytes;
}

void MemoryBudget::GiveBack(const std::string& term, int64_t bytes) {
  MutexLock lock(&mu_);
  auto it = terms_.find(term);
  if (it != terms_.end() && (it->second -= bytes) <= 0) terms_.erase(it);
}

absl::Status MemoryBudget::Take(const std::string& term, int64_t bytes) {
  MutexLock lock(&mu_);
  const int64_t planned = PlannedLocked();
  if (bytes > limit_bytes_ - planned) {
    int64_t total;
    const bool overflow = __builtin_add_overflow(planned, bytes, &total);
    absl::Status refused = absl::ResourceExhaustedError(absl::StrCat(
        SumLocked(), terms_.empty() ? "" : " + ", "this request (", term, ") ", FormatBytes(bytes),
        " = ", overflow ? "more than 8 EiB" : FormatBytes(total), ", over the limit of ",
        FormatBytes(limit_bytes_), whole_ != nullptr ? " for one user" : "",
        "; cure: smaller batches or fewer slots, close other sessions, or a larger `", key_,
        "` in feedwater.yaml"));
    refused.SetPayload(kRefusedUrl,
                       absl::Cord(absl::StrCat(bytes, whole_ != nullptr ? kByShare : "")));
    return refused;
  }
  terms_[term] += bytes;
  return absl::OkStatus();
}

absl::StatusOr<MemoryReservation> MemoryBudget::Reserve(std::string term, int64_t bytes) {
  if (whole_ == nullptr || bytes <= 0) return ReserveOfShare(std::move(term), bytes);
  // The whole first: its sum says more than the share's.
  FW_RETURN_IF_ERROR(whole_->Take(term, bytes));
  absl::StatusOr<MemoryReservation> reservation = ReserveOfShare(term, bytes);
  if (reservation.ok()) {
    reservation->whole_ = whole_;
  } else {
    whole_->GiveBack(term, bytes);
  }
  return reservation;
}

absl::StatusOr<MemoryReservation> MemoryBudget::ReserveOfShare(std::string term, int64_t bytes) {
  if (bytes < 0)
    return absl::InvalidArgumentError(absl::StrCat("memory for ", term, " is negative: ", bytes));
  MemoryReservation reservation;
  if (bytes == 0) return reservation;
  FW_RETURN_IF_ERROR(Take(term, bytes));
  reservation.budget_ = shared_from_this();
  reservation.term_ = std::move(term);
  reservation.bytes_ = bytes;
  return reservation;
}

int64_t MemoryBudget::PlannedLocked() const {
  int64_t planned = 0;  // cannot overflow: never above the limit
  for (const auto& [name, size] : terms_) planned += size;
  return planned;
}

int64_t MemoryBudget::planned_bytes() const {
  MutexLock lock(&mu_);
  return PlannedLocked();
}

int64_t MemoryBudget::free_bytes() const {
  const int64_t left = limit_bytes_ - planned_bytes();
  return whole_ == nullptr ? left : std::min(left, whole_->free_bytes());
}

std::string MemoryBudget::Sum() const {
  MutexLock lock(&mu_);
  return absl::StrCat(SumLocked(), terms_.empty() ? "nothing" : "", " = ",
                      FormatBytes(PlannedLocked()), " of ", FormatBytes(limit_bytes_));
}

std::string MemoryBudget::SumLocked() const {
  std::string sum;
  for (const auto& [name, size] : terms_)
    absl::StrAppend(&sum, sum.empty() ? "" : " + ", name, " ", FormatBytes(size));
  return sum;
}

}  // namespace feedwater::server
