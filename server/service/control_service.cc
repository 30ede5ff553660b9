#include "server/service/control_service.h"

#include <spdlog/spdlog.h>

#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "feedwater/version.h"
#include "server/base/clock.h"
#include "server/base/counters.h"
#include "server/base/escape.h"
#include "server/base/log_limiter.h"
#include "server/base/no_throw.h"
#include "server/base/thread.h"
#include "server/pipeline/charged_time.h"
#include "server/service/messages.h"
#include "server/service/offers.h"

namespace feedwater::server {
namespace {

const Registrar<CounterEntry> kCounters[] = {
    {"rpc_errors", {"calls answered with an error"}},
};

constexpr int kOpeningTries = 5;                     // while the configuration is read again
constexpr auto kLookAgain = absl::Milliseconds(50);  // whether a caller that waits is still there

}  // namespace

ControlService::ControlService(Parts parts)
    : parts_(std::move(parts)),
      streams_({.data = parts_.data,
                .runtime = parts_.runtime,
                .catalogue = parts_.catalogue,
                .shares = parts_.shares,
                .settings = parts_.settings}),
      reports_({.data = parts_.data,
                .runtime = parts_.runtime,
                .shares = parts_.shares,
                .settings = parts_.settings,
                .catalogue = parts_.catalogue,
                .providers = parts_.providers,
                .bad_samples = parts_.bad_samples,
                .decoders = parts_.decoders,
                .more_counters = parts_.more_counters,
                .streams = &streams_}) {}

grpc::Status ControlService::Answer(const char* rpc, grpc::ServerContext* context,
                                    const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  ++rpc_errors_;
  const int64_t user = parts_.caller(context->peer()).value_or(LogLimiter::kNoSource);
  if (ClientLog().Admits(absl::StrCat(rpc, " refused"), user))
    spdlog::info("{} refused: {}", rpc,
                 ToUtf8(status.ToString(absl::StatusToStringMode::kWithNoExtraData)));
  return ToGrpc(status);
}

grpc::Status ControlService::ListPipelines(grpc::ServerContext* context,
                                           const v1::ListPipelinesRequest*,
                                           v1::ListPipelinesResponse* response) {
  return Answer("ListPipelines", context, LookThrough(context, [&](uid_t) {
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
  if (!loaded.ok()) return Answer("DescribePipeline", context, loaded.status());
  const LoadedPipeline& pipeline = **loaded;
  if (absl::Status room = ReserveAnswer(context, pipeline, pipeline.class_names_bytes); !room.ok())
    return Answer("DescribePipeline", context, room);
  const ChargedTime charged(parts_.runtime, parts_.caller(context->peer()));
  response->set_name(ToUtf8(pipeline.spec.name));
  for (const FieldSpec& field : pipeline.plan->outputs())
    SetField(field, 0, response->add_fields());
  for (const std::string& name : pipeline.dataset->classes()) response->add_classes(ToUtf8(name));
  response->set_records(pipeline.dataset->size());
  if (const absl::Status told = TellMix(*pipeline.dataset, response); !told.ok())
    return Answer("DescribePipeline", context, told);
  response->set_batch_size(pipeline.spec.batch_size);
  response->set_dataset_digest(pipeline.dataset->digest());
  response->set_pipeline_digest(pipeline.spec.digest);
  for (const std::string& line : pipeline.plan->Describe()) response->add_plan(ToUtf8(line));
  response->set_dataset_notes(ToUtf8(pipeline.dataset->notes()));
  response->set_warning(ToUtf8(pipeline.warning));
  response->set_seed(pipeline.spec.sampler.seed);
  return grpc::Status::OK;
}

absl::StatusOr<std::shared_ptr<const LoadedPipeline>> ControlService::Load(
    grpc::ServerContext* context, const v1::PipelineRef& reference, const SessionTicket* ticket) {
  auto cancelled = [this, context, ticket] {
    return context->IsCancelled() || streams_.draining() ||
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
  for (int tries = 1;; ++tries) {
    // Once more after a reload in between: nothing is told of roots that the caller was not
    // admitted to. Whoever is admitted while they hold is on their list (Daemon::Reload).
    const uint64_t reload = parts_.catalogue->reload();
    FW_RETURN_IF_ERROR(CheckAccess(context));
    Catalogue::Loaded loaded = load();
    if (!loaded.ok() && streams_.draining())
      return absl::UnavailableError("the daemon is stopping");
    const uint64_t opened_in = loaded.ok() ? (*loaded)->reload : parts_.catalogue->reload();
    if (opened_in != reload && tries < kOpeningTries) continue;
    if (opened_in != reload) {
      return absl::UnavailableError(absl::StrCat(
          "the configuration was read again each of the ", tries,
          " times that the pipeline was opened; cure: open it again when that is over"));
    }
    // That may have taken hours, and others may be on the list by now.
    if (parts_.catalogue->reload() != reload) FW_RETURN_IF_ERROR(CheckAccess(context));
    return loaded;
  }
}

absl::Status ControlService::CheckAccess(grpc::ServerContext* context,
                                         const SessionTicket& ticket) {
  const absl::Status allowed =
      AwaitAccess(context, [&] { return parts_.data->CheckAccess(ticket); });
  if (absl::IsPermissionDenied(allowed)) parts_.data->CloseSession(ticket, allowed);
  return allowed;
}

absl::Status ControlService::CheckAccess(grpc::ServerContext* context) {
  return AwaitAccess(context, [&] { return parts_.access(context->peer()); });
}

absl::Status ControlService::AwaitAccess(grpc::ServerContext* context,
                                         const std::function<std::optional<absl::Status>()>& look) {
  const int64_t patience_ns =
      static_cast<int64_t>(parts_.settings->config.limits.handshake_timeout.seconds * 1e9);
  for (const int64_t began_ns = MonotonicNs();;) {
    if (const std::optional<absl::Status> allowed = look()) return *allowed;
    if (streams_.draining()) return absl::UnavailableError("the daemon is stopping");
    if (context->IsCancelled())
      return absl::CancelledError("the caller left while its groups were being looked up");
    if (MonotonicNs() - began_ns >= patience_ns) {
      return absl::UnavailableError(
          "the machine's user database has not returned this user's groups in time; try again");
    }
    absl::SleepFor(kLookAgain);
  }
}

absl::Status ControlService::Open(grpc::ServerContext* context,
                                  const v1::OpenStreamRequest& request,
                                  v1::OpenStreamResponse* response) {
  if (streams_.draining()) return absl::UnavailableError("the daemon is stopping");
  FW_RETURN_IF_ERROR(CheckName("job", request.job()));
  FW_RETURN_IF_ERROR(CheckName("client", request.client()));
  FW_ASSIGN_OR_RETURN(const SessionTicket ticket, ReadTicket(request.ticket()));
  const std::shared_ptr<void> hold = parts_.data->HoldHandshake(ticket);
  FW_ASSIGN_OR_RETURN(const PeerIdentity peer, parts_.data->Identify(ticket));
  FW_RETURN_IF_ERROR(CheckAccess(context, ticket));
  FW_ASSIGN_OR_RETURN(const std::shared_ptr<const LoadedPipeline> pipeline,
                      Load(context, request.pipeline(), &ticket));
  FW_RETURN_IF_ERROR(ReserveAnswer(
      context, *pipeline,
      pipeline->class_names_bytes + static_cast<int64_t>(pipeline->spec.text.size())));
  // Before the user is looked for on the list: a reload that makes another end of isolation takes
  // those off it first for whom it was.
  const bool isolated = parts_.isolates != nullptr && parts_.isolates(*pipeline->plan);
  FW_RETURN_IF_ERROR(CheckAccess(context, ticket));
  return streams_.Open(ticket, peer, request, pipeline, isolated, response);
}

grpc::Status ControlService::OpenStream(grpc::ServerContext* context,
                                        const v1::OpenStreamRequest* request,
                                        v1::OpenStreamResponse* response) {
  return Answer("OpenStream", context, Open(context, *request, response));
}

grpc::Status ControlService::CloseStream(grpc::ServerContext* context,
                                         const v1::CloseStreamRequest* request,
                                         v1::CloseStreamResponse*) {
  auto ticket = ReadTicket(request->ticket());
  if (!ticket.ok()) return Answer("CloseStream", context, ticket.status());
  if (!parts_.data->Identify(*ticket).ok()) {
    return Answer("CloseStream", context,
                  absl::NotFoundError("no stream has this ticket: it has ended"));
  }
  parts_.data->CloseSession(*ticket, absl::CancelledError("closed by the client"));
  return grpc::Status::OK;
}

absl::Status ControlService::TakeProvider(grpc::ServerContext* context,
                                          const v1::ProvideRequest& request,
                                          v1::ProvideResponse* response) {
  if (streams_.draining()) return absl::UnavailableError("the daemon is stopping");
  FW_ASSIGN_OR_RETURN(const SessionTicket ticket, ReadTicket(request.ticket()));
  FW_ASSIGN_OR_RETURN(const PeerIdentity peer, parts_.data->Identify(ticket));
  const std::shared_ptr<void> hold = parts_.data->HoldHandshake(ticket);
  FW_RETURN_IF_ERROR(CheckAccess(context, ticket));
  FW_ASSIGN_OR_RETURN(Offer offer, ReadOffer(request, peer.uid));
  FW_ASSIGN_OR_RETURN(Accepted connection, parts_.data->HandOver(ticket));
  response->set_workers(offer.source.workers);
  FW_ASSIGN_OR_RETURN(const int processes,
                      parts_.providers->Enter(std::move(connection), std::move(offer)));
  response->set_processes(processes);
  response->set_daemon_version(kFeedwaterVersion);
  return absl::OkStatus();
}

grpc::Status ControlService::Provide(grpc::ServerContext* context,
                                     const v1::ProvideRequest* request,
                                     v1::ProvideResponse* response) {
  return Answer("Provide", context, TakeProvider(context, *request, response));
}

absl::Status ControlService::ReserveRoom(grpc::ServerContext* context, uid_t user, int64_t bytes,
                                         int64_t most) {
  return parts_.answers->Reserve(context, user, bytes, most,
                                 [&] { return context->IsCancelled() || streams_.draining(); });
}

absl::Status ControlService::ReserveAnswer(grpc::ServerContext* context,
                                           const LoadedPipeline& pipeline, int64_t bytes) {
  const std::optional<uid_t> user = parts_.caller(context->peer());
  if (!user.has_value())
    return absl::CancelledError("the caller left while its call was being answered");
  return Annotate(ReserveRoom(context, *user, bytes, kMaxClassNameBytes),
                  absl::StrCat("pipeline '", pipeline.spec.name, "': the names of ",
                               pipeline.dataset->classes().size(), " classes"));
}

absl::Status ControlService::LookThrough(grpc::ServerContext* context,
                                         const std::function<absl::Status(uid_t user)>& look) {
  const std::optional<uid_t> user = parts_.caller(context->peer());
  if (!user.has_value())
    return absl::CancelledError("the caller left while its call was being answered");
  const uint64_t reload = parts_.catalogue->reload();
  FW_RETURN_IF_ERROR(CheckAccess(context));
  {
    MutexLock lock(&mu_);
    while (!looking_.insert(*user).second) {
      if (streams_.draining()) return absl::UnavailableError("the daemon is stopping");
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
  // Others may be on the list by now, and what was found is of them.
  if (looked.ok() && parts_.catalogue->reload() != reload) return CheckAccess(context);
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

grpc::Status ControlService::GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest*,
                                       v1::GetStatusResponse* response) {
  return Report("GetStatus", context, [&](const Asker& asker) {
    reports_.TellStatus(response);
    auto& counters = *response->mutable_counters();
    counters["rpc_errors"] = rpc_errors_;
    for (const auto& [name, count] : streams_.Counters()) counters[name] = count;
    for (const std::string& name : Registry<CounterEntry>::Get().Names())
      (*response->mutable_counter_texts())[name] = Registry<CounterEntry>::Get().Find(name)->text;
    reports_.TellProviders(asker.user, response);
    reports_.TellJobs(asker, response);
    return asker.reserve(static_cast<int64_t>(response->ByteSizeLong()));
  });
}

grpc::Status ControlService::Report(const char* rpc, grpc::ServerContext* context,
                                    const std::function<absl::Status(const Asker&)>& report) {
  return Answer(rpc, context, LookThrough(context, [&](uid_t user) {
                  return report({user, [&] { return context->IsCancelled(); },
                                 [&](int64_t bytes) {
                                   return ReserveRoom(context, user, bytes, kMaxAnswerBytes);
                                 }});
                }));
}

}  // namespace feedwater::server
