#include "server/provider/providers.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/clock.h"
#include "server/base/counters.h"
#include "server/base/key.h"
#include "server/base/log_limiter.h"
#include "server/base/thread.h"
#include "server/base/units.h"

namespace feedwater::server {
namespace {

const Registrar<CounterEntry> kCounters[] = {
    {"providers_entered", {"processes that began to serve a source or an op"}},
    {"providers_refused", {"processes that were not let serve one"}},
    {"providers_died", {"processes that ended while something was asked of them"}},
};

constexpr int kTickMs = 200;  // how often what waits is looked after
constexpr int kEvents = 64;
constexpr uint64_t kStopKey = 0, kWatchKey = 1;  // no channel has the number 0

// What an offer takes in memory.
int64_t BytesOf(const Offer& offer) {
  constexpr int64_t kEach = 256;
  int64_t bytes = kEach * static_cast<int64_t>(1 + offer.source.fields.size());
  for (const std::string& name : offer.source.classes)
    bytes += static_cast<int64_t>(sizeof(std::string) + name.size() + 1);
  return bytes + Provided::kAbsenceBytes * std::min(offer.source.workers, Provided::kMostAbsences);
}

uint64_t KeyOf(uint64_t id, bool is_pidfd) { return id << 1 | (is_pidfd ? 1 : 0); }

}  // namespace

absl::Status Providers::UserOps::Call(
    const OpCall& call, absl::FunctionRef<absl::Status(absl::Span<const Tensor>)> take) {
  const auto found = ops_.find(*call.name);
  if (found == ops_.end())
    return absl::InvalidArgumentError(absl::StrCat("op '", *call.name, "' is not the pipeline's"));
  return found->second->Call(call, take);
}

std::string Providers::UserOps::Versions() const {
  Key versions("versions");
  bool any = false;
  for (const auto& [name, provided] : ops_) {
    const std::string& version = provided->offer().source.version;
    any |= !version.empty();
    versions.Add(name, version);
  }
  return any ? versions.text() : "";
}

std::string Providers::UserOps::Identity() const {
  return absl::StrJoin(ops_, ", ", [](std::string* text, const auto& op) {
    absl::StrAppend(text, "op ", op.first, ": ", op.second->identity());
  });
}

bool Providers::UserOps::AreCurrent() const {
  return std::all_of(ops_.begin(), ops_.end(),
                     [](const auto& op) { return op.second->LookAgain().ok(); });
}

absl::StatusOr<std::shared_ptr<Providers>> Providers::Create(Options options) {
  // Windows that are replaced may be kept beside the new ones.
  FW_ASSIGN_OR_RETURN(std::unique_ptr<ArenaWatch> watch,
                      ArenaWatch::Create(static_cast<int>(4 * options.processes_per_uid + 1)));
  std::shared_ptr<Providers> providers(new Providers(std::move(options), std::move(watch)));
  providers->epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!providers->epoll_) return ErrnoStatus(errno, "epoll_create1");
  providers->stop_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!providers->stop_) return ErrnoStatus(errno, "eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kStopKey;
  if (epoll_ctl(providers->epoll_.get(), EPOLL_CTL_ADD, providers->stop_.get(), &event) != 0)
    return ErrnoStatus(errno, "epoll_ctl");
  event.data.u64 = kWatchKey;
  if (epoll_ctl(providers->epoll_.get(), EPOLL_CTL_ADD, providers->watch_->fd(), &event) != 0)
    return ErrnoStatus(errno, "epoll_ctl");
  FW_RETURN_IF_ERROR(providers->maker_->Start());
  FW_ASSIGN_OR_RETURN(providers->thread_,
                      StartThread("fw-providers", [raw = providers.get()] { raw->Run(); }));
  return providers;
}

Providers::~Providers() {
  const uint64_t one = 1;
  if (stop_ && write(stop_.get(), &one, sizeof(one)) < 0) spdlog::error("eventfd: errno {}", errno);
  if (thread_.joinable()) thread_.join();
  maker_->Stop();  // what is provided may live longer
}

std::string Providers::ServedNamesLocked(uint32_t user, Offer::Kind kind) const {
  std::vector<std::string> names;
  for (const auto& [name, weak] : provided_) {
    const std::shared_ptr<Provided> provided = weak.lock();
    if (name.first == user && provided != nullptr && provided->offer().kind == kind &&
        provided->processes() > 0) {
      names.push_back(name.second);
    }
  }
  return names.empty() ? "none" : absl::StrJoin(names, ", ");
}

absl::StatusOr<std::shared_ptr<Provided>> Providers::Get(uint32_t user, const std::string& name,
                                                         Offer::Kind kind) {
  MutexLock lock(&mu_);
  const auto found = provided_.find({user, name});
  std::shared_ptr<Provided> provided = found == provided_.end() ? nullptr : found->second.lock();
  const bool is_source = kind == Offer::Kind::kSource;
  const char* const what = is_source ? "source" : "op";
  if (provided != nullptr && provided->offer().kind == kind) return provided;
  if (provided != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "'", name, "' is served as ", provided->offer().KindName(), ", not as ", what));
  }
  return NotServedError(
      absl::StrCat("no process of this user serves the ", what, " '", name,
                   "' (served now: ", ServedNamesLocked(user, kind), "); cure: keep feedwater.",
                   is_source ? "serve_source" : "serve_op", "(\"", name,
                   "\", ...) open in a program that is connected to this daemon"));
}

absl::StatusOr<Providers::Found> Providers::Find(int64_t user, const std::string& name) {
  FW_ASSIGN_OR_RETURN(const std::shared_ptr<Provided> provided,
                      Get(static_cast<uint32_t>(user), name, Offer::Kind::kSource));
  return Found{provided->offer().source, provided};
}

absl::StatusOr<std::shared_ptr<Providers::UserOps>> Providers::OpsOf(
    uint32_t user, const std::vector<std::string>& names) {
  std::map<std::string, std::shared_ptr<Provided>> ops;
  for (const std::string& name : names) {
    FW_ASSIGN_OR_RETURN(ops[name], Get(user, name, Offer::Kind::kOp));
  }
  return std::make_shared<UserOps>(std::move(ops));
}

// What the offer is of: what others serve already, or something new.
absl::StatusOr<std::shared_ptr<Provided>> Providers::Admit(const Offer& offer) {
  absl::StatusOr<std::shared_ptr<Provided>> provided = AdmitOnce(offer);
  // Memory is of no help where a user has too many processes.
  if (options_.make_room != nullptr && RefusedMemoryOf(provided.status()) &&
      options_.make_room(offer.user, provided.status())) {
    provided = AdmitOnce(offer);
  }
  return provided;
}

absl::StatusOr<std::shared_ptr<Provided>> Providers::AdmitOnce(const Offer& offer) {
  std::shared_ptr<Provided> provided, superseded;
  {
    MutexLock lock(&mu_);
    int64_t& processes = processes_[offer.user];
    if (processes >= options_.processes_per_uid) {
      ++refused_;
      return absl::ResourceExhaustedError(
          absl::StrCat("limits.providers_per_uid = ", options_.processes_per_uid, ": user ",
                       offer.user, " has ", processes,
                       " processes that serve sources and ops; end one, or have the administrator "
                       "raise the limit"));
    }
    std::weak_ptr<Provided>& there = provided_[{offer.user, offer.source.name}];
    provided = there.lock();
    const std::string difference =
        provided == nullptr ? "" : offer.DifferenceFrom(provided->offer());
    if (provided == nullptr || !difference.empty()) {
      const std::shared_ptr<MemoryBudget> share =
          options_.shares == nullptr ? nullptr : options_.shares->Of(offer.user);
      MemoryReservation own;
      if (share != nullptr) {
        FW_ASSIGN_OR_RETURN(own, share->Reserve("providers", BytesOf(offer)));
      }
      // One that others are about to serve is not entered any more.
      if (provided != nullptr && !provided->SupersedeIfEmpty()) {
        ++refused_;
        return absl::AlreadyExistsError(
            absl::StrCat("'", offer.source.name, "' is served by other processes, and ", difference,
                         "; cure: another name, or end those first"));
      }
      superseded = std::move(provided);
      provided = std::make_shared<Provided>(
          offer, WindowMemory{offer.user, share, watch_, options_.make_room}, maker_,
          std::move(own), deaths_);
      there = provided;
    }
    ++processes;
  }
  if (superseded != nullptr) superseded->Flush();  // whoever waits for it is told
  return provided;
}

absl::Status Providers::Watch(int fd, uint64_t id, bool is_pidfd) {
  if (fd < 0) return absl::OkStatus();
  epoll_event event{};
  event.events = is_pidfd ? EPOLLIN : EPOLLIN | EPOLLRDHUP;
  event.data.u64 = KeyOf(id, is_pidfd);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(ErrnoStatus(errno, "listening to a provider").message());
}

absl::StatusOr<int> Providers::Enter(Accepted connection, Offer offer) {
  FW_ASSIGN_OR_RETURN(const std::shared_ptr<Provided> provided, Admit(offer));
  std::shared_ptr<Channel> channel;
  {
    MutexLock lock(&mu_);
    channel = std::make_shared<Channel>(next_id_++, std::move(connection), offer.timeout_seconds,
                                        static_cast<size_t>(offer.worker));
    connected_.emplace(channel->id(), Connected{channel, provided});
  }
  absl::Status entered = provided->Enter(channel);
  if (entered.ok()) entered = Watch(channel->socket(), channel->id(), /*is_pidfd=*/false);
  if (entered.ok()) entered = Watch(channel->pidfd(), channel->id(), /*is_pidfd=*/true);
  if (!entered.ok()) {
    provided->Lose(*channel, entered);
    Leave(channel->id());
    MutexLock lock(&mu_);
    ++refused_;
    return entered;
  }
  const int processes = provided->processes();
  if (ClientLog().Admits("providers", offer.user, LogLimiter::kOpenLines)) {
    spdlog::info("{} '{}' of user {} (pid {}): {}", offer.KindName(), offer.source.name, offer.user,
                 channel->peer().pid, FormatCount(processes, "process"));
  }
  MutexLock lock(&mu_);
  ++entered_;
  return processes;
}

void Providers::Leave(uint64_t id) {
  Connected gone;  // destroyed without the lock
  MutexLock lock(&mu_);
  const auto found = connected_.find(id);
  if (found == connected_.end()) return;
  gone = std::move(found->second);
  connected_.erase(found);
  // A copy that a forked process has would keep them in the set.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, gone.channel->socket(), nullptr);
  if (gone.channel->pidfd() >= 0)
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, gone.channel->pidfd(), nullptr);
  gone.channel->HangUp();
  const uint32_t user = gone.provided->offer().user;
  if (--processes_[user] <= 0) processes_.erase(user);
}

void Providers::Obey(uint64_t event_key, uint32_t events) {
  const uint64_t id = event_key >> 1;
  Connected connected;
  {
    MutexLock lock(&mu_);
    const auto found = connected_.find(id);
    if (found == connected_.end()) return;
    connected = found->second;
  }
  const bool is_pidfd = (event_key & 1) != 0;
  if (is_pidfd) {
    connected.provided->Lose(*connected.channel, absl::CancelledError("its program ended"));
  } else if (connected.provided->Read(*connected.channel)) {
    // A hang-up that came with answers is seen again.
    if ((events & (EPOLLHUP | EPOLLERR)) == 0) return;
    connected.provided->Lose(*connected.channel, absl::CancelledError("its connection ended"));
  }
  Leave(id);
}

void Providers::LookAround() {
  std::vector<std::shared_ptr<Provided>> all;
  {
    MutexLock lock(&mu_);
    for (auto it = provided_.begin(); it != provided_.end();) {
      std::shared_ptr<Provided> provided = it->second.lock();
      if (provided == nullptr) {
        it = provided_.erase(it);
        continue;
      }
      all.push_back(std::move(provided));
      ++it;
    }
  }
  const int64_t now_ns = MonotonicNs();
  for (const std::shared_ptr<Provided>& provided : all) {
    for (const uint64_t id : provided->LookAround(now_ns)) Leave(id);
  }
}

void Providers::Run() {
  int64_t looked_ns = MonotonicNs();
  for (;;) {
    epoll_event events[kEvents];
    const int count = epoll_wait(epoll_.get(), events, kEvents, kTickMs);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == kStopKey) return;
      if (events[i].data.u64 == kWatchKey) {
        watch_->Settle();
        continue;
      }
      Obey(events[i].data.u64, events[i].events);
    }
    const int64_t now_ns = MonotonicNs();
    if (now_ns - looked_ns < int64_t{kTickMs} * 1'000'000) continue;
    looked_ns = now_ns;
    LookAround();
  }
}

std::vector<Providers::Served> Providers::List(std::optional<uint32_t> user) const {
  std::vector<std::shared_ptr<Provided>> all;
  {
    MutexLock lock(&mu_);
    for (const auto& [name, weak] : provided_) {
      std::shared_ptr<Provided> provided = weak.lock();
      if (provided != nullptr && name.first == user.value_or(name.first))
        all.push_back(std::move(provided));
    }
  }
  std::vector<Served> served;
  for (const std::shared_ptr<Provided>& provided : all) {
    const Offer& offer = provided->offer();
    served.push_back({offer.source.name, offer.KindName(), offer.user, offer.source.workers,
                      provided->Counts()});
  }
  return served;
}

std::map<std::string, uint64_t> Providers::Counters() const {
  MutexLock lock(&mu_);
  return {{"providers_entered", entered_},
          {"providers_refused", refused_},
          {"providers_died", deaths_->load()}};
}

}  // namespace feedwater::server
