// Ops: a call waits for a window, writes its input there itself, and reads what was made from
// there.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/payload.h"
#include "server/provider/entries.h"
#include "server/provider/provided.h"

namespace feedwater::server {
namespace {

constexpr auto kLookAgain = absl::Milliseconds(20);  // whether a call is still wanted

}  // namespace

absl::StatusOr<Channel*> Provided::AwaitChannel(const OpCall& call, int64_t data_bytes) {
  ++callers_;
  absl::StatusOr<Channel*> channel = nullptr;
  for (;;) {
    if (call.gone != nullptr && *call.gone) {
      channel = absl::CancelledError("nobody waits for this sample any more");
      break;
    }
    if (IsAbsentLocked(LaneLocked(0), MonotonicNs())) {
      channel = Absent(0);
      break;
    }
    Deliveries deliveries;
    channel = WithRoomLocked(0, data_bytes, &deliveries);
    if (*channel != nullptr) break;
    if (!deliveries.growths.empty()) {
      mu_.Unlock();
      const absl::Status grown = Grow(deliveries.growths[0], &deliveries);
      mu_.Lock();
      if (grown.ok()) continue;
      channel = grown;
      break;
    }
    if (call.clock != nullptr) call.clock->Beat();
    changed_.WaitWithTimeout(&mu_, kLookAgain);
  }
  --callers_;
  for (const auto& [id, other] : channels_) other->drains = false;  // others ask for it again
  return channel;
}

absl::Status Provided::Call(const OpCall& call,
                            absl::FunctionRef<absl::Status(absl::Span<const Tensor>)> take) {
  std::vector<TensorSpec> specs;
  for (const Tensor& input : call.inputs) specs.push_back(input.spec);
  for (const auto& some : {absl::Span<const TensorSpec>(specs), call.outputs}) {
    if (some.size() > wire::kMaxTensors)
      return absl::InvalidArgumentError("more fields than a payload can have");
    for (const TensorSpec& spec : some) {
      if (spec.shape.size() <= wire::kMaxAxes) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(spec.ToString(), " has more axes than a payload can have"));
    }
  }
  FW_RETURN_IF_ERROR(CheckCallBytes(specs, call.outputs));
  FW_ASSIGN_OR_RETURN(const int64_t input_bytes, PayloadBytes(specs));
  const absl::StatusOr<int64_t> planned = PayloadBytes(call.outputs);
  constexpr int64_t kUnit = wire::kPayloadUnit;
  const int64_t output_at = (input_bytes + kUnit - 1) / kUnit * kUnit;
  int64_t room = output_at + (planned.ok() ? *planned : std::max(input_bytes, kGuessedBytes));
  if (room > kMostCallRoom) return TooLarge(static_cast<uint64_t>(room));

  bool is_doubted = false;
  for (int deaths = 0;;) {
    PendingCall pending;
    std::shared_ptr<Channel> channel;
    std::shared_ptr<SharedWindows> shared;
    uint32_t window = 0;
    {
      MutexLock lock(&mu_);
      FW_ASSIGN_OR_RETURN(Channel* const free, AwaitChannel(call, room));
      channel = channels_[free->id()];
      window = *channel->FreeWindow();
      channel->windows()[window].state = Channel::State::kFilling;
      shared = channel->shared();
    }
    wire::Entry entry{};
    entry.record = call.record;
    entry.seed[0] = call.seed[0];
    entry.seed[1] = call.seed[1];
    entry.input_offset = SharedWindows::kEntriesBytes;
    entry.input_bytes = static_cast<uint64_t>(input_bytes);
    WritePayload(call.inputs, shared->Data(window, entry.input_offset, entry.input_bytes).data());
    shared->WriteEntry(window, 0, entry);
    {
      MutexLock lock(&mu_);
      if (channel->is_lost()) continue;
      channel->windows()[window].call = &pending;
      channel->SendAsk(window, 1, MonotonicNs());
      while (pending.outcome == PendingCall::Outcome::kNone) {
        if (call.clock != nullptr) call.clock->Beat();
        changed_.WaitWithTimeout(&mu_, kLookAgain);
        if (call.gone == nullptr || !*call.gone || pending.outcome != PendingCall::Outcome::kNone)
          continue;
        channel->windows()[window].call = nullptr;
        return absl::CancelledError("nobody waits for this sample any more");
      }
      if (pending.outcome == PendingCall::Outcome::kNotReached) continue;
      if (pending.outcome == PendingCall::Outcome::kDied) {
        if (++deaths < kDeathsAllowed) continue;
        // Where no process is left the program has ended, which is not the sample's fault.
        FW_RETURN_IF_ERROR(AwaitChannel(call, room).status());
        return pending.why;
      }
    }
    const Reading reading(shared_from_this(), channel, window);
    entry = shared->ReadEntry(window, 0);
    const bool is_too_large = entry.code == static_cast<uint32_t>(wire::EntryCode::kTooLarge);
    absl::Status status;
    if (is_too_large) status = TooLarge(entry.bytes);
    if (is_too_large && entry.bytes <= static_cast<uint64_t>(kMostEntryBytes)) {
      const int64_t had_bytes = shared->data_bytes();
      const int64_t wants_bytes = output_at + static_cast<int64_t>(entry.bytes);
      room = RoomAfter(had_bytes, wants_bytes, &is_doubted);
      if (room > 0 && room <= kMostCallRoom) continue;
      status = wants_bytes > had_bytes ? TooLarge(static_cast<uint64_t>(wants_bytes))
                                       : NeverFits(had_bytes, wants_bytes);
    }
    const absl::Span<const std::byte> bytes = shared->Data(window, entry.offset, entry.bytes);
    const bool is_made = entry.code == static_cast<uint32_t>(wire::EntryCode::kMade);
    const uint64_t least =
        is_made ? static_cast<uint64_t>(SharedWindows::kEntriesBytes + output_at) : 0;
    if (!status.ok()) {
      // It is too large.
    } else if (bytes.size() != entry.bytes || (is_made && entry.offset % kUnit != 0) ||
               entry.offset < least) {
      status = absl::InvalidArgumentError("what it gave lies outside its window");
    } else if (is_made) {
      std::vector<Tensor> made;
      status = ReadPayload(
          bytes, call.outputs, [](size_t i) { return absl::StrCat("output ", i); }, &made);
      if (status.ok()) {
        status = take(made);
      } else {
        status = absl::InvalidArgumentError(
            absl::StrCat(What(), ": ", status.message(),
                         "; cure: return what `out` of the graph has, and say `dtype` and `shape` "
                         "of the first there"));
      }
    } else {
      status = absl::InvalidArgumentError(TextOf(bytes));
    }
    MutexLock lock(&mu_);
    ++(status.ok() ? counts_.made : counts_.failed);
    return status;
  }
}

}  // namespace feedwater::server
