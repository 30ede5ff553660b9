#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/batch.h"
#include "client/cpp/errors.h"
#include "client/cpp/layout.h"
#include "client/cpp/outage.h"
#include "client/cpp/stream_impl.h"

namespace feedwater {

void Stream::Impl::SeekTo(EpochPosition place) {
  if (next_at == place) return;
  next_at = place;
  session->SendSeek(++serial, place.epoch, place.position);
}

void Stream::Impl::GiveBack(const wire::Ready& ready) {
  session->Release(ready.slot, ready.generation);
}

absl::StatusOr<wire::Ready> Stream::Impl::AwaitReady() {
  int64_t stalled_since = 0, looked_ns = MonotonicNs();
  constexpr int64_t kLeastSilenceNs = 1'000'000'000;
  const int64_t stall_ns = SecondsToNs(options.stall_timeout_s);
  const int64_t silence_ns = std::max(stall_ns, kLeastSilenceNs);
  std::optional<Silence> silence;
  while (true) {
    // While the program holds every slot no batch can come: say so rather than wait for ever.
    const bool holds_all = session->lent() >= session->slots();
    int timeout_ms = holds_all ? 50 : 1000;
    absl::StatusOr<Session::Message> message = session->Receive(timeout_ms);
    if (!message.ok()) {
      if (absl::IsDeadlineExceeded(message.status())) {
        if (!holds_all) {
          stalled_since = 0;
          if (MonotonicNs() - looked_ns < silence_ns) continue;
          if (!silence) silence.emplace(options.notice, address);
          silence->Look();
          looked_ns = MonotonicNs();
          continue;
        }
        if (stalled_since == 0) stalled_since = MonotonicNs();
        if (MonotonicNs() - stalled_since < stall_ns) continue;
        return StalledError(absl::StrCat("stalled: this program holds all ", session->slots(),
                                         " batches of the stream for ", options.stall_timeout_s,
                                         " s, so no slot is free for the next one. Destroy or copy "
                                         "batches earlier, or open the stream with more slots"));
      }
      if (absl::IsUnavailable(message.status())) {
        if (absl::Status again = Reconnect(message.status()); !again.ok()) return again;
        continue;
      }
      return message.status();
    }
    if (const auto* closing = std::get_if<wire::Closing>(&*message)) {
      const absl::Status reason = ReasonOf(*closing);
      if (!absl::IsUnavailable(reason)) return reason;
      if (absl::Status again = Reconnect(reason); !again.ok()) return again;
      continue;
    }
    if (const auto* failure = std::get_if<wire::FailedWithReason>(&*message)) {
      if (failure->failed.serial != serial) continue;
      next_at.reset();  // the daemon stands still until a seek
      return FailureOf(*failure);
    }
    if (silence) silence->End();
    const auto& ready = std::get<wire::Ready>(*message);
    session->CountLent();
    if (ready.serial != serial) {
      GiveBack(ready);
      continue;
    }
    next_at = (ready.flags & wire::kReadyLastInEpoch) != 0
                  ? EpochPosition{ready.epoch + 1, 0}
                  : EpochPosition{ready.epoch, ready.next_position};
    return ready;
  }
}

void Stream::Impl::Settle() {
  const EpochPosition wanted = position.Wanted();
  if (kept) {
    if (wanted == EpochPosition{kept->epoch, 0}) return;
    GiveBack(*std::exchange(kept, std::nullopt));
  }
  SeekTo(wanted);
}

absl::StatusOr<wire::Ready> Stream::Impl::Fetch() {
  if (!failed.ok()) return failed;
  Settle();
  if (kept) return *std::exchange(kept, std::nullopt);
  absl::StatusOr<wire::Ready> ready = AwaitReady();
  if (!ready.ok() && !next_at) failed = ready.status();  // the daemon could not make the batch
  return ready;
}

absl::StatusOr<Batch> Stream::Impl::Next() {
  while (true) {
    absl::StatusOr<wire::Ready> ready = Fetch();
    if (!ready.ok()) return ready.status();
    const bool begins_skipped =
        position.cursor().AfterSkips({ready->epoch, 0}) != EpochPosition{ready->epoch, 0};
    if (ready->epoch <= position.Wanted().epoch || !begins_skipped) return Lend(*ready);
    // The epoch had no further batch, and the next one begins with what is left out.
    position.BeginEpoch(ready->epoch);
    kept = *ready;
  }
}

absl::StatusOr<std::optional<Batch>> Stream::Impl::NextInEpoch() {
  const uint64_t epoch = position.cursor().at.epoch;
  if (position.at_epoch_end()) {
    position.BeginEpoch(epoch + 1);
    return std::optional<Batch>();
  }
  absl::StatusOr<wire::Ready> ready = Fetch();
  if (!ready.ok()) return ready.status();
  if (ready->epoch > epoch) {
    const bool is_resumed = position.resumed();  // then the state was of the epoch's end
    kept = *ready;
    position.BeginEpoch(is_resumed ? ready->epoch : epoch + 1);
    if (!is_resumed) return std::optional<Batch>();
    return NextInEpoch();  // behind what is left out there
  }
  absl::StatusOr<Batch> batch = Lend(*ready);
  if (!batch.ok()) return batch.status();
  return std::optional<Batch>(*std::move(batch));
}

absl::StatusOr<Batch> Stream::Impl::Lend(const wire::Ready& ready) {
  absl::StatusOr<Batch> batch = View(ready);
  if (!batch.ok()) return batch.status();
  position.Take(ready.epoch, ready.next_position, (ready.flags & wire::kReadyLastInEpoch) != 0,
                ready.substituted);
  return batch;
}

absl::StatusOr<Batch> Stream::Impl::View(const wire::Ready& ready) {
  session->Lend(ready.slot);
  auto impl = std::make_unique<Batch::Impl>();
  impl->session = session;
  impl->ready = ready;
  impl->received_ns = MonotonicNs();
  if (static_cast<int64_t>(ready.samples) > opened.batch_size()) {
    return absl::InternalError(
        absl::StrCat("a batch of ", ready.samples, " samples in slots for ", opened.batch_size()));
  }
  impl->offsets.resize(fields.size());
  for (size_t i = 0; i < fields.size(); ++i) {
    absl::StatusOr<Tensor> tensor =
        TensorOf(fields[i], opened.fields(static_cast<int>(i)), ready.samples,
                 session->slot(ready.slot), &impl->offsets[i]);
    if (!tensor.ok()) return tensor.status();
    impl->tensors.push_back(*std::move(tensor));
    impl->names.push_back(fields[i].name);
  }
  if (options.verify) {
    if (absl::Status sum = impl->CheckSum(); !sum.ok()) {
      next_at.reset();  // the next call asks for this batch once more
      return sum;
    }
  }
  return Batch(std::move(impl));
}

absl::Status Stream::Impl::SetEpoch(uint64_t epoch) {
  failed = absl::OkStatus();
  if (position.ChooseEpoch(epoch)) Settle();
  return absl::OkStatus();
}

absl::Status Stream::Impl::Load(const std::string& state) {
  absl::StatusOr<Cursor> saved = Cursor::FromJson(state);
  if (!saved.ok()) return saved.status();
  if (opened.own_workers() > 0) {
    if (absl::Status same = saved->CheckSameWorld(opened.world_size()); !same.ok()) return same;
  }
  if (absl::Status loaded = position.Load(*saved); !loaded.ok()) return loaded;
  failed = absl::OkStatus();
  Settle();
  return absl::OkStatus();
}

// --- Replaying and leaving out

absl::StatusOr<Batch> Stream::Impl::Replay(int64_t step, std::optional<uint64_t> of_epoch) {
  const uint64_t epoch = of_epoch.value_or(position.epoch());
  absl::StatusOr<int64_t> begin = position.BeginOf(epoch, step);
  if (!begin.ok()) return begin.status();
  if (kept) GiveBack(*std::exchange(kept, std::nullopt));
  SeekTo({epoch, *begin});
  absl::StatusOr<wire::Ready> ready = AwaitReady();
  if (!ready.ok()) return ready.status();
  if (ready->epoch != epoch) {
    GiveBack(*ready);
    return absl::InvalidArgumentError(absl::StrCat("epoch ", epoch, " has no step ", step,
                                                   " behind the place where it was resumed"));
  }
  return View(*ready);
}

absl::Status Stream::Impl::Skip(int64_t first, int64_t last, std::optional<uint64_t> of_epoch) {
  return position.Skip(first, last, of_epoch.value_or(position.next_epoch()));
}

Stream::Stream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;
Stream::~Stream() = default;

absl::StatusOr<Batch> Stream::Next() {
  if (absl::Status own = impl_->session->CheckProcess(); !own.ok()) return own;
  return impl_->Next();
}
absl::StatusOr<std::optional<Batch>> Stream::NextInEpoch() {
  if (absl::Status own = impl_->session->CheckProcess(); !own.ok()) return own;
  return impl_->NextInEpoch();
}
absl::Status Stream::Load(const std::string& state) {
  if (absl::Status own = impl_->session->CheckProcess(); !own.ok()) return own;
  return impl_->Load(state);
}
absl::Status Stream::SetEpoch(uint64_t epoch) {
  if (absl::Status own = impl_->session->CheckProcess(); !own.ok()) return own;
  return impl_->SetEpoch(epoch);
}
absl::StatusOr<Batch> Stream::Replay(int64_t step, std::optional<uint64_t> epoch) {
  if (absl::Status own = impl_->session->CheckProcess(); !own.ok()) return own;
  return impl_->Replay(step, epoch);
}
absl::Status Stream::Skip(int64_t first, int64_t last, std::optional<uint64_t> epoch) {
  if (absl::Status own = impl_->session->CheckProcess(); !own.ok()) return own;
  return impl_->Skip(first, last, epoch);
}
std::string Stream::State() const { return impl_->position.cursor().ToJson(); }
const std::vector<Field>& Stream::fields() const { return impl_->fields; }
const std::vector<std::string>& Stream::classes() const { return impl_->classes; }
const std::string& Stream::pipeline() const { return impl_->opened.pipeline(); }
const std::string& Stream::warning() const { return impl_->opened.warning(); }
const std::string& Stream::job() const { return impl_->opened.job(); }
int64_t Stream::rank() const { return impl_->rank; }
int64_t Stream::world_size() const { return impl_->opened.world_size(); }
int64_t Stream::batch_size() const { return impl_->opened.batch_size(); }
int64_t Stream::records() const { return impl_->opened.records(); }
int64_t Stream::steps_per_epoch() const { return impl_->opened.steps_per_epoch(); }
int64_t Stream::samples_per_epoch() const { return impl_->opened.samples_per_epoch(); }
uint64_t Stream::seed() const { return impl_->opened.seed(); }
uint64_t Stream::epoch() const { return impl_->position.next_epoch(); }
uint32_t Stream::slots() const { return impl_->opened.slots(); }

}  // namespace feedwater
