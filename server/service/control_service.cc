#include "server/service/control_service.h"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "feedwater/version.h"
#include "proto/shm/wire.h"
#include "server/base/clock.h"
#include "server/base/escape.h"
#include "server/base/no_throw.h"
#include "server/base/thread.h"
#include "server/base/units.h"
#include "server/base/yaml.h"
#include "server/sampler/order.h"
#include "server/service/cursor.h"

namespace feedwater::server {
namespace {

constexpr size_t kMaxNameBytes = 256;
constexpr int64_t kMaxWorldSize = 1 << 20;

constexpr auto kLookAgain = absl::Milliseconds(50);  // whether a caller that waits is still there

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

absl::StatusOr<SessionTicket> ReadTicket(const std::string& bytes) {
  SessionTicket ticket;
  if (bytes.size() != ticket.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the ticket has ", bytes.size(),
                                                   " bytes instead of ", ticket.size(),
                                                   "; it comes from the WELCOME of data.sock"));
  }
  memcpy(ticket.data(), bytes.data(), ticket.size());
  return ticket;
}

absl::Status CheckName(absl::string_view what, const std::string& name) {
  if (name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has ", name.size(), " bytes, more than ", kMaxNameBytes));
  }
  for (char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " '", Printable(name), "' has a control character"));
    }
  }
  return absl::OkStatus();
}

void SetField(const FieldSpec& field, uint64_t offset, v1::Field* out) {
  out->set_name(ToUtf8(field.name));
  out->set_dtype(static_cast<v1::DType>(field.spec.dtype));
  for (int64_t side : field.spec.shape) out->add_shape(side);
  out->set_layout(std::string(LayoutName(field.spec.layout)));
  out->set_offset(offset);
  out->set_doc(ToUtf8(field.doc));
}

struct Start {
  uint64_t epoch = 0;
  int64_t position = 0;
};

// What a stream will be, settled before anything is made for it.
struct Terms {
  JobConfig job;
  std::shared_ptr<const OrderConfig> order;
  Start start;
  SlotLayout layout;
};

absl::StatusOr<Start> ReadStart(const v1::OpenStreamRequest& request,
                                const LoadedPipeline& pipeline, uint64_t seed) {
  if (request.cursor().empty()) return Start{request.epoch(), 0};
  FW_ASSIGN_OR_RETURN(Cursor cursor, ParseCursor(request.cursor()));
  CursorTarget target{pipeline.spec.name, pipeline.dataset->digest(), pipeline.spec.digest, seed,
                      pipeline.dataset->size()};
  FW_RETURN_IF_ERROR(CheckCursor(cursor, target));
  return Start{cursor.epoch, cursor.position};
}

absl::StatusOr<int64_t> ReadBatchSize(const v1::OpenStreamRequest& request,
                                      const PipelineSpec& spec) {
  if (request.has_batch_size()) {
    if (request.batch_size() > 0 && request.batch_size() <= kMaxBatchSize)
      return request.batch_size();
    return absl::InvalidArgumentError(
        absl::StrCat("batch_size is ", request.batch_size(), "; it must be 1 to ", kMaxBatchSize));
  }
  if (spec.batch_size > 0) return spec.batch_size;
  return absl::InvalidArgumentError(
      absl::StrCat("pipeline '", spec.name,
                   "' sets no batch size; give batch_size, or set batch.size in its file"));
}

// The CPU time of a scope is its user's.
class ChargedTime {
 public:
  ChargedTime(Runtime* runtime, std::optional<uid_t> user)
      : runtime_(runtime), user_(user), begin_ns_(ThreadCpuNs()) {}
  ~ChargedTime() {
    if (user_.has_value()) runtime_->ChargeUser(*user_, ThreadCpuNs() - begin_ns_);
  }
  ChargedTime(const ChargedTime&) = delete;

 private:
  Runtime* const runtime_;
  const std::optional<uid_t> user_;
  const int64_t begin_ns_;
};

absl::StatusOr<FilesMark> ReadMark(const v1::FilesMark& mark) {
  constexpr size_t kMaxIdentity = 64;
  if (mark.identity().size() > kMaxIdentity) {
    return absl::InvalidArgumentError(absl::StrCat("files.identity has ", mark.identity().size(),
                                                   " bytes; it has ", kMaxIdentity, " at most"));
  }
  return FilesMark{mark.as_of_ns(), mark.identity()};
}

absl::StatusOr<Terms> Negotiate(const v1::OpenStreamRequest& request,
                                const std::shared_ptr<const LoadedPipeline>& pipeline,
                                int64_t max_slot_bytes) {
  const PipelineSpec& spec = pipeline->spec;
  Terms terms;
  if (request.world_size() < 1 || request.world_size() > kMaxWorldSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("world_size is ", request.world_size(), "; it must be 1 to ", kMaxWorldSize));
  }
  if (request.rank() < 0 || request.rank() >= request.world_size()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", request.rank(), " is not in [0, ",
                                                   request.world_size(), "): ranks of a world of ",
                                                   request.world_size(), " count from 0"));
  }
  // One slot is for programs that give a batch back before they ask for the next one.
  if (request.has_slots() && (request.slots() < 1 || request.slots() > wire::kMaxSlots)) {
    return absl::InvalidArgumentError(
        absl::StrCat("slots is ", request.slots(), "; it must be 1 to ", wire::kMaxSlots));
  }
  FW_ASSIGN_OR_RETURN(terms.job.batch_size, ReadBatchSize(request, spec));
  terms.job.pipeline = pipeline;
  terms.job.world_size = request.world_size();
  terms.job.seed = request.has_seed() ? request.seed() : spec.sampler.seed;

  SamplerSpec sampler = spec.sampler;
  sampler.seed = terms.job.seed;
  FW_ASSIGN_OR_RETURN(OrderConfig order,
                      MakeOrderConfig(sampler, pipeline->dataset->size(), terms.job.batch_size,
                                      terms.job.world_size, pipeline->dataset->shard_starts()));
  if (StepsPerEpoch(order) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "batch_size ", terms.job.batch_size, " on ", terms.job.world_size,
        " ranks needs more than the ", pipeline->dataset->size(), " records of '", spec.name,
        "', and 'last: drop' leaves no step; use a smaller batch_size, or 'last: pad' or 'partial' "
        "in the pipeline's sampler"));
  }
  terms.order = std::make_shared<const OrderConfig>(std::move(order));
  FW_ASSIGN_OR_RETURN(terms.start, ReadStart(request, *pipeline, terms.job.seed));
  FW_ASSIGN_OR_RETURN(terms.layout, SlotLayout::Create(pipeline->plan->outputs(),
                                                       terms.job.batch_size, max_slot_bytes));
  return terms;
}

}  // namespace

// One open stream, from its ticket's first OpenStream to its session's end.
struct ControlService::OpenedStream {
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
class ControlService::Admission {
 public:
  static absl::StatusOr<Admission> Get(ControlService* service,
                                       std::shared_ptr<OpenedStream> stream) {
    const int64_t limit = service->parts_.settings->config.limits.sessions_per_uid;
    const uid_t uid = stream->peer.uid;
    MutexLock lock(&service->mu_);
    if (service->streams_.count(stream->ticket) > 0) {
      return absl::FailedPreconditionError(
          "this connection to data.sock has a stream already; connect again for another one");
    }
    int& open = service->streams_of_uid_[uid];
    if (open >= limit) {
      ++service->over_quota_;
      return absl::ResourceExhaustedError(
          absl::StrCat("limits.sessions_per_uid = ", limit, ": user ", uid, " has ", open,
                       " streams open; close one, or have the administrator raise the limit"));
    }
    ++open;
    service->streams_.emplace(stream->ticket, stream);
    return Admission(service, std::move(stream));
  }
  Admission(Admission&& other) noexcept
      : service_(other.service_), stream_(std::move(other.stream_)) {
    other.service_ = nullptr;
  }
  Admission& operator=(Admission&&) = delete;
  ~Admission() {
    if (service_ != nullptr) service_->OnClosed(stream_);
  }
  void HandOver() { service_ = nullptr; }

 private:
  Admission(ControlService* service, std::shared_ptr<OpenedStream> stream)
      : service_(service), stream_(std::move(stream)) {}
  ControlService* service_;
  std::shared_ptr<OpenedStream> stream_;
};

ControlService::ControlService(Parts parts)
    : parts_(std::move(parts)),
      reports_({.data = parts_.data,
                .runtime = parts_.runtime,
                .shares = parts_.shares,
                .settings = parts_.settings,
                .bad_samples = parts_.bad_samples,
                .decoders = parts_.decoders,
                .more_counters = parts_.more_counters,
                .sessions = [this] { return Sessions(); }}) {}

void ControlService::Drain() {
  draining_ = true;
  std::vector<SessionTicket> tickets;
  {
    MutexLock lock(&mu_);
    for (const auto& [ticket, stream] : streams_) tickets.push_back(ticket);
  }
  for (const SessionTicket& ticket : tickets)
    parts_.data->CloseSession(ticket, absl::UnavailableError("the daemon is stopping"));
}

// --- RPCs
// --------------------------------------------------------------------------------------------------------------------

grpc::Status ControlService::Answer(const char* rpc, const absl::Status& status, int64_t user) {
  if (status.ok()) return grpc::Status::OK;
  ++rpc_errors_;
  if (ClientLog().Admits(absl::StrCat(rpc, " refused"), user))
    spdlog::info("{} refused: {}", rpc, ToUtf8(status.ToString()));
  return ToGrpc(status);
}

grpc::Status ControlService::ListPipelines(grpc::ServerContext* context,
                                           const v1::ListPipelinesRequest*,
                                           v1::ListPipelinesResponse* response) {
  return Answer("ListPipelines", LookThrough(context, [&](uid_t) {
                  PipelineFiles& files = parts_.catalogue->files();
                  files.LookAtAll();
                  for (const std::string& name : files.Names()) response->add_names(ToUtf8(name));
                  return absl::OkStatus();
                }));
}

grpc::Status ControlService::DescribePipeline(grpc::ServerContext* context,
                                              const v1::DescribePipelineRequest* request,
                                              v1::DescribePipelineResponse* response) {
  auto loaded = Load(context, request->pipeline(), nullptr);
  if (!loaded.ok()) return Answer("DescribePipeline", loaded.status());
  const LoadedPipeline& pipeline = **loaded;
  if (absl::Status room = ReserveAnswer(context, pipeline); !room.ok())
    return Answer("DescribePipeline", room);
  const ChargedTime charged(parts_.runtime, parts_.caller(context->peer()));
  response->set_name(ToUtf8(pipeline.spec.name));
  for (const FieldSpec& field : pipeline.plan->outputs())
    SetField(field, 0, response->add_fields());
  for (const std::string& name : pipeline.dataset->classes()) response->add_classes(ToUtf8(name));
  response->set_records(pipeline.dataset->size());
  response->set_batch_size(pipeline.spec.batch_size);
  response->set_dataset_digest(pipeline.dataset->digest());
  response->set_pipeline_digest(pipeline.spec.digest);
  for (const std::string& line : pipeline.plan->Describe()) response->add_plan(ToUtf8(line));
  response->set_dataset_notes(ToUtf8(pipeline.dataset->notes()));
  response->set_warning(ToUtf8(pipeline.warning));
  response->set_seed(pipeline.spec.sampler.seed);
  return grpc::Status::OK;
}

grpc::Status ControlService::OpenStream(grpc::ServerContext* context,
                                        const v1::OpenStreamRequest* request,
                                        v1::OpenStreamResponse* response) {
  const absl::Status opened = Open(context, *request, response);
  if (opened.ok()) return grpc::Status::OK;
  int64_t user = LogLimiter::kNoSource;
  if (const auto ticket = ReadTicket(request->ticket()); ticket.ok()) {
    if (const auto peer = parts_.data->Identify(*ticket); peer.ok()) user = peer->uid;
  }
  return Answer("OpenStream", opened, user);
}

grpc::Status ControlService::CloseStream(grpc::ServerContext*,
                                         const v1::CloseStreamRequest* request,
                                         v1::CloseStreamResponse*) {
  auto ticket = ReadTicket(request->ticket());
  if (!ticket.ok()) return Answer("CloseStream", ticket.status());
  if (!parts_.data->Identify(*ticket).ok())
    return Answer("CloseStream", absl::NotFoundError("no stream has this ticket: it has ended"));
  parts_.data->CloseSession(*ticket, absl::CancelledError("closed by the client"));
  return grpc::Status::OK;
}

absl::Status ControlService::ReserveRoom(grpc::ServerContext* context, uid_t user, int64_t bytes,
                                         int64_t most) {
  return parts_.answers->Reserve(context, user, bytes, most,
                                 [&] { return context->IsCancelled() || draining_; });
}

absl::Status ControlService::ReserveAnswer(grpc::ServerContext* context,
                                           const LoadedPipeline& pipeline) {
  const std::optional<uid_t> user = parts_.caller(context->peer());
  if (!user.has_value())
    return absl::CancelledError("the caller left while its call was being answered");
  return Annotate(ReserveRoom(context, *user, pipeline.class_names_bytes, kMaxClassNameBytes),
                  absl::StrCat("pipeline '", pipeline.spec.name, "': the names of ",
                               pipeline.dataset->classes().size(), " classes"));
}

absl::Status ControlService::LookThrough(grpc::ServerContext* context,
                                         const std::function<absl::Status(uid_t user)>& look) {
  const std::optional<uid_t> user = parts_.caller(context->peer());
  if (!user.has_value())
    return absl::CancelledError("the caller left while its call was being answered");
  {
    MutexLock lock(&mu_);
    while (!looking_.insert(*user).second) {
      if (draining_) return absl::UnavailableError("the daemon is stopping");
      if (context->IsCancelled())
        return absl::CancelledError("the caller left while its call was being answered");
      has_looked_.WaitWithTimeout(&mu_, kLookAgain);
    }
  }
  const auto done = absl::MakeCleanup([&] {
    MutexLock lock(&mu_);
    looking_.erase(*user);
    has_looked_.SignalAll();
  });
  absl::Status looked;
  FW_ASSIGN_OR_RETURN(std::thread thread, StartThread("looking", [&] {
                        StepBack();
                        looked = NoThrow([&] { return look(*user); });
                        parts_.runtime->ChargeUser(*user, ThreadCpuNs());
                      }));
  thread.join();
  return looked;
}

grpc::Status ControlService::GetLedger(grpc::ServerContext* context,
                                       const v1::GetLedgerRequest* request,
                                       v1::GetLedgerResponse* response) {
  return Report("GetLedger", context,
                [&](const Asker& asker) { return reports_.ReadLedger(asker, *request, response); });
}

grpc::Status ControlService::ListRecords(grpc::ServerContext* context,
                                         const v1::ListRecordsRequest* request,
                                         v1::ListRecordsResponse* response) {
  return Report("ListRecords", context, [&](const Asker& asker) {
    return reports_.ListRecords(asker, *request, response);
  });
}

grpc::Status ControlService::ListBadSamples(grpc::ServerContext* context,
                                            const v1::ListBadSamplesRequest*,
                                            v1::ListBadSamplesResponse* response) {
  return Report("ListBadSamples", context,
                [&](const Asker& asker) { return reports_.ListBadSamples(asker, response); });
}

grpc::Status ControlService::GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                                       v1::GetStatusResponse* response) {
  reports_.TellStatus(response);
  auto& counters = *response->mutable_counters();
  counters["rpc_errors"] = rpc_errors_;
  counters["streams_opened"] = streams_opened_;
  counters["streams_refused_sessions_per_uid"] = over_quota_;
  counters["streams_refused_arena_bytes_per_uid"] = over_arena_quota_;
  return grpc::Status::OK;
}

grpc::Status ControlService::Report(const char* rpc, grpc::ServerContext* context,
                                    const std::function<absl::Status(const Asker&)>& report) {
  return Answer(rpc, LookThrough(context, [&](uid_t user) {
                  return report({user, [&] { return context->IsCancelled(); },
                                 [&](int64_t bytes) {
                                   return ReserveRoom(context, user, bytes, kMaxAnswerBytes);
                                 }});
                }));
}

std::vector<Reports::RankSession> ControlService::Sessions() {
  MutexLock lock(&mu_);
  std::vector<Reports::RankSession> sessions;
  for (const auto& [ticket, stream] : streams_)
    sessions.push_back({ticket, stream->peer.uid, stream->job, stream->pipeline, stream->rank});
  return sessions;
}

// --- opening a stream
// --------------------------------------------------------------------------------------------------------

absl::StatusOr<std::shared_ptr<const LoadedPipeline>> ControlService::Load(
    grpc::ServerContext* context, const v1::PipelineRef& reference, const SessionTicket* ticket) {
  auto cancelled = [this, context, ticket] {
    return context->IsCancelled() || draining_ ||
           (ticket != nullptr && !parts_.data->Identify(*ticket).ok());
  };
  const std::optional<uid_t> caller = parts_.caller(context->peer());
  if (!caller.has_value())
    return absl::CancelledError("the caller left while pipelines were being opened");
  auto load = [&]() -> Catalogue::Loaded {
    switch (reference.kind_case()) {
      case v1::PipelineRef::kName:
        return parts_.catalogue->LoadNamed(*caller, reference.name(), cancelled);
      case v1::PipelineRef::kText:
        FW_RETURN_IF_ERROR(CheckName("the pipeline's file name", reference.text().file_name()));
        return parts_.catalogue->LoadText(*caller, reference.text().file_name(),
                                          reference.text().yaml(), cancelled);
      case v1::PipelineRef::KIND_NOT_SET:
        break;
    }
    return absl::InvalidArgumentError("no pipeline: give a name or a text");
  };
  Catalogue::Loaded loaded = load();
  if (!loaded.ok() && draining_) return absl::UnavailableError("the daemon is stopping");
  return loaded;
}

std::shared_ptr<MemoryBudget> ControlService::UserBudget(uid_t uid) {
  const int64_t limit = parts_.settings->config.limits.arena_bytes_per_uid.bytes;
  if (limit == 0) return nullptr;
  MutexLock lock(&mu_);
  // Of users who hold nothing nothing need be known.
  for (auto it = arenas_of_uid_.begin(); it != arenas_of_uid_.end();)
    it = it->second.use_count() == 1 ? arenas_of_uid_.erase(it) : std::next(it);
  auto& budget = arenas_of_uid_[uid];
  if (budget == nullptr) budget = MemoryBudget::Create(limit, "limits.arena_bytes_per_uid");
  return budget;
}

int ControlService::DefaultSlots(const SlotLayout& layout, int64_t world_size, int64_t free_bytes) {
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

absl::StatusOr<std::shared_ptr<SlotPool>> ControlService::MakeArena(
    const std::shared_ptr<OpenedStream>& stream, const ArenaOptions& options) {
  SessionEvents events;
  events.seek = [this, stream](uint32_t serial, uint64_t epoch, int64_t position) {
    OnSeek(stream, serial, epoch, position);
  };
  events.closed = [this, stream] { OnClosed(stream); };
  auto slots = parts_.data->OpenSession(stream->ticket, options, events);
  const MemoryBudget* of_user = options.user_budget.get();
  const auto bytes = ArenaBytes(options.layout, options.slots);
  if (absl::IsResourceExhausted(slots.status()) && of_user != nullptr && bytes.ok() &&
      *bytes > of_user->free_bytes()) {
    ++over_arena_quota_;
  } else if (absl::IsResourceExhausted(slots.status())) {
    parts_.catalogue->MakeRoomFor(stream->peer.uid, bytes.value_or(0));
    slots = parts_.data->OpenSession(stream->ticket, options, std::move(events));
  }
  return slots;
}

// Whether the stream that has this rank now belongs to the same process, which has left it, or to
// one that is dead.
bool ControlService::HolderIsGoing(const OpenedStream& wanted) {
  MutexLock lock(&mu_);
  for (const auto& [ticket, other] : streams_) {
    if (ticket == wanted.ticket || other->peer.uid != wanted.peer.uid || other->job != wanted.job ||
        other->pipeline != wanted.pipeline || other->rank != wanted.rank) {
      continue;
    }
    return other->peer.pid == wanted.peer.pid || (kill(other->peer.pid, 0) != 0 && errno == ESRCH);
  }
  return true;  // it went between the two looks
}

absl::StatusOr<std::shared_ptr<Stream>> ControlService::AttachRank(
    const OpenedStream& stream, const JobConfig& job, uint64_t epoch, int64_t position,
    const SlotLayout& layout, std::shared_ptr<SlotPool> slots) {
  for (int attempt = 1;; ++attempt) {
    auto attached =
        parts_.runtime->Attach(job, stream.rank, stream.peer.pid, epoch, position, layout, slots);
    if (!absl::IsAlreadyExists(attached.status()) || attempt == kAttachTries || draining_ ||
        !HolderIsGoing(stream)) {
      return attached;
    }
    std::this_thread::sleep_for(kAttachPause);
  }
}

// Two processes of one user that each read everything, in the same order, may be two ranks that
// nobody told of one another. That cannot be known here, and each may be right: so it is said.
void ControlService::WarnOfTwins(const OpenedStream& stream) {
  if (stream.world_size != 1) return;
  MutexLock lock(&mu_);
  for (const auto& [ticket, other] : streams_) {
    if (other->world_size != 1 || other->peer.uid != stream.peer.uid ||
        other->peer.pid == stream.peer.pid || other->dataset != stream.dataset ||
        other->seed != stream.seed) {
      continue;
    }
    if (!ClientLog().Admits("worlds of one over the same data", stream.peer.uid)) return;
    spdlog::warn(
        "jobs {} (pid {}) and {} (pid {}) of user {} are each rank 0 of 1 over the same data with "
        "seed {}: both read every sample. If they are ranks of one training, make their loaders "
        "after the process group, start them through a launcher, or give rank and world_size",
        other->job, other->peer.pid, stream.job, stream.peer.pid, stream.peer.uid, stream.seed);
    return;
  }
}

absl::Status ControlService::Open(grpc::ServerContext* context,
                                  const v1::OpenStreamRequest& request,
                                  v1::OpenStreamResponse* response) {
  if (draining_) return absl::UnavailableError("the daemon is stopping");
  FW_RETURN_IF_ERROR(CheckName("job", request.job()));
  FW_RETURN_IF_ERROR(CheckName("client", request.client()));
  auto stream = std::make_shared<OpenedStream>();
  FW_ASSIGN_OR_RETURN(stream->ticket, ReadTicket(request.ticket()));
  FW_ASSIGN_OR_RETURN(stream->peer, parts_.data->Identify(stream->ticket));
  stream->rank = request.rank();
  stream->job = request.job();
  if (stream->job.empty()) {
    // A process in another PID namespace has no number here.
    stream->job = stream->peer.pid > 0 ? absl::StrCat("pid-", stream->peer.pid)
                                       : absl::StrCat("client-", ++anonymous_jobs_);
  }

  FW_ASSIGN_OR_RETURN(std::shared_ptr<const LoadedPipeline> pipeline,
                      Load(context, request.pipeline(), &stream->ticket));
  FW_RETURN_IF_ERROR(ReserveAnswer(context, *pipeline));
  stream->pipeline = pipeline->spec.name;
  FW_ASSIGN_OR_RETURN(Terms terms,
                      Negotiate(request, pipeline, parts_.settings->config.limits.max_slot.bytes));
  terms.job.name = stream->job;
  terms.job.owner_uid = stream->peer.uid;
  terms.job.isolated = parts_.isolates != nullptr && parts_.isolates(*pipeline->plan);
  FW_ASSIGN_OR_RETURN(terms.job.files, ReadMark(request.files()));
  stream->world_size = terms.job.world_size;
  stream->seed = terms.job.seed;
  stream->dataset = pipeline->dataset->digest();
  FW_ASSIGN_OR_RETURN(Admission admission, Admission::Get(this, stream));

  ArenaOptions arena;
  arena.layout = terms.layout;
  arena.budget = parts_.shares->Of(stream->peer.uid);
  arena.user_budget = UserBudget(stream->peer.uid);
  int64_t free_bytes = arena.budget->free_bytes();
  if (arena.user_budget != nullptr)
    free_bytes = std::min(free_bytes, arena.user_budget->free_bytes());
  arena.slots = request.has_slots() ? static_cast<int>(request.slots())
                                    : DefaultSlots(terms.layout, terms.job.world_size, free_bytes);
  arena.numa_node = parts_.settings->numa_node;
  arena.checksum = request.checksum();
  FW_ASSIGN_OR_RETURN(std::shared_ptr<SlotPool> slots, MakeArena(stream, arena));
  admission.HandOver();  // the session's `closed` event gives it back from now on

  const auto attach = [&] {
    return AttachRank(*stream, terms.job, terms.start.epoch, terms.start.position, terms.layout,
                      slots);
  };
  auto attached = attach();
  if (absl::IsResourceExhausted(attached.status())) {
    parts_.catalogue->MakeRoomFor(stream->peer.uid);
    attached = attach();
  }
  if (!attached.ok()) {
    parts_.data->CloseSession(stream->ticket, attached.status());
    return attached.status();
  }
  bool gone = false;
  absl::Status sought;
  {
    MutexLock lock(&stream->mu);
    gone = stream->closed;
    if (!gone) {
      stream->stream = *attached;
      if (auto seek = stream->early_seek) {
        sought = parts_.runtime->Seek(*attached, seek->serial, seek->epoch, seek->position);
      }
    }
  }
  if (gone) {
    parts_.runtime->Detach(*attached);
    return draining_ ? absl::UnavailableError("the daemon is stopping")
                     : absl::CancelledError(
                           "the data connection was closed while its stream was being opened");
  }
  // Drain may have looked at streams_ before this one was there.
  if (draining_) sought = absl::UnavailableError("the daemon is stopping");
  if (!sought.ok()) {
    parts_.data->CloseSession(stream->ticket, sought);
    return sought;
  }
  ++streams_opened_;
  if (ClientLog().Admits("streams opened", stream->peer.uid, LogLimiter::kOpenLines)) {
    spdlog::info(
        "job {}: rank {} of {} of pipeline {} for user {} (pid {}, {}): batches of {}, {} slots of "
        "{}, epoch {} from {}",
        stream->job, stream->rank, terms.job.world_size, stream->pipeline, stream->peer.uid,
        stream->peer.pid, request.client(), terms.job.batch_size, arena.slots,
        FormatBytes(terms.layout.slot_bytes), terms.start.epoch, terms.start.position);
  }
  WarnOfTwins(*stream);

  response->set_job(stream->job);
  response->set_pipeline(ToUtf8(stream->pipeline));
  for (const SlotLayout::Output& output : terms.layout.outputs) {
    SetField(output.field, static_cast<uint64_t>(output.offset), response->add_fields());
  }
  for (const std::string& name : pipeline->dataset->classes()) response->add_classes(ToUtf8(name));
  response->set_records(pipeline->dataset->size());
  response->set_batch_size(terms.job.batch_size);
  response->set_world_size(terms.job.world_size);
  response->set_seed(terms.job.seed);
  response->set_steps_per_epoch(StepsPerEpoch(*terms.order));
  response->set_samples_per_epoch(SamplesPerEpoch(*terms.order, stream->rank));
  response->set_last(std::string(LastBatchName(terms.order->last)));
  response->set_shard(pipeline->spec.sampler.shard);
  response->set_dataset_digest(pipeline->dataset->digest());
  response->set_pipeline_digest(pipeline->spec.digest);
  response->set_epoch(terms.start.epoch);
  response->set_position(terms.start.position);
  response->set_slots(static_cast<uint32_t>(arena.slots));
  response->set_slot_bytes(static_cast<uint64_t>(terms.layout.slot_bytes));
  response->set_daemon_version(kFeedwaterVersion);
  response->set_warning(ToUtf8(pipeline->warning));
  const FilesMark files = MarkOfFiles(**attached);
  response->mutable_files()->set_as_of_ns(files.as_of_ns);
  response->mutable_files()->set_identity(files.identity);
  return absl::OkStatus();
}

void ControlService::OnSeek(const std::shared_ptr<OpenedStream>& stream, uint32_t serial,
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

void ControlService::OnClosed(const std::shared_ptr<OpenedStream>& stream) {
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

// --- gRPC's types
// --------------------------------------------------------------------------------------------------------------

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), ToUtf8(status.message()));
}

}  // namespace feedwater::server
