#include "tests/simulation/simulated_daemon.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/units.h"

namespace feedwater::simulation {

using server::Accepted;
using server::ArenaOptions;
using server::Fd;
using server::Session;
using server::SessionEvents;
using State = WatchedPool::State;

SimulatedDaemon::SimulatedDaemon(std::mt19937_64* random,
                                 std::function<void(std::string)> violation)
    : violation_(violation),
      doorbell_(*server::Doorbell::Create()),
      reclaimer_(std::make_shared<server::Reclaimer>()),  // without its thread
      budget_(server::MemoryBudget::Create(int64_t{1} << 30)),
      workers_(random, std::move(violation)) {}

// A crash: nothing is told to anybody, sockets close as the kernel closes them.
SimulatedDaemon::~SimulatedDaemon() {
  torn_down_.insert(torn_down_.end(), connections_.begin(), connections_.end());
  for (const ConnectionPtr& connection : torn_down_) {  // clients know them still
    connection->gone = true;
    connection->wish.reset();
    connection->stream = nullptr;
    connection->pool = nullptr;
    connection->session = nullptr;
  }
}

SimulatedDaemon::ConnectionPtr SimulatedDaemon::Accept(int socket) {
  Accepted client;
  client.socket = Fd(socket);
  Session::Options options;
  options.id = next_id_++;
  options.ticket[0] = static_cast<uint8_t>(options.id);
  options.handshake_seconds = 3600;
  options.doorbell = doorbell_;
  options.reclaimer = reclaimer_;
  auto connection = std::make_shared<Connection>();
  connection->session = std::make_shared<Session>(std::move(client), options);
  connections_.push_back(connection);
  return connection;
}

absl::Status SimulatedDaemon::Open(const ConnectionPtr& connection, Wish wish) {
  ArenaOptions options;
  options.layout = LayoutOf(wish);
  options.slots = wish.slots;
  options.budget = budget_;
  SessionEvents events;
  Connection* const raw = connection.get();  // the events go with the session
  events.seek = [this, raw](uint32_t serial, uint64_t epoch, int64_t position) {
    OnSeek(raw, serial, epoch, position);
  };
  events.closed = [this, raw] { OnClosed(raw); };
  FW_RETURN_IF_ERROR(connection->session->Open(options, std::move(events)));
  connection->pool = std::make_shared<WatchedPool>(connection->session, wish.slots, violation_);
  connection->wish = std::move(wish);
  return absl::OkStatus();
}

absl::Status SimulatedDaemon::Attach(const ConnectionPtr& connection) {
  const Wish wish = *std::exchange(connection->wish, std::nullopt);
  if (connection->gone) return absl::UnavailableError("the client is gone");
  connection->job = wish.job.name;
  absl::StatusOr<std::shared_ptr<server::Stream>> stream = workers_.Attach(wish, connection->pool);
  if (!stream.ok()) {
    connection->session->Close(stream.status(), "closed_by_daemon", /*tell_client=*/true);
    return stream.status();
  }
  for (const ConnectionPtr& other : connections_) {
    if (other->stream != nullptr && other->job == connection->job && other->rank == wish.rank)
      violation_("a rank is attached twice");
  }
  connection->rank = wish.rank;
  connection->stream = *stream;
  if (const auto seek = std::exchange(connection->early_seek, std::nullopt)) {
    OnSeek(connection.get(), seek->serial, seek->epoch, seek->position);
  }
  return absl::OkStatus();
}

void SimulatedDaemon::OnSeek(Connection* connection, uint32_t serial, uint64_t epoch,
                             int64_t position) {
  if (connection->stream == nullptr) {
    connection->early_seek = Connection::EarlySeek{serial, epoch, position};
    return;
  }
  workers_.Seek(connection->stream, serial, epoch, position);
}

void SimulatedDaemon::OnClosed(Connection* connection) {
  if (std::exchange(connection->gone, true)) violation_("a session's end was told twice");
  if (connection->stream != nullptr) workers_.Detach(connection->stream);
  connection->stream = nullptr;
}

// --- the data socket's thread

bool SimulatedDaemon::LookAt(const ConnectionPtr& connection) {
  Session& session = *connection->session;
  pollfd event{session.socket_fd(), POLLIN | POLLRDHUP, 0};
  if (event.fd < 0 || poll(&event, 1, 0) <= 0) return false;
  if ((event.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0) {
    session.Close(absl::CancelledError("the client hung up"), "reclaimed_hangup", false);
    return true;
  }
  const int lent_before = session.Counts().lent;
  session.OnReadable();
  int released = 0;
  while (!connection->unread.empty()) {
    const int slot = connection->unread.front();
    connection->unread.pop_front();
    if (slot < 0 || !session.open()) continue;
    connection->pool->Released(slot);
    ++released;
  }
  if (session.open() && session.Counts().lent != lent_before - released) {
    violation_("a release was obeyed twice, or not at all");
  }
  return true;
}

bool SimulatedDaemon::TearDown() {
  bool any = false;
  for (const uint64_t id : doorbell_->Answer()) {
    const auto found =
        std::find_if(connections_.begin(), connections_.end(),
                     [&](const ConnectionPtr& one) { return one->session->id() == id; });
    if (found == connections_.end()) {
      violation_("a session closed twice");
      continue;
    }
    const ConnectionPtr connection = *found;
    connections_.erase(found);
    torn_down_.push_back(connection);
    Session::Ended ended = connection->session->TearDown();
    if (ended.closed) ended.closed();
    connection->gone = true;
    any = true;
  }
  return any;
}

void SimulatedDaemon::ExpireHandshakes() {
  for (const ConnectionPtr& connection : connections_) {
    connection->session->CheckHandshake(std::numeric_limits<int64_t>::max());
  }
}

// --- what must hold

void SimulatedDaemon::Check() {
  for (const ConnectionPtr& connection : connections_) {
    if (connection->pool == nullptr || !connection->session->open()) continue;
    const server::SessionCounts counts = connection->session->Counts();
    const WatchedPool& pool = *connection->pool;
    if (counts.slots != pool.slots() || counts.lent != pool.Count(State::kLent)) {
      violation_(absl::StrCat("the session says that ", counts.lent, " of ", counts.slots,
                              " slots are lent; ", pool.Count(State::kLent), " of ", pool.slots(),
                              " were"));
    }
  }
}

void SimulatedDaemon::Drain() {
  workers_.Stop();
  for (const ConnectionPtr& connection : connections_) {
    connection->session->Close(absl::UnavailableError("the daemon is stopping"), "closed_by_daemon",
                               true);
  }
  TearDown();
  if (!connections_.empty()) violation_("a closed session was not buried");
  for (const ConnectionPtr& connection : torn_down_) {
    if (connection->pool != nullptr && connection->pool->Count(State::kFilling) > 0)
      violation_("a slot is being filled, but nobody fills it");
    connection->pool = nullptr;  // clients know the connection still
    connection->session = nullptr;
  }
  connections_.clear();
  torn_down_.clear();
  if (budget_->planned_bytes() != 0) violation_("memory of sessions is left: " + budget_->Sum());
}

}  // namespace feedwater::simulation
