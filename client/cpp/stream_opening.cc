// How a stream is opened, and opened again after its daemon went away.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/address.h"
#include "client/cpp/control_channel.h"
#include "client/cpp/errors.h"
#include "client/cpp/launcher.h"
#include "client/cpp/layout.h"
#include "client/cpp/outage.h"
#include "client/cpp/stream_impl.h"

namespace feedwater {
namespace {

constexpr double kStartingS = 5;  // how long a daemon that accepts connections may take to serve
constexpr int64_t kOpenNs = 3600'000'000'000;  // the first open of a large dataset lists its files
constexpr int64_t kQueueNs =
    5'000'000'000;  // how long a full queue of the control socket is waited for
constexpr auto kQueuePause = std::chrono::milliseconds(20);
constexpr int64_t kLeastNs = 1'000'000'000;
constexpr int64_t kMaxPipelineBytes = 256 * 1024;

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

// A cursor at `place` as the daemon reads it: what is left out is the client's affair.
std::string ForDaemon(Cursor cursor, EpochPosition place) {
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

absl::StatusOr<std::unique_ptr<Stream::Impl>> Stream::Impl::Open(const std::string& address,
                                                                 const StreamOptions& options) {
  std::optional<DefaultJob> job;
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
  if (options.job.empty()) job.emplace(*identity, options.pipeline);
  request.set_job(job ? job->name() : options.job);
  request.set_rank(identity->rank);
  request.set_world_size(identity->world_size);
  if (options.batch_size) request.set_batch_size(*options.batch_size);
  if (options.seed) request.set_seed(*options.seed);
  if (options.slots) request.set_slots(*options.slots);
  request.set_epoch(options.epoch);
  request.set_checksum(options.verify);
  request.set_takes_ragged(true);
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
  // An earlier daemon does not tell them, and has no mixes.
  const int64_t positions =
      facts.positions_per_epoch() > 0 ? facts.positions_per_epoch() : facts.records();
  stream->position =
      Position(std::move(cursor), {positions, facts.steps_per_epoch(), facts.last() == "drop"},
               /*resumed=*/!options.state.empty());
  stream->Settle();  // behind what the state leaves out
  // From now on every reopening asks for the same job over the same files, whatever the environment
  // or the file says by then.
  request.set_batch_size(facts.batch_size());
  request.set_seed(facts.seed());
  if (facts.has_pipeline_text()) {
    *request.mutable_pipeline()->mutable_text() =
        std::move(*stream->opened.mutable_pipeline_text());
    stream->opened.clear_pipeline_text();
  }
  if (job) job->Keep();
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

  if (answer.own_identity().empty()) answer.set_own_identity(opened.own_identity());
  opened = std::move(answer);
  // A daemon that was upgraded meanwhile says it only now.
  if (request.files().as_of_ns() == 0) *request.mutable_files() = opened.files();
  session = *std::move(connected);
  serial = 0;
  next_at = EpochPosition{opened.epoch(), opened.position()};
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
  const std::string text =
      absl::StrCat("the daemon at ", address, " went away (", why.message(),
                   ") and did not come back within ", options.reconnect_timeout_s,
                   " s: ", last.message(), ". Continue with StreamOptions::state = State()");
  return IsNotServed(last) ? NotServedError(text) : DaemonLostError(text);
}

}  // namespace feedwater
