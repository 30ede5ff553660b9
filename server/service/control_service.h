// The Control service of proto/feedwater/v1/control.proto: it checks what clients ask for, opens
// their streams, and reports.
//
// A stream is a session of the DataServer (slots in shared memory) joined to a rank of the Runtime
// (production). The join is made here and undone here: whichever way a session ends, its `closed`
// event detaches the rank and gives the user's quota back. That event may come before OpenStream
// has attached the rank; then OpenStream detaches it itself.
//
// Thread safety: RPCs run on gRPC's threads, session events on the data server's. What it was given
// must outlive it, and no session may be open any more when it goes.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "feedwater/v1/control.grpc.pb.h"
#include "server/base/log_limiter.h"
#include "server/base/memory_budget.h"
#include "server/base/mutex.h"
#include "server/base/user_shares.h"
#include "server/pipeline/runtime.h"
#include "server/service/answers.h"
#include "server/service/catalogue.h"
#include "server/service/config.h"
#include "server/service/reports.h"
#include "server/transport/data_server.h"

namespace feedwater::server {

class ControlService final : public v1::Control::Service {
 public:
  struct Parts {
    DataServer* data = nullptr;
    Runtime* runtime = nullptr;
    Catalogue* catalogue = nullptr;
    std::shared_ptr<UserShares> shares;  // of memory
    const Settings* settings = nullptr;  // as the daemon was started
    std::shared_ptr<BadSampleLog> bad_samples;
    std::shared_ptr<const DecoderHost> decoders;  // null: workers make all samples
    std::function<bool(const Plan&)> isolates;    // whether a new job is; null: no
    std::function<std::map<std::string, uint64_t>()> more_counters;
    // Who pays for a call (ControlGate::WhoIs).
    std::function<std::optional<uid_t>(const std::string& grpc_peer)> caller;
    std::shared_ptr<Answers> answers;
  };
  explicit ControlService(Parts parts);

  // From now on streams are refused with UNAVAILABLE, and those that are open are told so and
  // closed.
  void Drain();

  grpc::Status ListPipelines(grpc::ServerContext* context, const v1::ListPipelinesRequest* request,
                             v1::ListPipelinesResponse* response) override;
  grpc::Status DescribePipeline(grpc::ServerContext* context,
                                const v1::DescribePipelineRequest* request,
                                v1::DescribePipelineResponse* response) override;
  grpc::Status OpenStream(grpc::ServerContext* context, const v1::OpenStreamRequest* request,
                          v1::OpenStreamResponse* response) override;
  grpc::Status CloseStream(grpc::ServerContext* context, const v1::CloseStreamRequest* request,
                           v1::CloseStreamResponse* response) override;
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
  struct OpenedStream;
  class Admission;

  // `ticket`: of the waiting client, whose handshake is renewed meanwhile; null when there is none.
  absl::StatusOr<std::shared_ptr<const LoadedPipeline>> Load(grpc::ServerContext* context,
                                                             const v1::PipelineRef& reference,
                                                             const SessionTicket* ticket);
  absl::Status Open(grpc::ServerContext* context, const v1::OpenStreamRequest& request,
                    v1::OpenStreamResponse* response);
  absl::StatusOr<std::shared_ptr<SlotPool>> MakeArena(const std::shared_ptr<OpenedStream>& stream,
                                                      const ArenaOptions& options);
  absl::StatusOr<std::shared_ptr<Stream>> AttachRank(const OpenedStream& stream,
                                                     const JobConfig& job, uint64_t epoch,
                                                     int64_t position, const SlotLayout& layout,
                                                     std::shared_ptr<SlotPool> slots);
  // For an answer of so many bytes, of at most `most`.
  absl::Status ReserveRoom(grpc::ServerContext* context, uid_t user, int64_t bytes, int64_t most);
  // For the names of its classes.
  absl::Status ReserveAnswer(grpc::ServerContext* context, const LoadedPipeline& pipeline);
  // For a call that looks through much: one such look of a user at a time, behind the workers, and
  // the user pays for its CPU time.
  absl::Status LookThrough(grpc::ServerContext* context,
                           const std::function<absl::Status(uid_t user)>& look)
      ABSL_LOCKS_EXCLUDED(mu_);
  grpc::Status Report(const char* rpc, grpc::ServerContext* context,
                      const std::function<absl::Status(const Asker&)>& report);
  std::vector<Reports::RankSession> Sessions() ABSL_LOCKS_EXCLUDED(mu_);
  bool HolderIsGoing(const OpenedStream& wanted) ABSL_LOCKS_EXCLUDED(mu_);
  void WarnOfTwins(const OpenedStream& stream) ABSL_LOCKS_EXCLUDED(mu_);
  // What limits.arena_bytes_per_uid leaves to a user; null without that limit.
  std::shared_ptr<MemoryBudget> UserBudget(uid_t uid) ABSL_LOCKS_EXCLUDED(mu_);
  static int DefaultSlots(const SlotLayout& layout, int64_t world_size, int64_t free_bytes);
  void OnSeek(const std::shared_ptr<OpenedStream>& stream, uint32_t serial, uint64_t epoch,
              int64_t position);
  void OnClosed(const std::shared_ptr<OpenedStream>& stream) ABSL_LOCKS_EXCLUDED(mu_);
  // `user`: whose call it is, where that is known.
  grpc::Status Answer(const char* rpc, const absl::Status& status,
                      int64_t user = LogLimiter::kNoSource);

  const Parts parts_;
  const Reports reports_;
  std::atomic<bool> draining_{false};
  std::atomic<uint64_t> rpc_errors_{0}, streams_opened_{0}, over_quota_{0}, anonymous_jobs_{0};
  std::atomic<uint64_t> over_arena_quota_{0};

  Mutex mu_;
  std::map<SessionTicket, std::shared_ptr<OpenedStream>> streams_ ABSL_GUARDED_BY(mu_);
  std::map<uid_t, int> streams_of_uid_ ABSL_GUARDED_BY(mu_);  // open or being opened
  std::set<uid_t> looking_ ABSL_GUARDED_BY(mu_);              // in LookThrough
  CondVar has_looked_;
  std::map<uid_t, std::shared_ptr<MemoryBudget>> arenas_of_uid_ ABSL_GUARDED_BY(mu_);
};

// The gRPC status with the same code and message.
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace feedwater::server
