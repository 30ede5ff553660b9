#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cmath>
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
#include "client/cpp/control_channel.h"
#include "client/cpp/launcher.h"
#include "client/cpp/stream_impl.h"
#include "proto/shm/crc32c.h"

namespace feedwater {
namespace {

constexpr const char* kStalledUrl = "feedwater/stalled";
constexpr const char* kLostUrl = "feedwater/daemon-lost";
constexpr const char* kRecordUrl = "feedwater/bad-sample-record";
constexpr const char* kPathUrl = "feedwater/bad-sample-path";
constexpr int64_t kReclaimNs =
    5'000'000'000;  // how long a daemon may take to notice that we hung up
constexpr int64_t kMaxPipelineBytes = 256 * 1024;

std::string Text(const char* bytes, size_t capacity) {
  return std::string(bytes, strnlen(bytes, capacity));
}

absl::Status FailureOf(const wire::Failed& failed) {
  absl::Status status(static_cast<absl::StatusCode>(failed.code),
                      Text(failed.message, sizeof(failed.message)));
  if (status.ok()) status = absl::UnknownError("the daemon could not make this batch");
  if (failed.record >= 0) {
    status.SetPayload(kRecordUrl, absl::Cord(absl::StrCat(failed.record)));
    status.SetPayload(kPathUrl, absl::Cord(Text(failed.path, sizeof(failed.path))));
  }
  return status;
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

// Whether a daemon that is coming back may answer differently soon.
bool MayPass(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kDeadlineExceeded ||
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
  if (!record || !path) return std::nullopt;
  BadSample sample;
  if (!absl::SimpleAtoi(std::string(*record), &sample.record)) return std::nullopt;
  sample.path = std::string(*path);
  sample.reason = std::string(status.message());
  return sample;
}
bool IsStalled(const absl::Status& status) { return status.GetPayload(kStalledUrl).has_value(); }
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
  if (absl::Status opened = stream->OpenSession(options.state); !opened.ok()) return opened;
  return stream;
}

absl::Status Stream::Impl::OpenSession(const std::string& cursor_json) {
  absl::StatusOr<std::shared_ptr<Session>> connected = Session::Connect(address);
  if (!connected.ok()) return connected.status();
  v1::OpenStreamRequest asked = request;
  asked.set_ticket((*connected)->ticket().data(), (*connected)->ticket().size());
  asked.set_cursor(cursor_json);
  v1::OpenStreamResponse answer;
  grpc::ClientContext context;
  const grpc::Status status = ConnectControl(address)->OpenStream(&context, asked, &answer);
  if (!status.ok()) return FromGrpc(status);
  if (absl::Status mapped = (*connected)->MapArena(answer.slot_bytes(), answer.slots());
      !mapped.ok())
    return mapped;
  if (session != nullptr) session->HangUp();

  const int64_t substituted = cursor.substituted;
  opened = std::move(answer);
  session = *std::move(connected);
  serial = 0;
  at_epoch_end = false;
  taken = false;
  kept.reset();  // its slot went with the old session
  failed = absl::OkStatus();
  fields.clear();
  for (const v1::Field& field : opened.fields()) {
    fields.push_back({field.name(),
                      static_cast<DType>(field.dtype()),
                      {field.shape().begin(), field.shape().end()},
                      field.layout()});
    int64_t bytes = opened.batch_size() * static_cast<int64_t>(DTypeSize(fields.back().dtype));
    for (int64_t side : fields.back().shape) bytes *= side;
    if (bytes < 0 || field.offset() + static_cast<uint64_t>(bytes) > opened.slot_bytes()) {
      return absl::InternalError(
          absl::StrCat("field '", field.name(), "' does not fit into a slot"));
    }
  }
  classes.assign(opened.classes().begin(), opened.classes().end());
  cursor = {opened.dataset_digest(), opened.pipeline_digest(), opened.seed(),       opened.epoch(),
            opened.position(),       opened.world_size(),      opened.batch_size(), substituted};
  // From now on every reopening asks for the same job, whatever the environment or the file says by
  // then.
  request.set_batch_size(opened.batch_size());
  request.set_seed(opened.seed());
  return absl::OkStatus();
}

absl::Status Stream::Impl::Reconnect(const absl::Status& why) {
  const int64_t deadline = MonotonicNs() + static_cast<int64_t>(options.reconnect_timeout_s * 1e9);
  const std::string state = cursor.ToJson();
  absl::Status last = why;
  for (double pause_s = 0.05; MonotonicNs() < deadline; pause_s = std::min(1.0, pause_s * 2)) {
    last = OpenSession(state);
    if (last.ok()) return last;
    if (!MayPass(last)) return last;
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

absl::StatusOr<wire::Ready> Stream::Impl::AwaitReady() {
  if (!failed.ok()) return failed;
  int64_t stalled_since = 0;
  while (true) {
    // While the program holds every slot no batch can come: say so rather than wait for ever.
    const bool holds_all = session->lent() >= session->slots();
    int timeout_ms = holds_all ? 50 : 1000;
    absl::StatusOr<Session::Message> message = session->Receive(timeout_ms);
    if (!message.ok()) {
      if (absl::IsDeadlineExceeded(message.status())) {
        if (!holds_all) {
          stalled_since = 0;
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
      failed = FailureOf(*failure);
      return failed;
    }
    const auto& ready = std::get<wire::Ready>(*message);
    session->CountLent();
    if (ready.serial != serial) {
      session->Release(ready.slot, ready.generation);
      continue;
    }
    return ready;
  }
}

absl::StatusOr<Batch> Stream::Impl::Next() {
  absl::StatusOr<wire::Ready> ready =
      kept ? absl::StatusOr<wire::Ready>(*std::exchange(kept, std::nullopt)) : AwaitReady();
  if (!ready.ok()) return ready.status();
  return Lend(*ready);
}

absl::StatusOr<std::optional<Batch>> Stream::Impl::NextInEpoch() {
  if (!at_epoch_end && !kept) {
    absl::StatusOr<wire::Ready> ready = AwaitReady();
    if (!ready.ok()) return ready.status();
    kept = *ready;
  }
  if (at_epoch_end || kept->epoch > cursor.epoch) {
    ++cursor.epoch;
    cursor.position = 0;
    at_epoch_end = false;
    return std::optional<Batch>();
  }
  absl::StatusOr<Batch> batch = Next();
  if (!batch.ok()) return batch.status();
  return std::optional<Batch>(*std::move(batch));
}

absl::StatusOr<Batch> Stream::Impl::Lend(const wire::Ready& ready) {
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
  if ((ready.flags & wire::kReadyHasCrc) != 0) {
    uint32_t crc = 0;
    for (const Tensor& tensor : impl->tensors)
      crc = wire::Crc32c(crc, tensor.bytes.data(), tensor.bytes.size());
    if (crc != ready.crc32c) {
      return absl::DataLossError(absl::StrCat("batch ", ready.step, " of epoch ", ready.epoch,
                                              " has CRC32C ", crc, ", the daemon computed ",
                                              ready.crc32c));
    }
  }
  cursor.epoch = ready.epoch;
  cursor.position = ready.next_position;
  cursor.substituted += ready.substituted;
  at_epoch_end = (ready.flags & wire::kReadyLastInEpoch) != 0;
  taken = true;
  return Batch(std::move(impl));
}

absl::Status Stream::Impl::SetEpoch(uint64_t epoch) {
  const bool untouched = !taken && epoch == cursor.epoch;
  const bool is_next =
      at_epoch_end ? epoch == cursor.epoch + 1 : epoch == cursor.epoch && cursor.position == 0;
  if (untouched || is_next) {
    if (at_epoch_end)
      cursor = {cursor.dataset,    cursor.pipeline,   cursor.seed,       epoch, 0,
                cursor.world_size, cursor.batch_size, cursor.substituted};
    at_epoch_end = false;
    return absl::OkStatus();
  }
  if (kept) session->Release(kept->slot, kept->generation);
  kept.reset();
  failed = absl::OkStatus();
  cursor.epoch = epoch;
  cursor.position = 0;
  at_epoch_end = false;
  taken = false;
  if (absl::Status sent = session->SendSeek(++serial, epoch, 0); !sent.ok()) return Reconnect(sent);
  return absl::OkStatus();
}

absl::Status Stream::Impl::Load(const std::string& state) {
  session->HangUp();
  const int64_t deadline = MonotonicNs() + kReclaimNs;
  while (true) {
    const absl::Status opened_again = OpenSession(state);
    if (!MayPass(opened_again) || MonotonicNs() > deadline) return opened_again;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

Stream::Stream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;
Stream::~Stream() = default;

absl::StatusOr<Batch> Stream::Next() { return impl_->Next(); }
absl::StatusOr<std::optional<Batch>> Stream::NextInEpoch() { return impl_->NextInEpoch(); }
absl::Status Stream::Load(const std::string& state) { return impl_->Load(state); }
absl::Status Stream::SetEpoch(uint64_t epoch) { return impl_->SetEpoch(epoch); }
std::string Stream::State() const { return impl_->cursor.ToJson(); }
const std::vector<Field>& Stream::fields() const { return impl_->fields; }
const std::vector<std::string>& Stream::classes() const { return impl_->classes; }
const std::string& Stream::pipeline() const { return impl_->opened.pipeline(); }
const std::string& Stream::job() const { return impl_->opened.job(); }
int64_t Stream::rank() const { return impl_->rank; }
int64_t Stream::world_size() const { return impl_->opened.world_size(); }
int64_t Stream::batch_size() const { return impl_->opened.batch_size(); }
int64_t Stream::records() const { return impl_->opened.records(); }
int64_t Stream::steps_per_epoch() const { return impl_->opened.steps_per_epoch(); }
int64_t Stream::samples_per_epoch() const { return impl_->opened.samples_per_epoch(); }
uint64_t Stream::seed() const { return impl_->opened.seed(); }
uint64_t Stream::epoch() const {
  return impl_->at_epoch_end ? impl_->cursor.epoch + 1 : impl_->cursor.epoch;
}
uint32_t Stream::slots() const { return impl_->opened.slots(); }

}  // namespace feedwater
