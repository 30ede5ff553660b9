// The Control service of proto/feedwater/v1/control.proto: checks who asks and for what, reserves
// room for long answers, and hands streams to the StreamOpener and questions to Reports.
//
// Thread safety: RPCs run on gRPC's threads. What it was given must outlive it, and no session may
// be open any more when it goes.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "feedwater/v1/control.grpc.pb.h"
#include "server/base/mutex.h"
#include "server/base/user_shares.h"
#include "server/pipeline/runtime.h"
#include "server/service/answers.h"
#include "server/service/catalogue.h"
#include "server/service/config.h"
#include "server/service/reports.h"
#include "server/service/stream_opener.h"
#include "server/transport/data_server.h"

namespace feedwater::server {

class ControlService final : public v1::Control::Service {
 public:
  struct Parts {
    DataServer* data = nullptr;
    Runtime* runtime = nullptr;
    Catalogue* catalogue = nullptr;
    Providers* providers = nullptr;
    std::shared_ptr<UserShares> shares;  // of memory
    const Settings* settings = nullptr;  // as the daemon was started
    std::shared_ptr<BadSampleLog> bad_samples;
    std::shared_ptr<const DecoderHost> decoders;  // null: workers make all samples
    std::function<bool(const Plan&)> isolates;    // whether a new job is; null: no
    std::function<std::map<std::string, uint64_t>()> more_counters;
    // Who pays for a call (ControlGate::WhoIs).
    std::function<std::optional<uid_t>(const std::string& grpc_peer)> caller;
    // Whether the caller may use the daemon still (ControlGate::CheckAccess).
    std::function<std::optional<absl::Status>(const std::string& grpc_peer)> access;
    std::shared_ptr<Answers> answers;
  };
  explicit ControlService(Parts parts);

  void Drain() { streams_.Drain(); }

  grpc::Status ListPipelines(grpc::ServerContext* context, const v1::ListPipelinesRequest* request,
                             v1::ListPipelinesResponse* response) override;
  grpc::Status DescribePipeline(grpc::ServerContext* context,
                                const v1::DescribePipelineRequest* request,
                                v1::DescribePipelineResponse* response) override;
  grpc::Status OpenStream(grpc::ServerContext* context, const v1::OpenStreamRequest* request,
                          v1::OpenStreamResponse* response) override;
  grpc::Status CloseStream(grpc::ServerContext* context, const v1::CloseStreamRequest* request,
                           v1::CloseStreamResponse* response) override;
  grpc::Status Provide(grpc::ServerContext* context, const v1::ProvideRequest* request,
                       v1::ProvideResponse* response) override;
  grpc::Status GetLedger(grpc::ServerContext* context, const v1::GetLedgerRequest* request,
                         v1::GetLedgerResponse* response) override;
  grpc::Status ListRecords(grpc::ServerContext* context, const v1::ListRecordsRequest* request,
                           v1::ListRecordsResponse* response) override;
  grpc::Status ListBadSamples(grpc::ServerContext* context,
                              const v1::ListBadSamplesRequest* request,
                              v1::ListBadSamplesResponse* response) override;
  grpc::Status GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest* request,
                         v1::GetStatusResponse* response) override;

 private:
  using Asker = Reports::Asker;
  // `ticket`: of the waiting client; null when there is none.
  absl::StatusOr<std::shared_ptr<const LoadedPipeline>> Load(grpc::ServerContext* context,
                                                             const v1::PipelineRef& reference,
                                                             const SessionTicket* ticket);
  absl::Status Open(grpc::ServerContext* context, const v1::OpenStreamRequest& request,
                    v1::OpenStreamResponse* response);
  absl::Status TakeProvider(grpc::ServerContext* context, const v1::ProvideRequest& request,
                            v1::ProvideResponse* response);
  // Whether a connection's user may use the daemon still, which a reload may have changed since it
  // was let in: of data.sock, which PermissionDenied ends, and of control.sock. Waits where the
  // user's groups are looked up, for as long as a new connection would.
  absl::Status CheckAccess(grpc::ServerContext* context, const SessionTicket& ticket);
  absl::Status CheckAccess(grpc::ServerContext* context);
  absl::Status AwaitAccess(grpc::ServerContext* context,
                           const std::function<std::optional<absl::Status>()>& look);
  // For an answer of so many bytes, of at most `most`.
  absl::Status ReserveRoom(grpc::ServerContext* context, uid_t user, int64_t bytes, int64_t most);
  // For the names of its classes and what else goes with them: so many bytes.
  absl::Status ReserveAnswer(grpc::ServerContext* context, const LoadedPipeline& pipeline,
                             int64_t bytes);
  // For a call that looks through much: one such look of a user at a time, behind the workers, and
  // the user pays for its CPU time.
  absl::Status LookThrough(grpc::ServerContext* context,
                           const std::function<absl::Status(uid_t user)>& look)
      ABSL_LOCKS_EXCLUDED(mu_);
  grpc::Status Report(const char* rpc, grpc::ServerContext* context,
                      const std::function<absl::Status(const Asker&)>& report);
  // A refusal is a line in the log, of a few a minute for each user and call.
  grpc::Status Answer(const char* rpc, grpc::ServerContext* context, const absl::Status& status);

  const Parts parts_;
  StreamOpener streams_;
  const Reports reports_;
  std::atomic<uint64_t> rpc_errors_{0};

  Mutex mu_;
  std::set<uid_t> looking_ ABSL_GUARDED_BY(mu_);  // in LookThrough
  CondVar has_looked_;
};

}  // namespace feedwater::server
