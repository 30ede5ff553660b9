#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/address.h"
#include "client/cpp/control_channel.h"
#include "client/cpp/launcher.h"
#include "client/cpp/layout.h"
#include "client/cpp/outage.h"
#include "client/cpp/stream_impl.h"
#include "proto/shm/crc32c.h"

namespace feedwater {
namespace {

constexpr const char* kStalledUrl = "feedwater/stalled";
constexpr const char* kChecksumUrl = "feedwater/checksum";
constexpr const char* kLostUrl = "feedwater/daemon-lost";
constexpr const char* kRecordUrl = "feedwater/bad-sample-record";
constexpr const char* kPathUrl = "feedwater/bad-sample-path";
constexpr const char* kReasonUrl = "feedwater/bad-sample-reason";
constexpr double kStartingS = 5;  // how long a daemon that accepts connections may take to serve
constexpr int64_t kOpenNs = 3600'000'000'000;  // the first open of a large dataset lists its files
constexpr int64_t kQueueNs =
    5'000'000'000;  // how long a full queue of the control socket is waited for
constexpr auto kQueuePause = std::chrono::milliseconds(20);
constexpr int64_t kLeastNs = 1'000'000'000;
constexpr double kEndlessS = 1e9;
constexpr int64_t kMaxPipelineBytes = 256 * 1024;

std::string Text(const char* bytes, size_t capacity) {
  return std::string(bytes, strnlen(bytes, capacity));
}

absl::Status FailureOf(const wire::Failed& failed) {
  const std::string reason = Text(failed.message, sizeof(failed.message)),
                    path = Text(failed.path, sizeof(failed.path));
  const bool is_bad_sample = failed.record >= 0;
  absl::Status status(
      static_cast<absl::StatusCode>(failed.code),
      is_bad_sample ? absl::StrCat("record ", failed.record, " (", path, "): ", reason) : reason);
  if (status.ok()) status = absl::UnknownError("the daemon could not make this batch");
  if (is_bad_sample) {
    status.SetPayload(kRecordUrl, absl::Cord(absl::StrCat(failed.record)));
    status.SetPayload(kPathUrl, absl::Cord(path));
    status.SetPayload(kReasonUrl, absl::Cord(reason));
  }
  return status;
}

int64_t SecondsToNs(double seconds) {
  return static_cast<int64_t>(std::clamp(seconds, 0.0, kEndlessS) * 1e9);
}

// `pipeline` as the request says it: the text of a file, or a name.
absl::StatusOr<v1::PipelineRef> MakePipelineRef(const std::string& pipeline) {
  v1::PipelineRef ref;
  if (pipeline.empty())
    return absl::InvalidArgumentError(
        "StreamOptions::pipeline is empty: give a name or a .yaml file");
  if (!absl::EndsWith(pipeline, ".yaml") && !absl::EndsWith(pipeline, ".yml")) {
    ref.set_name(pipeline);
    return ref;
  }
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(pipeline, error);
  if (error)
    return absl::NotFoundError(absl::StrCat("pipeline file ", pipeline, ": ", error.message()));
  if (size > kMaxPipelineBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("pipeline file ", pipeline, " has ", size, " bytes, more than 256 KiB"));
  }
  std::ifstream file(pipeline, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file)
    return absl::PermissionDeniedError(absl::StrCat("pipeline file ", pipeline, " cannot be read"));
  ref.mutable_text()->set_file_name(std::filesystem::path(pipeline).filename().string());
  ref.mutable_text()->set_yaml(text.str());
  return ref;
}

bool EnvironmentSaysProtect() {
  const char* value = std::getenv("FEEDWATER_DEBUG_PROTECT");
  return value != nullptr && *value != '\0' && absl::string_view(value) != "0";
}

absl::Status CheckSum(const wire::Ready& ready, const std::vector<Tensor>& tensors) {
  if ((ready.flags & wire::kReadyHasCrc) == 0)
    return absl::InternalError("StreamOptions::verify, but the daemon sent no checksum");
  uint32_t crc = 0;
  for (const Tensor& tensor : tensors)
    crc = wire::Crc32c(crc, tensor.bytes.data(), tensor.bytes.size());
  if (crc == ready.crc32c) return absl::OkStatus();
  absl::Status mismatch = absl::DataLossError(absl::StrCat(
      "the batch of epoch ", ready.epoch, ", step ", ready.step,
      " does not fit its checksum: CRC32C is ", crc, ", the daemon computed ", ready.crc32c));
  mismatch.SetPayload(kChecksumUrl, absl::Cord("1"));
  return mismatch;
}

// A cursor at `place` as the daemon reads it: what is left out is the client's affair.
std::string ForDaemon(Cursor cursor, Place place) {
  cursor.at = place;
  cursor.skips.clear();
  return cursor.ToJson();
}

// Whether a daemon that is coming back may answer differently soon.
bool MayPass(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kDeadlineExceeded || IsNoPermission(status) ||
         // Our own old session, not yet reclaimed: its rank, its memory, its place in a quota.
         status.code() == absl::StatusCode::kAlreadyExists ||
         status.code() == absl::StatusCode::kResourceExhausted;
}

}  // namespace

int64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

std::optional<BadSample> BadSampleOf(const absl::Status& status) {
  const absl::optional<absl::Cord> record = status.GetPayload(kRecordUrl);
  const absl::optional<absl::Cord> path = status.GetPayload(kPathUrl);
  const absl::optional<absl::Cord> reason = status.GetPayload(kReasonUrl);
  if (!record || !path || !reason) return std::nullopt;
  BadSample sample;
  if (!absl::SimpleAtoi(std::string(*record), &sample.record)) return std::nullopt;
  sample.path = std::string(*path);
  sample.reason = std::string(*reason);
  return sample;
}
bool IsStalled(const absl::Status& status) { return status.GetPayload(kStalledUrl).has_value(); }
bool IsChecksumMismatch(const absl::Status& status) {
  return status.GetPayload(kChecksumUrl).has_value();
}
bool IsDaemonLost(const absl::Status& status) { return status.GetPayload(kLostUrl).has_value(); }

// --- Batch
// -------------------------------------------------------------------------------------------------------------------

struct Batch::Impl {
  std::shared_ptr<Session> session;
  wire::Ready ready;
  int64_t received_ns = 0;
  std::vector<Tensor> tensors;
  std::vector<std::string> names;

  ~Impl() { session->Release(ready.slot, ready.generation); }
};

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

// --- Stream
// ------------------------------------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Stream::Impl>> Stream::Impl::Open(const std::string& address,
                                                                 const StreamOptions& options) {
  auto stream = std::make_unique<Impl>();
  stream->address = address;
  stream->options = options;
  absl::StatusOr<LaunchIdentity> identity = IdentifyLaunch(options.rank, options.world_size);
  if (!identity.ok()) return identity.status();
  absl::StatusOr<v1::PipelineRef> pipeline = MakePipelineRef(options.pipeline);
  if (!pipeline.ok()) return pipeline.status();
  stream->rank = identity->rank;
  stream->debug_protect = options.debug_protect.value_or(EnvironmentSaysProtect());

  v1::OpenStreamRequest& request = stream->request;
  *request.mutable_pipeline() = *std::move(pipeline);
  request.set_client(absl::StrCat("c++ ", kClientVersion));
  request.set_job(options.job.empty() ? DefaultJobName(*identity, options.pipeline) : options.job);
  request.set_rank(identity->rank);
  request.set_world_size(identity->world_size);
  if (options.batch_size) request.set_batch_size(*options.batch_size);
  if (options.seed) request.set_seed(*options.seed);
  if (options.slots) request.set_slots(*options.slots);
  request.set_epoch(options.epoch);
  request.set_checksum(options.verify);
  Cursor cursor;
  std::string cursor_json;
  if (!options.state.empty()) {
    absl::StatusOr<Cursor> saved = Cursor::FromJson(options.state);
    if (!saved.ok()) return saved.status();
    cursor = *std::move(saved);
    cursor_json = ForDaemon(cursor, cursor.at);
  }
  // Nobody there is an answer; a daemon that greets but does not serve yet is starting.
  const int64_t patience_ns = SecondsToNs(std::min(kStartingS, options.reconnect_timeout_s));
  std::optional<int64_t> deadline;  // from the first failure: this program may pause before that
  while (true) {
    const absl::Status opened = stream->OpenSession(cursor_json, MonotonicNs() + kOpenNs);
    if (opened.ok()) break;
    if (!deadline.has_value()) deadline = MonotonicNs() + patience_ns;
    if (!absl::IsUnavailable(opened) || !stream->greeted || MonotonicNs() >= *deadline)
      return opened;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const v1::OpenStreamResponse& facts = stream->opened;
  cursor.dataset = facts.dataset_digest();
  cursor.pipeline = facts.pipeline_digest();
  cursor.seed = facts.seed();
  cursor.at = {facts.epoch(), facts.position()};
  cursor.world_size = facts.world_size();
  cursor.batch_size = facts.batch_size();
  stream->position = Position(std::move(cursor),
                              {facts.records(), facts.steps_per_epoch(), facts.last() == "drop"},
                              /*resumed=*/!options.state.empty());
  stream->Settle();  // behind what the state leaves out
  // From now on every reopening asks for the same job over the same files, whatever the environment
  // or the file says by then.
  request.set_batch_size(facts.batch_size());
  request.set_seed(facts.seed());
  return stream;
}

absl::Status Stream::Impl::OpenSession(const std::string& cursor_json, int64_t deadline_ns) {
  absl::StatusOr<std::shared_ptr<Session>> connected = Session::Connect(address, &greeted);
  if (!connected.ok()) return connected.status();
  v1::OpenStreamRequest asked = request;
  asked.set_ticket((*connected)->ticket().data(), (*connected)->ticket().size());
  asked.set_cursor(cursor_json);
  v1::OpenStreamResponse answer;
  grpc::Status status;
  const int64_t patience_ns = std::min(deadline_ns, MonotonicNs() + kQueueNs);
  for (bool first = true; first || (QueueWasFull(status) && MonotonicNs() < patience_ns);
       first = false) {
    if (!first) std::this_thread::sleep_for(kQueuePause);
    grpc::ClientContext context;
    context.set_deadline(
        std::chrono::system_clock::now() +
        std::chrono::nanoseconds(std::max<int64_t>(deadline_ns - MonotonicNs(), 0)));
    status = ConnectControl(address)->OpenStream(&context, asked, &answer);
  }
  if (!status.ok()) return FromGrpc(status);
  if (session != nullptr) {  // before anything is mapped
    if (absl::Status same = CheckSameLayout(answer, opened); !same.ok()) return same;
  }
  if (absl::Status mapped =
          (*connected)->MapArena(answer.slot_bytes(), answer.slots(), debug_protect);
      !mapped.ok())
    return mapped;
  absl::StatusOr<std::vector<Field>> described = FieldsOf(answer);
  if (!described.ok()) return described.status();
  if (session != nullptr) session->HangUp();

  opened = std::move(answer);
  // A daemon that was upgraded meanwhile says it only now.
  if (request.files().as_of_ns() == 0) *request.mutable_files() = opened.files();
  session = *std::move(connected);
  serial = 0;
  next_at = Place{opened.epoch(), opened.position()};
  kept.reset();  // its slot went with the old session
  fields = *std::move(described);
  classes.assign(opened.classes().begin(), opened.classes().end());
  return absl::OkStatus();
}

absl::Status Stream::Impl::Reconnect(const absl::Status& why) {
  Outage outage(options.notice, address, why.message(), options.reconnect_timeout_s);
  const int64_t deadline = MonotonicNs() + SecondsToNs(options.reconnect_timeout_s);
  const std::string state = ForDaemon(position.cursor(), next_at.value_or(position.Wanted()));
  absl::Status last = why;
  for (double pause_s = 0.05; MonotonicNs() < deadline; pause_s = std::min(1.0, pause_s * 2)) {
    last = OpenSession(state, std::max(deadline, MonotonicNs() + kLeastNs));
    if (last.ok()) outage.IsOver();
    if (last.ok() || !MayPass(last)) return last;
    const double left_s = static_cast<double>(deadline - MonotonicNs()) * 1e-9;
    std::this_thread::sleep_for(std::chrono::duration<double>(std::clamp(left_s, 0.0, pause_s)));
  }
  absl::Status lost = absl::UnavailableError(
      absl::StrCat("the daemon at ", address, " went away (", why.message(),
                   ") and did not come back within ", options.reconnect_timeout_s,
                   " s: ", last.message(), ". Continue with StreamOptions::state = State()"));
  lost.SetPayload(kLostUrl, absl::Cord("1"));
  return lost;
}

void Stream::Impl::SeekTo(Place place) {
  if (next_at == place) return;
  next_at = place;
  session->SendSeek(++serial, place.epoch, place.position);
}

void Stream::Impl::GiveBack(const wire::Ready& ready) {
  session->Release(ready.slot, ready.generation);
}

absl::StatusOr<wire::Ready> Stream::Impl::AwaitReady() {
  int64_t stalled_since = 0, looked_ns = MonotonicNs();
  const int64_t silence_ns = static_cast<int64_t>(std::max(options.stall_timeout_s, 1.0) * 1e9);
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
        if (static_cast<double>(MonotonicNs() - stalled_since) < options.stall_timeout_s * 1e9)
          continue;
        absl::Status stalled = absl::DeadlineExceededError(
            absl::StrCat("stalled: this program holds all ", session->slots(),
                         " batches of the stream for ", options.stall_timeout_s,
                         " s, so no slot is free for the next one. Destroy or copy batches "
                         "earlier, or open the stream with more slots"));
        stalled.SetPayload(kStalledUrl, absl::Cord("1"));
        return stalled;
      }
      if (absl::IsUnavailable(message.status())) {
        if (absl::Status again = Reconnect(message.status()); !again.ok()) return again;
        continue;
      }
      return message.status();
    }
    if (const auto* closing = std::get_if<wire::Closing>(&*message)) {
      const absl::Status reason(static_cast<absl::StatusCode>(closing->code),
                                Text(closing->message, sizeof(closing->message)));
      if (!absl::IsUnavailable(reason)) return reason;
      if (absl::Status again = Reconnect(reason); !again.ok()) return again;
      continue;
    }
    if (const auto* failure = std::get_if<wire::Failed>(&*message)) {
      if (failure->serial != serial) continue;
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
                  ? Place{ready.epoch + 1, 0}
                  : Place{ready.epoch, ready.next_position};
    return ready;
  }
}

void Stream::Impl::Settle() {
  const Place wanted = position.Wanted();
  if (kept) {
    if (wanted == Place{kept->epoch, 0}) return;
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
        position.cursor().AfterSkips({ready->epoch, 0}) != Place{ready->epoch, 0};
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
  for (size_t i = 0; i < fields.size(); ++i) {
    Tensor tensor;
    tensor.dtype = fields[i].dtype;
    tensor.shape.push_back(ready.samples);
    size_t bytes = ready.samples * DTypeSize(tensor.dtype);
    for (int64_t side : fields[i].shape) {
      tensor.shape.push_back(side);
      bytes *= static_cast<size_t>(side);
    }
    tensor.bytes = {session->slot(ready.slot) + opened.fields(static_cast<int>(i)).offset(), bytes};
    impl->tensors.push_back(std::move(tensor));
    impl->names.push_back(fields[i].name);
  }
  if (options.verify) {
    if (absl::Status sum = CheckSum(ready, impl->tensors); !sum.ok()) {
      next_at.reset();  // the next call asks for this batch once more
      return sum;
    }
  }
  return Batch(std::move(impl));
}

absl::Status Stream::Impl::SetEpoch(uint64_t epoch) {
  if (!position.ChooseEpoch(epoch)) return absl::OkStatus();
  failed = absl::OkStatus();
  Settle();
  return absl::OkStatus();
}

absl::Status Stream::Impl::Load(const std::string& state) {
  absl::StatusOr<Cursor> saved = Cursor::FromJson(state);
  if (!saved.ok()) return saved.status();
  if (absl::Status loaded = position.Load(*saved); !loaded.ok()) return loaded;
  failed = absl::OkStatus();
  Settle();
  return absl::OkStatus();
}

// --- Replaying and leaving out
// -------------------------------------------------------------------------------------------------

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

absl::StatusOr<Batch> Stream::Next() { return impl_->Next(); }
absl::StatusOr<std::optional<Batch>> Stream::NextInEpoch() { return impl_->NextInEpoch(); }
absl::Status Stream::Load(const std::string& state) { return impl_->Load(state); }
absl::Status Stream::SetEpoch(uint64_t epoch) { return impl_->SetEpoch(epoch); }
absl::StatusOr<Batch> Stream::Replay(int64_t step, std::optional<uint64_t> epoch) {
  return impl_->Replay(step, epoch);
}
absl::Status Stream::Skip(int64_t first, int64_t last, std::optional<uint64_t> epoch) {
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
