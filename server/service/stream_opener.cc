#include "server/service/stream_opener.h"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "feedwater/version.h"
#include "server/base/counters.h"
#include "server/base/escape.h"
#include "server/base/log_limiter.h"
#include "server/base/status.h"
#include "server/base/units.h"
#include "server/graph/advice.h"
#include "server/graph/digest.h"
#include "server/pipeline/charged_time.h"
#include "server/service/messages.h"
#include "server/service/stream_terms.h"
#include "server/source/given_records.h"

namespace feedwater::server {
namespace {

const Registrar<CounterEntry> kCounters[] = {
    {"streams_opened", {"streams opened"}},
    {"streams_refused_sessions_per_uid", {"streams refused over limits.sessions_per_uid"}},
    {"streams_refused_arena_bytes_per_uid", {"streams refused over limits.arena_bytes_per_uid"}},
};

// A rank that comes back at once may meet its own old session: that one's hang-up is on its way.
constexpr int kAttachTries = 25;
constexpr auto kAttachPause = std::chrono::milliseconds(10);

// Slots when the client leaves the number to the daemon: enough for the workers to be busy while
// the trainer holds one or two.
constexpr int kDefaultSlots = 4;
constexpr int kManySlots = 8;
constexpr int64_t kManySlotsBytes = 64 << 20;  // small batches: more of them, up to this sum
constexpr int kLeastSlots = 2;                 // one in the hands of a loop, one for its next batch
constexpr int64_t kMaxLocalRanks = 8;

int DefaultSlots(const SlotLayout& layout, int64_t world_size, int64_t free_bytes) {
  int slots =
      std::clamp<int>(static_cast<int>(std::min<int64_t>(
                          kManySlots, kManySlotsBytes / std::max<int64_t>(layout.slot_bytes, 1))),
                      kDefaultSlots, kManySlots);
  // Where memory is tight: at most half of what is left, shared with the ranks that will probably
  // come to this daemon too.
  const int64_t share =
      std::max<int64_t>(0, free_bytes) / (2 * std::min(world_size, kMaxLocalRanks));
  while (slots > kLeastSlots) {
    auto bytes = ArenaBytes(layout, slots);
    if (bytes.ok() && *bytes <= share) break;
    --slots;
  }
  return slots;
}

// What clients name a process by where nobody names its job ("pid-NUMBER.BEGAN.NAMESPACE/more");
// "" where the job has another name, or one that two processes may have.
absl::string_view ProcessOf(absl::string_view job) {
  const absl::string_view process = job.substr(0, job.find('/'));
  const bool is_one = absl::StartsWith(process, "pid-") && !absl::EndsWith(process, ".0") &&
                      std::count(process.begin(), process.end(), '.') == 2;
  return is_one ? process : "";
}

std::string PidText(pid_t pid) {
  return pid > 0 ? absl::StrCat("pid ", pid) : "a process of another PID namespace";
}

}  // namespace

// One open stream, from its ticket's first OpenStream to its session's end.
struct StreamOpener::OpenedStream {
  struct Seek {
    uint32_t serial;
    uint64_t epoch;
    int64_t position;
  };

  // Constant once it is in streams_.
  SessionTicket ticket{};
  PeerIdentity peer;
  std::string job, pipeline, dataset;  // the last one: a digest
  int64_t rank = 0, world_size = 0;
  uint64_t seed = 0;

  Mutex mu;
  std::shared_ptr<Stream> stream ABSL_GUARDED_BY(mu);  // null until attached
  std::optional<Seek> early_seek ABSL_GUARDED_BY(mu);  // came before that
  bool closed ABSL_GUARDED_BY(mu) = false;
};

// A place in the user's quota and in streams_, given back unless the session takes it over.
class StreamOpener::Admission {
 public:
  static absl::StatusOr<Admission> Get(StreamOpener* opener, std::shared_ptr<OpenedStream> stream) {
    const int64_t limit = opener->parts_.settings->config.limits.sessions_per_uid;
    const uid_t uid = stream->peer.uid;
    MutexLock lock(&opener->mu_);
    if (opener->streams_.count(stream->ticket) > 0) {
      return absl::FailedPreconditionError(
          "this connection to data.sock has a stream already; connect again for another one");
    }
    int& open = opener->streams_of_uid_[uid];
    if (open >= limit) {
      ++opener->over_quota_;
      return absl::ResourceExhaustedError(
          absl::StrCat("limits.sessions_per_uid = ", limit, ": user ", uid, " has ", open,
                       " streams open; close one, or have the administrator raise the limit"));
    }
    ++open;
    opener->streams_.emplace(stream->ticket, stream);
    return Admission(opener, std::move(stream));
  }
  Admission(Admission&& other) noexcept
      : opener_(other.opener_), stream_(std::move(other.stream_)) {
    other.opener_ = nullptr;
  }
  Admission& operator=(Admission&&) = delete;
  ~Admission() {
    if (opener_ != nullptr) opener_->OnClosed(stream_);
  }
  void HandOver() { opener_ = nullptr; }

 private:
  Admission(StreamOpener* opener, std::shared_ptr<OpenedStream> stream)
      : opener_(opener), stream_(std::move(stream)) {}
  StreamOpener* opener_;
  std::shared_ptr<OpenedStream> stream_;
};

void StreamOpener::Drain() {
  draining_ = true;
  std::vector<SessionTicket> tickets;
  {
    MutexLock lock(&mu_);
    for (const auto& [ticket, stream] : streams_) tickets.push_back(ticket);
  }
  for (const SessionTicket& ticket : tickets)
    parts_.data->CloseSession(ticket, absl::UnavailableError("the daemon is stopping"));
}

std::map<std::string, uint64_t> StreamOpener::Counters() const {
  return {{"streams_opened", opened_},
          {"streams_refused_sessions_per_uid", over_quota_},
          {"streams_refused_arena_bytes_per_uid", over_arena_quota_}};
}

std::vector<RankSession> StreamOpener::Sessions() const {
  MutexLock lock(&mu_);
  std::vector<RankSession> sessions;
  for (const auto& [ticket, stream] : streams_)
    sessions.push_back({ticket, stream->peer.uid, stream->job, stream->pipeline, stream->rank});
  return sessions;
}

std::shared_ptr<MemoryBudget> StreamOpener::UserBudget(uid_t uid) {
  const int64_t limit = parts_.settings->config.limits.arena_bytes_per_uid.bytes;
  if (limit == 0) return nullptr;
  MutexLock lock(&mu_);
  // Drop the budgets of users without arenas.
  for (auto it = arenas_of_uid_.begin(); it != arenas_of_uid_.end();)
    it = it->second.use_count() == 1 ? arenas_of_uid_.erase(it) : std::next(it);
  auto& budget = arenas_of_uid_[uid];
  if (budget == nullptr) budget = MemoryBudget::Create(limit, "limits.arena_bytes_per_uid");
  return budget;
}

absl::StatusOr<std::shared_ptr<SlotPool>> StreamOpener::MakeArena(
    const std::shared_ptr<OpenedStream>& stream, const ArenaOptions& options) {
  SessionEvents events;
  events.seek = [this, stream](uint32_t serial, uint64_t epoch, int64_t position) {
    OnSeek(stream, serial, epoch, position);
  };
  events.closed = [this, stream] { OnClosed(stream); };
  const auto open = [&] { return parts_.data->OpenSession(stream->ticket, options, events); };
  auto slots = open();
  const MemoryBudget* of_user = options.user_budget.get();
  const auto bytes = ArenaBytes(options.layout, options.slots);
  if (absl::IsResourceExhausted(slots.status()) && of_user != nullptr && bytes.ok() &&
      *bytes > of_user->free_bytes()) {
    ++over_arena_quota_;
  } else {
    parts_.catalogue->RetryWithRoom(stream->peer.uid, open, &slots);
  }
  return slots;
}

// Nullopt: it cannot be told. All processes outside of the daemon's PID namespace, as of the host
// where it is in a container, have the number 0 here.
std::optional<bool> StreamOpener::AreOfOneProcess(const OpenedStream& a, const OpenedStream& b) {
  if (a.peer.pid != b.peer.pid) return false;
  if (a.peer.pid > 0) return true;
  const absl::string_view process = ProcessOf(a.job), other = ProcessOf(b.job);
  if (process.empty() || other.empty()) return std::nullopt;
  return process == other;
}

// Whether the stream that has this rank now belongs to the same process, which has left it, or to
// one that is dead. One that may be the same is waited for.
bool StreamOpener::HolderHasLeft(const OpenedStream& wanted) {
  MutexLock lock(&mu_);
  for (const auto& [ticket, other] : streams_) {
    if (ticket == wanted.ticket || other->peer.uid != wanted.peer.uid || other->job != wanted.job ||
        other->pipeline != wanted.pipeline || other->rank != wanted.rank) {
      continue;
    }
    const pid_t holder = other->peer.pid;
    return AreOfOneProcess(*other, wanted).value_or(true) ||
           (holder > 0 && kill(holder, 0) != 0 && errno == ESRCH);
  }
  return true;  // it went between the two looks
}

absl::StatusOr<std::shared_ptr<Stream>> StreamOpener::AttachRank(
    const OpenedStream& stream, const StreamTerms& terms, const std::shared_ptr<SlotPool>& slots) {
  for (int attempt = 1;; ++attempt) {
    auto attached = parts_.runtime->Attach(terms.job, stream.rank, stream.peer.pid, terms.epoch,
                                           terms.position, terms.layout, slots);
    if (!absl::IsAlreadyExists(attached.status()) || attempt == kAttachTries || draining_ ||
        !HolderHasLeft(stream)) {
      return attached;
    }
    std::this_thread::sleep_for(kAttachPause);
  }
}

// Two processes of one user that each read everything, in the same order, may be two ranks that
// nobody told of one another. That cannot be known here, and each may be right: so it is said.
void StreamOpener::WarnOfTwins(const OpenedStream& stream) {
  if (stream.world_size != 1) return;
  MutexLock lock(&mu_);
  for (const auto& [ticket, other] : streams_) {
    if (ticket == stream.ticket || other->world_size != 1 || other->peer.uid != stream.peer.uid ||
        other->dataset != stream.dataset || other->seed != stream.seed ||
        AreOfOneProcess(*other, stream).value_or(false)) {
      continue;
    }
    if (!ClientLog().Admits("worlds of one over the same data", stream.peer.uid)) return;
    spdlog::warn(
        "jobs {} ({}) and {} ({}) of user {} are each rank 0 of 1 over the same data with "
        "seed {}: both read every sample. If they are ranks of one training, make their loaders "
        "after the process group, start them through a launcher, or give rank and world_size",
        other->job, PidText(other->peer.pid), stream.job, PidText(stream.peer.pid), stream.peer.uid,
        stream.seed);
    return;
  }
}

ArenaOptions StreamOpener::ArenaFor(const OpenedStream& stream, const StreamTerms& terms,
                                    const v1::OpenStreamRequest& request) {
  ArenaOptions arena;
  arena.layout = terms.layout;
  arena.budget = parts_.shares->Of(stream.peer.uid);
  arena.user_budget = UserBudget(stream.peer.uid);
  int64_t free_bytes = arena.budget->free_bytes();
  if (arena.user_budget != nullptr)
    free_bytes = std::min(free_bytes, arena.user_budget->free_bytes());
  arena.slots = request.has_slots() ? static_cast<int>(request.slots())
                                    : DefaultSlots(terms.layout, terms.job.world_size, free_bytes);
  arena.numa_node = parts_.settings->numa_node;
  arena.checksum = request.checksum();
  return arena;
}

absl::Status StreamOpener::Begin(const std::shared_ptr<OpenedStream>& stream,
                                 const std::shared_ptr<Stream>& attached) {
  bool gone = false;
  absl::Status sought;
  {
    MutexLock lock(&stream->mu);
    gone = stream->closed;
    if (!gone) {
      stream->stream = attached;
      if (auto seek = stream->early_seek)
        sought = parts_.runtime->Seek(attached, seek->serial, seek->epoch, seek->position);
    }
  }
  if (gone) {
    parts_.runtime->Detach(attached);
    return draining_ ? absl::UnavailableError("the daemon is stopping")
                     : absl::CancelledError(
                           "the data connection was closed while its stream was being opened");
  }
  // Drain may have looked at streams_ before this one was there.
  if (draining_) sought = absl::UnavailableError("the daemon is stopping");
  if (!sought.ok()) parts_.data->CloseSession(stream->ticket, sought);
  return sought;
}

absl::Status StreamOpener::Open(const SessionTicket& ticket, const PeerIdentity& peer,
                                const v1::OpenStreamRequest& request,
                                const std::shared_ptr<const LoadedPipeline>& pipeline,
                                bool isolated, v1::OpenStreamResponse* response) {
  auto stream = std::make_shared<OpenedStream>();
  stream->ticket = ticket;
  stream->peer = peer;
  stream->rank = request.rank();
  stream->job = request.job();
  if (stream->job.empty()) {
    // A process in another PID namespace has no number here.
    stream->job =
        peer.pid > 0 ? absl::StrCat("pid-", peer.pid) : absl::StrCat("client-", ++anonymous_jobs_);
  }
  stream->pipeline = pipeline->spec.name;
  FW_ASSIGN_OR_RETURN(StreamTerms terms,
                      Negotiate(request, pipeline, parts_.settings->config.limits.max_slot.bytes));
  terms.job.name = stream->job;
  terms.job.owner_uid = peer.uid;
  terms.job.isolated = isolated;
  stream->world_size = terms.job.world_size;
  stream->seed = terms.job.seed;
  stream->dataset = pipeline->dataset->digest();
  FW_ASSIGN_OR_RETURN(Admission admission, Admission::Get(this, stream));

  const ArenaOptions arena = ArenaFor(*stream, terms, request);
  FW_ASSIGN_OR_RETURN(const std::shared_ptr<SlotPool> slots, MakeArena(stream, arena));
  admission.HandOver();  // the session's `closed` event gives it back from now on

  const auto attach = [&] { return AttachRank(*stream, terms, slots); };
  auto attached = attach();
  parts_.catalogue->RetryWithRoom(peer.uid, attach, &attached);
  if (!attached.ok()) {
    parts_.data->CloseSession(ticket, attached.status());
    return attached.status();
  }
  FW_RETURN_IF_ERROR(Begin(stream, *attached));
  ++opened_;
  if (ClientLog().Admits("streams opened", peer.uid, LogLimiter::kOpenLines)) {
    spdlog::info(
        "job {}: rank {} of {} of pipeline {} for user {} (pid {}, {}): batches of {}, {} of "
        "{}, epoch {} from {}",
        stream->job, stream->rank, terms.job.world_size, stream->pipeline, peer.uid, peer.pid,
        request.client(), terms.job.batch_size, FormatCount(arena.slots, "slot"),
        FormatBytes(terms.layout.slot_bytes), terms.epoch, terms.position);
  }
  WarnOfTwins(*stream);
  Describe(*stream, terms, arena.slots, **attached, response);
  if (request.pipeline().has_name()) SetText(pipeline->spec, response);
  return absl::OkStatus();
}

void StreamOpener::SetText(const PipelineSpec& spec, v1::OpenStreamResponse* response) const {
  const std::string file_name = absl::StrCat(spec.name, ".yaml");
  // What could not be sent back is left to its name.
  if (static_cast<int64_t>(spec.text.size()) >
          parts_.settings->config.limits.pipeline_bytes.bytes ||
      ToUtf8(spec.text) != spec.text || ToUtf8(file_name) != file_name) {
    return;
  }
  response->mutable_pipeline_text()->set_file_name(file_name);
  response->mutable_pipeline_text()->set_yaml(spec.text);
}

void StreamOpener::Describe(const OpenedStream& stream, const StreamTerms& terms, int slots,
                            const Stream& attached, v1::OpenStreamResponse* response) {
  const LoadedPipeline& pipeline = *terms.job.pipeline;
  response->set_job(stream.job);
  response->set_pipeline(ToUtf8(stream.pipeline));
  for (const SlotLayout::Output& output : terms.layout.outputs) {
    v1::Field* field = response->add_fields();
    SetField(output.field, static_cast<uint64_t>(output.offset), field);
    if (output.field.is_ragged())
      field->set_offsets_offset(static_cast<uint64_t>(output.offsets_offset));
  }
  for (const std::string& name : pipeline.dataset->classes()) response->add_classes(ToUtf8(name));
  response->set_records(pipeline.dataset->size());
  response->set_positions_per_epoch(terms.order->positions());
  response->set_own_workers(WorkersOf(*pipeline.dataset));
  response->set_own_identity(pipeline.own_identity);
  response->set_sampler(ToUtf8(SamplerText(pipeline.spec.sampler)));
  response->set_batch_size(terms.job.batch_size);
  response->set_world_size(terms.job.world_size);
  response->set_seed(terms.job.seed);
  response->set_steps_per_epoch(StepsPerEpoch(*terms.order));
  response->set_samples_per_epoch(SamplesPerEpoch(*terms.order, stream.rank));
  response->set_last(std::string(LastBatchName(terms.order->last)));
  response->set_shard(pipeline.spec.sampler.shard);
  response->set_dataset_digest(pipeline.dataset->digest());
  response->set_pipeline_digest(pipeline.spec.digest);
  response->set_epoch(terms.epoch);
  response->set_position(terms.position);
  response->set_slots(static_cast<uint32_t>(slots));
  response->set_slot_bytes(static_cast<uint64_t>(terms.layout.slot_bytes));
  response->set_daemon_version(kFeedwaterVersion);
  const std::string of_order = AdviceOn(*terms.order);
  response->set_warning(ToUtf8(absl::StrCat(
      pipeline.warning, pipeline.warning.empty() || of_order.empty() ? "" : "; ", of_order)));
  const FilesMark files = MarkOfFiles(attached);
  response->mutable_files()->set_as_of_ns(files.as_of_ns);
  response->mutable_files()->set_identity(files.identity);
}

void StreamOpener::OnSeek(const std::shared_ptr<OpenedStream>& stream, uint32_t serial,
                          uint64_t epoch, int64_t position) {
  const ChargedTime charged(parts_.runtime, stream->peer.uid);
  absl::Status status;
  {
    // Held over Seek, so that an early seek that OpenStream carries out cannot overtake a later
    // one.
    MutexLock lock(&stream->mu);
    if (stream->closed) return;
    if (stream->stream == nullptr) {
      stream->early_seek = OpenedStream::Seek{serial, epoch, position};
      return;
    }
    status = parts_.runtime->Seek(stream->stream, serial, epoch, position);
  }
  if (!status.ok()) parts_.data->CloseSession(stream->ticket, status);
}

void StreamOpener::OnClosed(const std::shared_ptr<OpenedStream>& stream) {
  std::shared_ptr<Stream> attached;
  {
    MutexLock lock(&stream->mu);
    stream->closed = true;
    attached = std::move(stream->stream);
    stream->stream = nullptr;
  }
  if (attached != nullptr) {
    parts_.runtime->Detach(attached);
    parts_.data->Discard(std::move(attached));
  }
  MutexLock lock(&mu_);
  streams_.erase(stream->ticket);
  auto open = streams_of_uid_.find(stream->peer.uid);
  if (open != streams_of_uid_.end() && --open->second <= 0) streams_of_uid_.erase(open);
}

}  // namespace feedwater::server
