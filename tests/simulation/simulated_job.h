// A training job without processes: its ranks speak the data protocol as the clients do, keep a
// cursor each, and check every batch against what the order promises. Ranks train in step: none
// begins a step before all have done the one before.
//
// Not thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/simulation/simulated_daemon.h"
#include "tests/testing/fake_trainer.h"

namespace feedwater::simulation {

// Where a client stands: the next sample that it has not trained with.
struct Position {
  uint64_t epoch = 0;
  int64_t position = 0;
  bool operator==(const Position&) const = default;
};

// What the order promises a rank that stands somewhere.
struct PromisedBatch {
  Position next;
  int64_t step = 0;
  bool last_in_epoch = false;
  uint32_t real_samples = 0;
  std::vector<SampleBytes> samples;
};

class SimulatedJob {
 public:
  SimulatedJob(std::string name, std::mt19937_64* random,
               std::function<void(std::string)> violation);

  // One step of one rank each, chosen at random. False: none of them could.
  bool Connect(SimulatedDaemon* daemon);
  bool OpenStream(SimulatedDaemon* daemon);
  bool AttachStream(SimulatedDaemon* daemon);
  bool Receive();
  bool Train();
  bool Release();
  bool SeekToOwnCursor();  // load_state_dict of where it stands; the way on after a failure
  bool SeekAfterFailure();
  bool HangUp();
  bool Misbehave();

  // What happens to all ranks at once.
  void Rewind();   // load_state_dict of the last checkpoint, in running clients
  void Restart();  // all processes end; resumed from the last checkpoint, maybe with other ranks
  void MaybeCheckpoint();

  int64_t steps() const { return steps_; }  // of all ranks together; never falls
  // The misbehaving clients whose message has been read must be out.
  void CheckTheRude();

 private:
  enum class Phase { kOffline, kGreeting, kWelcomed, kOpening, kStreaming, kTold };
  struct HeldBatch {
    wire::Ready ready;
    std::shared_ptr<testing::FakeTrainer> trainer;
    std::vector<SampleBytes> samples;
  };
  struct Rank {
    int64_t number = 0;
    int slots = 1;
    Phase phase = Phase::kOffline;
    std::shared_ptr<testing::FakeTrainer> trainer;
    SimulatedDaemon::ConnectionPtr connection;
    uint32_t serial = 0;
    bool failed = false;  // FAILED has come: no batch may, before a seek
    bool rude = false;
    Position trained;  // its cursor
    Position heard;    // after the last batch received
    int64_t steps = 0;
    std::deque<wire::Ready> received;
    std::vector<HeldBatch> held;
    std::map<uint32_t, uint64_t> generations;  // by slot
  };
  struct StepSeen {
    size_t ranks = 0;
    Position next;
    bool last_in_epoch = false;
    std::vector<int64_t> positions;
  };

  void Configure(int64_t world_size, int64_t batch_size);
  PromisedBatch Promised(int64_t rank, const Position& from) const;
  // A random rank for which it is true, or null.
  Rank* Any(const std::function<bool(const Rank&)>& can);
  void Lose(Rank* rank);  // its session is over
  void Hear(Rank* rank, const testing::FakeTrainer::Packet& packet);
  void HearReady(Rank* rank, const wire::Ready& ready);
  void GiveBack(Rank* rank, const wire::Ready& ready);
  void Seek(Rank* rank, const Position& to);
  bool Intact(const HeldBatch& batch) const;
  void StepDone(const StepSeen& step);
  void Violation(const Rank& rank, const std::string& what) const;
  size_t Pick(size_t count) const { return static_cast<size_t>((*random_)() % count); }

  const std::string name_;
  std::mt19937_64* const random_;
  const std::function<void(std::string)> violation_;
  int64_t records_;
  server::LastBatch last_;
  server::JobConfig config_;
  std::shared_ptr<const server::OrderConfig> order_;
  std::vector<Rank> ranks_;
  int64_t steps_ = 0, first_step_ = 0;  // steps_ counts on over restarts
  std::map<int64_t, StepSeen> open_steps_;
  Position global_, checkpoint_;
};

}  // namespace feedwater::simulation
