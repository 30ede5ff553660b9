#include "server/service/control_gate.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/base/clock.h"
#include "server/base/counters.h"
#include "server/base/log_limiter.h"
#include "server/base/status.h"
#include "server/base/thread.h"

namespace feedwater::server {
namespace {

const Registrar<CounterEntry> kCounters[] = {
    {"control_accepted", {"connections for calls"}},
    {"control_refused_max_connections", {"calls refused over limits.max_connections"}},
    {"control_refused_calls_per_uid", {"connections closed over limits.calls_per_uid"}},
    {"control_waits", {"times that a user's calls had to wait because there were too many"}},
    {"control_refused_protocol", {"connections for calls closed because of what they sent"}},
    {"control_refused_handshake_timeout", {"connections for calls that sent nothing in time"}},
};

// CPU time of the gate and gRPC for a new connection or a call, about: a session that is opened and
// refused, which is one connection and a few calls, was measured with 1.7 ms.
constexpr int64_t kCallCpuNs = 400'000;

constexpr int64_t kFarewellNs = 1'000'000'000;  // for a client to read why it is closed
constexpr int kWaitMs = 5;                      // between two looks at who waits for a moment

absl::Status BindToName(int fd, absl::string_view name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);  // abstract: behind a NUL
  const size_t size = offsetof(sockaddr_un, sun_path) + 1 + name.size();
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(size)) != 0)
    return ErrnoStatus(errno, "bind to an abstract name");
  return absl::OkStatus();
}

// Begins names that nobody else can guess and take. The kernel's own choice of a free name is one
// of a million, which all processes of the host share.
absl::StatusOr<std::string> MakeNamePrefix() {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
    return absl::InternalError("no random bytes for names of sockets");
  return absl::StrCat("feedwater-",
                      absl::BytesToHexString({reinterpret_cast<const char*>(bytes), sizeof(bytes)}),
                      "-");
}

}  // namespace

ControlGate::ControlGate(Options options, std::string name_prefix, Fd epoll, Fd wake)
    : options_(std::move(options)),
      name_prefix_(std::move(name_prefix)),
      epoll_(std::move(epoll)),
      wake_(std::move(wake)) {}

ControlGate::~ControlGate() { Stop(); }

absl::StatusOr<std::unique_ptr<ControlGate>> ControlGate::Create(Options options) {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll || !wake) return ErrnoStatus(errno, "epoll_create1 or eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0)
    return ErrnoStatus(errno, "epoll_ctl");
  FW_ASSIGN_OR_RETURN(std::string name_prefix, MakeNamePrefix());
  return std::unique_ptr<ControlGate>(new ControlGate(std::move(options), std::move(name_prefix),
                                                      std::move(epoll), std::move(wake)));
}

absl::Status ControlGate::Start() {
  FW_ASSIGN_OR_RETURN(thread_, StartThread("the control gate", [this] {
                        pthread_setname_np(pthread_self(), "fw-gate");
                        RunSoonAfterWaking();
                        Run();
                      }));
  return absl::OkStatus();
}

void ControlGate::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
  connections_.clear();
  MutexLock lock(&mu_);
  new_.clear();
  callers_.clear();
}

absl::Status ControlGate::Admit(Fd client, const PeerIdentity& peer, uid_t account) {
  {
    MutexLock lock(&mu_);
    if (stopping_) return absl::UnavailableError("the daemon is stopping");
    if (open_ >= options_.limits.max_connections) {
      ++counters_["control_refused_max_connections"];
      return absl::ResourceExhaustedError(
          absl::StrCat("limits.max_connections = ", options_.limits.max_connections));
    }
    int& of_user = open_of_[account];
    if (of_user >= options_.limits.connections_per_uid) {
      ++counters_["control_refused_connections_per_uid"];
      return absl::ResourceExhaustedError(
          absl::StrCat("limits.connections_per_uid = ", options_.limits.connections_per_uid));
    }
    ++of_user;
    ++open_;
    ++counters_["control_accepted"];
    new_.push_back({std::move(client), peer, account});
  }
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
  return absl::OkStatus();
}

std::optional<uid_t> ControlGate::WhoIs(const std::string& grpc_peer) const {
  const std::string name(absl::StripPrefix(grpc_peer, "unix-abstract:"));
  MutexLock lock(&mu_);
  const auto found = callers_.find(name);
  if (found == callers_.end()) return std::nullopt;
  return found->second.account;
}

void ControlGate::AccessHasChanged() {
  MutexLock lock(&mu_);
  ++access_version_;
}

std::optional<absl::Status> ControlGate::CheckAccess(const std::string& grpc_peer) {
  const std::string name(absl::StripPrefix(grpc_peer, "unix-abstract:"));
  PeerIdentity peer;
  uint64_t version = 0;
  {
    MutexLock lock(&mu_);
    const auto found = callers_.find(name);
    if (found == callers_.end()) return absl::CancelledError("the caller left");
    if (options_.access == nullptr || found->second.admitted_by == access_version_)
      return absl::OkStatus();
    peer = found->second.peer;
    version = access_version_;
  }
  const std::optional<absl::Status> allowed = options_.access(peer);
  if (allowed && allowed->ok()) {
    MutexLock lock(&mu_);
    const auto found = callers_.find(name);
    if (found != callers_.end()) found->second.admitted_by = version;
  }
  return allowed;
}

void ControlGate::Count(const char* name) {
  MutexLock lock(&mu_);
  ++counters_[name];
}

std::map<std::string, uint64_t> ControlGate::counters() const {
  MutexLock lock(&mu_);
  return counters_;
}

// --- the thread

void ControlGate::Run() {
  for (;;) {
    epoll_event events[64];
    const int count = epoll_wait(epoll_.get(), events, 64, TimeoutMs());
    if (count < 0 && errno != EINTR) {
      spdlog::critical(
          "control.sock: epoll_wait failed (errno {}): control calls are no longer served", errno);
      return;
    }
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == 0) {
        uint64_t wakes;
        (void)!read(wake_.get(), &wakes, sizeof(wakes));
        {
          MutexLock lock(&mu_);
          if (stopping_) return;
        }
        TakeNew();
        continue;
      }
      const auto found = connections_.find(events[i].data.u64 >> 1);
      if (found == connections_.end()) continue;  // closed by an earlier event
      const bool of_client = (events[i].data.u64 & 1) == 0;
      const bool ended = (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
      if (of_client && ended) {
        Close(found->second.get());
      } else {
        Pump(found->second.get());
        if (ended) Unwatch(found->second.get());
      }
      if (found->second->gone()) connections_.erase(found);
    }
    LookAtTimes();
  }
}

void ControlGate::TakeNew() {
  std::vector<New> taken;
  {
    MutexLock lock(&mu_);
    taken.swap(new_);
  }
  for (auto& [client, peer, account] : taken) {
    auto connection = std::make_unique<GateConnection>();
    connection->id = next_id_++;
    connection->client = std::move(client);
    connection->peer = peer;
    connection->account = account;
    connection->user = &users_[account];
    ++connection->user->connections;
    connection->close_by_ns =
        MonotonicNs() + static_cast<int64_t>(options_.limits.handshake_seconds * 1e9);
    LimitSocketBuffers(connection->client.get());
    timed_.insert(connection->id);
    GateConnection* raw = connection.get();
    connections_.emplace(raw->id, std::move(connection));
    Pump(raw);
    if (raw->gone()) connections_.erase(raw->id);
  }
}

// Moves what can be moved without waiting: one read a direction, so that nobody keeps the thread.
void ControlGate::Pump(GateConnection* connection) {
  const int64_t now_ns = MonotonicNs();
  if (!connection->closing) {
    if (!ReadClient(connection, now_ns)) return Close(connection);
    if (!connection->closing && !AdmitFrames(connection, now_ns)) return Close(connection);
  }
  if (connection->grpc) {
    if (!connection->requests.Write(connection->grpc.get()) ||
        !connection->ReadAnswers(&read_buffer_)) {
      connection->closing = true;  // gRPC has ended it; its last words go out
      connection->close_by_ns = now_ns + kFarewellNs;
      connection->grpc = Fd();
      timed_.insert(connection->id);
    }
  }
  if (!connection->answers.Write(connection->client.get())) return Close(connection);
  if (connection->closing && !connection->grpc && connection->answers.passed == 0)
    return Close(connection);
  Watch(connection);
}

// gRPC has ended a connection whose answers have no room here: the hang-up is told without end. The
// client has a while to make room.
void ControlGate::Unwatch(GateConnection* connection) {
  if (!connection->grpc || connection->answers.bytes.size() < GateConnection::kAnswerBytes) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->grpc.get(), nullptr);
  connection->grpc_events = 0;
  connection->grpc_ended = true;
  if (connection->closing) return;
  connection->closing = true;
  connection->close_by_ns = MonotonicNs() + kFarewellNs;
  timed_.insert(connection->id);
}

// For its user's rates.
bool ControlGate::MustWait(GateConnection* connection, int64_t now_ns) {
  const bool waited = std::exchange(connection->waits, connection->user->over_rates(now_ns));
  if (connection->waits) timed_.insert(connection->id);
  if (connection->waits && !waited) Count("control_waits");
  return connection->waits;
}

bool ControlGate::ReadClient(GateConnection* connection, int64_t now_ns) {
  if (MustWait(connection, now_ns)) return true;
  if (connection->answers.bytes.size() >= GateConnection::kAnswerBytes / 2)
    return true;  // it should read first
  const size_t before = connection->requests.bytes.size();
  if (!connection->requests.Read(connection->client.get(), GateConnection::kRequestBytes,
                                 &read_buffer_))
    return false;
  connection->user->bytes.Take(static_cast<double>(connection->requests.bytes.size() - before));
  return true;
}

// Passes the frames that may go on to gRPC. False: the client is to be closed at once.
bool ControlGate::AdmitFrames(GateConnection* connection, int64_t now_ns) {
  GateFlow& requests = connection->requests;
  GateUser& user = *connection->user;
  for (;;) {
    const absl::string_view waiting = absl::string_view(requests.bytes).substr(requests.passed);
    if (waiting.empty()) return true;
    if (connection->preface_left > 0) {
      const size_t size = std::min(connection->preface_left, waiting.size());
      const size_t at = kHttp2Preface.size() - connection->preface_left;
      if (waiting.substr(0, size) != kHttp2Preface.substr(at, size)) {
        Count("control_refused_protocol");
        return false;
      }
      connection->preface_left -= size;
      requests.passed += size;
      if (connection->preface_left > 0) return true;
      TakeCalls(connection, 1);  // a connection costs gRPC as much as a call
      if (!ConnectGrpc(connection)) return false;
      continue;
    }
    if (!requests.cutter.between_frames()) {
      const size_t size = requests.cutter.Rest(waiting.size());
      requests.cutter.Pass(size);
      requests.passed += size;
      continue;
    }
    if (waiting.size() < kFrameHeadBytes) return true;
    if (MustWait(connection, now_ns)) return true;
    const Http2Frame frame = ReadFrameHead(waiting);
    bool opens = false;
    if (const absl::Status status = connection->rules.Check(frame, &opens); !status.ok()) {
      Count("control_refused_protocol");
      Refuse(connection, status.message());
      return true;
    }
    if (opens && user.calls >= options_.limits.calls_per_uid) {
      Count("control_refused_calls_per_uid");
      Refuse(connection, absl::StrCat("limits.calls_per_uid = ", options_.limits.calls_per_uid,
                                      ": this user has so many calls in progress"));
      return true;
    }
    user.frames.Take(1);
    if (opens || frame.type == Http2Frame::kReset) TakeCalls(connection, opens ? 1 : 0.5);
    if (opens && connection->calls.insert(frame.stream).second) ++user.calls;
    if (frame.type == Http2Frame::kReset) connection->EndCall(frame.stream);
    requests.cutter.Begin(frame);
  }
}

void ControlGate::TakeCalls(GateConnection* connection, double calls) {
  connection->user->new_calls.Take(calls);
  calls_.fetch_add(1, std::memory_order_relaxed);
  if (options_.charge != nullptr)
    options_.charge(connection->account, static_cast<int64_t>(calls * kCallCpuNs));
}

bool ControlGate::ConnectGrpc(GateConnection* connection) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    Count("control_accept_out_of_descriptors");
    return false;
  }
  connection->grpc = Fd(ends[0]);
  Fd theirs(ends[1]);
  if (std::max(ends[0], ends[1]) >= options_.limits.max_descriptor) {
    Count("control_refused_descriptors");
    return false;
  }
  for (const int end : ends) LimitSocketBuffers(end);
  connection->name = absl::StrCat(name_prefix_, connection->id);
  if (const absl::Status named = BindToName(ends[0], connection->name); !named.ok()) {
    if (ClientLog().Admits("control_gate", connection->account))
      spdlog::warn("control.sock: {}", named.ToString());
    return false;
  }
  {
    MutexLock lock(&mu_);
    callers_.emplace(connection->name, Caller{connection->peer, connection->account});
  }
  options_.serve(theirs.release());
  timed_.erase(connection->id);
  return true;
}

// Ends a connection that its client may read about.
void ControlGate::Refuse(GateConnection* connection, absl::string_view why) {
  if (ClientLog().Admits("control_gate", connection->account)) {
    spdlog::warn("control.sock: closed a connection of user {} (pid {}): {}", connection->peer.uid,
                 connection->peer.pid, std::string(why));
  }
  GateFlow& answers = connection->answers;
  if (answers.passed == answers.bytes.size() && answers.cutter.between_frames()) {
    answers.bytes += GoAwayFrame(why);
    answers.passed = answers.bytes.size();
  }
  connection->grpc = Fd();
  connection->closing = true;
  connection->close_by_ns = MonotonicNs() + kFarewellNs;
  timed_.insert(connection->id);
}

void ControlGate::Close(GateConnection* connection) {
  if (connection->gone()) return;
  connection->client = Fd();
  connection->grpc = Fd();
  connection->user->calls -= static_cast<int>(connection->calls.size());
  connection->calls.clear();
  --connection->user->connections;
  timed_.erase(connection->id);
  MutexLock lock(&mu_);
  callers_.erase(connection->name);
  --open_;
  if (--open_of_[connection->account] == 0) open_of_.erase(connection->account);
}

// Asks for the events that can move something.
void ControlGate::Watch(GateConnection* connection) {
  uint32_t of_client = EPOLLRDHUP, of_grpc = 0;
  const bool full = connection->requests.bytes.size() >= GateConnection::kRequestBytes;
  if (!connection->closing && !connection->waits && !full &&
      connection->answers.bytes.size() < GateConnection::kAnswerBytes / 2) {
    of_client |= EPOLLIN;
  }
  if (connection->answers.passed > 0) of_client |= EPOLLOUT;
  if (connection->answers.bytes.size() < GateConnection::kAnswerBytes) of_grpc |= EPOLLIN;
  if (connection->requests.passed > 0) of_grpc |= EPOLLOUT;
  bool watched = true;
  const auto set = [&](const Fd& fd, uint64_t side, uint32_t wanted, uint32_t* now) {
    if (!fd || *now == wanted) return;
    epoll_event event{};
    event.events = wanted;
    event.data.u64 = connection->id << 1 | side;
    const int call = *now == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    watched = watched && epoll_ctl(epoll_.get(), call, fd.get(), &event) == 0;
    *now = wanted;
  };
  set(connection->client, 0, of_client, &connection->client_events);
  // A pair's end that nothing is wanted of is still watched for its hang-up.
  if (of_grpc == 0 && !connection->grpc_ended) of_grpc = EPOLLRDHUP;
  set(connection->grpc, 1, of_grpc, &connection->grpc_events);
  if (!watched) Close(connection);
}

void ControlGate::LookAtTimes() {
  const int64_t now_ns = MonotonicNs();
  const std::set<uint64_t> due = timed_;
  for (const uint64_t id : due) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) {
      timed_.erase(id);
      continue;
    }
    GateConnection* connection = found->second.get();
    const bool has_deadline = connection->closing || connection->preface_left > 0;
    if (has_deadline && now_ns >= connection->close_by_ns) {
      if (!connection->closing) Count("control_refused_handshake_timeout");
      Close(connection);
    } else if (connection->waits && !connection->user->over_rates(now_ns)) {
      if (!has_deadline) timed_.erase(id);
      Pump(connection);
    }
    if (connection->gone()) connections_.erase(found);
  }
  // An account is kept until its rates are as if it were new: who connects again starts no better.
  for (auto it = users_.begin(); it != users_.end();)
    it = it->second.idle(now_ns) ? users_.erase(it) : std::next(it);
}

int ControlGate::TimeoutMs() const {
  bool deadlines = false;
  for (const uint64_t id : timed_) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) continue;
    if (found->second->waits) return kWaitMs;
    deadlines = true;
  }
  return deadlines ? 100 : -1;
}

}  // namespace feedwater::server
