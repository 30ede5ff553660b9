// Opens streams and ends them.
//
// A stream is a session of the DataServer (slots in shared memory) joined to a rank of the Runtime
// (production). The join is made here and undone here: whichever way a session ends, its `closed`
// event detaches the rank and gives the user's quota back. That event may come before Open has
// attached the rank; then Open detaches it itself.
//
// Thread safety: Open runs on gRPC's threads, session events on the data server's. What it was
// given must outlive it, and no session may be open any more when it goes.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "feedwater/v1/control.pb.h"
#include "server/base/memory_budget.h"
#include "server/base/mutex.h"
#include "server/base/user_shares.h"
#include "server/pipeline/runtime.h"
#include "server/service/catalogue.h"
#include "server/service/config.h"
#include "server/service/stream_terms.h"
#include "server/transport/data_server.h"

namespace feedwater::server {

// A rank of a job with its session.
struct RankSession {
  SessionTicket ticket{};
  uid_t user = 0;
  std::string job, pipeline;
  int64_t rank = 0;
};

class StreamOpener {
 public:
  struct Parts {
    DataServer* data = nullptr;
    Runtime* runtime = nullptr;
    Catalogue* catalogue = nullptr;
    std::shared_ptr<UserShares> shares;  // of memory
    const Settings* settings = nullptr;  // as the daemon was started
  };
  explicit StreamOpener(Parts parts) : parts_(std::move(parts)) {}

  // From now on streams are refused with UNAVAILABLE, and those that are open are told so and
  // closed.
  void Drain();
  bool draining() const { return draining_; }

  // A stream of the connection that has this ticket. `isolated`: whether a new job is.
  absl::Status Open(const SessionTicket& ticket, const PeerIdentity& peer,
                    const v1::OpenStreamRequest& request,
                    const std::shared_ptr<const LoadedPipeline>& pipeline, bool isolated,
                    v1::OpenStreamResponse* response);

  std::vector<RankSession> Sessions() const ABSL_LOCKS_EXCLUDED(mu_);
  std::map<std::string, uint64_t> Counters() const;

 private:
  struct OpenedStream;
  class Admission;

  absl::StatusOr<std::shared_ptr<SlotPool>> MakeArena(const std::shared_ptr<OpenedStream>& stream,
                                                      const ArenaOptions& options);
  absl::StatusOr<std::shared_ptr<Stream>> AttachRank(const OpenedStream& stream,
                                                     const StreamTerms& terms,
                                                     const std::shared_ptr<SlotPool>& slots);
  // The session's events reach the rank from now on, the seek that came before included. When it
  // fails, the stream has ended.
  absl::Status Begin(const std::shared_ptr<OpenedStream>& stream,
                     const std::shared_ptr<Stream>& attached);
  static std::optional<bool> AreOfOneProcess(const OpenedStream& a, const OpenedStream& b);
  bool HolderHasLeft(const OpenedStream& wanted) ABSL_LOCKS_EXCLUDED(mu_);
  void WarnOfTwins(const OpenedStream& stream) ABSL_LOCKS_EXCLUDED(mu_);
  // What limits.arena_bytes_per_uid leaves to a user; null without that limit.
  std::shared_ptr<MemoryBudget> UserBudget(uid_t uid) ABSL_LOCKS_EXCLUDED(mu_);
  ArenaOptions ArenaFor(const OpenedStream& stream, const StreamTerms& terms,
                        const v1::OpenStreamRequest& request);
  void SetText(const PipelineSpec& spec, v1::OpenStreamResponse* response) const;
  static void Describe(const OpenedStream& stream, const StreamTerms& terms, int slots,
                       const Stream& attached, v1::OpenStreamResponse* response);
  void OnSeek(const std::shared_ptr<OpenedStream>& stream, uint32_t serial, uint64_t epoch,
              int64_t position);
  void OnClosed(const std::shared_ptr<OpenedStream>& stream) ABSL_LOCKS_EXCLUDED(mu_);

  const Parts parts_;
  std::atomic<bool> draining_{false};
  std::atomic<uint64_t> opened_{0}, over_quota_{0}, over_arena_quota_{0}, anonymous_jobs_{0};

  mutable Mutex mu_;
  std::map<SessionTicket, std::shared_ptr<OpenedStream>> streams_ ABSL_GUARDED_BY(mu_);
  std::map<uid_t, int> streams_of_uid_ ABSL_GUARDED_BY(mu_);  // open or being opened
  std::map<uid_t, std::shared_ptr<MemoryBudget>> arenas_of_uid_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
