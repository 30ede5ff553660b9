#include "server/pipeline/read_ahead.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "server/base/cpus.h"
#include "server/base/log_limiter.h"
#include "server/base/no_throw.h"
#include "server/base/units.h"
#include "server/storage/mounts.h"
#include "spdlog/spdlog.h"

namespace feedwater::server {
namespace {

constexpr int64_t kPlacesAtOnce = 1024;
constexpr int64_t kMostRunBytes = 16 << 20;
constexpr int64_t kRunsToJudge = 16;
constexpr int kEarlierToFollow = 64;  // then all ranks have gone back to an earlier epoch

// Each call is good for so many bytes; the kernel leaves out the rest without a word.
void AdviseKernel(const OpenedFile& file, int64_t offset, int64_t length) {
  const int64_t step = FactsOfMount(file.fd.get())->storage.ahead_bytes;
  for (int64_t done = 0; done < length; done += step) {
    (void)posix_fadvise(file.fd.get(), offset + done, std::min(step, length - done),
                        POSIX_FADV_WILLNEED);
  }
}

}  // namespace

class ReadAhead::Pump final : public StorageCall {
 public:
  explicit Pump(std::shared_ptr<ReadAhead> of) : of_(std::move(of)) {}
  void Run() override {
    const absl::Status done = NoThrow([this] {
      of_->Work();
      return absl::OkStatus();
    });
    if (!done.ok()) of_->Stop();
  }

 private:
  const std::shared_ptr<ReadAhead> of_;
};

std::shared_ptr<ReadAhead> ReadAhead::Create(Parts parts, const OrderConfig& order) {
  if (order.shuffle != Shuffle::kBlock || order.mix != nullptr) return nullptr;
  if (parts.kind.has_value() && !HabitsOf(*parts.kind).reads_ahead) return nullptr;
  return std::shared_ptr<ReadAhead>(new ReadAhead(std::move(parts)));
}

void ReadAhead::Stop() { off_.store(true, std::memory_order_relaxed); }

void ReadAhead::End() {
  Stop();
  std::shared_ptr<Pump> pump;
  {
    MutexLock lock(&mu_);
    pump = pump_.lock();
  }
  if (pump != nullptr) parts_.calls->Cancel(parts_.user, pump.get());
}

bool ReadAhead::Reach(const std::shared_ptr<const EpochOrder>& order, int64_t first, int64_t last,
                      int64_t attached, int64_t world) {
  const RecordOrder* const records = order->records();
  if (is_off() || records == nullptr || 2 * attached < world) return false;
  const int64_t window = records->window_records();
  const int64_t from = first / window * window;
  const int64_t end = std::min(records->records(), (last / window + 1) * window);
  bool is_read = false;
  std::shared_ptr<Pump> pump;
  {
    MutexLock lock(&mu_);
    const bool is_earlier = order_ != nullptr && order->epoch() < order_->epoch();
    of_earlier_ = is_earlier ? of_earlier_ + 1 : 0;
    if (order_ == nullptr || order->epoch() > order_->epoch() || of_earlier_ > kEarlierToFollow) {
      order_ = order;
      began_ = next_ = target_ = from;
    }
    if (order->epoch() != order_->epoch()) return false;  // a rank that is behind the others
    if (from > next_) began_ = next_ = from;              // the cursor was moved
    target_ = std::max(target_, std::min(records->records(), last + window));
    is_read = began_ <= from && end <= next_;
    // Not for every few places.
    const bool is_worth_it = !is_read || target_ - next_ >= std::max<int64_t>(window / 16, 1);
    if (next_ < target_ && !working_ && is_worth_it) {
      working_ = true;
      pump_ = pump = std::make_shared<Pump>(shared_from_this());
    }
  }
  // Without the lock: where no thread can be started, it works here.
  if (pump != nullptr) parts_.calls->Start(parts_.user, std::move(pump));
  return is_read;
}

// One thread at a time.
void ReadAhead::Work() {
  for (;;) {
    std::shared_ptr<const EpochOrder> order;
    int64_t from = 0, to = 0;
    {
      MutexLock lock(&mu_);
      if (is_off() || next_ >= target_) {
        working_ = false;
        return;
      }
      order = order_;
      from = next_;
      to = std::min(target_, from + kPlacesAtOnce);
    }
    if (!checked_memory_ && !FitsMemory(order->records()->window_records())) Stop();
    checked_memory_ = true;
    if (!is_off()) Advise(*order, from, to);
    MutexLock lock(&mu_);
    if (order == order_ && next_ == from) next_ = to;
  }
}

// Two windows stand in the page cache.
bool ReadAhead::FitsMemory(int64_t window_records) const {
  const Dataset& dataset = *parts_.pipeline->dataset;
  double bytes = 0;
  for (int64_t i = 0; i < dataset.objects(); ++i)
    bytes += static_cast<double>(dataset.ObjectBytes(static_cast<uint32_t>(i)));
  const double windows =
      2 * bytes / static_cast<double>(dataset.size()) * static_cast<double>(window_records);
  const int64_t most = std::min(parts_.most_bytes, MemoryLimitBytes() / 8);
  if (windows <= static_cast<double>(most)) return true;
  if (ClientLog().Admits("windows that are too large to be read ahead", parts_.user)) {
    spdlog::warn(
        "two windows of {} records have {}, and at most {} are read ahead: a smaller block_records "
        "lets `shuffle: block` read in large pieces",
        window_records, FormatBytes(static_cast<int64_t>(windows)), FormatBytes(most));
  }
  return false;
}

void ReadAhead::Advise(const EpochOrder& order, int64_t from, int64_t to) {
  const Dataset& dataset = *parts_.pipeline->dataset;
  const RecordCache* const cache = parts_.pipeline->cache.get();
  std::vector<Extent> extents;
  Run run;
  for (int64_t place = from; place < to && !is_off(); ++place) {
    const int64_t record = order.records()->RecordAtPlace(place);
    if (cache != nullptr && cache->Has(record)) continue;
    extents.clear();
    dataset.Extents(record, &extents);
    for (const Extent& extent : extents) {
      if (extent.length <= 0 || extent.offset < 0 || extent.length > kMostRunBytes) continue;
      const int64_t end = extent.offset + extent.length;
      const bool goes_on = run.extents > 0 && extent.object == run.object &&
                           extent.offset >= run.offset && extent.offset - run.end <= kPieceBytes &&
                           end - run.offset <= kMostRunBytes;
      if (!goes_on) {
        AdviseRun(run);
        run = {extent.object, extent.offset, end, 0};
      }
      run.end = std::max(run.end, end);
      ++run.extents;
    }
  }
  AdviseRun(run);
  // Where each record is a file of its own there is nothing to gain.
  if (runs_ >= kRunsToJudge && 2 * lone_ > runs_) Stop();
}

void ReadAhead::AdviseRun(const Run& run) {
  if (run.extents == 0 || is_off()) return;
  ++runs_;
  lone_ += run.extents == 1;
  if (run.extents == 1) return;
  const auto file = parts_.files->Open(run.object, Reach::kAnywhere, parts_.user);
  if (!file.ok()) return;  // whoever reads it says so
  const StorageKind kind = parts_.kind.value_or(FactsOfMount((*file)->fd.get())->storage.kind);
  if ((*file)->direct_io || !HabitsOf(kind).reads_ahead) return Stop();
  if (run.object != last_object_ || run.offset < last_end_ || run.offset - last_end_ > kPieceBytes)
    Add(&parts_.counts->ahead_seeks);
  for (int64_t at = run.offset; at < run.end;) {
    const int64_t until = std::min(run.end, (at / kPieceBytes + 1) * kPieceBytes);
    parts_.advise ? parts_.advise(**file, at, until - at) : AdviseKernel(**file, at, until - at);
    Add(&parts_.counts->ahead);
    Add(&parts_.counts->ahead_bytes, until - at);
    at = until;
  }
  last_object_ = run.object;
  last_end_ = run.end;
}

}  // namespace feedwater::server
