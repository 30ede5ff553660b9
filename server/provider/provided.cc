#include "server/provider/provided.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/escape.h"
#include "server/base/payload.h"
#include "server/base/units.h"
#include "server/provider/entries.h"

namespace feedwater::server {
namespace {

// Windows are made for some records each, if that is not much.
constexpr int64_t kRecordsOfWindow = 8, kLeastDataBytes = 256 << 10, kUsualDataBytes = 2 << 20;
constexpr int kMessagesPerTurn = 64;
// A process says itself when it takes too long; it is given up when it does not even do that.
constexpr double kGraceSeconds = 10;

}  // namespace

std::string Offer::DifferenceFrom(const Offer& other) const {
  const auto differs = [](absl::string_view what, const auto& there, const auto& here) {
    return absl::StrCat(what, " is ", there, " there and ", here, " here");
  };
  if (kind != other.kind) return differs("it", other.KindName(), KindName());
  if (source.version != other.source.version)
    return differs("version", absl::StrCat("'", Printable(other.source.version), "'"),
                   absl::StrCat("'", Printable(source.version), "'"));
  if (source.records != other.source.records)
    return differs("the number of records", other.source.records, source.records);
  if (source.workers != other.source.workers)
    return differs("the number of workers", other.source.workers, source.workers);
  if (source.fields.size() != other.source.fields.size())
    return differs("the number of fields", other.source.fields.size(), source.fields.size());
  for (size_t i = 0; i < source.fields.size(); ++i) {
    const FieldSpec &here = source.fields[i], &there = other.source.fields[i];
    if (here.name != there.name) return differs(absl::StrCat("field ", i), there.name, here.name);
    if (!(here.spec == there.spec))
      return differs(absl::StrCat("field '", here.name, "'"), there.spec.ToString(),
                     here.spec.ToString());
  }
  if (source.classes != other.source.classes) return "the classes differ";
  // Whoever says a version answers for it.
  const std::string &here = source.contents, &there = other.source.contents;
  if (!source.version.empty() || here.empty() || there.empty() || here == there) return "";
  return absl::StrCat(
      "another ", kind == Kind::kSource ? "dataset" : "function",
      " of the same kind is served there: its pickle or the files of its code differ (where it is "
      "the same nevertheless, say so with version= in all of them)");
}

void Provided::Deliver(const Deliveries& deliveries) {
  for (const Delivery& delivery : deliveries.all) {
    if (const std::shared_ptr<RecordTaker> taker = delivery.taker.lock())
      taker->Given(delivery.status, delivery.bytes, delivery.holds);
  }
}

std::string Provided::What() const {
  return absl::StrCat(offer_.KindName(), " '", offer_.source.name, "'");
}

absl::Status Provided::Absent(size_t lane) const {
  const std::string worker =
      is_in_order() ? absl::StrCat("worker ", lane, " of ", workers(), " of ") : "";
  return NotServedError(absl::StrCat("no process serves ", worker, What(),
                                     " any more; cure: see why its program ended, and "
                                     "start it again"));
}

bool Provided::IsAbsentLocked(const Lane& lane, int64_t now_ns) const {
  const Absence& absence = lane.absence;
  if (is_superseded_ || absence.since_ns == 0) return is_superseded_;
  const bool is_starting = is_in_order() && absence.program != 0 &&
                           std::any_of(channels_.begin(), channels_.end(), [&](const auto& one) {
                             return one.second->peer().pid == absence.program;
                           });
  return now_ns - absence.since_ns >= (is_starting ? kStartingNs : kAbsentNs);
}

Provided::Lane& Provided::LaneLocked(size_t number) {
  const auto [at, is_new] = lanes_.try_emplace(number);
  if (!is_new) return at->second;
  Absence& absence = at->second.absence;
  if (const auto known = absences_.find(number); known != absences_.end()) {
    absence = known->second;
    absences_.erase(known);
  } else if (is_in_order() && ChannelsLocked(number).empty()) {
    absence.since_ns = MonotonicNs();
  }
  return at->second;
}

Provided::Lanes::iterator Provided::LetGoLocked(Lanes::iterator lane) {
  if (!lane->second.is_idle()) return std::next(lane);
  if (lane->second.absence.since_ns != 0) {
    // Those that are forgotten are waited for anew.
    if (static_cast<int64_t>(absences_.size()) >= kMostAbsences) absences_.clear();
    absences_[lane->first] = lane->second.absence;
  }
  return lanes_.erase(lane);
}

void Provided::Put(AskedRecord asked, std::deque<AskedRecord>* queue) const {
  // Among those of its epoch. Epochs, and readers with other seeds, keep the order in which they
  // asked: none waits until another one has enough.
  if (!is_in_order()) return queue->push_back(std::move(asked));
  // Those stand in their order, and most are asked for in it.
  auto at = queue->end();
  for (auto other = queue->end(); other != queue->begin();) {
    --other;
    if (other->seed != asked.seed) continue;
    if (other->record <= asked.record) break;
    at = other;
  }
  queue->insert(at, std::move(asked));
}

// --- processes that come and go

absl::Status Provided::Enter(std::shared_ptr<Channel> channel) {
  int64_t record_bytes = offer_.kind == Offer::Kind::kSource ? kGuessedBytes : 0;
  std::vector<TensorSpec> specs;
  for (const FieldSpec& field : offer_.source.fields) specs.push_back(field.spec);
  const absl::StatusOr<int64_t> fixed = PayloadBytes(specs);
  if (fixed.ok() && offer_.kind == Offer::Kind::kSource) record_bytes = *fixed;
  if (record_bytes > kMostEntryBytes) return Annotate(TooLarge(record_bytes), "a record");
  const int64_t room = std::max(
      std::clamp(kRecordsOfWindow * record_bytes, kLeastDataBytes, kUsualDataBytes), record_bytes);
  FW_ASSIGN_OR_RETURN(std::shared_ptr<SharedWindows> windows,
                      SharedWindows::MakeWithRoom(room, memory_));
  FW_RETURN_IF_ERROR(channel->Give(std::move(windows)));
  Deliveries deliveries;
  {
    MutexLock lock(&mu_);
    if (is_superseded_) return NotServedError("something else is served by this name now");
    if (fixed.ok() && entry_bytes_ == 0) entry_bytes_ = static_cast<double>(*fixed);
    LaneLocked(channel->lane).absence.since_ns = 0;
    channels_.emplace(channel->id(), std::move(channel));
    DispatchLocked(MonotonicNs(), &deliveries);
  }
  changed_.SignalAll();
  Finish(std::move(deliveries));
  return absl::OkStatus();
}

bool Provided::SupersedeIfEmpty() {
  MutexLock lock(&mu_);
  if (!channels_.empty()) return false;
  is_superseded_ = true;
  changed_.SignalAll();
  return true;
}

absl::Status Provided::LookAgain() const {
  MutexLock lock(&mu_);
  if (!is_superseded_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("another ", What(), " is served by now: its fields, length or version differ"));
}

int Provided::processes() const {
  MutexLock lock(&mu_);
  return static_cast<int>(channels_.size());
}

ProvidedCounts Provided::Counts() const {
  MutexLock lock(&mu_);
  ProvidedCounts counts = counts_;
  counts.processes = static_cast<int>(channels_.size());
  counts.waiting = callers_;
  for (const auto& [number, lane] : lanes_)
    counts.waiting += static_cast<int64_t>(lane.waiting.size() + lane.alone.size());
  return counts;
}

void Provided::Lose(Channel& channel, const absl::Status& why) {
  Deliveries deliveries;
  {
    MutexLock lock(&mu_);
    LoseLocked(channel, why, &deliveries);
  }
  changed_.SignalAll();
  Finish(std::move(deliveries));
}

// The reason of what its process was asked for, the second time.
absl::Status Provided::DeathOf(const Channel& channel, const absl::Status& why,
                               const std::string& last_words) const {
  const std::string left = last_words.empty() ? "" : absl::StrCat("; it left: ", last_words);
  constexpr absl::string_view kOfWatch = "Timeout (";  // of Python's faulthandler
  if (!absl::StartsWith(last_words, kOfWatch) && !absl::IsDeadlineExceeded(why)) {
    return absl::DataLossError(
        absl::StrCat("the process that was asked for it ended, twice (", why.message(), ")", left));
  }
  return absl::DataLossError(absl::StrCat(
      What(), " took longer for it than timeout=", FormatSeconds(channel.timeout_seconds),
      ", twice; cure: a larger timeout= where it is served, or find out where it waits", left));
}

void Provided::LoseLocked(Channel& channel, const absl::Status& why, Deliveries* deliveries) {
  if (channel.is_lost()) return;
  const bool was_asked = channel.working_since_ns() != 0;
  std::string last_words;
  if (was_asked) {
    ++counts_.died;
    if (deaths_ != nullptr) ++*deaths_;
    last_words = ToUtf8(channel.shared()->LastWords());
  }
  const absl::Status reason = DeathOf(channel, why, last_words);
  const uint32_t first = was_asked ? channel.first_asked() : 0;
  for (uint32_t i = 0; i < channel.windows().size(); ++i) {
    Channel::Window& window = channel.windows()[i];
    if (window.state != Channel::State::kAsked) continue;
    if (window.call != nullptr) {
      window.call->outcome =
          i == first ? PendingCall::Outcome::kDied : PendingCall::Outcome::kNotReached;
      window.call->why = reason;
      window.call = nullptr;
    }
    for (AskedRecord& asked : window.records) {
      if (i == first) ++asked.deaths;
      if (asked.deaths >= kDeathsAllowed) asked.why = reason;
      Put(std::move(asked), &LaneLocked(channel.lane).alone);
    }
    window.records.clear();
  }
  channel.Lose();
  channels_.erase(channel.id());
  // One that never came in does not make others wait anew.
  Absence& absence = LaneLocked(channel.lane).absence;
  absence.program = channel.peer().pid;
  if (ChannelsLocked(channel.lane).empty() && absence.since_ns == 0)
    absence.since_ns = MonotonicNs();
  DispatchLocked(MonotonicNs(), deliveries);
}

bool Provided::Read(Channel& channel) {
  Deliveries deliveries;
  bool goes_on = true;
  {
    MutexLock lock(&mu_);
    for (int i = 0; goes_on && i < kMessagesPerTurn && !channel.is_lost(); ++i) {
      const int64_t began_ns = channel.working_since_ns();
      const absl::StatusOr<std::optional<uint32_t>> answered = channel.Receive();
      if (!answered.ok()) {
        LoseLocked(channel, answered.status(), &deliveries);
        break;
      }
      if (!answered->has_value()) break;
      Channel::Window& window = channel.windows()[**answered];
      CountAnswerLocked(window, std::max<size_t>(window.records.size(), 1), began_ns,
                        MonotonicNs());
      if (!window.records.empty()) {
        TakeRecordsLocked(channel, **answered, &deliveries);
      } else if (window.call != nullptr) {
        window.call->outcome = PendingCall::Outcome::kAnswered;
        window.call = nullptr;
      } else {
        window.state = Channel::State::kFree;  // nobody waits for it any more
      }
    }
    DispatchLocked(MonotonicNs(), &deliveries);
    goes_on = !channel.is_lost();
  }
  changed_.SignalAll();
  Finish(std::move(deliveries));
  return goes_on;
}

void Provided::CountAnswerLocked(const Channel::Window& window, size_t entries, int64_t began_ns,
                                 int64_t now_ns) {
  constexpr double kNew = 0.2;  // part of the latest in what is smoothed
  const int64_t took_ns = now_ns - std::max(began_ns, window.asked_ns);
  counts_.busy_ns += took_ns;
  entry_ns_ += kNew * (static_cast<double>(took_ns) / static_cast<double>(entries) - entry_ns_);
}

// One may take its time; several together what they take as a rule, with slack.
int64_t Provided::AllowedNsLocked(Channel& channel) const {
  constexpr double kSlack = 20;
  const std::vector<AskedRecord>& records = channel.windows()[channel.first_asked()].records;
  const auto more = static_cast<double>(records.size());
  const double usual_s = std::min(1e-9 * kSlack * entry_ns_, channel.timeout_seconds);
  double seconds = 2 * channel.timeout_seconds + kGraceSeconds + more * usual_s;
  if (is_in_order() && !records.empty()) {  // what comes before is made, too
    ProvidedSeed epoch = channel.epoch;
    int64_t next = channel.next_place, farthest = channel.farthest, skipped = 0;
    for (const AskedRecord& asked : records) {
      const int64_t place = asked.record / workers();
      const bool begins_anew = asked.seed != epoch || place < farthest;
      skipped += begins_anew ? place : place - next;
      epoch = asked.seed;
      next = farthest = place + 1;
    }
    seconds += static_cast<double>(skipped) * channel.timeout_seconds;
  }
  constexpr double kMostSeconds = 1e9;
  return static_cast<int64_t>(1e9 * std::min(seconds, kMostSeconds));
}

// To reach one may take very long.
void Provided::TellUnwantedLocked(Channel& channel) {
  for (uint32_t number = 0; number < channel.windows().size(); ++number) {
    Channel::Window& window = channel.windows()[number];
    if (window.state != Channel::State::kAsked) continue;
    for (uint32_t i = 0; i < window.records.size(); ++i) {
      AskedRecord& asked = window.records[i];
      if (asked.is_unwanted || !asked.taker.expired()) continue;
      asked.is_unwanted = true;
      channel.shared()->WriteUnwanted(number, i);
    }
  }
}

std::vector<uint64_t> Provided::LookAround(int64_t now_ns) {
  Deliveries deliveries;
  std::vector<uint64_t> lost;
  {
    MutexLock lock(&mu_);
    std::vector<std::shared_ptr<Channel>> stuck;
    for (const auto& [id, channel] : channels_) {
      const int64_t since_ns = channel->working_since_ns();
      if (since_ns == 0) continue;
      if (now_ns - since_ns > AllowedNsLocked(*channel)) stuck.push_back(channel);
      if (is_in_order()) TellUnwantedLocked(*channel);
    }
    for (const std::shared_ptr<Channel>& channel : stuck) {
      lost.push_back(channel->id());
      const int64_t waited_ns = now_ns - channel->working_since_ns();
      LoseLocked(*channel,
                 absl::DeadlineExceededError(
                     absl::StrCat("it did not answer within ", FormatSeconds(1e-9 * waited_ns))),
                 &deliveries);
    }
    SweepLocked();
    DispatchAllLocked(now_ns, &deliveries);
  }
  changed_.SignalAll();
  Finish(std::move(deliveries));
  return lost;
}

}  // namespace feedwater::server
