#include "server/transport/data_server.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/counters.h"
#include "server/base/log_limiter.h"
#include "server/base/mutex.h"
#include "server/base/thread.h"
#include "server/transport/admission.h"
#include "server/transport/arena_watch.h"
#include "server/transport/daemon_message.h"
#include "server/transport/doorbell.h"
#include "server/transport/listener.h"
#include "server/transport/reclaimer.h"
#include "server/transport/session.h"
#include "spdlog/spdlog.h"

namespace feedwater::server {
namespace {

const Registrar<CounterEntry> kCounters[] = {
    {"accepted", {"clients let in"}},
    {"opened", {"sessions opened"}},
    {"accept_failed", {"clients turned away for want of descriptors or memory"}},
    {"reclaimed_hangup",
     {"connections hung up by their client, with a session or before one was opened"}},
    {"reclaimed_pidfd",
     {"sessions that ended with the client's process while another process had the socket"}},
    {"closed_by_daemon", {"sessions that the daemon ended: closed by request, or for a restart"}},
};

constexpr int kEventsPerTurn = 64;
constexpr int kAcceptsPerTurn = 64;

// What an epoll event is about: the session's number, or 0, and one of these.
enum Source : uint64_t { kListener = 0, kDoorbell = 1, kSocket = 2, kPidfd = 3, kArenas = 4 };
constexpr int kSourceBits = 3;
uint64_t EventKey(uint64_t session, Source source) { return session << kSourceBits | source; }

// A client that paused for too long, or whose connection broke: it may greet again.
absl::Status NoConnection() {
  return absl::UnavailableError(
      "no live data connection has this ticket; connect to data.sock first");
}

// Of two timeouts for epoll_wait; -1 is none.
int Sooner(int a, int b) { return a < 0 || (b >= 0 && b < a) ? b : a; }

}  // namespace

absl::StatusOr<int64_t> ArenaBytes(const SlotLayout& layout, int slots) {
  if (slots < 1 || slots > static_cast<int>(wire::kMaxSlots)) {
    return absl::InvalidArgumentError(
        absl::StrCat(slots, " slots; a session has 1 to ", wire::kMaxSlots));
  }
  const int64_t page = sysconf(_SC_PAGESIZE);
  int64_t bytes;
  if (layout.slot_bytes <= 0 || layout.slot_bytes % page != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a slot of ", layout.slot_bytes, " bytes is not a number of whole pages"));
  }
  if (__builtin_mul_overflow(layout.slot_bytes, int64_t{slots}, &bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat(slots, " slots of ", layout.slot_bytes,
                     " bytes are more than 8 EiB; make the batch smaller"));
  }
  return bytes;
}

struct DataServer::Impl final : Admission::Host {
  Impl(Options o, std::unique_ptr<ArenaWatch> w, Listener l, Fd e, std::shared_ptr<Doorbell> d)
      : options(std::move(o)),
        watch(std::move(w)),
        listener(std::move(l)),
        epoll(std::move(e)),
        doorbell(std::move(d)) {}

  absl::Status Start();
  void Run();
  void AcceptSome();
  size_t sessions() override;
  void Enter(Accepted client) override;
  void Refuse(Accepted client, const char* counter, const absl::Status& reason) override;
  void ReconsiderWaiting();
  void OnEvent(const epoll_event& event);
  void TearDownClosed();
  void TearDown(const std::shared_ptr<Session>& session);
  int ExpireHandshakes();  // milliseconds until the next one may, -1 for none
  void Read(Session& session);
  int EndPauses();  // milliseconds until the next one, -1 for none
  void Rearm(const Session& session, uint32_t events);
  absl::Status Watch(int fd, uint32_t events, uint64_t key);

  std::shared_ptr<Session> Find(uint64_t id);
  std::shared_ptr<Session> Find(const SessionTicket& ticket);
  void Count(const std::string& counter);
  // What is out of the ordinary, with a line in the log for the first of them.
  void Count(const std::string& counter, const PeerIdentity& peer, const absl::Status& reason);

  // Constant after Start.
  const Options options;
  const std::shared_ptr<Reclaimer> reclaimer = std::make_shared<Reclaimer>();
  const std::unique_ptr<ArenaWatch> watch;

  // The server's thread's.
  Listener listener;
  const Fd epoll;
  uint64_t next_id = 1;
  std::set<uint64_t> half_open;
  std::map<uint64_t, int64_t> paused;  // sessions that are not read, until when
  Admission admission{&options, this};

  const std::shared_ptr<Doorbell> doorbell;

  Mutex mu;  // held for look-ups only; never while a session's lock is taken
  std::map<uint64_t, std::shared_ptr<Session>> by_id ABSL_GUARDED_BY(mu);
  std::map<SessionTicket, std::shared_ptr<Session>> tickets ABSL_GUARDED_BY(mu);
  std::map<std::string, uint64_t> counters ABSL_GUARDED_BY(mu);
  bool stop ABSL_GUARDED_BY(mu) = false;
  bool reconsider ABSL_GUARDED_BY(mu) = false;

  std::thread thread;
};

// --- the server's thread

absl::Status DataServer::Impl::Watch(int fd, uint32_t events, uint64_t key) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "epoll_ctl");
}

absl::Status DataServer::Impl::Start() {
  FW_RETURN_IF_ERROR(Watch(listener.fd(), EPOLLIN, EventKey(0, kListener)));
  FW_RETURN_IF_ERROR(Watch(doorbell->fd(), EPOLLIN, EventKey(0, kDoorbell)));
  FW_RETURN_IF_ERROR(Watch(watch->fd(), EPOLLIN, EventKey(0, kArenas)));
  FW_RETURN_IF_ERROR(reclaimer->Start());
  FW_ASSIGN_OR_RETURN(thread, StartThread("the data socket", [this] { Run(); }));
  return absl::OkStatus();
}

void DataServer::Impl::Run() {
  pthread_setname_np(pthread_self(), "fw-data");
  RunSoonAfterWaking();
  while (true) {
    epoll_event events[kEventsPerTurn];
    const int n =
        epoll_wait(epoll.get(), events, kEventsPerTurn, Sooner(ExpireHandshakes(), EndPauses()));
    for (int i = 0; i < n; ++i) OnEvent(events[i]);
    TearDownClosed();
    ReconsiderWaiting();
    std::vector<std::shared_ptr<Session>> rest;
    {
      MutexLock lock(&mu);
      if (!stop) continue;
      for (const auto& [id, session] : by_id) rest.push_back(session);
    }
    for (const auto& session : rest) {
      session->Close(absl::UnavailableError("the daemon is stopping"), "closed_by_daemon", true);
    }
    TearDownClosed();
    return;
  }
}

void DataServer::Impl::OnEvent(const epoll_event& event) {
  const auto source = static_cast<Source>(event.data.u64 & ((1 << kSourceBits) - 1));
  if (source == kListener) return AcceptSome();
  if (source == kArenas) return watch->Settle();
  if (source == kDoorbell) return;  // TearDownClosed answers it at the end of every turn
  const std::shared_ptr<Session> session = Find(event.data.u64 >> kSourceBits);
  if (session == nullptr) return;  // torn down since
  if (source == kPidfd) {
    session->Close(absl::CancelledError("the client's process has ended"), "reclaimed_pidfd",
                   false);
  } else if ((event.events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR)) != 0) {
    session->Close(absl::CancelledError("the client hung up"), "reclaimed_hangup", false);
  } else {
    Read(*session);
  }
}

void DataServer::Impl::Read(Session& session) {
  if (session.OnReadable()) return;
  Rearm(session, EPOLLRDHUP);
  paused[session.id()] = MonotonicNs() + Session::kPauseNs;
}

// Those whose pause is over are read again. Returns how long the next one's lasts, or -1.
int DataServer::Impl::EndPauses() {
  if (paused.empty()) return -1;
  const int64_t now = MonotonicNs();
  std::vector<uint64_t> over;
  for (const auto& [id, until_ns] : paused) {
    if (until_ns <= now) over.push_back(id);
  }
  for (const uint64_t id : over) {
    paused.erase(id);
    const std::shared_ptr<Session> session = Find(id);
    if (session == nullptr) continue;
    Rearm(*session, EPOLLIN | EPOLLRDHUP);
    Read(*session);
  }
  return paused.empty() ? -1 : static_cast<int>(Session::kPauseNs / 1'000'000);
}

void DataServer::Impl::Rearm(const Session& session, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = EventKey(session.id(), kSocket);
  epoll_ctl(epoll.get(), EPOLL_CTL_MOD, session.socket_fd(), &event);
}

void DataServer::Impl::AcceptSome() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    absl::StatusOr<std::optional<Accepted>> client = listener.Accept();
    if (!client.ok()) {
      Count("accept_failed");
      if (ClientLog().Admits("accept_failed", LogLimiter::kNoSource))
        spdlog::warn("data socket: {}", client.status().ToString());
      return;
    }
    if (!client->has_value()) return;
    if ((*client)->peer_is_dead) {
      Count("reclaimed_pidfd");
    } else {
      admission.Admit(std::move(**client));
    }
  }
}

void DataServer::Impl::Refuse(Accepted client, const char* counter, const absl::Status& reason) {
  // First: whoever has been told can also find it counted.
  Count(counter, client.peer, reason);
  const wire::Closing closing = MakeClosing(reason);
  SendPacket(client.socket.get(), &closing, sizeof(closing));
  CloseWithoutReset(std::move(client.socket));
}

void DataServer::Impl::ReconsiderWaiting() {
  {
    MutexLock lock(&mu);
    if (!std::exchange(reconsider, false)) return;
  }
  admission.ReconsiderWaiting();
}

size_t DataServer::Impl::sessions() {
  MutexLock lock(&mu);
  return by_id.size();
}

void DataServer::Impl::Enter(Accepted client) {
  const PeerIdentity peer = client.peer;
  Session::Options session_options;
  session_options.id = next_id++;
  session_options.handshake_seconds = options.limits.handshake_seconds;
  session_options.doorbell = doorbell;
  session_options.reclaimer = reclaimer;
  session_options.watch = watch.get();
  if (getrandom(session_options.ticket.data(), session_options.ticket.size(), 0) !=
      static_cast<ssize_t>(session_options.ticket.size())) {
    admission.Leave(peer.uid);
    return Refuse(std::move(client), "accept_failed",
                  absl::InternalError("no random bytes for a ticket"));
  }
  auto session = std::make_shared<Session>(std::move(client), session_options);
  const uint64_t id = session->id();
  absl::Status watched = Watch(session->socket_fd(), EPOLLIN | EPOLLRDHUP, EventKey(id, kSocket));
  if (watched.ok() && session->pidfd() >= 0) {
    watched = Watch(session->pidfd(), EPOLLIN, EventKey(id, kPidfd));
  }
  half_open.insert(id);
  {
    MutexLock lock(&mu);
    by_id.emplace(id, session);
    tickets.emplace(session->ticket(), session);
  }
  Count("accepted");
  if (!watched.ok()) session->Close(watched, "accept_failed", /*tell_client=*/true);
}

void DataServer::Impl::TearDownClosed() {
  for (uint64_t id : doorbell->Answer()) {
    if (std::shared_ptr<Session> session = Find(id)) TearDown(session);
  }
}

void DataServer::Impl::TearDown(const std::shared_ptr<Session>& session) {
  {
    MutexLock lock(&mu);
    by_id.erase(session->id());
    tickets.erase(session->ticket());
  }
  half_open.erase(session->id());
  paused.erase(session->id());
  const PeerIdentity& peer = session->peer();
  admission.Leave(peer.uid);
  // By hand: a descriptor that somebody else still has a copy of would stay in the set after its
  // close.
  epoll_ctl(epoll.get(), EPOLL_CTL_DEL, session->socket_fd(), nullptr);
  if (session->pidfd() >= 0) epoll_ctl(epoll.get(), EPOLL_CTL_DEL, session->pidfd(), nullptr);
  Session::Ended ended = session->TearDown();
  Count(ended.counter, peer, ended.reason);
  spdlog::debug("data connection of process {} (user {}) ended: {}: {}", peer.pid, peer.uid,
                ended.counter, ended.reason.ToString());
  if (ended.closed) ended.closed();
}

int DataServer::Impl::ExpireHandshakes() {
  const int64_t now = MonotonicNs();
  int64_t next = admission.ExpireWaiting(now);
  for (auto it = half_open.begin(); it != half_open.end();) {
    const std::shared_ptr<Session> session = Find(*it);
    const std::optional<int64_t> deadline = session ? session->CheckHandshake(now) : std::nullopt;
    it = deadline ? std::next(it) : half_open.erase(it);
    if (deadline) next = std::min(next, *deadline);
  }
  if (next == INT64_MAX) return -1;  // nobody, or one that has just expired and has rung
  return static_cast<int>(std::min<int64_t>((next - now) / 1'000'000 + 1, 60'000));
}

// --- look-ups

std::shared_ptr<Session> DataServer::Impl::Find(uint64_t id) {
  MutexLock lock(&mu);
  auto it = by_id.find(id);
  return it == by_id.end() ? nullptr : it->second;
}

std::shared_ptr<Session> DataServer::Impl::Find(const SessionTicket& ticket) {
  MutexLock lock(&mu);
  auto it = tickets.find(ticket);
  return it == tickets.end() ? nullptr : it->second;
}

void DataServer::Impl::Count(const std::string& counter) {
  MutexLock lock(&mu);
  ++counters[counter];
}

// A client can make any of these happen as often as it likes, so the log hears of the first ones.
void DataServer::Impl::Count(const std::string& counter, const PeerIdentity& peer,
                             const absl::Status& reason) {
  Count(counter);
  if (counter == "closed_by_daemon" || counter == "reclaimed_hangup" || counter == "handed_over")
    return;  // routine
  if (!ClientLog().Admits(counter, admission.AccountOfPeer(peer))) return;
  spdlog::info("data socket: {}: process {} of user {}: {}", counter, peer.pid, peer.uid,
               std::string(reason.message()));
}

// --- the public face

DataServer::DataServer() = default;

absl::StatusOr<std::unique_ptr<DataServer>> DataServer::Create(Options options) {
  absl::StatusOr<Listener> listener = options.listen_fd >= 0 ? Listener::Adopt(options.listen_fd)
                                                             : Listener::Bind(options.socket_path);
  if (!listener.ok()) return listener.status();
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return ErrnoStatus(errno, "epoll_create1");
  FW_ASSIGN_OR_RETURN(std::shared_ptr<Doorbell> doorbell, Doorbell::Create());
  // As many kept ones as a user may have open.
  FW_ASSIGN_OR_RETURN(std::unique_ptr<ArenaWatch> watch,
                      ArenaWatch::Create(2 * options.limits.connections_per_uid));
  std::unique_ptr<DataServer> server(new DataServer);
  server->impl_ = std::make_unique<Impl>(std::move(options), std::move(watch), *std::move(listener),
                                         std::move(epoll), std::move(doorbell));
  FW_RETURN_IF_ERROR(server->impl_->Start());
  return server;
}

DataServer::~DataServer() {
  if (impl_ == nullptr) return;
  {
    MutexLock lock(&impl_->mu);
    impl_->stop = true;
  }
  impl_->doorbell->Ring();
  if (impl_->thread.joinable()) impl_->thread.join();
  impl_->reclaimer->Stop();
}

absl::StatusOr<PeerIdentity> DataServer::Identify(const SessionTicket& ticket) const {
  const std::shared_ptr<Session> session = impl_->Find(ticket);
  if (session == nullptr || !session->welcomed()) {
    return NoConnection();
  }
  return session->peer();
}

std::shared_ptr<void> DataServer::HoldHandshake(const SessionTicket& ticket) const {
  const std::shared_ptr<Session> session = impl_->Find(ticket);
  if (session == nullptr) return nullptr;
  session->HoldHandshake();
  return {session.get(), [session](void*) { session->GoOnWithHandshake(); }};
}

std::optional<absl::Status> DataServer::CheckAccess(const SessionTicket& ticket) const {
  const std::shared_ptr<Session> session = impl_->Find(ticket);
  if (session == nullptr) return NoConnection();
  return impl_->options.access ? impl_->options.access(session->asked()) : absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<SlotPool>> DataServer::OpenSession(const SessionTicket& ticket,
                                                                  const ArenaOptions& options,
                                                                  SessionEvents events) {
  const std::shared_ptr<Session> session = impl_->Find(ticket);
  if (session == nullptr) {
    return NoConnection();
  }
  FW_RETURN_IF_ERROR(session->Open(options, std::move(events)));
  impl_->Count("opened");
  return session;
}

absl::StatusOr<Accepted> DataServer::HandOver(const SessionTicket& ticket) {
  const std::shared_ptr<Session> session = impl_->Find(ticket);
  if (session == nullptr) return NoConnection();
  return session->HandOver(
      [this](int socket) { epoll_ctl(impl_->epoll.get(), EPOLL_CTL_DEL, socket, nullptr); });
}

void DataServer::Discard(std::shared_ptr<void> left) {
  impl_->reclaimer->Discard([left = std::move(left)] {});
}

void DataServer::CloseSession(const SessionTicket& ticket, const absl::Status& reason) {
  if (const std::shared_ptr<Session> session = impl_->Find(ticket)) {
    session->Close(reason, "closed_by_daemon", /*tell_client=*/true);
  }
}

SessionCounts DataServer::Counts(const SessionTicket& ticket) const {
  const std::shared_ptr<Session> session = impl_->Find(ticket);
  return session == nullptr ? SessionCounts{} : session->Counts();
}

int DataServer::sessions(uid_t uid) const {
  std::vector<std::shared_ptr<Session>> of_uid;
  {
    MutexLock lock(&impl_->mu);
    for (const auto& [id, session] : impl_->by_id) {
      if (session->peer().uid == uid) of_uid.push_back(session);
    }
  }
  return static_cast<int>(std::count_if(of_uid.begin(), of_uid.end(),
                                        [](const auto& session) { return session->open(); }));
}

int DataServer::arenas() const { return impl_->watch->held(); }

void DataServer::Reconsider() {
  {
    MutexLock lock(&impl_->mu);
    impl_->reconsider = true;
  }
  impl_->doorbell->Ring();
}

std::map<std::string, uint64_t> DataServer::counters() const {
  MutexLock lock(&impl_->mu);
  return impl_->counters;
}

}  // namespace feedwater::server
