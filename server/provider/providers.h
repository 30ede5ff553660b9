// The programs of users that provide sources and ops: who serves what, and the thread that listens
// to their processes. A process ends by its hang-up, by the end of the process that connected for
// it (pidfd), by breaking the protocol, or by not answering in time; what was asked of it is asked
// of another one (provided.h).
//
// A user's programs serve that user's jobs alone.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/fd.h"
#include "server/base/mutex.h"
#include "server/base/room_maker.h"
#include "server/base/user_shares.h"
#include "server/provider/provided.h"
#include "server/provider/window_maker.h"

namespace feedwater::server {

class Providers final : public OfferedSources {
 public:
  struct Options {
    std::shared_ptr<UserShares> shares;  // of memory; may be null
    int64_t processes_per_uid = 64;
    RoomMaker make_room = nullptr;  // for windows and offers; may be null
  };
  static absl::StatusOr<std::shared_ptr<Providers>> Create(Options options);
  ~Providers() override;
  // No larger windows are made any more, and nothing asks for room for them.
  void StopGrowing() { maker_->Stop(); }

  // The connection serves the offer from now on. Returns how many processes do. AlreadyExists when
  // others serve something else under that name; ResourceExhausted over a limit.
  absl::StatusOr<int> Enter(Accepted connection, Offer offer) ABSL_LOCKS_EXCLUDED(mu_);

  absl::StatusOr<Found> Find(int64_t user, const std::string& name) override
      ABSL_LOCKS_EXCLUDED(mu_);
  // Runs the user's ops of these names, as they are served now and no others, whatever is served
  // under their names later.
  class UserOps;
  absl::StatusOr<std::shared_ptr<UserOps>> OpsOf(uint32_t user,
                                                 const std::vector<std::string>& names)
      ABSL_LOCKS_EXCLUDED(mu_);

  struct Served {
    std::string name;
    const char* kind = "";
    uint32_t user = 0;
    int64_t workers = 0;  // of an iterable dataset
    ProvidedCounts counts;
  };
  // Of one user, or of all.
  std::vector<Served> List(std::optional<uint32_t> user) const ABSL_LOCKS_EXCLUDED(mu_);
  std::map<std::string, uint64_t> Counters() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Name = std::pair<uint32_t, std::string>;
  struct Connected {
    std::shared_ptr<Channel> channel;
    std::shared_ptr<Provided> provided;
  };

  Providers(Options options, std::shared_ptr<ArenaWatch> watch)
      : options_(std::move(options)), watch_(std::move(watch)) {}
  absl::StatusOr<std::shared_ptr<Provided>> Get(uint32_t user, const std::string& name,
                                                Offer::Kind kind) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::shared_ptr<Provided>> Admit(const Offer& offer) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::shared_ptr<Provided>> AdmitOnce(const Offer& offer) ABSL_LOCKS_EXCLUDED(mu_);
  std::string ServedNamesLocked(uint32_t user, Offer::Kind kind) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Watch(int fd, uint64_t id, bool is_pidfd);
  void Run();
  void Obey(uint64_t event_key, uint32_t events) ABSL_LOCKS_EXCLUDED(mu_);
  void LookAround() ABSL_LOCKS_EXCLUDED(mu_);
  void Leave(uint64_t id) ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  const std::shared_ptr<std::atomic<uint64_t>> deaths_ = std::make_shared<std::atomic<uint64_t>>(0);
  const std::shared_ptr<ArenaWatch> watch_;  // of the windows of all
  const std::shared_ptr<WindowMaker> maker_ = std::make_shared<WindowMaker>();  // likewise
  Fd epoll_, stop_;
  std::thread thread_;

  mutable Mutex mu_;
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<uint64_t, Connected> connected_ ABSL_GUARDED_BY(mu_);
  std::map<Name, std::weak_ptr<Provided>> provided_ ABSL_GUARDED_BY(mu_);
  std::map<uint32_t, int64_t> processes_ ABSL_GUARDED_BY(mu_);  // by user, those on the way too
  uint64_t entered_ ABSL_GUARDED_BY(mu_) = 0, refused_ ABSL_GUARDED_BY(mu_) = 0;
};

class Providers::UserOps final : public OpCaller {
 public:
  explicit UserOps(std::map<std::string, std::shared_ptr<Provided>> ops) : ops_(std::move(ops)) {}
  absl::Status Call(const OpCall& call,
                    absl::FunctionRef<absl::Status(absl::Span<const Tensor>)> take) override;
  std::string Versions() const;  // "": none has one
  // What the program says that each of them is (OfferedSource::Identity), by name: the same on
  // another host.
  std::string Identity() const;
  // Whether all of them are served still.
  bool AreCurrent() const;

 private:
  const std::map<std::string, std::shared_ptr<Provided>> ops_;
};

}  // namespace feedwater::server
