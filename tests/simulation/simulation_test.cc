// Sessions, slots and cursors under a schedule that one number decides.
//
// Goal: whatever the order in which workers, the data socket's thread, gRPC threads and clients
// come, and whatever ends, breaks off or lies in between, no batch is lost, repeated or changed,
// and no slot is lost. Method: the product's scheduler, sessions, slot tables and message checks,
// over real sockets and real sealed memory, without threads: each step of each of them is one
// event, and a seed's random numbers choose the events, and also how likely each kind is (so that
// some seeds have floods of what others never see). What must hold is checked after every step; see
// simulated_daemon.cc and simulated_job.cc.
//
// $FEEDWATER_SEED replays one seed and tells its events; $FEEDWATER_SIMULATION_SEEDS says how many
// are tried.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/simulation/simulated_job.h"

namespace feedwater::simulation {
namespace {

constexpr uint64_t kSeeds = 1000;
constexpr int kSteps = 400;
constexpr int kLastSteps = 40'000;  // far more than any job needs to get on

class Simulation {
 public:
  Simulation(uint64_t seed, bool tell) : random_(seed), tell_(tell) {
    daemon_ = NewDaemon();
    const size_t jobs = 1 + Pick(2);
    for (size_t i = 0; i < jobs; ++i) {
      jobs_.push_back(std::make_unique<SimulatedJob>(
          absl::StrCat("job", i), &random_, [this](std::string what) { Violation(what); }));
    }
  }

  // What went wrong; empty: nothing did.
  std::string Run() {
    std::vector<Event> events = Events(/*with_faults=*/true);
    for (int step = 0; step < kSteps && violation_.empty(); ++step) One(events);
    // From here on nothing goes wrong any more, so everybody must get on.
    events = Events(/*with_faults=*/false);
    std::vector<int64_t> wanted;
    for (const auto& job : jobs_) wanted.push_back(job->steps() + 3);
    int left = kLastSteps;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      while (jobs_[i]->steps() < wanted[i] && violation_.empty()) {
        One(events);
        if (--left == 0) Violation(absl::StrCat("job", i, " does not get on any more"));
      }
    }
    if (violation_.empty()) daemon_->Drain();
    return violation_;
  }

 private:
  struct Event {
    const char* name;
    int weight;
    std::function<bool(SimulatedJob*)> run;
  };

  size_t Pick(size_t count) { return static_cast<size_t>(random_() % count); }

  std::unique_ptr<SimulatedDaemon> NewDaemon() {
    return std::make_unique<SimulatedDaemon>(&random_,
                                             [this](std::string what) { Violation(what); });
  }

  std::vector<Event> Events(bool with_faults) {
    using Job = SimulatedJob;
    // How likely, in some seeds four times as likely and in some a quarter.
    const auto often = [&](int weight) { return weight << (2 * Pick(3)); };
    std::vector<Event> events = {
        {"connect", often(8), [this](Job* job) { return job->Connect(daemon_.get()); }},
        {"open", often(8), [this](Job* job) { return job->OpenStream(daemon_.get()); }},
        {"attach", often(8), [this](Job* job) { return job->AttachStream(daemon_.get()); }},
        {"receive", often(16), [](Job* job) { return job->Receive(); }},
        {"train", often(8), [](Job* job) { return job->Train(); }},
        {"release", often(8), [](Job* job) { return job->Release(); }},
        {"checkpoint", often(1), [](Job* job) { return job->MaybeCheckpoint(), true; }},
        {"seek after a failure", often(4), [](Job* job) { return job->SeekAfterFailure(); }},
        {"take a ticket", often(16), [this](Job*) { return daemon_->workers().TakeTicket(); }},
        {"end a ticket", often(16), [this](Job*) { return daemon_->workers().EndTicket(false); }},
        {"finish a batch", often(8), [this](Job*) { return daemon_->workers().FinishBatch(); }},
        {"look at a client", often(16), [this](Job*) { return LookAtOne(); }},
        {"tear down", often(4), [this](Job*) { return daemon_->TearDown(); }},
    };
    if (!with_faults) return events;
    // Rare ones, and in two of three seeds not at all.
    const auto seldom = [&](const char* name, std::function<bool(Job*)> run) {
      if (Pick(3) == 0) events.push_back({name, static_cast<int>(1 + Pick(4)), std::move(run)});
    };
    seldom("a bad sample", [this](Job*) { return daemon_->workers().EndTicket(true); });
    seldom("seek", [](Job* job) { return job->SeekToOwnCursor(); });
    seldom("hang up", [](Job* job) { return job->HangUp(); });
    seldom("misbehave", [](Job* job) { return job->Misbehave(); });
    seldom("rewind", [](Job* job) { return job->Rewind(), true; });
    seldom("restart", [](Job* job) { return job->Restart(), true; });
    seldom("handshakes expire", [this](Job*) { return daemon_->ExpireHandshakes(), true; });
    seldom("the daemon is killed", [this](Job*) { return daemon_ = NewDaemon(), true; });
    return events;
  }

  bool LookAtOne() {
    const auto& connections = daemon_->connections();
    return !connections.empty() && daemon_->LookAt(connections[Pick(connections.size())]);
  }

  void One(const std::vector<Event>& events) {
    int sum = 0;
    for (const Event& event : events) sum += event.weight;
    int at = static_cast<int>(Pick(static_cast<size_t>(sum)));
    size_t i = 0;
    while (at >= events[i].weight) at -= events[i++].weight;
    SimulatedJob* job = jobs_[Pick(jobs_.size())].get();
    const bool done = events[i].run(job);
    if (tell_ && done) std::cerr << ++told_ << " " << events[i].name << "\n";
    daemon_->Check();
    for (const auto& one : jobs_) one->CheckTheRude();
  }

  void Violation(const std::string& what) {
    if (violation_.empty()) violation_ = what;
    if (tell_) std::cerr << "VIOLATION: " << what << "\n";
  }

  std::mt19937_64 random_;
  const bool tell_;
  int told_ = 0;
  std::string violation_;
  std::unique_ptr<SimulatedDaemon> daemon_;
  std::vector<std::unique_ptr<SimulatedJob>> jobs_;
};

uint64_t Number(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(Simulation, NoBatchIsLostRepeatedOrChangedAndNoSlotIsLost) {
  spdlog::set_level(spdlog::level::off);
  if (const uint64_t seed = Number("FEEDWATER_SEED", 0)) {
    EXPECT_EQ(Simulation(seed, /*tell=*/true).Run(), "");
    return;
  }
  const uint64_t seeds = Number("FEEDWATER_SIMULATION_SEEDS", kSeeds);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    ASSERT_EQ(Simulation(seed, /*tell=*/false).Run(), "") << "FEEDWATER_SEED=" << seed;
  }
}

}  // namespace
}  // namespace feedwater::simulation
