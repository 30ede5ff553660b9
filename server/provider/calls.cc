// Ops: a call waits for a window, writes its input there itself, and reads what was made from
// there. A call that waits for long leaves its worker to others' work and stays where it is.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/payload.h"
#include "server/provider/entries.h"
#include "server/provider/provided.h"
#include "server/source/digest.h"

namespace feedwater::server {
namespace {

constexpr auto kLookAgain = absl::Milliseconds(20);  // whether a call is still wanted

constexpr int64_t kUnit = wire::kPayloadUnit;

// Of what a call takes.
std::string DigestOf(absl::Span<const Tensor> inputs) {
  Digest digest;
  for (const Tensor& input : inputs) {
    digest.Add(input.spec.ToString());
    digest.AddPart({reinterpret_cast<const char*>(input.data), input.bytes()});
  }
  return digest.Hex();
}

// Whether a call may go on waiting.
class Wait {
 public:
  Wait(const OpCall& call, Mutex* mu) : call_(call), mu_(mu) {}

  // Of whose turn it is others' calls are asked, which have locks of their own: the caller's, which
  // is held, is given up for that long.
  absl::Status Check() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (call_.gone != nullptr && *call_.gone)
      return absl::CancelledError("nobody waits for this sample any more");
    if (call_.clock != nullptr) call_.clock->Beat();
    const int64_t waited_ns = MonotonicNs() - since_ns_;
    if (call_.turn == nullptr || waited_ns < absl::ToInt64Nanoseconds(kLookAgain))
      return absl::OkStatus();
    mu_->Unlock();
    const bool is_over = call_.turn->IsOver(waited_ns);
    mu_->Lock();
    return is_over ? absl::AbortedError("its worker has other users' work to do")
                   : absl::OkStatus();
  }

 private:
  const OpCall& call_;
  Mutex* const mu_;
  const int64_t since_ns_ = MonotonicNs();
};

}  // namespace

class Provided::Ongoing final : public SuspendedCall {
 public:
  Ongoing(std::shared_ptr<Provided> owner, int64_t output_at, int64_t room)
      : output_at(output_at), room(room), owner_(std::move(owner)) {}

  // Where a process has it or has answered, the window is free once that is over.
  ~Ongoing() override {
    if (channel == nullptr) return;
    {
      MutexLock lock(&owner_->mu_);
      if (pending.outcome == PendingCall::Outcome::kNone) channel->windows()[window].call = nullptr;
    }
    if (pending.outcome == PendingCall::Outcome::kAnswered) TakeReading();
  }

  bool IsReady() override {
    MutexLock lock(&owner_->mu_);
    if (!kept.empty()) return true;
    if (channel != nullptr) return pending.outcome != PendingCall::Outcome::kNone;
    return owner_->MayHaveRoomLocked(0, room) ||
           owner_->IsAbsentLocked(owner_->LaneLocked(0), MonotonicNs());
  }

  // Keeps what was made, where there is memory for it: else the program is asked again.
  bool Keep(absl::Span<const std::byte> bytes) {
    if (bytes.empty()) return false;
    if (owner_->memory_.share != nullptr) {
      auto reserved =
          owner_->memory_.share->Reserve("suspended calls", static_cast<int64_t>(bytes.size()));
      if (!reserved.ok()) return false;
      reservation_ = *std::move(reserved);
    }
    kept.assign(bytes.begin(), bytes.end());
    return true;
  }

  // While it lives, the answer can be read. REQUIRES: there is one.
  std::unique_ptr<Reading> TakeReading() {
    return std::make_unique<Reading>(owner_, std::exchange(channel, nullptr), window);
  }

  const int64_t output_at;  // in the window's data, behind the input
  int64_t room;             // in all
  bool is_doubted = false;
  int deaths = 0;

  // While it is asked; null before and behind that.
  std::shared_ptr<Channel> channel;
  std::shared_ptr<SharedWindows> shared;
  uint32_t window = 0;
  PendingCall pending;  // guarded by the owner's lock while the outcome is kNone

  std::string input;            // DigestOf it, where it is suspended or kept
  std::vector<std::byte> kept;  // what was made

 private:
  const std::shared_ptr<Provided> owner_;
  MemoryReservation reservation_;
};

absl::StatusOr<Channel*> Provided::AwaitChannel(const OpCall& call, int64_t data_bytes) {
  ++callers_;
  absl::StatusOr<Channel*> channel = nullptr;
  for (const Wait wait(call, &mu_);;) {
    if (const absl::Status on = wait.Check(); !on.ok()) {
      channel = on;
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
    changed_.WaitWithTimeout(&mu_, kLookAgain);
  }
  --callers_;
  for (const auto& [id, other] : channels_) other->drains = false;  // others ask for it again
  return channel;
}

absl::Status Provided::Ask(const OpCall& call, int64_t input_bytes, Ongoing* ongoing) {
  for (;;) {
    std::shared_ptr<Channel> channel;
    std::shared_ptr<SharedWindows> shared;
    uint32_t window = 0;
    {
      MutexLock lock(&mu_);
      FW_ASSIGN_OR_RETURN(Channel* const free, AwaitChannel(call, ongoing->room));
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
    const absl::Span<std::byte> data = shared->Data(window, entry.input_offset, entry.input_bytes);
    if (data.size() != entry.input_bytes) {
      FreeWindow(*channel, shared.get(), window);
      return absl::InternalError("no room for what a call takes");
    }
    WritePayload(call.inputs, data.data());
    shared->WriteEntry(window, 0, entry);
    MutexLock lock(&mu_);
    if (channel->is_lost()) continue;
    ongoing->pending = PendingCall();
    channel->windows()[window].call = &ongoing->pending;
    channel->SendAsk(window, 1, MonotonicNs());
    ongoing->channel = std::move(channel);
    ongoing->shared = std::move(shared);
    ongoing->window = window;
    return absl::OkStatus();
  }
}

absl::Status Provided::AwaitAnswer(const OpCall& call, int64_t input_bytes, Ongoing* ongoing) {
  for (;;) {
    if (ongoing->deaths >= kDeathsAllowed) {
      // Where no process is left the program has ended, which is not the sample's fault.
      MutexLock lock(&mu_);
      FW_RETURN_IF_ERROR(AwaitChannel(call, ongoing->room).status());
      return ongoing->pending.why;
    }
    if (ongoing->channel == nullptr) FW_RETURN_IF_ERROR(Ask(call, input_bytes, ongoing));
    MutexLock lock(&mu_);
    for (const Wait wait(call, &mu_); ongoing->pending.outcome == PendingCall::Outcome::kNone;) {
      FW_RETURN_IF_ERROR(wait.Check());
      if (ongoing->pending.outcome == PendingCall::Outcome::kNone)
        changed_.WaitWithTimeout(&mu_, kLookAgain);
    }
    if (ongoing->pending.outcome == PendingCall::Outcome::kAnswered) return absl::OkStatus();
    ongoing->deaths += ongoing->pending.outcome == PendingCall::Outcome::kDied ? 1 : 0;
    ongoing->channel = nullptr;
  }
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
  const bool is_made_again = call.turn != nullptr && !call.turn->calls().empty();
  std::unique_ptr<SuspendedCall> suspended;
  if (is_made_again) suspended = call.turn->calls().Take(call);
  // Nobody else makes such calls, and the job keeps its ops.
  std::unique_ptr<Ongoing> ongoing(static_cast<Ongoing*>(suspended.release()));
  // A program may have given the op before something else this time.
  if (ongoing != nullptr && ongoing->input != DigestOf(call.inputs)) ongoing = nullptr;
  FW_ASSIGN_OR_RETURN(const int64_t input_bytes, PayloadBytes(specs));
  if (ongoing == nullptr) {
    const absl::StatusOr<int64_t> planned = PayloadBytes(call.outputs);
    const int64_t output_at = (input_bytes + kUnit - 1) / kUnit * kUnit;
    const int64_t room =
        output_at + (planned.ok() ? *planned : std::max(input_bytes, kGuessedBytes));
    if (room > kMostCallRoom) return TooLarge(static_cast<uint64_t>(room));
    ongoing = std::make_unique<Ongoing>(shared_from_this(), output_at, room);
  }
  const auto use = [&](absl::Span<const std::byte> bytes) -> absl::Status {
    std::vector<Tensor> made;
    const absl::Status read = ReadPayload(
        bytes, call.outputs, [](size_t i) { return absl::StrCat("output ", i); }, &made);
    if (read.ok()) return take(made);
    return absl::InvalidArgumentError(
        absl::StrCat(What(), ": ", read.message(),
                     "; cure: return what `out` of the graph has, and say `dtype` and `shape` "
                     "of the first there"));
  };
  if (!ongoing->kept.empty()) {
    const absl::Status status = use(ongoing->kept);
    call.turn->calls().Keep(call, std::move(ongoing));
    return status;
  }
  for (;;) {
    const absl::Status answered = AwaitAnswer(call, input_bytes, ongoing.get());
    if (absl::IsAborted(answered)) {
      ongoing->input = DigestOf(call.inputs);
      call.turn->calls().Suspend(call, std::move(ongoing));
    }
    FW_RETURN_IF_ERROR(answered);
    const std::unique_ptr<const Reading> reading = ongoing->TakeReading();
    SharedWindows& shared = *ongoing->shared;
    const wire::Entry entry = shared.ReadEntry(ongoing->window, 0);
    const bool is_too_large = entry.code == static_cast<uint32_t>(wire::EntryCode::kTooLarge);
    absl::Status status;
    if (is_too_large) status = TooLarge(entry.bytes);
    if (is_too_large && entry.bytes <= static_cast<uint64_t>(kMostEntryBytes)) {
      const int64_t had_bytes = shared.data_bytes();
      const int64_t wants_bytes = ongoing->output_at + static_cast<int64_t>(entry.bytes);
      ongoing->room = RoomAfter(had_bytes, wants_bytes, &ongoing->is_doubted);
      if (ongoing->room > 0 && ongoing->room <= kMostCallRoom) continue;
      status = wants_bytes > had_bytes ? TooLarge(static_cast<uint64_t>(wants_bytes))
                                       : NeverFits(had_bytes, wants_bytes);
    }
    const absl::Span<const std::byte> bytes =
        shared.Data(ongoing->window, entry.offset, entry.bytes);
    const bool is_made = entry.code == static_cast<uint32_t>(wire::EntryCode::kMade);
    const uint64_t least =
        is_made ? static_cast<uint64_t>(SharedWindows::kEntriesBytes + ongoing->output_at) : 0;
    if (!status.ok()) {
      // It is too large.
    } else if (bytes.size() != entry.bytes || (is_made && entry.offset % kUnit != 0) ||
               entry.offset < least) {
      status = absl::InvalidArgumentError("what it gave lies outside its window");
    } else if (is_made) {
      // From one copy, now and when the sample is made again: the program can still write there.
      const bool is_kept = is_made_again && ongoing->Keep(bytes);
      if (is_kept) ongoing->input = DigestOf(call.inputs);
      status = use(is_kept ? absl::MakeConstSpan(ongoing->kept) : bytes);
      if (is_kept) call.turn->calls().Keep(call, std::move(ongoing));
    } else {
      status = absl::InvalidArgumentError(TextOf(bytes));
    }
    MutexLock lock(&mu_);
    ++(status.ok() ? counts_.made : counts_.failed);
    return status;
  }
}

}  // namespace feedwater::server
