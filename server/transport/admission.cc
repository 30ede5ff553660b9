#include "server/transport/admission.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/counters.h"

namespace feedwater::server {
namespace {

const Registrar<CounterEntry> kCounters[] = {
    {"refused_access", {"clients turned away for not being in `access`"}},
    {"refused_connections", {"clients turned away over limits.max_connections"}},
    {"refused_connections_per_uid", {"clients turned away over limits.connections_per_uid"}},
    {"refused_descriptors", {"clients turned away to keep descriptors for the daemon's own work"}},
    {"refused_unknown", {"clients turned away because the user database did not answer in time"}},
};

}  // namespace

void Admission::Admit(Accepted client) {
  if (client.socket.get() >= options_.limits.max_descriptor ||
      client.pidfd.get() >= options_.limits.max_descriptor) {
    return host_.Refuse(std::move(client), "refused_descriptors",
                        absl::ResourceExhaustedError(
                            "the daemon has no file descriptor left for further clients; cure: "
                            "raise LimitNOFILE="));
  }
  if (host_.sessions() + waiting_.size() >= static_cast<size_t>(options_.limits.max_connections)) {
    return host_.Refuse(std::move(client), "refused_connections",
                        absl::ResourceExhaustedError(
                            absl::StrCat("max_connections: ", options_.limits.max_connections,
                                         " clients are connected already")));
  }
  const uid_t account = AccountOfPeer(client.peer);
  const auto counted = connections_.find(account);
  const int of_account = counted == connections_.end() ? 0 : counted->second;
  if (of_account >= options_.limits.connections_per_uid) {
    return host_.Refuse(
        std::move(client), "refused_connections_per_uid",
        absl::ResourceExhaustedError(absl::StrCat("max_connections_per_uid: user ", account,
                                                  " has ", of_account, " connections already")));
  }
  // After the limits: asking may start a look-up.
  const std::optional<absl::Status> allowed =
      options_.access ? options_.access(client.peer) : absl::OkStatus();
  if (allowed && !allowed->ok()) return host_.Refuse(std::move(client), "refused_access", *allowed);
  ++connections_[account];
  if (!allowed) {
    const auto patience_ns = static_cast<int64_t>(options_.limits.handshake_seconds * 1e9);
    waiting_.push_back({std::move(client), account, MonotonicNs() + patience_ns});
    return;
  }
  client.asked = client.peer;
  client.peer.uid = account;  // the user that everything from here on belongs to
  host_.Enter(std::move(client));
}

void Admission::Leave(uid_t account) {
  if (auto it = connections_.find(account); it != connections_.end() && --it->second == 0)
    connections_.erase(it);
}

void Admission::ReconsiderWaiting() {
  for (Waiting& one : std::exchange(waiting_, {})) {
    Leave(one.account);
    const int64_t deadline_ns = one.deadline_ns;
    const size_t before = waiting_.size();
    Admit(std::move(one.client));
    if (waiting_.size() > before) waiting_.back().deadline_ns = deadline_ns;  // waits on
  }
}

int64_t Admission::ExpireWaiting(int64_t now_ns) {
  int64_t next = INT64_MAX;
  for (size_t i = 0; i < waiting_.size();) {
    if (waiting_[i].deadline_ns > now_ns) {
      next = std::min(next, waiting_[i++].deadline_ns);
      continue;
    }
    Waiting late = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
    Leave(late.account);
    host_.Refuse(std::move(late.client), "refused_unknown",
                 absl::UnavailableError(absl::StrCat(
                     "the machine's user database has not returned the groups of user ",
                     late.account, " in time; try again")));
  }
  return next;
}

}  // namespace feedwater::server
